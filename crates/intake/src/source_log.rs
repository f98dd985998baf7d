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

/// Losses of records within this time are one event, and so are impossible values.
const LOSSES_END: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct SourceLog {
    failing: Option<ErrorKind>,
    failures: LogLimit,
    stale: bool,
    /// Limit of lines about the engine's state and its restarts.
    changes: LogLimit,
    /// Whether a series of rejections goes on. Only the first rejection of a series is logged.
    rejecting: bool,
    rejections: LogLimit,
    /// The fields of a series of impossible values that are in the log, and when the last such value came.
    impossible: Option<(Instant, BTreeSet<&'static str>)>,
    values: LogLimit,
    /// Totals at the last line of the log.
    restarts: u64,
    clock_steps: u64,
    lost: u64,
    losses: LogLimit,
    /// When the last records of a series of losses were lost, and the total before the series.
    pub(crate) losing: Option<(Instant, u64)>,
    notice: Option<&'static str>,
    notices: LogLimit,
    endpoint: Option<Arc<str>>,
    endpoints: LogLimit,
    newer: LogLimit,
}

/// Returns true if `now` differs from `before` and may be logged. Then `before` becomes `now`.
fn changes<T: PartialEq>(before: &mut T, now: T, limit: &mut LogLimit, at: Instant) -> bool {
    let may_change = *before != now && limit.has_room(at);
    if may_change {
        limit.allow(at);
        *before = now;
    }
    may_change
}

fn joined<'f>(fields: impl Iterator<Item = &'f &'static str>) -> String {
    fields.copied().collect::<Vec<_>>().join(" ")
}

impl SourceLog {
    /// Logs that the engine is newer than this exporter.
    pub(crate) fn keys(&mut self, name: &EngineName, known: &[String], now: Instant) {
        if self.newer.allow(now).is_some() {
            let (EngineName { model, version, .. }, pod, keys) = (name, name.pod(), known.join(" "));
            tracing::info!(
                model,
                version,
                pod,
                keys,
                "the engine sends keys that this exporter does not read; update the exporter"
            );
        }
    }

    /// `meaning`: what the error says about the engine, if it is known.
    pub(crate) fn failure(
        &mut self,
        name: &EngineName,
        error: Option<&SourceError>,
        meaning: Option<&str>,
        now: Instant,
    ) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        if changes(&mut self.failing, error.map(SourceError::kind), &mut self.failures, now) {
            match error {
                Some(error) => {
                    let kind = error.kind().name();
                    let error = meaning.map_or_else(|| error.to_string(), |meaning| format!("{meaning}: {error}"));
                    tracing::warn!(model, version, pod, kind, error, "source failed");
                }
                None => tracing::info!(model, version, pod, "source recovered"),
            }
        }
    }

    /// Logs the first rejection of a series. A poll whose messages are all valid ends the series; a poll without messages does not.
    pub(crate) fn rejections(&mut self, name: &EngineName, rejected: &RejectCounts, has_messages: bool, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        for (reason, count) in RejectReason::ALL.iter().zip(rejected).filter(|(_, count)| **count > 0) {
            if !self.rejecting
                && let Some(left_out) = self.rejections.allow(now)
            {
                let reason = reason.name();
                tracing::warn!(
                    model,
                    version,
                    pod,
                    reason,
                    count,
                    left_out,
                    "invalid records skipped; fix the program that sends them, or report their release of TensorRT-LLM"
                );
            }
        }
        let any = rejected.iter().any(|count| *count > 0);
        if any || has_messages {
            self.rejecting = any;
        }
    }

    /// Logs each field whose values are impossible once, until there were none for a minute.
    pub(crate) fn values(&mut self, name: &EngineName, fields: impl Iterator<Item = &'static str>, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        let fields: Vec<&'static str> = fields.collect();
        if let Some((last, known)) = &mut self.impossible {
            if now.saturating_duration_since(*last) >= LOSSES_END {
                let fields = joined(known.iter());
                tracing::info!(model, version, pod, fields, "no impossible values in the last {LOSSES_END:?}");
                self.impossible = None;
            } else if !fields.is_empty() {
                *last = now;
            }
        }
        let known = self.impossible.as_ref().map(|(_, known)| known);
        let new: Vec<&'static str> =
            fields.into_iter().filter(|field| known.is_none_or(|known| !known.contains(field))).collect();
        if !new.is_empty()
            && let Some(left_out) = self.values.allow(now)
        {
            let fields = joined(new.iter());
            tracing::warn!(
                model,
                version,
                pod,
                fields,
                left_out,
                "impossible values left out, their records still count; report the release of TensorRT-LLM that sends them"
            );
            self.impossible.get_or_insert_with(|| (now, BTreeSet::new())).1.extend(new);
        }
    }

    /// Logs restarts and lost records, with what to do about them.
    pub(crate) fn losses(&mut self, name: &EngineName, totals: &EngineTotals, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        let restarts = totals.engine_restarts - self.restarts;
        if changes(&mut self.restarts, totals.engine_restarts, &mut self.changes, now) {
            tracing::info!(model, version, pod, restarts, "the engine has restarted; its totals continue");
        }
        if changes(&mut self.clock_steps, totals.clock_steps, &mut self.changes, now) {
            tracing::info!(
                model,
                version,
                pod,
                "the engine's clock was set; no time of a request across that moment counts"
            );
        }
        let lost = totals.losses.lost.saturating_sub(self.lost);
        match self.losing {
            None if lost > 0 && self.losses.has_room(now) => {
                self.losses.allow(now);
                tracing::warn!(
                    model,
                    version,
                    pod,
                    lost,
                    "records were lost: another reader takes them, or the engine keeps too few (iter_stats_max_iterations) for --poll.interval"
                );
                (self.losing, self.lost) = (Some((now, self.lost)), totals.losses.lost);
            }
            Some((_, before)) if lost > 0 => {
                (self.losing, self.lost) = (Some((now, before)), totals.losses.lost);
            }
            Some((last, before)) if now.saturating_duration_since(last) >= LOSSES_END => {
                let lost = totals.losses.lost.saturating_sub(before);
                tracing::info!(model, version, pod, lost, "no records lost in the last {LOSSES_END:?}");
                self.losing = None;
            }
            None | Some(_) => {}
        }
    }

    pub(crate) fn notice(&mut self, name: &EngineName, notice: Option<&'static str>, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        if changes(&mut self.notice, notice, &mut self.notices, now) {
            match notice {
                Some(notice) => {
                    tracing::warn!(model, version, pod, notice, "statistics are missing; do what the notice says");
                }
                None => tracing::info!(model, version, pod, "no statistics are missing any more"),
            }
        }
    }

    /// Logs that an endpoint besides the records cannot be read, or that all can be read again.
    pub(crate) fn endpoint(&mut self, name: &EngineName, error: Option<&Arc<str>>, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        if changes(&mut self.endpoint, error.cloned(), &mut self.endpoints, now) {
            match error {
                Some(error) => {
                    tracing::warn!(model, version, pod, %error, "an endpoint cannot be read; it is tried again")
                }
                None => tracing::info!(model, version, pod, "all endpoints can be read again"),
            }
        }
    }

    pub(crate) fn state(&mut self, name: &EngineName, state: EngineState, now: Instant) {
        let (EngineName { model, version, .. }, pod) = (name, name.pod());
        if changes(&mut self.stale, state.is_stale(), &mut self.changes, now) {
            let state = state.name();
            match self.stale {
                true => tracing::warn!(
                    model,
                    version,
                    pod,
                    state,
                    "engine is stale, its load gauges are withdrawn; check the engine"
                ),
                false => tracing::info!(model, version, pod, state, "engine recovered"),
            }
        }
    }
}
