//! Reads exporters for a while: the metrics page at both ends of the window, and the records in between, which the API shows
//! without draining anything.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use trtllm_diagnosis::observation::Exporter;
use trtllm_diagnosis::page::{Change, Page};
use trtllm_diagnosis::records::{Name, Records};
use trtllm_model::{IterationStats, RECENT_RECORDS};

use super::super::exporters::client::{Client, Failure, Target};
use super::super::exporters::engines::engines;

/// Records kept of one engine, and of all engines of an exporter.
const MAX_RECORDS: usize = 4096;
const MAX_RECORDS_OF_ALL: usize = 65_536;
/// For one read of the records of all engines.
const ROUND: Duration = Duration::from_secs(10);

/// What one exporter showed, with the texts that a bundle needs.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) exporter: Exporter,
    /// Those from before the window, too. No rule judges them.
    pub(super) records: Records<IterationStats>,
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
    // The first read has the records from before the window.
    let mut time = Duration::ZERO;
    loop {
        let reading = tokio::time::timeout(ROUND, read_records(&mut client, &mut watched.records, time)).await;
        let late = || Failure::Unanswered(format!("the records of all engines were not read within {ROUND:?}"));
        reading.unwrap_or_else(|_| Err(late()))?;
        let left = window.saturating_sub(started.elapsed());
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(step.min(left)).await;
        time = started.elapsed();
    }
    let after = Page::parse(&client.get(&target.page).await?);
    let abouts = engines(&mut client).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (page, elapsed) = (Change { before, after }, started.elapsed());
    let of_window = |name: &Name| watched.records.after(Duration::ZERO, name);
    watched.exporter = Exporter::observed(target.url.clone(), page, elapsed, now, abouts, of_window);
    Ok(())
}

/// Reads the last records of all engines.
async fn read_records(
    client: &mut Client,
    records: &mut Records<IterationStats>,
    time: Duration,
) -> Result<(), Failure> {
    let abouts = engines(client).await?;
    let names: BTreeSet<Name> = abouts.into_iter().map(|about| [about.model, about.version]).collect();
    records.retain(&names);
    let most = MAX_RECORDS.min(MAX_RECORDS_OF_ALL / names.len().max(1));
    for name in names {
        // An engine that runs more iterations than that between two reads is seen in samples.
        let query = form_urlencoded::Serializer::new(format!("last={RECENT_RECORDS}"))
            .append_pair("engine", &name.join(":"))
            .finish();
        let body = match client.get(&format!("/api/v1/iterations?{query}")).await {
            // The engine is gone by now.
            Err(Failure::Status(404)) => continue,
            answer => answer?,
        };
        let mut read: Vec<IterationStats> = serde_json::from_slice(&body)
            .map_err(|error| Failure::Unanswered(format!("/api/v1/iterations is not the exporter's: {error}")))?;
        read.truncate(RECENT_RECORDS);
        records.add(name, read, time, most);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::super::exporters::client::targets;
    use super::*;
    use crate::cli::ClientOptions;

    /// A status and a body.
    type Answer = (u16, String);

    /// An exporter with one engine for each name. `iterations` answers the n-th question for the records of an engine.
    async fn exporter(names: &'static [&'static str], iterations: fn(u64) -> Answer, delay: Duration) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU64::new(0));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let asked = Arc::clone(&asked);
                tokio::spawn(async move {
                    loop {
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            let Ok(byte) = stream.read_u8().await else { return };
                            head.push(byte);
                        }
                        let head = String::from_utf8(head).unwrap();
                        let (status, body) = match head.split(' ').nth(1).unwrap() {
                            "/metrics" => {
                                (200, "nv_trt_llm_iterations_total{model=\"m\",version=\"1\"} 9\n".to_owned())
                            }
                            "/api/v1/engines" => {
                                let engines = names.iter().map(|name| json!({"model": name, "version": "1"}));
                                (200, engines.collect::<serde_json::Value>().to_string())
                            }
                            _ => {
                                tokio::time::sleep(delay).await;
                                iterations(asked.fetch_add(1, Ordering::Relaxed))
                            }
                        };
                        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let connection = ClientOptions { urls: vec![url], ca_file: None, user_file: None, bearer_token_file: None };
        targets(&connection).await.unwrap().remove(0)
    }

    /// A record of a full batch, in which requests wait.
    fn records(numbers: impl Iterator<Item = u64>) -> Answer {
        let record = |iter| {
            json!({"iter": iter, "numActiveRequests": 8, "numQueuedRequests": 50, "maxNumActiveRequests": 8, "iterLatencyMS": 9,
                "inflightBatchingStats": {"numScheduledRequests": 8}})
        };
        (200, numbers.map(record).collect::<serde_json::Value>().to_string())
    }

    #[tokio::test]
    async fn records_from_before_the_window_are_not_judged() {
        let target = exporter(&["m"], |_| records(0..100), Duration::ZERO).await;
        let watched = watch(target, Duration::from_millis(200)).await;
        assert_eq!(watched.exporter.error, None);
        let name = ["m".to_owned(), "1".to_owned()];
        let judged = |watched: &Watched| watched.exporter.engines[0].batches.iterations;
        assert_eq!((judged(&watched), watched.records.last(&name, 999).len()), (0, 100));
        // What the later reads have beside the first one is new.
        let target = exporter(&["m"], |read| records(read..100 + read), Duration::ZERO).await;
        let watched = watch(target, Duration::from_millis(200)).await;
        let read = watched.records.last(&name, 999).len();
        assert!(read >= 102 && judged(&watched) == read - 100, "{read} {}", judged(&watched));
    }

    #[tokio::test]
    async fn records_that_cannot_be_read_are_an_error_unless_the_engine_is_gone() {
        for (answer, error) in [
            ((|_| (503, String::new())) as fn(u64) -> Answer, Some("status 503")),
            (|_| (200, "{}".to_owned()), Some("/api/v1/iterations is not the exporter's")),
            (|_| (404, String::new()), None),
        ] {
            let watched = watch(exporter(&["m"], answer, Duration::ZERO).await, Duration::from_millis(100)).await;
            let found = watched.exporter.error;
            assert_eq!(found.is_some(), error.is_some(), "{found:?}");
            assert!(error.is_none_or(|words| found.as_ref().unwrap().contains(words)), "{found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_about_many_engines_end_the_watch() {
        let target = exporter(&["a", "b", "c", "d", "e"], |_| records(0..1), Duration::from_secs(4)).await;
        let started = Instant::now();
        let watched = watch(target, Duration::from_millis(100)).await;
        assert_eq!(watched.exporter.error.as_deref(), Some("the records of all engines were not read within 10s"));
        assert!(started.elapsed() <= Duration::from_secs(11), "{:?}", started.elapsed());
    }
}
