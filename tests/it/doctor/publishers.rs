//! Publishers of PyTorch engines on one ingest socket. An engine is named after its problem and is otherwise healthy.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::ingest::Ingest;

/// Pause between two iterations of an engine.
const PERIOD: Duration = Duration::from_millis(20);

pub(crate) struct Publishers {
    pub(crate) daemon: Daemon,
    socket: Ingest,
    engines: Vec<(String, UnixStream)>,
    control: Arc<Mutex<Control>>,
    thread: Option<JoinHandle<Vec<(String, UnixStream)>>>,
}

#[derive(Default)]
struct Control {
    stop: bool,
    /// The engine that restarts.
    restart: Option<String>,
}

impl Publishers {
    pub(crate) fn new() -> Self {
        let socket = Ingest::new();
        let daemon = socket.serve(&["--stale-after", "3s"]);
        Self { daemon, socket, engines: Vec::new(), control: Arc::default(), thread: None }
    }

    pub(crate) fn add(&mut self, name: &str) {
        // The records of the PyTorch engine do not contain the limit of the tokens.
        let hello = json!({"model": name, "pid": 100 + self.engines.len(), "config": {"max_num_tokens": 2048}});
        self.engines.push((name.to_owned(), self.socket.publisher(&hello.to_string())));
    }

    /// Lets all engines run until [`Publishers::stop`].
    pub(crate) fn start(&mut self) {
        let (mut engines, control) = (std::mem::take(&mut self.engines), Arc::clone(&self.control));
        self.thread = Some(std::thread::spawn(move || {
            let mut restarted = 0;
            for iter in 1.. {
                let mut now = control.lock().unwrap();
                if now.stop {
                    break;
                }
                let restarts = now.restart.take();
                drop(now);
                for (name, stream) in &mut engines {
                    if restarts.as_ref() == Some(name) {
                        restarted = iter;
                    }
                    let iter = if name == "engine-restarted" { iter - restarted + 1 } else { iter };
                    let lines: String = lines(name, iter).iter().map(|line| format!("{line}\n")).collect();
                    stream.write_all(lines.as_bytes()).unwrap();
                }
                std::thread::sleep(PERIOD);
            }
            engines
        }));
    }

    pub(crate) fn restart(&self, name: &str) {
        self.control.lock().unwrap().restart = Some(name.to_owned());
    }

    /// Lets all engines hang. Their publishers stay connected.
    pub(crate) fn stop(&mut self) {
        self.control.lock().unwrap().stop = true;
        self.engines = self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner).stop = true;
    }
}

/// Publishes some records of a healthy engine.
pub(crate) fn send_some(socket: &Ingest) {
    let mut stream = socket.connect();
    for line in (1..50).flat_map(|iter| lines("healthy", iter)) {
        writeln!(stream, "{line}").unwrap();
    }
}

/// The lines that an engine with this problem publishes for one iteration.
fn lines(problem: &str, iter: u64) -> Vec<String> {
    let mut record = record(iter);
    let mut lines = Vec::new();
    match problem {
        "statistics-off" => return vec![finished(iter, 0.01).to_string()],
        "host-bound" => {
            merge(&mut record, json!({"hostStepTimeMS": 18, "gpuForwardTimeMS": 9, "schedulerMode": "non_overlap"}));
        }
        "statistics-sampled" => merge(&mut record, json!({"iter": 10 * iter})),
        "speculation-pays" => {
            let draft = json!({"numDraftTokens": 100, "numAcceptedTokens": 24, "numRequestsWithDraftTokens": 20,
                "acceptanceLength": 2.2, "draftOverhead": 0.1});
            merge(&mut record, json!({"specDecodingStats": draft}));
        }
        "records-rejected" if iter.is_multiple_of(10) => lines.push("this is not JSON".to_owned()),
        _ => {}
    }
    lines.insert(0, record.to_string());
    if iter.is_multiple_of(2) && problem != "request-latencies-missing" {
        lines.push(finished(iter, if problem == "kv-transfer-slow" { 0.4 } else { 0.01 }).to_string());
    }
    lines
}

/// A record of a healthy engine. Every eighth iteration has a context phase, and every second iteration completes a
/// request.
fn record(iter: u64) -> Value {
    let (context, done) = (u64::from(iter.is_multiple_of(8)), u64::from(iter.is_multiple_of(2)));
    json!({"iter": iter, "attentionDpRank": 0, "iterLatencyMS": 18 + 6 * context, "numActiveRequests": 20, "numQueuedRequests": 0,
        "numCompletedRequests": done, "numNewActiveRequests": done, "maxNumActiveRequests": 64,
        "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 850, "freeNumBlocks": 150, "tokensPerBlock": 32,
            "allocTotalBlocks": 22 * iter, "allocNewBlocks": 2 * iter, "reusedBlocks": 20 * iter, "missedBlocks": 2 * iter},
        "inflightBatchingStats": {"numScheduledRequests": 20, "numContextRequests": context, "numGenRequests": 20 - context,
            "numCtxTokens": 300 * context, "numPausedRequests": 0, "avgNumDecodedTokensPerIter": 1.0}})
}

/// A finished request that took one second in total, and `transfer` seconds for its KV cache transfer.
fn finished(iter: u64, transfer: f64) -> Value {
    let arrival = 1000.0 + iter as f64 / 50.0;
    json!({"requestId": iter, "perf_metrics": {"timing_metrics": {"arrival_time": arrival, "first_scheduled_time": arrival + 0.01,
        "first_token_time": arrival + 0.1, "last_token_time": arrival + 1.0, "kv_cache_size": 1_048_576,
        "kv_cache_transfer_start": arrival, "kv_cache_transfer_end": arrival + transfer}}})
}

fn merge(record: &mut Value, change: Value) {
    for (key, value) in change.as_object().unwrap() {
        match (record[key].as_object_mut(), value.as_object()) {
            (Some(fields), Some(new)) => fields.extend(new.clone()),
            _ => record[key] = value.clone(),
        }
    }
}
