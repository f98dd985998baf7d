//! The intake of one engine: folds the messages of each poll into totals, and keeps the status of the source. It is the only
//! place that counts and logs the events of a source, so logs and metrics cannot disagree. Callers pass the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trtllm_analysis::ObservedEngine;
use trtllm_analysis::cost_model::CostModel;
use trtllm_analysis::iteration_sums::ConfiguredLimits;
use trtllm_engines::{Engine, EngineSlot, LockedEngine};
use trtllm_fold::{EngineState, Implausible, SEVERAL_ENGINES};
use trtllm_recording::recorder::EngineRecorder;
use trtllm_recording::{Entry, Line, RecordedMoment, Settled};
use trtllm_records::gpu::Gpu;
use trtllm_records::source::{has_only_requests, is_iteration_log};
use trtllm_records::{EngineAbout, EngineSettings, ErrorKind, Message, PollFailure, RejectCounts, RejectReason};
use trtllm_service::printable::one_line;
use trtllm_sources::{Batch, OpenError, Presence, SourceError};

use crate::source_log::SourceLog;

/// A moment on the monotonic clock and on the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub instant: Instant,
    /// Microseconds since 1970 UTC.
    pub unix_us: i64,
}

impl Moment {
    /// The current time. `instant` comes from tokio's clock, which a simulation can move.
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let instant = tokio::time::Instant::now().into_std();
        Self { instant, unix_us: i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX) }
    }

    pub(crate) fn recorded(at: RecordedMoment) -> Self {
        Self { instant: at.instant(), unix_us: at.us }
    }

    fn to_record(self) -> RecordedMoment {
        RecordedMoment::new(self.instant, self.unix_us)
    }
}

/// A notice that `/readyz` and the API show.
const MISSING_RECORDS: &str = "requests end, but no iteration statistics arrive: switch them on in the engine \
    (enable_iter_perf_stats: true), or stop the other reader that takes them";

/// Limit of the characters that are kept of an error.
const MAX_ERROR: usize = 512;

/// Limit of the unknown keys that are kept for each engine.
const MAX_UNREAD_KEYS: usize = 64;

/// Returns those of these keys that the exporter does not know.
pub type UnknownKeyFilter = fn(BTreeSet<String>) -> BTreeSet<String>;

/// Folds the messages of one engine, whose slot it locks while it does.
#[derive(Debug)]
pub struct Intake {
    slot: Arc<EngineSlot>,
    /// The state that was logged last. A reader may have changed that of the engine since.
    state: EngineState,
    log: SourceLog,
    /// Absent if keys are not looked at, as in a recording.
    unknown_keys: Option<UnknownKeyFilter>,
    /// True if messages were absorbed since the last poll ended.
    has_messages: bool,
    /// Number of implausible messages since the last poll ended.
    implausible: u64,
    recorder: Option<EngineRecorder>,
    /// Restarts of the engine until the last poll.
    restarts: u64,
    /// Only in a replay.
    replayed: Option<ReplayedPolls>,
}

/// The result of the polls in a recording, at the last line that was folded.
#[derive(Debug, Default)]
struct ReplayedPolls {
    failure: Option<PollFailure>,
    is_disconnected: bool,
}

impl Intake {
    pub fn new(slot: Arc<EngineSlot>, stale_after: Duration) -> Self {
        slot.lock().observed = ObservedEngine::new(stale_after).with_objectives(slot.name.objectives);
        set_kind(&mut slot.lock(), slot.name.source);
        Self {
            state: EngineState::Starting,
            log: SourceLog::new(slot.name.clone()),
            unknown_keys: None,
            has_messages: false,
            implausible: 0,
            recorder: None,
            restarts: 0,
            replayed: None,
            slot,
        }
    }

    /// Records all messages on disk from now on.
    pub fn record_to(&mut self, mut recorder: EngineRecorder) {
        if let Some(report) = &self.slot.lock().source.bench_report {
            recorder.message(Message::BenchReport(Arc::clone(report)), Moment::now().to_record());
        }
        self.recorder = Some(recorder);
    }

    /// Publishes which keys the exporter does not know. Only the page's catalog has all that it knows.
    pub fn find_unknown_keys_with(&mut self, unknown_keys: UnknownKeyFilter) {
        self.unknown_keys = Some(unknown_keys);
    }

    /// The engine, locked.
    pub fn engine(&self) -> LockedEngine<'_> {
        self.slot.lock()
    }

    pub fn is_idle(&self) -> bool {
        self.state == EngineState::Idle
    }

    /// Folds one line of a recording as of its moment, as the exporter that wrote it did.
    fn fold_line(&mut self, engine: &mut Engine, line: &Line, now: Instant) -> Result<(), Implausible> {
        let (at, polls) = (Moment::recorded(line.at), self.replayed.get_or_insert_default());
        match &line.entry {
            Entry::Header(header) => set_kind(engine, &header.source),
            Entry::Message(message) => {
                let folded = fold_message(engine, message, at);
                if matches!(message, Message::Record(_)) {
                    engine.observed.fold.health.replayed(now);
                }
                return folded;
            }
            Entry::Settled(Settled { from_ring, drained_unparsed }) => {
                settle(engine, *from_ring, *drained_unparsed, at)
            }
            Entry::About(about) => learn(engine, (**about).clone()),
            Entry::Dropped(messages) => {
                engine.observed.settle_all(at.instant);
                engine.observed.resume();
                // If the polls of the next process fail, its first lines say so.
                if *messages == 0 {
                    *polls = ReplayedPolls::default();
                }
            }
            Entry::Failing(failure) => polls.failure.clone_from(failure),
            Entry::Disconnected(is_disconnected) => polls.is_disconnected = *is_disconnected,
            // Other readers use the readings of GPUs.
            Entry::Gpu(_) => {}
        }
        Ok(())
    }

    /// Folds the messages of a poll that has not ended.
    pub fn absorb_messages(&mut self, batch: &mut Batch, at: Moment) {
        let slot = Arc::clone(&self.slot);
        self.fold_messages(&mut slot.lock(), batch, at);
        if let Some(recorder) = &mut self.recorder {
            recorder.end();
        }
    }

    /// The moment with the precision of a recording, if there is a recorder. So a replay folds messages at the same moments.
    fn recordable(&self, at: Moment) -> Moment {
        if self.recorder.is_some() { Moment::recorded(at.to_record()) } else { at }
    }

    /// Folds the messages and lines, gives them to the recorder, and keeps the last records for the API.
    fn fold_messages(&mut self, engine: &mut Engine, batch: &mut Batch, at: Moment) {
        let at = self.recordable(at);
        let most = self.slot.most_records();
        let records = batch.messages.iter().filter(|message| matches!(message, Message::Record(_))).count();
        let recorded =
            batch.lines.iter().filter(|line| matches!(line.entry, Entry::Message(Message::Record(_)))).count();
        let mut not_kept = (records + recorded).saturating_sub(most);
        for mut line in std::mem::take(&mut batch.lines) {
            let folded = self.fold_line(engine, &line, at.instant);
            self.note_folded(folded);
            if let Entry::Message(message) = &mut line.entry {
                keep_record(engine, message, &mut not_kept, most);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.line(line);
            }
        }
        for mut message in batch.drain() {
            let folded = fold_message(engine, &message, at);
            self.note_folded(folded);
            keep_record(engine, &mut message, &mut not_kept, most);
            if let Some(recorder) = &mut self.recorder {
                recorder.message(message, at.to_record());
            }
        }
    }

    fn note_folded(&mut self, folded: Result<(), Implausible>) {
        self.has_messages |= folded.is_ok();
        self.implausible += u64::from(folded.is_err());
    }

    /// Ends a poll that began `duration` ago: folds the batch, counts and logs the outcome, and publishes.
    pub fn end_poll(
        &mut self,
        batch: &mut Batch,
        duration: Duration,
        result: Result<Presence, &SourceError>,
        at: Moment,
    ) {
        let at = self.recordable(at);
        let slot = Arc::clone(&self.slot);
        let engine = &mut **slot.lock();
        self.fold_messages(engine, batch, at);
        let replayed = self.replayed.as_ref().filter(|_| !batch.ended && result.is_ok());
        let recorded = replayed.and_then(|polls| polls.failure.clone()).map(SourceError::Recorded);
        let result = match &recorded {
            Some(failure) => Err(failure),
            None if replayed.is_some_and(|polls| polls.is_disconnected) => Ok(Presence::Disconnected),
            None => result,
        };
        if let Some(polls) = &self.replayed {
            batch.connections = polls.is_disconnected.then_some(0);
        }
        let restarts = engine.observed.fold.totals.engine_restarts;
        // A server that answers again, or counts from 0, may have been replaced by one of an older release. So its keys
        // are collected from the start again.
        let answers_again = result.is_ok() && engine.source.last_failure.is_some();
        if std::mem::replace(&mut self.restarts, restarts) != restarts || answers_again {
            engine.source.unread_keys = None;
        }
        // A recording has a line of its own for the end of each poll: [`Entry::Settled`].
        if self.replayed.is_none() {
            settle(engine, batch.from_ring, batch.drained_unparsed, at);
            if batch.ended {
                engine.observed.settle_all(at.instant);
            }
        }
        if batch.ended {
            engine.observed.fold.finish();
        }
        if let Some(about) = batch.about.take() {
            learn(engine, about);
            if let Some(recorder) = &mut self.recorder {
                recorder.about(&engine.about, at.to_record());
            }
        }
        if let Some(recorder) = &mut self.recorder {
            if self.replayed.is_none() {
                let at = at.to_record();
                recorder.polled(result.err().map(failure), at);
                // Before its first answer, the engine is starting.
                let has_answered = engine.source.last_success_us.is_some();
                let is_disconnected = matches!(result, Ok(Presence::Disconnected | Presence::Forgotten));
                recorder.disconnected(has_answered && is_disconnected, at);
                recorder.gpus(readings(engine), at);
                recorder.settled(Settled { from_ring: batch.from_ring, drained_unparsed: batch.drained_unparsed }, at);
            }
            recorder.end();
        }
        self.note_keys(engine, batch, at.instant);
        engine.source.connections = batch.connections;
        engine.source.spans_dropped = batch.spans_dropped;
        engine.source.spans_forwarded = batch.spans_forwarded;
        engine.source.processes = std::mem::take(&mut batch.processes);
        engine.source.metrics.polls.inc();
        engine.source.last_poll_us = Some(at.unix_us);
        engine.source.metrics.poll_duration.observe(duration.as_secs_f64());
        engine.source.up = matches!(result, Ok(Presence::Present));
        engine.source.ready |= result.is_ok();
        if engine.source.up {
            engine.source.last_success_us = Some(at.unix_us);
        }
        // A socket to which no publisher has connected yet is waiting, not unreachable.
        if engine.source.up || (result.is_ok() && engine.source.last_success_us.is_none()) {
            engine.observed.fold.health.answered(at.instant);
        }
        if engine.source.only_requests && engine.source.up {
            engine.observed.fold.health.requests_ended(at.instant, self.has_messages);
        }
        self.note_failure(engine, result.err(), at);
        let impossible = engine.observed.fold.take_rejected();
        batch.rejected[RejectReason::Implausible as usize] += std::mem::take(&mut self.implausible) + impossible.rows;
        self.note_rejections(engine, &batch.rejected, &impossible.values, at.instant);
        engine.source.only_log |= batch.only_log;
        let notice = batch.notice;
        batch.clear();
        self.note_changes_of_the_engine(engine, notice, at.instant);
        // A poll that fails does not show what is missing.
        if result.is_ok() {
            self.log.notice(engine.source.notice, at.instant);
        }
        self.publish(engine, at.instant);
    }

    /// Keeps the engine `starting` while its source is opened or its model is loaded, however long that takes. `/readyz`
    /// shows the reason.
    pub fn still_starting(&mut self, reason: &'static str, now: Moment) {
        let slot = Arc::clone(&self.slot);
        let engine = &mut **slot.lock();
        if engine.source.loading != Some(reason) {
            engine.source.loading = Some(reason);
            engine.source.unanswered_since_us.get_or_insert(now.unix_us);
            self.publish(engine, now.instant);
        }
    }

    /// The source cannot be opened, so nothing polls it.
    pub(crate) fn cannot_open(&mut self, error: &OpenError, now: Moment) {
        let slot = Arc::clone(&self.slot);
        let engine = &mut **slot.lock();
        engine.source.loading = None;
        engine.source.unanswered_since_us.get_or_insert(now.unix_us);
        let text = one_line(&error.to_string());
        engine.source.last_failure = Some(PollFailure { kind: ErrorKind::Connect, text, not_ready: false });
        self.publish(engine, now.instant);
    }

    /// Notes a change of the engine's state: a source that hangs must not keep old numbers on the page.
    pub(crate) fn check_health(&mut self, now: Instant) {
        let slot = Arc::clone(&self.slot);
        let engine = &mut **slot.lock();
        if engine.observed.fold.health.state(now) != self.state {
            self.publish(engine, now);
        }
    }

    /// Collects missing endpoints and unknown keys, which show that the engine is newer than this exporter.
    fn note_keys(&mut self, engine: &mut Engine, batch: &mut Batch, now: Instant) {
        if let Some(missing) = batch.missing_endpoints.take() {
            engine.source.missing_endpoints = missing;
            let error = batch.endpoint_error.take().map(|text| beginning(&text));
            if engine.source.endpoint_error.as_deref() != error.as_deref() {
                engine.source.endpoint_error = error.map(Into::into);
            }
            self.log.endpoint(engine.source.endpoint_error.as_ref(), now);
        }
        let Some(unknown_keys) = self.unknown_keys.filter(|_| !batch.keys.is_empty()) else { return };
        let unknown = unknown_keys(std::mem::take(&mut batch.keys));
        // Keys are added, because an engine sends some of them only now and then.
        let known = engine.source.unread_keys.get_or_insert_default();
        let mut all: BTreeSet<String> = known.iter().cloned().collect();
        all.extend(unknown);
        if all.len() <= known.len() {
            return;
        }
        *known = all.into_iter().take(MAX_UNREAD_KEYS).collect();
        self.log.keys(known, now);
    }

    /// Counts every failure, logs each change.
    fn note_failure(&mut self, engine: &mut Engine, error: Option<&SourceError>, at: Moment) {
        let (kind, now) = (error.map(SourceError::kind), at.instant);
        if let Some(kind) = kind {
            engine.source.metrics.errors[kind as usize].inc();
        }
        match kind {
            None => engine.source.server_has_served = true,
            Some(ErrorKind::Connect) => engine.source.server_has_served = false,
            Some(_) if error.is_some_and(SourceError::is_starting) => engine.source.server_has_served = false,
            Some(_) => {}
        }
        engine.source.no_statistics = !engine.source.ready && matches!(error, Some(SourceError::NoStatistics { .. }));
        engine.source.loading = None;
        engine.source.last_failure = error.map(failure);
        self.log.failure(error, engine.source.meaning_of_503(), now);
        engine.source.unanswered_since_us =
            error.is_some().then(|| engine.source.unanswered_since_us.unwrap_or(at.unix_us));
    }

    /// Counts every rejected record and every rejected value, logs the first of a series.
    fn note_rejections(
        &mut self,
        engine: &mut Engine,
        rejected: &RejectCounts,
        values: &BTreeMap<&'static str, u64>,
        now: Instant,
    ) {
        for (total, count) in engine.source.metrics.rejected.iter().zip(rejected) {
            total.inc_by(*count);
        }
        if !values.is_empty() {
            let totals = Arc::make_mut(&mut engine.source.values_rejected);
            for (field, count) in values {
                *totals.entry(field).or_default() += count;
            }
        }
        self.log.values(values.keys().copied(), now);
        self.log.rejections(rejected, self.has_messages, now);
        self.has_messages = false;
    }

    /// Logs restarts and lost records, and sets the notice: `notice`, or else that requests end but no records arrive.
    fn note_changes_of_the_engine(&mut self, engine: &mut Engine, notice: Option<&'static str>, now: Instant) {
        self.log.losses(&engine.observed.fold.totals, now);
        engine.source.records_missing =
            !engine.source.only_requests && engine.observed.fold.health.records_are_missing(now);
        let several = engine.observed.fold.has_several_engines().then_some(SEVERAL_ENGINES);
        engine.source.notice = several.or(notice).or(engine.source.records_missing.then_some(MISSING_RECORDS));
    }

    fn publish(&mut self, engine: &mut Engine, now: Instant) {
        engine.state = engine.observed.fold.health.state(now);
        self.state = engine.state;
        self.log.state(self.state, now);
    }
}

/// Notes what an engine with this kind of source does not tell.
fn set_kind(engine: &mut Engine, kind: &str) {
    engine.source.only_requests = has_only_requests(kind);
    engine.source.only_log = is_iteration_log(kind);
}

/// Keeps a copy of a record for the API, unless it is one of the first `not_kept` of its poll.
fn keep_record(engine: &mut Engine, message: &mut Message, not_kept: &mut usize, most: usize) {
    let Message::Record(record) = message else { return };
    match not_kept.checked_sub(1) {
        Some(rest) => *not_kept = rest,
        None => engine.keep_record(record, most),
    }
}

/// Folds one message.
fn fold_message(engine: &mut Engine, message: &Message, at: Moment) -> Result<(), Implausible> {
    let observed = &mut engine.observed;
    match message {
        // These are of several engines, too.
        Message::RequestRows(_) | Message::FinishedRequest(_) | Message::Span(_) | Message::ServerMetrics(_)
            if observed.fold.has_several_engines() => {}
        Message::Record(record) => observed.absorb(record, at.instant, at.unix_us)?,
        Message::RequestRows(rows) => observed.absorb_requests(rows, at.instant)?,
        Message::FinishedRequest(entry) => observed.absorb_perf_metrics(entry, at.instant)?,
        Message::Span(entry) => observed.absorb_span(entry, at.instant)?,
        Message::ServerMetrics(metrics) => observed.absorb_server_metrics(metrics, at.instant),
        Message::Orchestrator(reading) => observed.absorb_orchestrator(reading, at.instant),
        Message::BenchReport(report) => engine.source.bench_report = Some(Arc::clone(report)),
        Message::Process(process) => observed.set_process(*process),
    }
    Ok(())
}

fn settle(engine: &mut Engine, from_ring: bool, drained_unparsed: bool, at: Moment) {
    engine.observed.settle(from_ring, at.instant);
    if drained_unparsed {
        engine.observed.fold.count_unparsed_as_lost();
    }
}

/// Settings that change what an iteration costs.
const COST_SETTINGS: [&str; 6] = [
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "expert_parallel_size",
    "speculative_method",
];

fn learn(engine: &mut Engine, about: EngineAbout) {
    let (before, now) = (&engine.about.settings, &about.settings);
    let are_known = !before.is_empty() && !now.is_empty();
    if are_known && COST_SETTINGS.iter().any(|name| before.get(name) != now.get(name)) {
        engine.observed.analysis.iterations.model = CostModel::default();
    }
    engine.observed.analysis.iterations.configured = configured(&about.settings);
    engine.observed.fold.requests.first_token_is_early = about.stamps_first_token_early();
    engine.about = about;
}

fn failure(error: &SourceError) -> PollFailure {
    PollFailure { kind: error.kind(), text: beginning(&error.to_string()), not_ready: error.is_not_ready() }
}

/// Readings of the engine's GPUs, or of all GPUs of this host if it is unknown which ones the engine uses. Empty if
/// this inventory was taken before.
fn readings(engine: &mut Engine) -> impl Iterator<Item = Gpu> + use<> {
    let inventory = engine.inventory.take();
    let serving = engine.gpus.clone().filter(|_| inventory.is_some());
    let gpus = inventory.map(|inventory| inventory.gpus.clone()).unwrap_or_default();
    gpus.into_iter().filter_map(move |gpu| {
        let serves = serving.as_ref().is_some_and(|serving| serving.uuids.contains(&gpu.identity.uuid));
        (serves || serving.is_none()).then_some(Gpu { serves: Some(serves), ..gpu })
    })
}

/// The limits in the settings. Records of the PyTorch engine do not contain them.
fn configured(settings: &EngineSettings) -> ConfiguredLimits {
    let limit = |name| settings.get(name)?.parse().ok().filter(|limit| *limit > 0);
    ConfiguredLimits { batch: limit("max_batch_size"), tokens: limit("max_num_tokens") }
}

/// The beginning of an error, for people. Some of its characters come from a server, so escape sequences are removed.
fn beginning(error: &str) -> String {
    one_line(&error.chars().take(MAX_ERROR).collect::<String>())
}

#[cfg(test)]
mod tests {
    use trtllm_records::{EngineName, IterationStats};

    use super::*;
    use trtllm_engines::State;
    use trtllm_fold::totals::EngineTotals;
    use trtllm_recording::Header;

    fn intake() -> Intake {
        let state = State::new(vec![EngineName::new("m", "1", "test")]);
        Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15))
    }

    fn record(iter: u64) -> Message {
        let record = IterationStats { iter: Some(iter), num_active_requests: Some(1), ..IterationStats::default() };
        Message::Record(Box::new(record))
    }

    #[test]
    fn the_beginning_of_a_polls_error_is_kept_as_short_printable_text() {
        let (mut intake, start) = (intake(), Moment::now());
        let mut poll = |second: i64, cause: Option<&str>| {
            let at = Moment { unix_us: second, ..start };
            let error = cause.map(|cause| SourceError::Engine { cause: cause.to_owned() });
            let result = error.as_ref().map_or(Ok(Presence::Present), Err);
            intake.end_poll(&mut Batch::default(), Duration::ZERO, result, at);
            let source = intake.engine().source.clone();
            (source.unanswered_since_us, source.last_failure.map(|failure| failure.text))
        };
        let (since, text) = poll(1, Some("\x1b[2J\n"));
        assert_eq!(
            (since, text.as_deref()),
            (Some(1), Some("cannot read the engine's statistics: ?[2J?; if this continues, restart the exporter"))
        );
        let (since, text) = poll(2, Some(&"x".repeat(99_999)));
        assert_eq!((since, text.map(|text| text.len())), (Some(1), Some(MAX_ERROR)), "since the first failure");
        assert_eq!(poll(3, None), (None, None));
    }

    #[test]
    fn the_keys_of_a_server_are_dropped_when_another_one_may_have_replaced_it() {
        let mut intake = intake();
        intake.find_unknown_keys_with(|keys| keys.into_iter().filter(|key| key != "iter").collect());
        let error = SourceError::Engine { cause: "stopped".to_owned() };
        let mut poll = |answers: bool, iter: u64, keys: &[&str]| {
            let mut batch = Batch::default();
            batch.messages.extend(answers.then(|| record(iter)));
            batch.keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let result = if answers { Ok(Presence::Present) } else { Err(&error) };
            intake.end_poll(&mut batch, Duration::ZERO, result, Moment::now());
            intake.engine().source.unread_keys.as_ref().map(|keys| keys.join(" "))
        };
        assert_eq!(poll(true, 50, &["iter", "numDreams"]).as_deref(), Some("numDreams"));
        assert_eq!(poll(true, 51, &["iter", "numWishes"]).as_deref(), Some("numDreams numWishes"), "sent now and then");
        assert_eq!(poll(false, 0, &[]).as_deref(), Some("numDreams numWishes"), "nobody has replaced it yet");
        assert_eq!(poll(true, 52, &[]), None, "not looked at yet");
        assert_eq!(poll(true, 53, &["numWishes"]).as_deref(), Some("numWishes"));
        // The server was replaced between two polls.
        assert_eq!(poll(true, 1, &[]), None);
        assert_eq!(poll(true, 2, &["iter"]).as_deref(), Some(""), "an older one");
    }

    #[test]
    fn costs_are_learned_anew_if_settings_change_that_decide_them() {
        let mut engine = Engine::starting();
        let about = |settings: &[(&str, &str)]| {
            let mut about = EngineAbout::default();
            settings.iter().for_each(|(name, value)| about.settings.set(name, value));
            about
        };
        learn(&mut engine, about(&[("dtype", "float16")]));
        for iter in 1..50 {
            let record = serde_json::json!({"iter": iter, "iterLatencyMS": 10.0, "numActiveRequests": 4,
                "inflightBatchingStats": {"numScheduledRequests": 4, "numGenRequests": 4, "numContextRequests": 0}});
            let (now, us) = (Instant::now() + Duration::from_millis(10 * iter), 10_000 * iter as i64);
            engine.observed.absorb(&serde_json::from_value(record).unwrap(), now, us).unwrap();
        }
        let mut forgets = |settings: &[(&str, &str)]| {
            learn(&mut engine, about(settings));
            engine.observed.analysis.iterations.model == CostModel::default()
        };
        assert!(!forgets(&[("dtype", "float16"), ("max_batch_size", "8")]));
        assert!(forgets(&[("dtype", "float16"), ("quantization", "FP8")]));
    }

    #[test]
    fn a_series_of_losses_is_one_event_in_the_log_and_the_next_series_another() {
        let (mut log, mut totals) = (SourceLog::default(), EngineTotals::default());
        let start = Instant::now();
        let mut logged = |seconds, lost: u64| {
            totals.losses.lost += lost;
            log.losses(&totals, start + Duration::from_secs(seconds))
        };
        assert_eq!(logged(0, 0), None);
        // A second reader takes every other record.
        for seconds in 1..30 {
            assert_eq!(logged(seconds, 2), (seconds == 1).then_some(2), "{seconds} s");
        }
        assert_eq!((logged(88, 0), logged(88, 1)), (None, None), "the series goes on");
        assert_eq!(logged(148, 3), Some(3), "another series");
    }

    #[test]
    fn the_lines_of_a_recording_decide_the_status_of_a_replay_until_it_ends() {
        let (mut intake, at) = (intake(), Moment::now());
        let mut poll = |entries: &[&Entry], ended| {
            let line = |entry: &&Entry| Line { at: at.to_record(), entry: (*entry).clone() };
            let mut batch = Batch::default();
            (batch.lines, batch.ended) = (entries.iter().map(line).collect(), ended);
            intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), at);
            let source = intake.engine().source.clone();
            let failure = source.last_failure.map(|failure| failure.text);
            (
                source.up,
                failure.as_deref() == Some("refused"),
                source.connections,
                source.only_requests,
                source.only_log,
            )
        };
        let header = |source| {
            Entry::Header(Box::new(Header::new(&EngineName::new("m", "1", source), 1, Duration::from_secs(15))))
        };
        let failure = PollFailure { kind: ErrorKind::Connect, text: "refused".to_owned(), not_ready: false };
        let (failing, left) = (Entry::Failing(Some(failure)), Entry::Disconnected(true));
        let settled = Entry::Settled(Settled { from_ring: true, drained_unparsed: false });
        let failed = (false, true, None, true, false);
        assert_eq!(poll(&[&header("perf-metrics"), &failing, &settled], false), failed);
        assert_eq!(poll(&[&Entry::Dropped(3)], false), failed, "the same process has dropped messages");
        assert_eq!(poll(&[&Entry::Dropped(0), &header("log")], false), (true, false, None, false, true));
        assert_eq!(poll(&[&header("otlp"), &left], false), (false, false, Some(0), true, false));
        assert_eq!(poll(&[&failing], true), (true, false, Some(0), true, false), "the last line ends both");
    }

    #[test]
    fn several_engines_behind_one_address_have_a_notice_and_nothing_of_them_is_counted() {
        let mut intake = intake();
        let mut poll = |messages: Vec<Message>| {
            let mut batch = Batch::default();
            (batch.messages, batch.notice) = (messages, Some("of the source"));
            intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), Moment::now());
            let engine = intake.engine();
            (engine.source.notice, engine.totals().iterations, engine.requests().finished.is_some())
        };
        for iter in [9000, 50] {
            assert_eq!(poll(vec![record(iter)]).0, Some("of the source"));
        }
        let (_, iterations, have_reasons) = poll(vec![record(9001)]);
        for iter in [51, 9002, 52] {
            let finish_reason = Some(trtllm_records::perf_metrics::FinishReason::Length);
            let entry = trtllm_records::PerfMetricsEntry { finish_reason, ..Default::default() };
            let all = vec![record(iter), Message::FinishedRequest(Box::new(entry))];
            assert_eq!(poll(all), (Some(SEVERAL_ENGINES), iterations, have_reasons));
        }
    }

    #[test]
    fn a_poll_that_fails_does_not_end_a_notice() {
        let mut intake = intake();
        let failed = SourceError::Engine { cause: "stopped".to_owned() };
        let mut logged = |notice, result| {
            let mut batch = Batch::default();
            batch.notice = notice;
            intake.end_poll(&mut batch, Duration::ZERO, result, Moment::now());
            intake.log.notice.value
        };
        assert_eq!(logged(Some("of the source"), Ok(Presence::Present)), Some("of the source"));
        assert_eq!(logged(None, Err(&failed)), Some("of the source"));
        assert_eq!(logged(None, Ok(Presence::Present)), None);
    }

    #[test]
    fn records_that_a_failed_poll_has_taken_are_lost_also_after_empty_answers_and_in_a_replay() {
        let record = |iter| {
            let pytorch = trtllm_records::iteration::StaticBatchingStats::default();
            Message::Record(Box::new(IterationStats {
                iter: Some(iter),
                num_active_requests: Some(1),
                static_batching_stats: Some(pytorch),
                ..IterationStats::default()
            }))
        };
        let at = Moment::now();
        for drained_unparsed in [true, false] {
            for replayed in [true, false] {
                let mut intake = intake();
                for (iter, drained_unparsed) in
                    [(Some(1), false), (Some(2), drained_unparsed), (None, false), (Some(9), false)]
                {
                    let messages: Vec<_> = iter.map(record).into_iter().collect();
                    let mut batch = Batch::default();
                    if replayed {
                        let settled = Entry::Settled(Settled { from_ring: true, drained_unparsed });
                        let entries = messages.into_iter().map(Entry::Message).chain([settled]);
                        batch.lines = entries.map(|entry| Line { at: at.to_record(), entry }).collect();
                    } else {
                        (batch.messages, batch.from_ring, batch.drained_unparsed) = (messages, true, drained_unparsed);
                    }
                    intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), at);
                }
                let engine = intake.engine();
                let totals = engine.totals();
                let expected = if drained_unparsed { (6, 0) } else { (0, 6) };
                assert_eq!((totals.losses.lost, totals.losses.unreported), expected, "replayed: {replayed}");
            }
        }
    }

    #[test]
    fn requests_without_records_have_a_notice_until_records_arrive() {
        let mut intake = intake();
        let start = Moment::now();
        let mut poll = |seconds, item: Option<Message>| {
            let at = Moment { instant: start.instant + Duration::from_secs(seconds), ..start };
            let mut batch = Batch::default();
            batch.messages.extend(item);
            intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), at);
            intake.engine().source.notice
        };
        let request = || Some(Message::FinishedRequest(Box::default()));
        for seconds in [0, 10, 20] {
            assert_eq!(poll(seconds, request()), None);
        }
        assert!(poll(31, None).unwrap().contains("enable_iter_perf_stats"));
        assert_eq!(poll(32, Some(record(1))), None);
    }
}
