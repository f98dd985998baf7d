//! An engine that the test controls. It publishes records to the exporter's socket, so that every number is known.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::ingest::Ingest;

/// The state of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// 8 requests are active, 6 of them scheduled; 3 are queued. A quarter of the KV cache is used.
    Busy,
    Idle,
    /// Requests are outstanding, but no records are sent.
    Hanging,
}

/// A publisher that sends a record every 50 ms.
pub(crate) struct Publisher {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    stream: Option<UnixStream>,
    load: Load,
    iter: u64,
}

impl Publisher {
    pub(crate) fn connect(socket: &Ingest) -> Self {
        let shared = Arc::new(Mutex::new(Shared { stream: Some(socket.connect()), load: Load::Busy, iter: 0 }));
        let sender = Arc::clone(&shared);
        std::thread::spawn(move || {
            while sender.lock().unwrap().send(&json!({})) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { shared }
    }

    pub(crate) fn load(&self, load: Load) {
        self.shared.lock().unwrap().load = load;
    }

    /// Sends one record with these fields.
    pub(crate) fn record(&self, fields: &Value) {
        self.shared.lock().unwrap().send(fields);
    }

    /// Closes the connection, like an engine that ends.
    pub(crate) fn leave(&self) {
        self.shared.lock().unwrap().stream = None;
    }

    /// Ends `count` requests at once. Each had 200 prompt tokens, half of them cached, waited 0.25 s, and took 1.5 s
    /// for the 100 tokens after the first token.
    pub(crate) fn finish(&self, count: u64) {
        let mut shared = self.shared.lock().unwrap();
        for _ in 0..count {
            shared.write(&json!({
                "perf_metrics": {"timing_metrics": {"arrival_time": 10.0, "first_scheduled_time": 10.25,
                    "first_token_time": 10.75, "last_token_time": 12.25}},
                "prompt_tokens": 200, "output_tokens": 101, "finish_reason": "length",
            }));
        }
        shared.send(&json!({"iterCachedTokensByLevel": [100 * count], "kvCacheLevelTiers": ["gpu"],
            "iterSuspendedRequests": count, "numCompletedRequests": count, "specDecodingStats": {"numDraftTokens": 30 * count,
            "numAcceptedTokens": 20 * count, "numRequestsWithDraftTokens": 10 * count, "acceptanceLength": 3.0,
            "iterLatencyMS": 1.0, "draftOverhead": 0.1}}));
    }
}

impl Shared {
    /// Sends the record of one iteration with these fields. Returns false if the connection has ended.
    fn send(&mut self, fields: &Value) -> bool {
        let (active, queued, scheduled, used) = match self.load {
            Load::Busy => (8, 3, 6, 250),
            Load::Idle => (0, 0, 0, 0),
            Load::Hanging => return self.stream.is_some(),
        };
        self.iter += 1;
        let mut record = json!({"iter": self.iter, "iterLatencyMS": 20.0, "numActiveRequests": active, "numQueuedRequests": queued,
            "maxNumActiveRequests": 64, "numCompletedRequests": 0, "numNewActiveRequests": 0,
            "kvCacheStats": {"maxNumBlocks": 1000, "freeNumBlocks": 1000 - used, "usedNumBlocks": used, "tokensPerBlock": 32},
            "inflightBatchingStats": {"numScheduledRequests": scheduled, "numContextRequests": 0, "numGenRequests": scheduled,
                "numPausedRequests": 0, "numCtxTokens": 0, "microBatchId": 0, "avgNumDecodedTokensPerIter": 1.0}});
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.write(&record);
        self.stream.is_some()
    }

    fn write(&mut self, line: &Value) {
        if let Some(stream) = &mut self.stream
            && writeln!(stream, "{line}").is_err()
        {
            self.stream = None;
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.leave();
    }
}
