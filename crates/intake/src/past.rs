//! Reconstructs the state of an engine at an earlier time from its recording. The same code judges a running exporter
//! and a recording, so their verdicts cannot disagree. Only the clock differs: the clock of a recording is in its lines.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use trtllm_analysis::objectives::ObjectiveTotals;
use trtllm_analysis::window::SLOT_SECONDS;
use trtllm_engines::{EngineSlot, State};
use trtllm_recording::{Entry, Header, Line, OpenRecordingError, RecordedMoment, Recording, utc};
use trtllm_records::EngineName;
use trtllm_records::gpu::{EngineGpus, GpuInventory, NvmlState};
use trtllm_sources::iteration_log::LoggedMessages;
use trtllm_sources::{Batch, Presence};

use crate::intake::{Intake, Moment};

/// Reading starts this long before the requested time, because the costs of iterations are learned from earlier records.
const BEFORE_US: i64 = 30 * 60 * 1_000_000;
/// A longer gap between two lines means that nothing was recorded: even an idle engine has a line each minute.
const LONGEST_GAP_US: i64 = 90 * 1_000_000;
/// Most lines that wait to be folded.
const ENOUGH: usize = 1024;
const SLOT_US: i64 = (SLOT_SECONDS * 1e6) as i64;
/// The start of the clock to which recorded moments are moved. It is later than any moment of this process, so that no
/// recorded moment is too early for this process.
const BEGIN_US: i64 = 1_000_000_000_000_000;

/// An engine in the past.
#[derive(Debug)]
pub struct PastEngine {
    /// The state of an exporter with this engine only.
    pub state: Arc<State>,
    /// The time of this state, in microseconds since 1970 UTC.
    pub at_us: i64,
    /// Number of segments with a damaged frame. What follows it in the segment was not read.
    pub damaged_segments: u64,
    intake: Intake,
    /// Its lines wait to be folded.
    batch: Batch,
    gpus: GpuInventory,
    serving: EngineGpus,
    /// The moment of the last line, on the clock of the past.
    last: RecordedMoment,
    /// Difference between the clock of the past and the clock of the recorded process.
    offset: i64,
    session: i64,
    next_judgement: i64,
}

/// Reads the recording of an engine up to a time, or to its end. `engine` is MODEL or MODEL:VERSION; `None` means the only engine.
/// Fails if the recording cannot be read, has no such engine, or has nothing of this time.
pub fn engine_at(
    recording: &Recording,
    engine: Option<&str>,
    at_us: Option<i64>,
) -> Result<PastEngine, OpenRecordingError> {
    let until = at_us.unwrap_or(i64::MAX);
    let mut reader = recording.read(engine, "--engine", |last| at_us.unwrap_or(last).saturating_sub(BEFORE_US))?;
    let mut past: Option<PastEngine> = None;
    let mut first_us = None;
    while let Some(line) = reader.next_line()? {
        let Ok(Line { at, entry }) = Line::parse(line) else { continue };
        let begin = *first_us.get_or_insert(at.us);
        if at.us > until {
            let mut past = past.filter(|_| begin <= until).ok_or_else(|| OpenRecordingError::Begins(utc(begin)))?;
            if until - past.last.us > LONGEST_GAP_US {
                return Err(OpenRecordingError::Pauses(utc(past.last.us), utc(at.us)));
            }
            past.damaged_segments = reader.torn();
            past.continue_until(until);
            return Ok(past);
        }
        match (&mut past, entry) {
            (None, Entry::Header(header)) => past = Some(PastEngine::new(header, at)),
            (Some(past), entry) => past.absorb(at, entry),
            (None, _) => {}
        }
    }
    let mut past = past.ok_or(OpenRecordingError::Empty)?;
    let end = past.last.us;
    if until < i64::MAX && until - end > LONGEST_GAP_US {
        return Err(OpenRecordingError::Ends(utc(end)));
    }
    past.damaged_segments = reader.torn();
    past.continue_until(if until == i64::MAX { end } else { until });
    Ok(past)
}

/// Reads the iteration log of an engine to its end, at the times that its lines have. `None` if it has no such line.
/// Fails if the log cannot be read.
pub fn engine_of_log(
    mut log: LoggedMessages<impl std::io::BufRead>,
    model: &str,
) -> std::io::Result<Option<PastEngine>> {
    let (mut past, mut at, mut begun) = (None::<PastEngine>, RecordedMoment::default(), None);
    while let Some((message, us)) = log.next_message()? {
        // The local time may be set back.
        at = RecordedMoment { us, clock_us: at.clock_us.max(us - *begun.get_or_insert(us)) };
        let past = past.get_or_insert_with(|| {
            let header = Header::new(&EngineName::new(model, "1", "log"), 0, Duration::from_secs(15));
            PastEngine::new(Box::new(header), at)
        });
        past.absorb(at, Entry::Message(message));
    }
    if let Some(past) = &mut past {
        past.continue_until(at.us);
        past.slot().lock().source.notice = log.notice();
    }
    Ok(past)
}

impl PastEngine {
    fn new(header: Box<Header>, at: RecordedMoment) -> Self {
        let Header { model, version, labels, source, objectives, session, stale_after_ms, .. } = &*header;
        let name = EngineName {
            model: model.clone(),
            version: version.clone(),
            labels: labels.clone(),
            // Rules apply to some kinds only.
            source: ["log", "sim", "executor"].into_iter().find(|kind| *kind == source.as_str()).unwrap_or("recording"),
            objectives: *objectives,
        };
        let state = Arc::new(State::new(vec![name]));
        let intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_millis(*stale_after_ms));
        let (last, session) = (RecordedMoment { us: at.us, clock_us: BEGIN_US }, *session);
        let mut batch = Batch::default();
        batch.lines.push(Line { at: last, entry: Entry::Header(header) });
        Self {
            intake,
            state,
            at_us: at.us,
            damaged_segments: 0,
            batch,
            gpus: GpuInventory::default(),
            serving: EngineGpus::default(),
            last,
            offset: BEGIN_US - at.clock_us,
            session,
            next_judgement: BEGIN_US,
        }
    }

    pub fn slot(&self) -> Arc<EngineSlot> {
        Arc::clone(&self.state.slots()[0])
    }

    fn absorb(&mut self, at: RecordedMoment, entry: Entry) {
        if let Entry::Header(header) = entry {
            // Another process continued the recording, with another clock.
            if header.session != self.session {
                self.session = header.session;
                self.offset = self.last.clock_us + (at.us - self.last.us).max(0) - at.clock_us;
                self.next_judgement = self.offset + at.clock_us;
                self.batch.lines.push(Line { at: self.last, entry: Entry::Dropped(0) });
                // The other process may have had other objectives. The counts continue.
                let slot = self.slot();
                let objectives = &mut slot.lock().observed.analysis.objectives;
                *objectives = ObjectiveTotals::with_limits(objectives.take(), header.objectives);
            }
            self.batch.lines.push(Line { at: self.last, entry: Entry::Header(header) });
            return;
        }
        let at = RecordedMoment { us: at.us, clock_us: at.clock_us + self.offset };
        if at.clock_us - self.last.clock_us > LONGEST_GAP_US {
            self.next_judgement = at.clock_us;
        }
        self.judge_until(at.clock_us);
        self.last = at;
        match entry {
            Entry::Gpu(gpu) => {
                self.serving.uuids.retain(|uuid| *uuid != gpu.identity.uuid);
                self.serving.uuids.extend(gpu.serves.unwrap_or_default().then(|| gpu.identity.uuid.clone()));
                let known = self.gpus.gpus.iter_mut().find(|other| other.identity.uuid == gpu.identity.uuid);
                match known {
                    Some(known) => *known = *gpu,
                    None => self.gpus.gpus.push(*gpu),
                }
            }
            entry => {
                let is_end = matches!(entry, Entry::Settled(_));
                self.batch.lines.push(Line { at, entry });
                if is_end {
                    self.end_poll(at);
                } else if self.batch.lines.len() >= ENOUGH {
                    self.intake.absorb_messages(&mut self.batch, Moment::recorded(at));
                }
            }
        }
    }

    fn end_poll(&mut self, at: RecordedMoment) {
        self.intake.end_poll(&mut self.batch, Duration::ZERO, Ok(Presence::Present), Moment::recorded(at));
    }

    /// Judges the engine every five seconds, like a running exporter.
    fn judge_until(&mut self, clock_us: i64) {
        while self.next_judgement <= clock_us {
            let at = self.next_judgement;
            let us = self.last.us + (at - self.last.clock_us);
            // Polls that found nothing are not recorded, so one is ended here.
            self.end_poll(RecordedMoment { us, clock_us: at });
            if !self.gpus.gpus.is_empty() {
                let expected = self.gpus.gpus.len() as u32;
                let gpus = GpuInventory { nvml: NvmlState::Up, expected, ..self.gpus.clone() };
                self.state.publish_gpus(gpus);
                let serving = (!self.serving.uuids.is_empty()).then(|| Arc::new(self.serving.clone()));
                self.slot().lock().gpus = serving;
            }
            self.state.judge((at - BEGIN_US) as f64 / 1e6, us as f64 / 1e6);
            self.next_judgement += SLOT_US;
        }
    }

    fn continue_until(&mut self, us: i64) {
        let clock_us = self.last.clock_us + (us - self.last.us).clamp(0, LONGEST_GAP_US);
        self.judge_until(clock_us);
        self.end_poll(RecordedMoment { us, clock_us });
        self.at_us = us;
    }
}

/// The engines of a recording at a time: the named one, or all that have records of this time. Fails if the recording cannot
/// be read, or no engine has records of this time.
pub fn engines_at(
    recording: &Recording,
    engine: Option<&str>,
    at_us: Option<i64>,
) -> Result<Vec<PastEngine>, OpenRecordingError> {
    if engine.is_some() {
        return Ok(vec![engine_at(recording, engine, at_us)?]);
    }
    let (mut found, mut outside) = (Vec::new(), None);
    for engine in all_engines_at(recording, at_us) {
        match engine {
            Ok(past) => found.push(past),
            Err(
                error @ (OpenRecordingError::Begins(_) | OpenRecordingError::Ends(_) | OpenRecordingError::Pauses(..)),
            ) => outside = Some(error),
            Err(error) => return Err(error),
        }
    }
    match outside {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Reads all engines, on all processors. The results are in the order of the engines.
fn all_engines_at(recording: &Recording, at_us: Option<i64>) -> Vec<Result<PastEngine, OpenRecordingError>> {
    let names: Vec<&str> = recording.engines().collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |names: &[&str]| names.iter().map(|name| engine_at(recording, Some(name), at_us)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let chunks = names.chunks(names.len().div_ceil(threads).max(1));
        let workers: Vec<_> = chunks.map(|names| scope.spawn(move || read(names))).collect();
        // A worker fails only by a panic, which is a bug that the user must see.
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}
