//! The flight recorder: a replay counts exactly the contents of the recording. If the recording is complete, the replay
//! has the counters and histograms of the exporter that wrote it. After kill -9, a restart, a full disk or the deletion
//! of old segments, the replay counts the remaining items, and does not count missing items as lost by the engine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_engines::State;
use trtllm_fold::lifecycle::Stages;
use trtllm_fold::request_totals::RequestTotals;
use trtllm_fold::{EngineTotals, Latest};
use trtllm_intake::{Intake, Moment};
use trtllm_recording::recorder::{Recorder, RecorderConfig};
use trtllm_recording::{Entry, Line, LineWriter, OpenRecordingError, RecordedMoment, Recording, directory, frame};
use trtllm_records::Objectives;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::step_times::Steps;
use trtllm_records::{
    BenchReport, EngineAbout, EngineName, IterationStats, Message, PerfMetricsEntry, RecorderCounts,
    RequestStatsPerIteration, StepTimes,
};
use trtllm_sources::playback::Playback;
use trtllm_sources::prometheus_text::parse_server_metrics;
use trtllm_sources::replay::{Pace, Replay};
use trtllm_sources::trtllm_json::{self, parse_line, parse_perf_metrics, parse_records};
use trtllm_sources::{Batch, Blocking, Presence, bench_report};

use crate::support;
use crate::support::daemon::{Daemon, doctor, refused};
use crate::support::ingest::Ingest;
use crate::support::lookalike::{Lookalike, often_idle, steady};
use crate::support::page::{Page, name_of};
use crate::support::{Random, ensure, payload, until};

/// The compatibility sets. A replay must also reproduce their totals.
const COMPAT: &str = "trtllm,vllm,triton-core,spec";

/// Messages of every kind, as the parsers read them from the fixtures.
fn all_messages() -> Vec<Message> {
    let mut batch = Batch::default();
    for entry in fs::read_dir("tests/fixtures").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("metrics_") && name.ends_with(".json") {
            parse_records(payload(&name).to_string().as_bytes(), &mut batch).unwrap();
        }
    }
    parse_perf_metrics(payload("perf_metrics_SHAPE.json").to_string().as_bytes(), &mut batch).unwrap();
    // A record with an impossible key, and one with impossible values.
    let odd = [
        r#"{"iter":"x","numActiveRequests":1}"#,
        r#"{"iter":9,"numActiveRequests":1,"iterLatencyMS":NaN,"gpuMemUsage":-1}"#,
    ];
    let session = fs::read_to_string("tests/fixtures/session.ndjson").unwrap();
    for line in odd.into_iter().chain(session.lines()) {
        if let Ok(trtllm_json::PublisherLine::Message(item)) = parse_line(line.as_bytes()) {
            batch.messages.push(item);
        }
    }
    let page = include_str!("../fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");
    batch.messages.push(Message::ServerMetrics(Box::new(parse_server_metrics(page.as_bytes()).unwrap())));
    let report = fs::read_to_string("tests/fixtures/trtllm_bench_report.json").unwrap();
    batch.messages.push(Message::BenchReport(Arc::new(bench_report::parse(&report).unwrap())));
    batch.messages.push(Message::Process(u64::MAX));
    batch.messages
}

fn name(model: &str) -> EngineName {
    let (ttft, e2e) = (Some(Duration::from_millis(300)), Some(Duration::from_secs(3)));
    let objectives = Objectives { ttft, e2e, ..Objectives::default() };
    EngineName { objectives, ..EngineName::new(model, "1", "test") }
}

/// An engine whose polls are recorded. The test sets the clock.
struct Recorded {
    recorder: Recorder,
    counts: RecorderCounts,
    state: State,
    intake: Intake,
    at: Moment,
    random: Random,
    iter: u64,
    /// The number of a record that is missing.
    late: Option<u64>,
    /// Half of the answers come from a server's ring. Then the engine needs a while to start, because faster restarts are those of
    /// several engines.
    from_server: bool,
    messages: Vec<Message>,
    sent: u64,
}

fn start_recorder(directory: &Path, max_size: u64, counts: RecorderCounts) -> Recorder {
    let stale_after = Duration::from_secs(15);
    let config = RecorderConfig { directory: directory.to_owned(), max_size, max_age: None, stale_after };
    Recorder::start(config, counts).unwrap()
}

impl Recorded {
    fn start(directory: &Path, max_size: u64, seed: u64) -> Self {
        let counts = RecorderCounts::default();
        let recorder = start_recorder(directory, max_size, counts.clone());
        let state = State::new(vec![name("m")]);
        let mut intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
        intake.record_to(recorder.engine(&name("m")));
        let (at, random, messages) = (Moment::now(), Random(seed), all_messages());
        Self { recorder, counts, state, intake, at, random, iter: 1, late: None, from_server: false, messages, sent: 0 }
    }

    fn poll(&mut self, messages: Vec<Message>, after: Duration) {
        self.at.instant += after;
        self.at.unix_us += i64::try_from(after.as_micros()).unwrap();
        let mut batch = Batch::default();
        batch.from_ring = self.random.below(2) == 0 && self.from_server;
        batch.messages = messages;
        self.sent += batch.messages.len() as u64;
        if self.random.below(4) == 0 {
            self.intake.absorb_messages(&mut batch, self.at);
        }
        self.intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), self.at);
    }

    /// Polls that return items of all kinds in random order, with gaps and restarts. After some longer pauses, the
    /// exporter no longer waits for exact times of requests.
    fn polls(&mut self, count: usize) {
        for _ in 0..count {
            let some = self.random.below(6);
            let messages = (0..some).map(|_| self.message()).collect();
            let after = [20, 100, 100, 100, 700, 6000][self.random.index(6)];
            self.poll(messages, Duration::from_millis(after));
            self.until_written(500);
        }
    }

    /// Waits until fewer than `but` items are unwritten, because a test polls faster than any engine.
    fn until_written(&self, but: u64) {
        until(|| {
            let written = self.counts.written.get();
            ensure(self.sent < written + but, || format!("{written} of {} are written", self.sent))
        });
    }

    fn message(&mut self) -> Message {
        let at = self.random.index(self.messages.len());
        let mut message = self.messages[at].clone();
        let random = &mut self.random;
        match &mut message {
            Message::Record(record) => {
                // Adds gaps, late records, restarts, absurd values and absurd keys.
                let (next, late) = (self.iter + 1, self.late.take());
                let number = match (random.below(40), late) {
                    (0, _) => 1,
                    (1, _) => {
                        self.late = Some(next);
                        next + 2
                    }
                    (2..5, Some(late)) => late,
                    _ => next,
                };
                if number == 1 && self.from_server {
                    let start = Duration::from_secs(20);
                    self.at.instant += start;
                    self.at.unix_us += i64::try_from(start.as_micros()).unwrap();
                }
                self.iter = if number == 1 { 1 } else { self.iter.max(number) };
                record.iter = Some(number);
                record.iter_latency_ms = Some(random.below(100_000) as f64 / 1000.0);
                if random.below(50) == 0 {
                    record.iter_latency_ms = Some(f64::NAN);
                }
                if random.below(50) == 0 {
                    record.stats_sequence = Some(u64::MAX);
                }
                for row in record.request_stats.iter_mut().flatten() {
                    row.id = Some(random.below(20));
                }
            }
            Message::RequestRows(rows) => rows.iter = Some(self.iter),
            Message::FinishedRequest(entry) => entry.request_id = Some(random.below(1 << 40)),
            Message::ServerMetrics(page) => {
                page.counts.iter_mut().for_each(|count| count.value += random.below(1000));
                self.messages[at] = message.clone();
            }
            Message::Process(process) => *process = random.below(2),
            _ => {}
        }
        message
    }

    fn stop(self) -> Seen {
        drop(self.intake);
        self.recorder.stop(support::TIMEOUT);
        assert_eq!((self.counts.dropped.get(), self.counts.errors.get()), (0, 0));
        Seen::of(&self.state)
    }
}

/// Returns the engine after a replay at full speed, and the number of truncated segments.
fn replay(path: &Path, engine: Option<&str>) -> (Seen, u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let state = State::new(vec![name("replay")]);
    let mut intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
    let (path, engine) = (path.to_owned(), engine.map(str::to_owned));
    let whole = async move {
        let open = move |path: &Path| Playback::open(path, engine.as_deref(), Pace::Recorded(f64::INFINITY));
        let (mut source, mut torn) = (Blocking::replay(path, open).await.unwrap(), 0);
        let mut batch = Batch::default();
        loop {
            let presence = source.poll(&mut batch).await.unwrap();
            let (ended, rejected) = (batch.ended, batch.rejected);
            assert_eq!(rejected.iter().sum::<u64>(), rejected[3], "only cut frames are left out");
            torn += rejected[3];
            intake.end_poll(&mut batch, Duration::ZERO, Ok(presence), Moment::now());
            if ended {
                return torn;
            }
        }
    };
    let torn = runtime.block_on(async { tokio::spawn(whole).await.unwrap() });
    (Seen::of(&state), torn)
}

/// What is seen of an engine.
#[derive(Debug, PartialEq)]
struct Seen {
    totals: EngineTotals,
    requests: RequestTotals,
    stages: Option<Stages>,
    latest: Option<Latest>,
    about: EngineAbout,
    bench_report: Option<Arc<BenchReport>>,
}

impl Seen {
    fn of(state: &State) -> Self {
        let slots = state.slots();
        let engine = slots[0].lock();
        Self {
            totals: engine.totals().clone(),
            requests: engine.requests().clone(),
            stages: engine.observed.fold.stages(),
            latest: engine.latest().copied(),
            about: engine.about.clone(),
            bench_report: engine.source.bench_report.clone(),
        }
    }
}

fn lines(directory: &Path) -> Vec<String> {
    let mut reader = Recording::open(directory).unwrap().read(None, "--engine", |_| i64::MIN).unwrap();
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        lines.push(String::from_utf8(line.to_vec()).unwrap());
    }
    lines
}

/// True if a recorded line contains an item of this kind.
fn is_kind(line: &str, kind: &str) -> bool {
    line.contains(&format!("\"version\":\"1\",\"{kind}\":"))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    directory::segments(directory).unwrap().into_iter().map(|segment| segment.path).collect()
}

#[test]
fn a_replay_has_the_totals_of_the_recording_for_all_kinds_of_messages() {
    for seed in 1..=4 {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = Recorded::start(folder.path(), 64 << 20, seed);
        engine.from_server = true;
        engine.polls(1500);
        let recorded = engine.stop();
        assert!(recorded.totals.engine_restarts > 2 && recorded.totals.losses.lost > 2, "{:?}", recorded.totals);
        let requests = &recorded.requests;
        assert!(requests.times.e2e_latency.count() > 10, "{:?}", requests.times.e2e_latency);
        assert!(requests.server.prompt_tokens > Some(10), "{:?}", requests.server);
        let (replayed, torn) = replay(folder.path(), None);
        assert_eq!(torn, 0);
        assert_eq!(replayed, recorded);
        // Checks that every kind of message is in the recording.
        let lines = lines(folder.path());
        let kinds =
            ["record", "request_rows", "finished_request", "server_metrics", "bench_report", "process", "settled"];
        for kind in kinds {
            assert!(lines.iter().any(|line| is_kind(line, kind)), "{kind}");
        }
    }
}

/// The documents tell people to read a recording in this way.
#[test]
fn zstdcat_prints_every_line_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Recorded::start(folder.path(), 64 << 20, 8);
    engine.polls(100);
    engine.stop();
    let printed =
        Command::new("zstdcat").args(files(folder.path())).output().expect("zstdcat; run tests/run to install it");
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines(folder.path()));
    for line in printed.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["us"].is_u64() && line["model"] == "m" && line["version"] == "1", "{line}");
    }
    // A replay needs the directory: these lines may be of several engines.
    let file = folder.path().join("lines.ndjson");
    fs::write(&file, &printed).unwrap();
    let refused = Replay::check(&file, Pace::Rate(1.0)).unwrap_err().to_string();
    assert!(refused.contains("needs its directory"), "{refused}");
    // After kill -9, the last frame is cut.
    let file = files(folder.path()).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    for length in (whole.len() / 2..whole.len()).step_by(whole.len() / 20) {
        fs::write(&file, &whole[..length]).unwrap();
        let mut rest = Command::new("zstdcat").arg(&file).output().unwrap().stdout;
        // zstdcat prints the first bytes of a frame as they are if its four bytes of magic are cut.
        const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
        if let Some(cut) = (1..MAGIC.len()).find(|cut| rest.ends_with(&MAGIC[..*cut])) {
            rest.truncate(rest.len() - cut);
        }
        let rest = String::from_utf8(rest).unwrap();
        assert!(printed.starts_with(&rest) && rest.ends_with('\n'), "cut at {length}");
    }
}

#[test]
fn every_message_is_read_as_it_was_written() {
    let extreme = IterationStats {
        iter: Some(u64::MAX),
        iter_latency_ms: Some(-0.0),
        host_step_time_ms: Some(f64::MIN_POSITIVE),
        gpu_forward_time_ms: Some(f64::MAX),
        num_active_requests: Some(i64::MIN),
        gpu_mem_usage: Some(i64::MAX),
        kv_cache_level_tiers: Some(vec!["\"perf_metrics\"\n\u{0}é".to_owned(), String::new()]),
        ..IterationStats::default()
    };
    let mut messages = all_messages();
    messages.push(Message::Record(Box::new(extreme)));
    messages.push(Message::Record(Box::default()));
    messages.push(Message::RequestRows(RequestStatsPerIteration { iter: None, request_stats: Some(Vec::new()) }));
    let mut kinds = std::collections::BTreeSet::new();
    for message in messages {
        let entry = Entry::Message(message);
        let text = format!("{entry:?}");
        let (mut written, at) = (Vec::new(), RecordedMoment { us: 5, clock_us: -7 });
        assert!(LineWriter::new(&EngineName::new("m\"1", "1", "test")).write(at, &entry, &mut written));
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
        let line = Line::parse(written.trim_ascii_end()).unwrap();
        assert_eq!((line.at, format!("{:?}", line.entry)), (at, text.clone()));
        kinds.insert(text.split('(').nth(1).unwrap().to_owned());
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

/// A request that timed out, with random times of its steps, which cannot be compressed. No other message has this reason.
fn large_entry(random: &mut Random) -> Message {
    let token_times = (0..500).map(|_| random.below(1 << 40) as f64 / 1e6).collect();
    let step_metrics = Steps { token_times, ..Steps::default() };
    Message::FinishedRequest(Box::new(PerfMetricsEntry {
        request_id: Some(random.below(1 << 40)),
        finish_reason: Some(FinishReason::Timeout),
        time_breakdown_metrics: Some(StepTimes { step_metrics: Some(step_metrics), ..StepTimes::default() }),
        ..PerfMetricsEntry::default()
    }))
}

#[test]
fn the_oldest_segments_are_deleted_and_a_replay_counts_the_rest() {
    const MAX: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Recorded::start(folder.path(), MAX, 9);
    let mut deleted = false;
    while !deleted {
        engine.polls(3);
        let mut messages: Vec<Message> = (0..4).map(|_| large_entry(&mut engine.random)).collect();
        messages.push(engine.message());
        engine.poll(messages, Duration::from_millis(100));
        engine.until_written(100);
        assert!(engine.counts.bytes.get() <= MAX);
        deleted = files(folder.path()).first().is_some_and(|first| {
            first.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().parse::<u64>().unwrap() >= 4
        });
    }
    // Nothing waits for a better source any more.
    let last = engine.message();
    engine.poll(vec![last], Duration::from_secs(20));
    let recorded = engine.stop();
    let size: u64 = files(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(size <= MAX && size > MAX / 3, "{size}");
    let timed_out =
        |snapshot: &Seen| snapshot.requests.finished.map_or(0, |finished| finished[FinishReason::Timeout as usize]);
    let in_lines = || {
        let lines = lines(folder.path());
        lines.iter().filter(|line| line.contains("\"finishReason\":\"timeout\"")).count() as u64
    };
    let all = replay(folder.path(), None).0;
    assert_eq!(timed_out(&all), in_lines());
    assert!(timed_out(&all) < timed_out(&recorded) && all.totals.iterations < recorded.totals.iterations);
    // The last segment alone must also be readable, because each segment contains the facts about the engine.
    for file in files(folder.path()).iter().rev().skip(1) {
        fs::remove_file(file).unwrap();
    }
    let last = replay(folder.path(), None).0;
    assert_eq!(timed_out(&last), in_lines());
    assert!(timed_out(&last) < timed_out(&all));
    assert!(recorded.bench_report.is_some());
    assert_eq!(last.bench_report, recorded.bench_report);
    assert_eq!(last.about, recorded.about);
}

#[test]
fn a_restarted_exporter_continues_the_directory_and_a_replay_has_the_sum() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Recorded::start(folder.path(), 64 << 20, 5);
    first.polls(100);
    let first = first.stop();
    let before = files(folder.path());
    let mut second = Recorded::start(folder.path(), 64 << 20, 6);
    second.polls(100);
    let recorded = second.stop();
    assert!(files(folder.path()).starts_with(&before) && files(folder.path()).len() == before.len() + 1);
    let replayed = replay(folder.path(), None).0;
    let sum = |number: fn(&Seen) -> u64| {
        assert_eq!(number(&replayed), number(&first) + number(&recorded));
    };
    sum(|snapshot| snapshot.totals.iterations);
    sum(|snapshot| snapshot.totals.losses.lost);
    sum(|snapshot| snapshot.totals.engine_restarts);
    sum(|snapshot| snapshot.totals.requests_completed);
    sum(|snapshot| snapshot.totals.batch.tokens.context);
    sum(|snapshot| snapshot.requests.times.e2e_latency.count());
    sum(|snapshot| snapshot.requests.server.prompt_tokens.unwrap_or(0));
}

#[test]
fn a_segment_that_is_cut_at_any_byte_is_read_up_to_the_last_whole_frame() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Recorded::start(folder.path(), 64 << 20, 7);
    engine.polls(4);
    // Wait, so that the items of the next polls are in another frame.
    engine.until_written(1);
    engine.polls(4);
    engine.stop();
    let file = files(folder.path()).pop().unwrap();
    let (whole, all) = (fs::read(&file).unwrap(), lines(folder.path()));
    let mut seen = std::collections::BTreeSet::new();
    let step = if support::long() { 1 } else { 7 };
    for length in (0..whole.len()).step_by(step) {
        fs::write(&file, &whole[..length]).unwrap();
        match Recording::open(folder.path()) {
            Err(OpenRecordingError::Empty) => assert_eq!(length, 0),
            Err(error @ OpenRecordingError::OtherFormats(_)) => assert!(seen.is_empty(), "cut at {length}: {error}"),
            Err(error) => panic!("{error}"),
            Ok(_) => {
                let rest = lines(folder.path());
                assert_eq!(rest, all[..rest.len()], "cut at {length}");
                seen.insert(rest.len());
            }
        }
    }
    assert!(seen.len() >= 2, "frames: {seen:?}");
}

#[test]
fn segments_of_another_format_are_named_at_the_start_and_by_each_command() {
    let [old, mixed] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut engine = Recorded::start(mixed.path(), 64 << 20, 11);
    engine.polls(50);
    engine.stop();
    let frame = frame::Encoder::default().encode(br#"{"us":60000000,"recording":{"format":3}}"#).unwrap();
    for folder in [&old, &mixed] {
        fs::write(directory::create(folder.path(), 0, "m").unwrap().0, &frame).unwrap();
    }
    let [old, mixed] = [old.path().to_str().unwrap(), mixed.path().to_str().unwrap()];
    let words = ["left out: 1, from 1970-01-01T00:01:00", "They have format 3"];
    let commands = |directory| {
        [
            vec!["diagnose", "--recording", directory],
            vec!["diagnose", "--recording", directory, "--format", "json"],
            vec!["what-if", "--recording", directory, "--set", "max_batch_size=16"],
            vec!["compare", directory, "http://127.0.0.1:1"],
            vec!["export", directory],
        ]
    };
    for arguments in commands(old).into_iter().chain(commands(mixed)) {
        let answer = doctor(&arguments);
        let message = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(words.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
        assert!(arguments.contains(&mixed) || answer.status.code() == Some(2), "{arguments:?}: {answer:?}");
    }
    let replay = |directory: &str| format!("replay:{directory}");
    refused(2, &["--source", &replay(old)], &words);
    Daemon::start(&["--source", &replay(mixed)]).until_logged(&words);
    Daemon::start(&["--record.dir", old]).until_logged(&words);
}

#[test]
fn the_engine_of_a_recording_is_chosen_and_hostile_names_stay_in_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("recording");
    let recorder = start_recorder(&directory, 4 << 20, RecorderCounts::default());
    let names = ["../../escape", "a/b\n\0\"é", "m", "recorder.lock"];
    for (at, engine) in names.iter().enumerate() {
        let state = State::new(vec![name(engine)]);
        let mut intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
        intake.record_to(recorder.engine(&name(engine)));
        for iter in 0..=at as u64 {
            let mut batch = Batch::default();
            batch.messages.push(Message::Record(Box::new(IterationStats { iter: Some(iter), ..Default::default() })));
            intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), Moment::now());
        }
    }
    recorder.stop(support::TIMEOUT);
    assert_eq!(files(&directory).len(), names.len());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside the directory");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert!(files(&directory).iter().all(|file| mode(file) == 0o600));
    for (at, engine) in names.iter().enumerate() {
        assert_eq!(replay(&directory, Some(engine)).0.totals.iterations, at as u64 + 1, "{engine:?}");
        assert_eq!(replay(&directory, Some(&format!("{engine}:1"))).0.totals.iterations, at as u64 + 1, "{engine:?}");
    }
    let recording = Recording::open(&directory).unwrap();
    let error = |engine| recording.read(engine, "--engine", |_| i64::MIN).unwrap_err().to_string();
    assert!(error(None).contains("choose one with --engine") && error(None).contains("recorder.lock:1"));
    assert!(error(Some("x")).contains("no engine \"x\""));
    let empty = tempfile::tempdir().unwrap();
    let error = Recording::open(empty.path()).unwrap_err();
    assert!(matches!(error, OpenRecordingError::Empty), "{error}");
}

/// The series of counters and histograms of engines. Leaves out the series about the exporter.
fn totals(page: &Page) -> Vec<(String, f64)> {
    let of_engines = page.totals().into_iter().filter(|(series, _)| {
        let name = name_of(series);
        !name.starts_with("trtllm_exporter_") && !name.starts_with("process_")
    });
    let mut totals: Vec<(String, f64)> = of_engines.map(|(series, value)| (series.to_owned(), value)).collect();
    totals.sort_by(|a, b| a.0.cmp(&b.0));
    totals
}

fn assert_totals(replayed: &[(String, f64)], recorded: &[(String, f64)]) {
    assert_eq!(replayed.len(), recorded.len());
    let differing = replayed.iter().zip(recorded).filter(|(replayed, recorded)| replayed != recorded);
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

/// The lines must have each iteration and each token of the page.
fn assert_lines(lines: &[String], page: &Page) {
    let lines: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter_map(|line| line.get(kind).cloned()).collect::<Vec<_>>();
    assert!(!of("finished_request").is_empty());
    assert_eq!(of("record").len() as u64, page.count("nv_trt_llm_iterations_total", &[]));
    let tokens = of("record")
        .iter()
        .map(|record| record["inflightBatchingStats"]["numCtxTokens"].as_u64().unwrap_or(0))
        .sum::<u64>();
    assert_eq!(tokens, page.count("nv_trt_llm_context_tokens_total", &[]), "context tokens");
    assert!(lines.iter().all(|line| line["us"].as_u64().unwrap() > 1_700_000_000_000_000));
}

/// The exported trace must follow Chrome's trace format, with a track for each phase and each request.
fn assert_trace(trace: &[u8], lines: &[String]) {
    let trace: serde_json::Value = serde_json::from_slice(trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert!(of("X").iter().all(|event| event["dur"].as_i64().unwrap() >= 0 && event["ts"].as_i64().unwrap() > 0));
    let mut ends = std::collections::BTreeMap::new();
    for event in of("X") {
        let (begin, length) = (event["ts"].as_i64().unwrap(), event["dur"].as_i64().unwrap());
        let before = ends.insert(event["tid"].as_i64().unwrap(), begin + length).unwrap_or(0);
        assert!(begin >= before, "events of a track overlap: {event}");
    }
    let iterations = of("X").iter().filter(|event| event["name"] == "iteration").count();
    assert_eq!(iterations, lines.iter().filter(|line| is_kind(line, "record")).count());
    let names: std::collections::BTreeSet<_> = of("M").iter().map(|event| event["args"]["name"].to_string()).collect();
    assert!(names.contains("\"rank 0 decode\"") && names.contains("\"engine m:1\""), "{names:?}");
    let requests = lines.iter().filter(|line| is_kind(line, "finished_request")).count();
    let whole = |phase| of(phase).iter().filter(|event| event["name"].as_str().unwrap().starts_with("request")).count();
    assert!(requests > 0 && whole("b") == requests && whole("e") == requests, "{requests} requests");
    assert_eq!(of("b").len(), of("e").len());
}

/// The page after a replay at full speed has ended.
fn replayed_page(source: &str, iterations: u64) -> Page {
    let daemon = Daemon::start(&["--source", source, "--model", "m", "--metrics.compat", COMPAT]);
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], iterations as f64);
    daemon.poll(&[], 2)
}

#[test]
fn the_page_of_a_replay_equals_that_of_the_recording_exporter() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("deep/recording");
    let directory = directory.to_str().unwrap();
    let engine = Lookalike::start(&often_idle(200), &[]);
    let source = engine.source();
    let mut daemon =
        Daemon::start(&["--source", &source, "--model", "m", "--metrics.compat", COMPAT, "--record.dir", directory]);
    until(|| ensure(engine.truth().count("iterations") > 600, || "too few iterations".to_owned()));
    engine.control(r#"{"drain":true}"#);
    until(|| ensure(engine.truth().is("idle"), || "requests are left".to_owned()));
    let answered = |page: &Page| page.get("trtllm_exporter_last_success_timestamp_seconds", &[]);
    let since = answered(&daemon.page());
    // The exporter waits 5 s for exact times of a request before it uses the times of rows.
    let page = daemon.until(|page| {
        let later = answered(page) - since;
        ensure(later > 6.0, || format!("{later} s later"))
    });
    assert!(page.get("trtllm_exporter_recorder_items_total", &[]) > 600.0);
    assert!(page.get("trtllm_exporter_recorder_size_bytes", &[]) > 1000.0);
    assert_eq!(page.count("trtllm_exporter_recorder_dropped_total", &[]), 0);
    assert!(daemon.terminate().success());
    let iterations = page.count("nv_trt_llm_iterations_total", &[]);
    let all = totals(&page);
    assert!(all.len() > 300, "{}", all.len());
    assert!(all.iter().any(|(series, value)| series.contains("e2e_") && *value > 0.0));
    let from_directory = replayed_page(&format!("replay:{directory}?speed=max"), iterations);
    assert_totals(&totals(&from_directory), &all);
    let lines = lines(Path::new(directory));
    assert_lines(&lines, &page);
    let export = |more: &[&str]| doctor(&[&["export", directory], more].concat());
    let exported = export(&[]);
    assert!(exported.status.success());
    assert_trace(&exported.stdout, &lines);
    assert_eq!(export(&["--from", "1h", "--engine", "m:1"]).stdout, exported.stdout);
    let nothing: serde_json::Value = serde_json::from_slice(&export(&["--until", "-1h"]).stdout).unwrap();
    assert_eq!(nothing["traceEvents"], serde_json::json!([]));
    refused(2, &["trtllm-doctor", "export", directory, "--engine", "x"], &["choose one of m:1"]);
}

#[test]
fn a_replay_has_the_settings_that_a_publisher_sent() {
    let (socket, folder) = (Ingest::new(), tempfile::tempdir().unwrap());
    let [directory, file] = ["recording", "sent.ndjson"].map(|name| folder.path().join(name));
    let lines = r#"{"hello":{"pid":1,"config":{"quantization":"FP8","tensor_parallel_size":2}}}
        {"iter":1,"numActiveRequests":1}
        {"iter":2,"numActiveRequests":0}
        "#;
    let mut daemon = socket.serve(&["--model", "m", "--record.dir", directory.to_str().unwrap()]);
    socket.connect().write_all(lines.as_bytes()).unwrap();
    daemon.until_is("nv_trt_llm_iterations_total", &[], 2.0);
    assert!(daemon.terminate().success());
    fs::write(&file, lines).unwrap();
    for source in [directory, file] {
        let page = replayed_page(&format!("replay:{}?speed=max", source.display()), 2);
        let labels = ["quantization=FP8", "tensor_parallel_size=2", "dtype=unknown"];
        assert_eq!(page.get("nv_trt_llm_engine_config_info", &labels), 1.0, "{}", source.display());
    }
}

#[test]
fn kill_9_loses_at_most_the_last_second() {
    let mut random = Random(u64::from(std::process::id()) << 20 | 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let after = Duration::from_millis(random.below(1000));
            scope.spawn(move || kill_9_loses_at_most_a_second(after));
        }
    });
}

/// `after` shifts the moment of the kill relative to the writes of the recorder, which happen once per second.
fn kill_9_loses_at_most_a_second(after: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let engine = Lookalike::start(&steady(200), &[]);
    let arguments = ["--source", &engine.source(), "--record.dir", directory, "--poll.interval", "50ms"];
    let mut daemon = Daemon::start(&arguments);
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 300.0);
    std::thread::sleep(after);
    let page = daemon.page();
    let scraped = Instant::now();
    // The recorder must write what the page shows within one second. Wait longer, because a busy machine may delay it.
    std::thread::sleep(Duration::from_millis(3000));
    daemon.signal("KILL");
    daemon.wait();
    let shown = page.count("nv_trt_llm_iterations_total", &[]);
    let (replayed, torn) = replay(folder.path(), None);
    assert!(torn <= 1);
    let kept = replayed.totals.iterations;
    assert!(kept >= shown, "{kept} < {shown} after {:?}", scraped.elapsed());
    // A new exporter can record into the same folder.
    let next = Daemon::start(&arguments);
    next.poll(&[], 3);
    assert!(next.page().get("trtllm_exporter_recorder_size_bytes", &[]) > 0.0);
}

#[test]
fn a_second_exporter_is_refused_and_a_directory_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let _first = Daemon::start(&["--record.dir", directory]);
    let taken = format!("--record.dir {directory}: another exporter records into it");
    refused(1, &["--record.dir", directory], &[&taken]);
    refused(2, &["--record.dir", "/proc/version/x"], &["choose a directory"]);
    refused(2, &["--record.dir", directory, "--record.max-size", "1MiB"], &["at least 4MiB"]);
}
