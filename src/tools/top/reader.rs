//! Reads exporters again and again: the metrics page, the API, and the records of the engine whose detail is shown. Nothing
//! of this drains an engine.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use trtllm_model::IterationStats;

use super::super::exporters::client::{Client, Failure, Target};
use super::super::exporters::engines::engines;
use super::super::exporters::page::Page;
use super::app::Update;
use super::reading::Reading;

/// Of the page, only what is shown; `[` and `]` are escaped for proxies.
const GROUPS: &str = "?collect%5B%5D=triton&collect%5B%5D=engine&collect%5B%5D=gpu&collect%5B%5D=exporter";
/// The API keeps this many records of an engine.
const LAST: usize = 128;

/// What the screen needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) paused: bool,
    /// An exporter, and the engine of it whose records are needed.
    pub(super) records_of: Option<(usize, String)>,
}

/// Reads one exporter until nobody receives the updates.
pub(super) async fn follow(
    exporter: usize,
    target: Target,
    interval: Duration,
    mut wanted: watch::Receiver<Wanted>,
    updates: mpsc::Sender<Update>,
) {
    let started = Instant::now();
    let mut client = target.client();
    loop {
        let next = Instant::now() + interval;
        // Without the sender, nobody looks any more.
        if wanted.wait_for(|wanted| !wanted.paused).await.is_err() {
            return;
        }
        let records_of = wanted.borrow_and_update().records_of.clone();
        let of_this = records_of.filter(|(at, _)| *at == exporter).map(|(_, engine)| engine);
        let read = read(&mut client, &target.page, of_this).await.map_err(|failure| failure.to_string());
        let update = Update { exporter, time: started.elapsed().as_secs_f64(), read };
        if updates.send(update).await.is_err() {
            return;
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Reads one exporter once.
pub(super) async fn read(client: &mut Client, page: &str, records_of: Option<String>) -> Result<Reading, Failure> {
    let page = Page::parse(&client.get(&format!("{page}{GROUPS}")).await?);
    let abouts = engines(client).await?;
    let mut records = BTreeMap::new();
    if let Some(engine) = records_of {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("engine", &engine).finish();
        // An engine may be gone by now, and its records are not worth the whole reading.
        if let Ok(body) = client.get(&format!("/api/v1/iterations?last={LAST}&{query}")).await {
            records.insert(engine, serde_json::from_slice::<Vec<IterationStats>>(&body).unwrap_or_default());
        }
    }
    Ok(Reading::new(&page, &abouts, &records))
}
