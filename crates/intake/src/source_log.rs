//! Logs the changes of a source and its engine. A change that exceeds the log's rate limit is logged as soon as the
//! limit allows, if it still holds then. So the last line about a source is always true.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_fold::EngineState;
use trtllm_fold::totals::EngineTotals;
use trtllm_records::{EngineName, ErrorKind, RejectCounts, RejectReason};
use trtllm_service::log::LogLimit;
use trtllm_sources::SourceError;

/// Losses of records within this time of each other are one event, and so are impossible values.
const SERIES_END: Duration = Duration::from_secs(60);

/// Whether a series of events, the last of which came at `last`, is over.
fn has_ended(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= SERIES_END)
}

#[derive(Debug, Default)]
pub(crate) struct SourceLog {
    name: EngineName,
    /// The kind of the error, and the HTTP status.
    failing: Logged<Option<(ErrorKind, Option<u16>)>>,
    stale: Logged<bool>,
    restarts: Logged<u64>,
    clock_steps: Logged<u64>,
    pub(crate) notice: Logged<Option<&'static str>>,
    endpoint: Logged<Option<Arc<str>>>,
    /// Whether a series of rejections goes on. Only the first rejection of a series is logged.
    rejecting: bool,
    rejections: LogLimit,
    /// When the last impossible value came.
    impossible: Option<Instant>,
    /// The fields of this series of impossible values that are in the log.
    fields: BTreeSet<&'static str>,
    values: LogLimit,
    /// The total at the last line of the log.
    lost: u64,
    losses: LogLimit,
    /// When the last records were lost.
    losing: Option<Instant>,
    newer: LogLimit,
    /// When the last poll failed.
    failed: Option<Instant>,
}

/// A value as the log has it.
#[derive(Debug, Default)]
pub(crate) struct Logged<T> {
    pub(crate) value: T,
    limit: LogLimit,
}

impl<T: PartialEq> Logged<T> {
    /// Returns true if `value` differs from the logged one and may be logged. Then it counts as logged.
    fn changes(&mut self, value: T, at: Instant) -> bool {
        let may_change = self.value != value && self.limit.has_room(at);
        if may_change {
            self.limit.allow(at);
            self.value = value;
        }
        may_change
    }
}

/// Writes a line with the labels of the engine.
macro_rules! line {
    ($level:ident, $name:expr, $($fields_and_text:tt)*) => {
        tracing::$level!(model = $name.model, version = $name.version, pod = $name.pod(), $($fields_and_text)*)
    };
}

impl SourceLog {
    pub(crate) fn new(name: EngineName) -> Self {
        Self { name, ..Self::default() }
    }

    /// Logs that the engine is newer than this exporter.
    pub(crate) fn keys(&mut self, known: &[String], now: Instant) {
        if self.newer.allow(now).is_some() {
            let keys = known.join(" ");
            line!(info, self.name, keys, "the engine sends keys that this exporter does not read; update the exporter");
        }
    }

    /// `meaning`: what the error says about the engine, if it is known.
    pub(crate) fn failure(&mut self, error: Option<&SourceError>, meaning: Option<&str>, now: Instant) {
        if error.is_some() {
            self.failed = Some(now);
        }
        if self.failing.changes(error.map(|error| (error.kind(), error.status())), now) {
            match error {
                Some(error) => {
                    let kind = error.kind().name();
                    let error = meaning.map_or_else(|| error.to_string(), |meaning| format!("{meaning}: {error}"));
                    line!(warn, self.name, kind, error, "source failed");
                }
                None => line!(info, self.name, "source recovered"),
            }
        }
    }

    /// Logs the first rejection of a series. A poll whose messages are all valid ends the series; a poll without messages does not.
    pub(crate) fn rejections(&mut self, rejected: &RejectCounts, has_messages: bool, now: Instant) {
        for (reason, count) in RejectReason::ALL.iter().zip(rejected).filter(|(_, count)| **count > 0) {
            if !self.rejecting
                && let Some(lines_left_out) = self.rejections.allow(now)
            {
                let (reason, remedy) =
                    (reason.name(), "fix the program that sends them, or report their release of TensorRT-LLM");
                line!(warn, self.name, reason, count, lines_left_out, "invalid records skipped; {remedy}");
            }
        }
        let any = rejected.iter().any(|count| *count > 0);
        if any || has_messages {
            self.rejecting = any;
        }
    }

    /// Logs each field whose values are impossible once, until there were none for a minute.
    pub(crate) fn values(&mut self, fields: impl Iterator<Item = &'static str>, now: Instant) {
        let fields: Vec<&'static str> = fields.collect();
        if fields.is_empty() {
            return;
        }
        if has_ended(self.impossible.replace(now), now) {
            self.fields.clear();
        }
        let new: Vec<&'static str> = fields.into_iter().filter(|field| !self.fields.contains(field)).collect();
        if !new.is_empty()
            && let Some(lines_left_out) = self.values.allow(now)
        {
            let (fields, remedy) = (new.join(" "), "report the release of TensorRT-LLM that sends them");
            line!(
                warn,
                self.name,
                fields,
                lines_left_out,
                "impossible values left out, their records still count; {remedy}"
            );
            self.fields.extend(new);
        }
    }

    /// Logs restarts and lost records, with what to do about them. Returns the number of lost records that it logged.
    pub(crate) fn losses(&mut self, totals: &EngineTotals, now: Instant) -> Option<u64> {
        let restarts = totals.engine_restarts - self.restarts.value;
        if self.restarts.changes(totals.engine_restarts, now) {
            line!(info, self.name, restarts, "the engine has restarted; its totals continue");
        }
        if self.clock_steps.changes(totals.clock_steps, now) {
            line!(info, self.name, "the engine's clock was set; no time of a request across that moment counts");
        }
        let lost = totals.losses.lost.saturating_sub(self.lost);
        let is_new = has_ended(self.losing, now);
        if lost == 0 || (is_new && self.losses.allow(now).is_none()) {
            return None;
        }
        (self.losing, self.lost) = (Some(now), totals.losses.lost);
        is_new.then(|| {
            let cause = match has_ended(self.failed, now) {
                true => "another reader takes them, or the engine keeps too few (iter_stats_max_iterations) for --poll.interval",
                false => "polls that failed have probably taken them; read the server's log",
            };
            line!(warn, self.name, lost, "records were lost: {cause}");
            lost
        })
    }

    pub(crate) fn notice(&mut self, notice: Option<&'static str>, now: Instant) {
        if self.notice.changes(notice, now) {
            match notice {
                Some(notice) => line!(warn, self.name, notice, "statistics are missing; do what the notice says"),
                None => line!(info, self.name, "no statistics are missing any more"),
            }
        }
    }

    /// Logs that an endpoint besides the records cannot be read, or that all can be read again.
    pub(crate) fn endpoint(&mut self, error: Option<&Arc<str>>, now: Instant) {
        if self.endpoint.changes(error.cloned(), now) {
            match error {
                Some(error) => line!(warn, self.name, %error, "an endpoint cannot be read; it is tried again"),
                None => line!(info, self.name, "all endpoints can be read again"),
            }
        }
    }

    pub(crate) fn state(&mut self, state: EngineState, now: Instant) {
        if self.stale.changes(state.is_stale(), now) {
            let state = state.name();
            match self.stale.value {
                true => {
                    line!(warn, self.name, state, "engine is stale, its load gauges are withdrawn; check the engine")
                }
                false => line!(info, self.name, state, "engine recovered"),
            }
        }
    }
}
