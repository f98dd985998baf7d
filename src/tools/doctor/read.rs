//! Reads what an exporter knows. Nothing of this drains an engine.

use serde_json::Value;

use crate::cli::ReportFormat;
use trtllm_http::views::engine::Engine;
use trtllm_model::{IterationStats, RECENT_RECORDS};
use trtllm_service::printable::one_line;
use trtllm_verdict::findings::{Finding, Kind};

use super::super::exporters::api;
use super::super::exporters::client::{Client, Failure, Target};
use super::source_rules::UNREADABLE;

/// One exporter.
#[derive(Debug, Clone, Default)]
pub struct Exporter {
    pub url: String,
    /// It could be read.
    pub is_read: bool,
    pub engines: Vec<Engine>,
    /// UUIDs of its GPUs.
    pub gpus: Vec<String>,
    pub findings: Vec<Finding>,
    pub details: Details,
}

/// What only a bundle needs.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The metrics page.
    pub page: Vec<u8>,
    pub history: Value,
    /// The last records of each engine, in the order of the engines.
    pub records: Vec<Vec<IterationStats>>,
}

impl Exporter {
    pub(super) fn unread(url: String, error: String) -> Self {
        let findings = vec![UNREADABLE.about(&*url).detail(&one_line(&error))];
        Self { url, findings, ..Self::default() }
    }
}

/// Reads one exporter. An error loses all of it: half an answer proves nothing.
pub(super) async fn read(target: Target, with_details: bool, format: ReportFormat) -> Exporter {
    let mut client = match format {
        ReportFormat::Text => target.client_for_terminal(),
        ReportFormat::Json => target.client(),
    };
    let read = async {
        let engines = api::engines(&mut client).await?;
        let mut findings = api::findings(&mut client).await?;
        for finding in findings.iter_mut().filter(|finding| finding.kind == Kind::Exporter) {
            finding.subject.clone_from(&target.url);
        }
        let gpus = api::gpus(&mut client).await?.gpus.into_iter().map(|gpu| gpu.uuid).collect();
        let details = match with_details {
            true => details(&mut client, &target.page, &engines).await?,
            false => Details::default(),
        };
        Ok::<_, Failure>(Exporter { url: target.url.clone(), is_read: true, engines, gpus, findings, details })
    };
    read.await.unwrap_or_else(|failure| Exporter::unread(target.url, failure.to_string()))
}

async fn details(client: &mut Client, page: &str, engines: &[Engine]) -> Result<Details, Failure> {
    let page = client.get(page).await?;
    let history = serde_json::from_slice(&client.get("/api/v1/history").await?).unwrap_or_default();
    let mut records = Vec::new();
    for engine in engines {
        let query = form_urlencoded::Serializer::new(format!("last={RECENT_RECORDS}"))
            .append_pair("engine", &format!("{}:{}", engine.model, engine.version))
            .finish();
        // The engine may be gone by now.
        let body = client.get(&format!("/api/v1/iterations?{query}")).await.unwrap_or_default();
        records.push(serde_json::from_slice(&body).unwrap_or_default());
    }
    Ok(Details { page, history, records })
}
