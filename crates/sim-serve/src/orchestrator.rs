//! The page of the orchestrator of disaggregated serving. It counts its calls to the workers as upstream's `OpenAIHttpClient` does:
//! a stream that a worker refuses is in no counter of errors, and a stream that breaks is in one.

use trtllm_sim::pair::Side;
use trtllm_sim::record::Entry;
use trtllm_sim::truth::Truth;
use trtllm_sim::{End, Unanswered};

use crate::families::{CALL, FIRST_TOKEN, Histogram, Text};

#[derive(Debug)]
pub(crate) struct Orchestrator {
    requests: u64,
    nonstream: u64,
    responses: u64,
    /// Worker errors are no `HTTPException`, so upstream counts them as internal.
    internal_errors: u64,
    queue: Histogram,
    context: Calls,
    generation: Calls,
}

/// Calls to the context workers, or to the generation workers.
#[derive(Debug)]
struct Calls {
    name: &'static str,
    total: u64,
    errors: u64,
    retries: u64,
    completed: u64,
    first: Histogram,
    per_token: Histogram,
    complete: Histogram,
}

impl Calls {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            total: 0,
            errors: 0,
            retries: 0,
            completed: 0,
            first: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(FIRST_TOKEN),
            complete: Histogram::new(CALL),
        }
    }

    fn write(&self, text: &mut Text) {
        let name = |suffix: &str| format!("{}_{suffix}", self.name);
        text.counter(&name("total_requests"), &[("", self.total)]);
        text.counter(&name("error_requests"), &[("", self.errors)]);
        text.counter(&name("retry_requests"), &[("", self.retries)]);
        text.counter(&name("completed_requests"), &[("", self.completed)]);
        text.histogram(&name("first_token_latency_seconds"), &self.first);
        text.histogram(&name("complete_latency_seconds"), &self.complete);
        text.histogram(&name("per_token_latency_seconds"), &self.per_token);
    }
}

impl Default for Orchestrator {
    fn default() -> Self {
        Self {
            requests: 0,
            nonstream: 0,
            responses: 0,
            internal_errors: 0,
            queue: Histogram::new(FIRST_TOKEN),
            context: Calls::new("ctx"),
            generation: Calls::new("gen"),
        }
    }
}

impl Orchestrator {
    /// Counts the requests that have arrived at the context server.
    pub(crate) fn arrived(&mut self, truth: &Truth) {
        (self.requests, self.nonstream, self.context.total) = (truth.arrived, truth.arrived_nonstream, truth.arrived);
    }

    pub(crate) fn answered_by_context(&mut self, entry: &Entry) {
        self.queue.observe((entry.arrival - entry.server_arrival).max(0.0), 1);
        self.context.completed += 1;
        self.context.complete.observe((entry.last_token - entry.server_arrival).max(0.0), 1);
        self.generation.total += u64::from(entry.continued);
        // The response to a stream begins before the call to the generation worker.
        self.responses += u64::from(!entry.continued || !entry.nonstream);
    }

    pub(crate) fn answered_by_generation(&mut self, entry: &Entry) {
        let (calls, sent) = (&mut self.generation, entry.server_arrival);
        calls.completed += 1;
        calls.complete.observe((entry.last_token - sent).max(0.0), 1);
        let Some(first) = entry.server_first_token.filter(|_| !entry.nonstream) else {
            self.responses += 1;
            return;
        };
        calls.first.observe((first - sent).max(0.0), 1);
        let gaps = u64::from(entry.output_tokens.saturating_sub(1));
        calls.per_token.observe((entry.last_token - first).max(0.0) / gaps.max(1) as f64, gaps);
    }

    /// Counts a call that no answer ended, as `_send_request`, `_post_with_retry` and `_response_generator` do.
    pub(crate) fn unanswered(&mut self, call: &Unanswered, side: Side) {
        // Calls to context workers are never streamed.
        let is_streamed = side == Side::Generation && !call.nonstream;
        let calls = if side == Side::Context { &mut self.context } else { &mut self.generation };
        match (call.end, is_streamed) {
            // A stream that a worker refuses fails before the code that counts.
            (End::Error, true) if call.is_refused => {}
            (End::Error, _) => {
                calls.errors += 1;
                calls.completed += 1;
                // An HTTP error is retried once, and the worker refuses that, too.
                calls.retries += u64::from(call.is_refused);
                self.internal_errors += u64::from(!is_streamed);
            }
            // The client closed its connection: only the end of a stream counts.
            (End::Cancelled, _) => calls.completed += u64::from(is_streamed),
            // The worker answered with the reason for the end.
            (End::TimedOut | End::Stop | End::Length, _) => {
                calls.completed += 1;
                self.responses += u64::from(!is_streamed);
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = Text::new(String::new());
        for (name, value) in [
            ("total_requests", self.requests),
            ("stream_requests", self.requests - self.nonstream),
            ("nonstream_requests", self.nonstream),
            ("validation_exceptions", 0),
            ("http_exceptions", 0),
            ("internal_errors", self.internal_errors),
            ("total_responses", self.responses),
        ] {
            text.counter(name, &[("", value)]);
        }
        text.histogram("queue_latency_seconds", &self.queue);
        self.context.write(&mut text);
        self.generation.write(&mut text);
        text.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors, retries and completed requests of a side, and internal errors, after one call that fails.
    fn counts(side: Side, end: End, nonstream: bool, is_refused: bool) -> [u64; 4] {
        let mut orchestrator = Orchestrator::default();
        orchestrator.unanswered(&Unanswered { id: 1, end, nonstream, is_refused }, side);
        let calls = if side == Side::Context { &orchestrator.context } else { &orchestrator.generation };
        [calls.errors, calls.retries, calls.completed, orchestrator.internal_errors]
    }

    #[test]
    fn calls_that_fail_count_as_the_client_of_upstream_counts_them() {
        for (side, end, nonstream, is_refused, expected) in [
            (Side::Generation, End::Error, false, true, [0, 0, 0, 0]),
            (Side::Generation, End::Error, false, false, [1, 0, 1, 0]),
            (Side::Generation, End::Error, true, true, [1, 1, 1, 1]),
            (Side::Generation, End::Error, true, false, [1, 0, 1, 1]),
            (Side::Generation, End::Cancelled, false, false, [0, 0, 1, 0]),
            (Side::Generation, End::Cancelled, true, false, [0, 0, 0, 0]),
            // A call to a context worker is not streamed.
            (Side::Context, End::Error, false, true, [1, 1, 1, 1]),
        ] {
            assert_eq!(counts(side, end, nonstream, is_refused), expected, "{side:?} {end:?} {nonstream} {is_refused}");
        }
    }
}
