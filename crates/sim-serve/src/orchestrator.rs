//! The page of the orchestrator of disaggregated serving. It counts each ended request as one call to a context worker and one call to
//! a generation worker.

use trtllm_sim::record::Entry;

use crate::families::{CALL, FIRST_TOKEN, Histogram, Text};

#[derive(Debug)]
pub(crate) struct Orchestrator {
    requests: u64,
    queue: Histogram,
    context: Side,
    generation: Side,
}

/// Calls to the context workers, or to the generation workers.
#[derive(Debug)]
struct Side {
    name: &'static str,
    first: Histogram,
    per_token: Histogram,
    complete: Histogram,
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            first: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(FIRST_TOKEN),
            complete: Histogram::new(CALL),
        }
    }

    fn write(&self, calls: u64, text: &mut Text) {
        let name = |rest: &str| format!("{}_{rest}", self.name);
        text.counter(&name("total_requests"), &[("", calls)]);
        text.counter(&name("error_requests"), &[("", 0)]);
        text.counter(&name("retry_requests"), &[("", 0)]);
        text.counter(&name("completed_requests"), &[("", calls)]);
        text.histogram(&name("first_token_latency_seconds"), &self.first);
        text.histogram(&name("complete_latency_seconds"), &self.complete);
        text.histogram(&name("per_token_latency_seconds"), &self.per_token);
    }
}

impl Default for Orchestrator {
    fn default() -> Self {
        Self {
            requests: 0,
            queue: Histogram::new(FIRST_TOKEN),
            context: Side::new("ctx"),
            generation: Side::new("gen"),
        }
    }
}

impl Orchestrator {
    pub(crate) fn add(&mut self, entry: &Entry) {
        // The generation server requests the KV cache once the context server has answered.
        let handed_over = entry.transfer.map_or(entry.first_scheduled, |(start, ..)| start);
        self.requests += 1;
        self.queue.observe((entry.arrival - entry.server_arrival).max(0.0), 1);
        self.context.complete.observe((handed_over - entry.server_arrival).max(0.0), 1);
        self.generation.first.observe((entry.first_token - handed_over).max(0.0), 1);
        self.generation.complete.observe((entry.last_token - handed_over).max(0.0), 1);
        let gaps = u64::from(entry.output_tokens.saturating_sub(1));
        let gap = (entry.last_token - entry.first_token) / gaps.max(1) as f64;
        self.generation.per_token.observe(gap, gaps);
    }

    pub(crate) fn text(&self) -> String {
        let mut text = Text::new(String::new());
        for (name, value) in [
            ("total_requests", self.requests),
            ("stream_requests", self.requests),
            ("nonstream_requests", 0),
            ("validation_exceptions", 0),
            ("http_exceptions", 0),
            ("internal_errors", 0),
            ("total_responses", self.requests),
        ] {
            text.counter(name, &[("", value)]);
        }
        text.histogram("queue_latency_seconds", &self.queue);
        self.context.write(self.requests, &mut text);
        self.generation.write(self.requests, &mut text);
        text.into_text()
    }
}
