//! The numbers of an engine: where they are in the API, and their units.

use trtllm_http::views::engine::Engine;
use trtllm_http::views::numbers::Numbers;

use super::units::DisplayUnit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Active,
    Queued,
    Waiting,
    Paused,
    Generated,
    Context,
    LatencyMean,
    LatencyP99,
    FirstP50,
    FirstP95,
    OutputP50,
    OutputP95,
    KvUsed,
    Hits,
    /// This number and the following ones are not in the table of engines.
    Scheduled,
    Max,
    Iterations,
    Completed,
    Lost,
    Restarts,
    Acceptance,
}

impl Number {
    #[must_use]
    pub const fn unit(self) -> DisplayUnit {
        match self {
            Self::LatencyMean
            | Self::LatencyP99
            | Self::FirstP50
            | Self::FirstP95
            | Self::OutputP50
            | Self::OutputP95 => DisplayUnit::Seconds,
            Self::KvUsed | Self::Hits | Self::Acceptance => DisplayUnit::Share,
            _ => DisplayUnit::Count,
        }
    }

    /// The current value: from the last iteration, over the last half minute, or a total since the exporter first saw the engine.
    /// `None` if it is not known.
    #[must_use]
    pub fn of(self, engine: &Engine) -> Option<f64> {
        let (load, totals) = (engine.load.as_ref(), engine.totals.as_ref());
        let count = |value: Option<i64>| value.map(|value| value as f64);
        let total = |value: Option<u64>| value.map(|value| value as f64);
        match self {
            Self::Active => count(load?.active),
            Self::Max => count(load?.max_active),
            Self::Waiting => count(load?.waiting),
            Self::Queued => load?.waiting_for_seat.map(f64::round).or_else(|| count(load?.queued)),
            Self::Paused => count(load?.paused),
            Self::KvUsed => load?.kv_cache_used_ratio,
            Self::Acceptance => load?.spec_decode_acceptance_ratio,
            Self::Completed => total(totals.and_then(|totals| totals.requests_completed)),
            Self::Lost => total(totals.map(|totals| totals.iterations_lost)),
            Self::Restarts => total(totals.map(|totals| totals.engine_restarts)),
            // Before the first record, rates of 0 would look like an idle engine.
            _ if totals.is_some_and(|totals| totals.iterations == Some(0)) => None,
            _ => self.of_span(engine.window.as_ref()?),
        }
    }

    /// The value in a span of time. A number that can rise and fall, such as waiting requests, is the mean over the iterations.
    #[must_use]
    pub fn of_span(self, span: &Numbers) -> Option<f64> {
        match self {
            Self::Scheduled => span.scheduled,
            Self::Waiting => span.waiting,
            Self::Generated => span.generation_tokens_per_second,
            Self::Context => span.context_tokens_per_second,
            Self::Iterations => span.iterations_per_second,
            Self::LatencyMean => Some(span.iteration_seconds?.mean),
            Self::LatencyP99 => span.iteration_seconds?.p99,
            Self::FirstP50 => span.ttft_seconds?.p50,
            Self::FirstP95 => span.ttft_seconds?.p95,
            Self::OutputP50 => span.tpot_seconds?.p50,
            Self::OutputP95 => span.tpot_seconds?.p95,
            Self::KvUsed => span.kv_cache_used_ratio,
            Self::Hits => span.kv_cache_hit_ratio,
            _ => None,
        }
    }

    /// The current value with its unit; `-` if it is not known.
    #[must_use]
    pub fn text(self, engine: &Engine) -> String {
        self.unit().text(self.of(engine))
    }
}
