//! Checks that a recording leads to the same verdicts as the exporter that recorded it. Simulated engines are recorded in
//! virtual time, and read again without that exporter. Also measures how much disk space the recording of a day takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_engines::State;
use trtllm_intake::past::engine_at;
use trtllm_intake::{Intake, Moment};
use trtllm_recording::frame::{self, Encoder};
use trtllm_recording::recorder::{DEFAULT_MAX_SIZE, Recorder, RecorderConfig};
use trtllm_recording::{Entry, LineWriter, OpenRecordingError, RecordedMoment, Recording, Settled};
use trtllm_records::gpu::{EngineGpus, Gpu, GpuInventory, GpuState, NvmlState};
use trtllm_records::{EngineAbout, EngineName, ErrorKind, Message, PollFailure, RecorderCounts};
use trtllm_sim::Engine;
use trtllm_sim::config::Config;
use trtllm_sim::scenario::find;
use trtllm_sources::simulated::read_step;
use trtllm_sources::{Batch, Presence, SourceError};
use trtllm_what_if::MeasuredEngine;

const EPOCH_US: i64 = 1_760_000_000_000_000;
/// Seconds between two polls.
const INTERVAL: f64 = 0.1;
/// Seconds between two judgements.
const SLOT: f64 = 5.0;
/// Seconds that are recorded to measure their size. Recordings with request rows are shorter: they take long in debug
/// builds.
const SECONDS: f64 = 60.0;
const SECONDS_OF_ROWS: f64 = 15.0;

/// A judgement of an engine: its time in µs, the verdict's cause and text, and the rules of the findings.
type Judged = (i64, Option<(&'static str, String)>, Vec<String>);

fn judged(state: &State, at_us: i64) -> Judged {
    let verdict = state.slots()[0].with_judged(|judged| judged.verdict.verdict().cloned());
    let rules = state.findings().iter().map(|finding| format!("{} {}", finding.rule, finding.subject)).collect();
    (at_us, verdict.map(|verdict| (verdict.cause.name(), verdict.says)), rules)
}

/// Runs an engine for some seconds of virtual time and records it. Returns each judgement, and the engine's model (what
/// `what-if` and `compare` read) at the last one.
fn record(config: &Config, seconds: f64, directory: &Path) -> (Vec<Judged>, MeasuredEngine) {
    record_with(config, seconds, directory, Duration::from_secs(15), None)
}

fn record_with(
    config: &Config,
    seconds: f64,
    directory: &Path,
    stale_after: Duration,
    gone: Option<Presence>,
) -> (Vec<Judged>, MeasuredEngine) {
    let counts = RecorderCounts::default();
    let limits = RecorderConfig { directory: directory.to_owned(), max_size: 64 << 20, max_age: None, stale_after };
    let recorder = Recorder::start(limits, counts.clone()).unwrap();
    let name = EngineName::new("m", "1", "test");
    let state = State::new(vec![name.clone()]);
    let _ = state.recorder.set(counts.clone());
    let slot = Arc::clone(&state.slots()[0]);
    let mut intake = Intake::new(Arc::clone(&slot), stale_after);
    intake.record_to(recorder.engine(&name));
    // The virtual time starts a day after the present, so no moment of the test is too early for this process's clock.
    let start = Instant::now() + Duration::from_secs(86_400);
    let (mut engine, mut next, mut found, mut sent) = (Engine::new(config.clone(), 7), Some(0.0), Vec::new(), 0);
    let (mut now, mut judgement) = (0.0, SLOT);
    let (mut about, mut measured) = (Some(about(config)), MeasuredEngine::default());
    while now < seconds {
        now += INTERVAL;
        let mut batch = Batch::default();
        batch.about = about.take();
        while let Some(time) = next.filter(|time| *time < now) {
            let step = engine.step(time);
            next = step.next;
            read_step(&step, config.release, EPOCH_US, &mut batch).unwrap();
        }
        let moment = Moment { instant: start + Duration::from_secs_f64(now), unix_us: EPOCH_US + (now * 1e6) as i64 };
        let error = SourceError::Recorded(PollFailure {
            kind: ErrorKind::Connect,
            text: "connection refused".to_owned(),
            not_ready: false,
        });
        sent += batch.messages.len() as u64;
        let result = if engine.is_up(now) { Ok(Presence::Present) } else { gone.ok_or(&error) };
        intake.end_poll(&mut batch, Duration::ZERO, result, moment);
        // The recorder works in real time. An engine may fill half of its queue, with about a thousand items. So wait.
        while counts.written.get() + 100 < sent {
            std::thread::sleep(Duration::from_millis(10));
        }
        if now + 1e-6 >= judgement {
            state.publish_gpus(gpus(&mut engine, now));
            let gpus = EngineGpus { uuids: vec!["GPU-0".to_owned()], ..EngineGpus::default() };
            slot.lock().gpus = Some(Arc::new(gpus));
            state.judge(now, moment.unix_us as f64 / 1e6);
            found.push(judged(&state, moment.unix_us));
            measured = slot.measured();
            judgement += SLOT;
        }
    }
    drop(intake);
    recorder.stop(Duration::from_secs(60));
    assert_eq!((counts.dropped.get(), counts.errors.get()), (0, 0));
    (found, measured)
}

fn about(config: &Config) -> EngineAbout {
    let mut about = EngineAbout { backend: Some("pytorch".to_owned()), ..EngineAbout::default() };
    about.settings.set("max_batch_size", &config.limits.max_batch_size.to_string());
    about.settings.set("max_num_tokens", &config.limits.max_num_tokens.to_string());
    about
}

fn gpus(engine: &mut Engine, now: f64) -> GpuInventory {
    let gpus = vec![gpu(engine, now)];
    GpuInventory { nvml: NvmlState::Up, expected: 1, gpus, ..GpuInventory::default() }
}

fn gpu(engine: &mut Engine, now: f64) -> Gpu {
    let gpu = engine.gpus(now).swap_remove(0);
    let mut read = Gpu { state: GpuState::Ok, ..Gpu::default() };
    read.identity.uuid = "GPU-0".to_owned();
    let readings = &mut read.readings;
    readings.utilization_ratio = Some(gpu.utilization);
    readings.power_usage_watts = Some(gpu.power_watts);
    readings.energy_joules = Some(gpu.energy_joules);
    readings.temperature_celsius.gpu = Some(gpu.temperature_celsius);
    readings.clock_hertz.sm = Some((gpu.sm_clock_mhz * 1e6) as u64);
    readings.health.clock_max_hertz.sm = Some((gpu.max_sm_clock_mhz * 1e6) as u64);
    readings.throttle_ns.power = Some((gpu.throttled_by_power * 1e9) as u64);
    readings.throttle_ns.hw_thermal_slowdown = Some((gpu.throttled_by_heat * 1e9) as u64);
    read
}

#[test]
fn a_recording_has_the_verdict_and_the_costs_that_its_exporter_had_at_that_time() {
    let scenarios = [
        "batch-limit",
        "kv-capacity",
        "context-blocking",
        "host",
        "spikes",
        "clocks-thermal",
        "clocks-power",
        "load",
        "generation-work",
        "transfer",
    ];
    std::thread::scope(|scope| {
        for name in scenarios {
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let scenario = find(name).unwrap();
                let (live, measured) = record(&scenario.config, 130.0, folder.path());
                let causes: Vec<_> =
                    live.iter().map(|(_, verdict, _)| verdict.as_ref().map(|verdict| verdict.0)).collect();
                assert!(causes.contains(&Some(scenario.cause)), "{name}: {causes:?}");
                let recording = Recording::open(folder.path()).unwrap();
                for at in [9, 15, live.len() - 1] {
                    let (at_us, cause, rules) = &live[at];
                    // The next poll has not arrived by then, so the last judgement is that of `at_us`.
                    let past = engine_at(&recording, None, Some(at_us + 1)).unwrap();
                    let found = judged(&past.state, *at_us);
                    let of = |verdict: &Option<(&'static str, String)>| verdict.as_ref().map(|verdict| verdict.0);
                    assert_eq!(of(&found.1), of(cause), "{name} after {at} judgements: {found:?}, not {cause:?}");
                    assert_eq!(&found.2, rules, "{name} after {at} judgements");
                    if at == live.len() - 1 {
                        let past = past.slot().measured();
                        // The windows of the last minutes begin at different seconds, so they are not compared.
                        let of = |of: &MeasuredEngine| {
                            serde_json::to_value((&of.limits, &of.prices, &of.equal_work)).unwrap()
                        };
                        assert!(measured.equal_work.len() > 3, "{name}: {measured:?}");
                        assert_eq!(of(&measured), of(&past), "{name}");
                    }
                }
            });
        }
    });
}

#[test]
fn an_engine_that_is_gone_is_unavailable_in_its_recording_and_a_time_outside_it_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = find("batch-limit").unwrap().config;
    config.faults = vec![trtllm_sim::config::Fault::Restart { at: 60.0, seconds: 1000.0 }];
    let (live, _) = record(&config, 260.0, folder.path());
    let (at_us, verdict, _) = live.last().unwrap();
    assert_eq!(verdict.as_ref().unwrap().0, "unavailable");
    let recording = Recording::open(folder.path()).unwrap();
    let past = engine_at(&recording, Some("m:1"), None).unwrap();
    let found = judged(&past.state, *at_us);
    assert_eq!(found.1.as_ref().unwrap().0, "unavailable", "{found:?}");
    assert!(found.1.unwrap().1.contains("connection refused"), "the reason was recorded");
    let error = |at_us| engine_at(&recording, None, Some(at_us)).unwrap_err();
    assert!(matches!(error(EPOCH_US - 1), OpenRecordingError::Begins(_)));
    let late = error(EPOCH_US + 600_000_000);
    assert!(matches!(late, OpenRecordingError::Ends(_)) && late.to_string().contains("2025-10-09T"), "{late}");
}

#[test]
fn an_engine_that_is_gone_is_stale_in_its_recording_as_soon_as_its_exporter_said() {
    let mut config = find("batch-limit").unwrap().config;
    config.faults = vec![trtllm_sim::config::Fault::Restart { at: 10.0, seconds: 1000.0 }];
    // Its server refuses connections, or its publisher has left the socket.
    let gone = Some(Presence::Disconnected);
    for (stale_after, gone, is_stale) in [(15, None, true), (60, None, false), (15, gone, true), (60, gone, false)] {
        let folder = tempfile::tempdir().unwrap();
        record_with(&config, 40.0, folder.path(), Duration::from_secs(stale_after), gone);
        let past = engine_at(&Recording::open(folder.path()).unwrap(), None, None).unwrap();
        assert_eq!(past.slot().lock().state.is_stale(), is_stale, "--stale-after {stale_after}s");
    }
}

/// Bytes on disk per record, with all other items counted in, and records per second. Like the recorder, writes to disk
/// every half second.
fn bytes_a_record(config: &Config) -> (f64, f64) {
    let seconds = if config.statistics.rows { SECONDS_OF_ROWS } else { SECONDS };
    let (mut encoder, writer) = (Encoder::default(), LineWriter::new(&EngineName::new("m", "1", "test")));
    let (mut engine, mut next) = (Engine::new(config.clone(), 7), Some(0.0));
    let (mut lines, mut bytes, mut records) = (Vec::new(), 0, 0);
    for poll in 1..=(seconds / INTERVAL) as u32 {
        let now = f64::from(poll) * INTERVAL;
        let mut batch = Batch::default();
        while let Some(time) = next.filter(|time| *time < now) {
            let step = engine.step(time);
            next = step.next;
            read_step(&step, config.release, EPOCH_US, &mut batch).unwrap();
        }
        let us = EPOCH_US + (now * 1e6) as i64 + i64::from(poll * 7919 % 300);
        let at = RecordedMoment { us, clock_us: us - EPOCH_US };
        let mut entries: Vec<Entry> = batch.messages.into_iter().map(Entry::Message).collect();
        entries.push(Entry::Settled(Settled { from_ring: false, drained_unparsed: false }));
        if poll % 50 == 0 {
            entries.push(Entry::Gpu(Box::new(gpu(&mut engine, now))));
        }
        for entry in entries {
            assert!(writer.write(at, &entry, &mut lines));
            records += u32::from(matches!(entry, Entry::Message(Message::Record(_))));
        }
        if poll % 5 == 0 || lines.len() >= frame::TARGET {
            bytes += encoder.encode(&lines).unwrap().len();
            lines.clear();
        }
    }
    (bytes as f64 / f64::from(records), f64::from(records) / seconds)
}

/// `cargo test -p trtllm-intake --test past -- --nocapture size` prints the sizes.
#[test]
fn the_size_of_a_day_of_one_engine_is_below_the_default_limit() {
    let mut fastest: f64 = 0.0;
    for (name, rows) in [
        ("batch-limit", false),
        ("batch-limit-v1", false),
        ("batch-limit-cpp", false),
        ("context-work", false),
        ("ranks", false),
        ("batch-limit", true),
        ("batch-limit-v1", true),
        ("batch-limit-cpp", true),
        ("speculation", false),
        ("speculation", true),
        ("ranks", true),
    ] {
        let mut config = find(name).unwrap().config;
        config.statistics.rows = rows;
        let (bytes, rate) = bytes_a_record(&config);
        let day = bytes * rate * 86_400.0 / f64::from(1 << 20);
        println!("{name}, rows: {rows}: {bytes:.1} bytes a record, {rate:.0} records/s, a day takes {day:.0} MiB");
        // Request rows can take more, such as with drafts, or with a row for each of hundreds of waiting requests.
        assert!(rows || day < DEFAULT_MAX_SIZE as f64 / f64::from(1 << 20), "{name}: {day} MiB");
        fastest = fastest.max(rate);
    }
    assert!(fastest >= 300.0, "{fastest} records a second");
}
