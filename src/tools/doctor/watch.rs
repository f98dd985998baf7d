//! Reads exporters for a while: the metrics page at both ends of the window, and the records in between, which the API shows
//! without draining anything.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::model::IterationStats;

use super::super::exporters::client::{Client, Failure, Target};
use super::super::exporters::engines::engines;
use super::super::exporters::page::{Change, Page};
use super::observation::{Engine, Exporter, gpus};

/// The API keeps this many records. An engine that runs more iterations between two reads is seen in samples.
const LAST: usize = 128;
/// Records kept of one engine.
const MAX_RECORDS: usize = 4096;

/// What one exporter showed, with the texts that a bundle needs.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) exporter: Exporter,
    /// The last records of each engine, oldest first.
    pub(super) records: BTreeMap<(String, String), VecDeque<IterationStats>>,
}

/// Watches one exporter. An error at the end loses what was seen before: half a window proves nothing.
pub(super) async fn watch(target: Target, window: Duration) -> Watched {
    let mut watched =
        Watched { exporter: Exporter { url: target.url.clone(), ..Exporter::default() }, ..Watched::default() };
    if let Err(failure) = observe(&target, window, &mut watched).await {
        watched.exporter.error = Some(failure.to_string());
    }
    watched
}

async fn observe(target: &Target, window: Duration, watched: &mut Watched) -> Result<(), Failure> {
    let mut client = target.client();
    let before = Page::parse(&client.get(&target.page).await?);
    let started = Instant::now();
    let step = (window / 5).clamp(Duration::from_millis(100), Duration::from_secs(1));
    let mut seen = BTreeMap::new();
    loop {
        read_records(&mut client, watched, &mut seen).await?;
        let left = window.saturating_sub(started.elapsed());
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(step.min(left)).await;
    }
    let after = Page::parse(&client.get(&target.page).await?);
    let abouts = engines(&mut client).await?;
    let exporter = &mut watched.exporter;
    exporter.window = started.elapsed();
    exporter.page = Change { before, after };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let process_started = exporter.page.now("process_start_time_seconds", &[]);
    exporter.uptime = process_started.filter(|time| *time <= now).map(|time| now - time);
    exporter.gpus = gpus(&exporter.page, exporter.window);
    for about in abouts {
        let key = (about.model.clone(), about.version.clone());
        let records = watched.records.get_mut(&key).map(|records| &*records.make_contiguous()).unwrap_or_default();
        let engine = Engine::new(about, exporter, records);
        exporter.engines.push(engine);
    }
    Ok(())
}

/// What tells one record from another.
type Key = (Option<u64>, Option<i64>, Option<u64>, u64, Option<i64>);

fn key(record: &IterationStats) -> Key {
    let rank = record.attention_dp_rank.or(record.rank);
    let latency = record.iter_latency_ms.unwrap_or_default().to_bits();
    (record.iter, rank, record.stats_sequence, latency, record.num_active_requests)
}

/// Keeps the records that the last answer about the same engine, in `seen`, did not have.
async fn read_records(
    client: &mut Client,
    watched: &mut Watched,
    seen: &mut BTreeMap<(String, String), HashSet<Key>>,
) -> Result<(), Failure> {
    for about in engines(client).await? {
        let name = format!("{}:{}", about.model, about.version);
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("engine", &name).finish();
        // An engine may be gone by now.
        let Ok(body) = client.get(&format!("/api/v1/iterations?last={LAST}&{query}")).await else { continue };
        let Ok(records) = serde_json::from_slice::<Vec<IterationStats>>(&body) else { continue };
        let engine = (about.model, about.version);
        let keys = records.iter().map(key).collect();
        let before = seen.insert(engine.clone(), keys).unwrap_or_default();
        let kept = watched.records.entry(engine).or_default();
        kept.extend(records.into_iter().filter(|record| !before.contains(&key(record))));
        let old = kept.len().saturating_sub(MAX_RECORDS);
        kept.drain(..old);
    }
    Ok(())
}
