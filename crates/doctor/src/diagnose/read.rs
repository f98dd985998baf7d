//! Reads what an exporter knows, knew at a time of its recording, or would have known from a log. No request removes
//! statistics from an engine.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde_json::Value;

use crate::cli::{DiagnoseArgs, ReportFormat};
use crate::exporters::api;
use crate::exporters::client::{Client, Failure, Target};
use crate::recording;
use trtllm_config::{ConfigError, DEFAULT_MODEL};
use trtllm_http::views::api as views;
use trtllm_http::views::engine::Engine;
use trtllm_intake::past::{PastEngine, engine_of_log};
use trtllm_recording::utc;
use trtllm_records::{IterationStats, RECENT_RECORDS};
use trtllm_service::printable::one_line;
use trtllm_sources::iteration_log::{LoggedMessages, NO_LINES};
use trtllm_verdict::findings::{Finding, Kind};

use super::source_rules::EXPORTER_UNREADABLE;

/// What was read from one exporter.
#[derive(Debug, Clone, Default)]
pub struct Exporter {
    pub url: String,
    /// True if the exporter could be read.
    pub is_read: bool,
    pub engines: Vec<Engine>,
    /// UUIDs of the exporter's GPUs.
    pub gpus: Vec<String>,
    pub findings: Vec<Finding>,
    pub details: Details,
}

/// What was read for --bundle only.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The metrics page.
    pub page: Vec<u8>,
    pub history: Value,
    /// The last records of each engine, in the order of the engines.
    pub records: Vec<Vec<IterationStats>>,
}

impl Exporter {
    fn of_past(past: &PastEngine, place: &Path, time: &str) -> Self {
        let name = &past.slot().name;
        Self {
            url: format!("{} in {} at {time}", name.words(), place.display()),
            is_read: true,
            engines: serde_json::from_str(&views::engines(&past.state)).unwrap_or_default(),
            gpus: past.state.gpus().gpus.iter().map(|gpu| gpu.identity.uuid.clone()).collect(),
            findings: past.state.findings(),
            ..Self::default()
        }
    }

    pub(super) fn unread(url: String, error: String) -> Self {
        let findings = vec![EXPORTER_UNREADABLE.about(&*url).detail(&one_line(&error))];
        Self { url, findings, ..Self::default() }
    }
}

/// Makes one exporter for each engine of a recording, with what it would have shown at the chosen time.
pub(super) fn recording(directory: &Path, arguments: &DiagnoseArgs) -> Result<Vec<Exporter>, ConfigError> {
    let engines = recording::past(directory, arguments.past.at_us, arguments.engine.as_deref())?;
    Ok(engines.iter().map(|past| Exporter::of_past(past, directory, &utc(past.at_us))).collect())
}

/// Makes an exporter that has read the log of a server to its end. Fails if the file cannot be read, or has no such
/// lines.
pub(super) fn log(file: &Path) -> Result<Exporter, ConfigError> {
    let failed = |why: String| ConfigError::flag("--log", file.display(), why);
    let read = File::open(file).and_then(|log| engine_of_log(LoggedMessages::of(BufReader::new(log)), DEFAULT_MODEL));
    let past = read.map_err(|error| failed(format!("cannot read it: {error}; name the log of a server")))?;
    let past = past.ok_or_else(|| failed(NO_LINES.to_owned()))?;
    // The log has the local time of the server.
    Ok(Exporter::of_past(&past, file, utc(past.at_us).trim_end_matches('Z')))
}

/// Reads one exporter. If one of its answers fails, the others are discarded too, because a part proves nothing.
pub(super) async fn read(target: Target, with_details: bool, format: ReportFormat) -> Exporter {
    let mut client = match format {
        ReportFormat::Text => target.client_for_terminal(),
        ReportFormat::Json => target.client(),
    };
    let read = async {
        // The findings come first: they have the version of the API, which the list of engines does not have.
        let mut findings = api::findings(&mut client).await?;
        for finding in findings.iter_mut().filter(|finding| finding.kind == Kind::Exporter) {
            finding.subject.clone_from(&target.url);
        }
        let engines = api::engines(&mut client).await?;
        let gpus = api::gpus(&mut client).await?.gpus.into_iter().map(|gpu| gpu.identity.uuid).collect();
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
            .append_pair("engine", &engine.name(":"))
            .finish();
        // Ignore an error: the engine may have disappeared meanwhile.
        let body = client.get(&format!("/api/v1/iterations?{query}")).await.unwrap_or_default();
        records.push(serde_json::from_slice(&body).unwrap_or_default());
    }
    Ok(Details { page, history, records })
}
