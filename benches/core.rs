//! `cargo bench --bench core`: the cost of a record and of a page, as ratios to a baseline measured in the same run.
//! Absolute times differ from machine to machine, so they are printed but not checked.
// A benchmark prints to stdout. It may panic, because no service depends on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use trtllm_analysis::ObservedEngine;
use trtllm_engines::State;
use trtllm_intake::{Intake, Moment};
use trtllm_page::exposition::negotiate::Format;
use trtllm_page::exposition::render;
use trtllm_page::metrics::catalog::{Group, Profile};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::metrics::page::{Page, Value};
use trtllm_page::metrics::page_builder::{PageBuilder, Selection};
use trtllm_recording::recorder::{Recorder, RecorderConfig};
use trtllm_records::IterationStats;
use trtllm_records::Message;
use trtllm_records::Objectives;
use trtllm_records::{EngineName, RecorderCounts};
use trtllm_sources::keys::LineParser;
use trtllm_sources::trtllm_json::parse_records;
use trtllm_sources::{Batch, Presence};

const RECORDS: usize = 1000;

fn main() {
    let engine = records("metrics_trt_v1.0.0rc4.json", true);
    records("metrics_v2_shared_pools_host.json", false);

    own_metrics(&engine);
    holds(&engine);
    pages(&engine);
    judgements(&engine);
    for name in ["metrics_trt_v1.0.0rc4.json", "metrics_v2_shared_pools_host.json"] {
        recording(name, fixture(name)[0].clone());
    }
    let mut with_rows = plain_record();
    let row = fixture("metrics_record_SHAPE_2026H2.json")[0]["requestStats"][0].clone();
    with_rows["requestStats"] = vec![row; 16].into();
    recording("a plain record with 16 request rows", with_rows);
}

/// Time of the flight recorder in the polling thread, and CPU time of its own thread.
fn recording(what: &str, record: serde_json::Value) {
    const POLLS: usize = 300;
    const PER_POLL: usize = 100;
    println!("\nrecording {what}, polls of {PER_POLL} records");
    let body = body(record);
    let directory = std::env::temp_dir().join(format!("trtllm-exporter-bench-{}", std::process::id()));
    let counts = RecorderCounts::default();
    let config = RecorderConfig {
        directory: directory.clone(),
        max_size: 64 << 20,
        max_age: None,
        stale_after: Duration::from_secs(15),
    };
    let recorder = Recorder::start(config, counts.clone()).unwrap();
    let cost = |recorded: bool| {
        let state = State::new(vec![name()]);
        let mut intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
        if recorded {
            intake.record_to(recorder.engine(&name()));
        }
        let mut all = Batch::default();
        parse_records(&body, &mut all).unwrap();
        let (mut host, writer) = (Duration::ZERO, thread_ns("recorder"));
        for poll in 0..POLLS {
            let mut batch = Batch::default();
            for (at, item) in all.messages.iter().cycle().take(PER_POLL).enumerate() {
                let mut item = item.clone();
                if let Message::Record(record) = &mut item {
                    record.iter = Some((poll * PER_POLL + at) as u64);
                }
                batch.messages.push(item);
            }
            let before = Instant::now();
            intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), Moment::now());
            host += before.elapsed();
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(intake);
        std::thread::sleep(Duration::from_millis(200));
        let records = (POLLS * PER_POLL) as f64;
        (host.as_nanos() as f64 / records, (thread_ns("recorder") - writer) as f64 / records)
    };
    let ((without, _), (with, writer)) = (cost(false), cost(true));
    println!("  {without:8.0} ns  fold and publish, not recorded");
    println!("  {with:8.0} ns  fold and publish, recorded");
    println!("  {writer:8.0} ns  thread of the recorder");
    let total = (with - without + writer) / 1000.0;
    println!("  → {total:.1} µs a record; {} written, {} dropped", counts.written.get(), counts.dropped.get());
    recorder.stop(Duration::from_secs(2));
    std::fs::remove_dir_all(directory).unwrap();
}

fn name() -> EngineName {
    EngineName {
        model: "m".to_owned(),
        version: "1".to_owned(),
        labels: Vec::new(),
        source: "bench",
        objectives: Objectives::default(),
    }
}

/// CPU time of the threads of this process whose names start with this text. Linux adds it when a thread is switched off, so the
/// caller's own time would be wrong.
fn thread_ns(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let found = tasks
        .into_iter()
        .filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end().starts_with(name)));
    let of = |task: std::path::PathBuf| {
        let schedstat = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    found.map(of).sum()
}

/// Parses and folds copies of the first record of a fixture. `plain` is true if the record has the fields that
/// [`accumulate`] adds.
fn records(name: &str, plain: bool) -> ObservedEngine {
    let body = body(fixture(name)[0].clone());
    println!("\n{RECORDS} records of {name}, {} bytes of JSON each", body.len() / RECORDS);
    let bare = time("bare typed serde_json parse", RECORDS, || {
        let records: Vec<IterationStats> = serde_json::from_str(std::str::from_utf8(&body).unwrap()).unwrap();
        black_box(records);
    });
    let mut batch = Batch::default();
    let mut engine = ObservedEngine::new(Duration::from_secs(15));
    let both = time("parse + fold, as in the daemon", RECORDS, || {
        parse_records(&body, &mut batch).unwrap();
        fold(&mut engine, &batch);
        batch.clear();
    });
    let records: Vec<Box<RawValue>> = serde_json::from_slice(&body).unwrap();
    let mut lines = LineParser::default();
    let parsed_lines = time("parse as lines of a publisher", RECORDS, || {
        for record in &records {
            black_box(lines.parse(record.get().as_bytes(), &mut batch.keys).unwrap());
        }
    });
    parse_records(&body, &mut batch).unwrap();
    let folding = time("fold alone", RECORDS, || fold(&mut engine, &batch));
    ratio("parse + fold / bare parse", both, bare);
    ratio("parse as lines / bare parse", parsed_lines, bare);
    if plain {
        let baseline = time("baseline: plain accumulators", RECORDS, || accumulate(&batch));
        ratio("fold / plain accumulators", folding, baseline);
    }
    engine
}

fn pages(engine: &ObservedEngine) {
    let page = page(engine);
    let samples: usize = page.samples().iter().map(series).sum();
    println!("\na page of {samples} series");
    let mut out = String::new();
    let by_hand = time("hand-written writer, names and labels prepared", samples, {
        let prepared = prepared(&page);
        move || {
            out.clear();
            write_prepared(&prepared, &mut out);
            black_box(&out);
        }
    });
    let mut out = Vec::new();
    let ours = time("text 0.0.4", samples, || {
        out.clear();
        render(&page, Format::Text, &mut out);
        black_box(&out);
    });
    let mut out = Vec::new();
    let om = time("OpenMetrics 1.0.0", samples, || {
        out.clear();
        render(&page, Format::OpenMetrics, &mut out);
        black_box(&out);
    });
    let mut out = Vec::new();
    let proto = time("Prometheus protobuf, native histograms", samples, || {
        out.clear();
        render(&page, Format::Protobuf, &mut out);
        black_box(&out);
    });
    ratio("text / hand-written", ours, by_hand);
    ratio("OpenMetrics / hand-written", om, by_hand);
    ratio("protobuf / hand-written", proto, by_hand);
}

fn fixture(name: &str) -> serde_json::Value {
    let fixture = std::fs::read_to_string(format!("tests/fixtures/{name}")).unwrap();
    serde_json::from_str::<serde_json::Value>(&fixture).unwrap()["payload"].clone()
}

fn plain_record() -> serde_json::Value {
    fixture("metrics_trt_v1.0.0rc4.json")[0].clone()
}

/// A JSON array of copies of one record with ascending iteration numbers.
fn body(record: serde_json::Value) -> Vec<u8> {
    let records: Vec<String> = (0..RECORDS)
        .map(|iter| {
            let mut record = record.clone();
            record["iter"] = iter.into();
            record.to_string()
        })
        .collect();
    format!("[{}]", records.join(",")).into_bytes()
}

fn fold(engine: &mut ObservedEngine, batch: &Batch) {
    let now = Instant::now();
    for item in &batch.messages {
        match item {
            Message::Record(record) => engine.absorb(record, now, 1_753_462_474_140_189).unwrap(),
            Message::FinishedRequest(entry) => engine.absorb_perf_metrics(entry, now).unwrap(),
            _ => {}
        }
    }
    black_box(&engine.fold.totals);
}

/// The least work that any fold must do: read each number of a record and add it to a total.
fn accumulate(batch: &Batch) {
    let mut gauges = [0_i64; 30];
    let mut sums = [0_u64; 8];
    let mut buckets = [[0_u64; 24]; 8];
    const BOUNDS: [f64; 20] = [
        1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 750.0, 1e3, 2.5e3,
        5e3, 1e4,
    ];
    for item in &batch.messages {
        let Message::Record(record) = item else { continue };
        let kv = record.kv_cache_stats.unwrap_or_default();
        let inflight = record.inflight_batching_stats.unwrap_or_default();
        let numbers = [
            record.num_active_requests,
            record.num_queued_requests,
            record.num_completed_requests,
            record.num_new_active_requests,
            record.max_num_active_requests,
            record.gpu_mem_usage,
            record.cpu_mem_usage,
            record.pinned_mem_usage,
            kv.max_num_blocks,
            kv.free_num_blocks,
            kv.used_num_blocks,
            kv.reused_blocks,
            kv.missed_blocks,
            inflight.num_scheduled_requests,
            inflight.num_context_requests,
            inflight.num_gen_requests,
            inflight.num_ctx_tokens,
        ];
        for (gauge, number) in gauges.iter_mut().zip(numbers) {
            *gauge = number.unwrap_or(0);
        }
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number.unwrap_or(0) as u64;
        }
        let latency = record.iter_latency_ms.unwrap_or(0.0);
        for histogram in &mut buckets {
            histogram[BOUNDS.iter().position(|bound| latency <= *bound).unwrap_or(20)] += 1;
        }
    }
    black_box((&gauges, &sums, &buckets));
}

/// The whole page of one engine.
fn page(engine: &ObservedEngine) -> Page {
    let state = state(engine, 1);
    PageBuilder::new(CompatSets::default(), Profile::Full).page(&state, &HttpMetrics::new(), Selection::All)
}

/// How long the lock of an engine is held: by a page, and by a part of an answer.
fn holds(engine: &ObservedEngine) {
    println!("\nthe lock of an engine");
    let (state, http) = (state(engine, 1), HttpMetrics::new());
    let builder = PageBuilder::new(CompatSets::default(), Profile::Full);
    let samples = || builder.page(&state, &http, Selection::of(&[Group::Triton, Group::Engine]));
    time("a page copies its samples", samples().samples().len(), || drop(black_box(samples())));
    // 256 KiB of statistics as they are in memory.
    let records = (256 << 10) / size_of::<IterationStats>();
    let mut part = Batch::default();
    parse_records(&body(plain_record()), &mut part).unwrap();
    part.messages.truncate(records);
    let mut engine = engine.clone();
    time("an intake folds a part of an answer", records, || fold(&mut engine, &part));
    time("what-if copies the engine", 1, || drop(black_box(Box::new(engine.clone()))));
}

/// The verdicts on 64 engines with full windows. Each engine is judged every five seconds.
fn judgements(engine: &ObservedEngine) {
    let state = state(engine, 64);
    let mut at = 0.0;
    let mut sums = engine.analysis.iterations.sums;
    let mut judge = || {
        at += 5.0;
        // Requests wait at the batch limit, so all rules are evaluated.
        (sums.iterations, sums.scheduled, sums.seconds) = (100.0 * at, 800.0 * at, 0.9 * at);
        (sums.waits, sums.waits_at_batch_limit, sums.backlog) = (90.0 * at, 90.0 * at, 900.0 * at);
        for slot in state.slots().iter() {
            slot.lock().observed.analysis.iterations.sums = sums;
        }
        state.judge(at, at);
    };
    // Judge until the windows are full.
    (0..70).for_each(|_| judge());
    println!("\nverdicts on 64 engines");
    let each = time("a judgement of an engine", 64, judge);
    println!("  {:.2} ms of each second for 64 engines", each * 64.0 / 5.0 / 1e6);
}

/// The part of the page about the exporter itself, which is built again after every change of the data.
fn own_metrics(engine: &ObservedEngine) {
    println!("\nthe exporter's own metrics");
    for engines in [1, 8] {
        let (state, http) = (state(engine, engines), HttpMetrics::new());
        let builder = PageBuilder::new(CompatSets::default(), Profile::Full);
        let own = || builder.page(&state, &http, Selection::of(&[Group::Exporter]));
        let series = own().samples().iter().map(series).sum();
        time(&format!("own metrics with {engines} sources"), series, || drop(black_box(own())));
    }
}

fn state(engine: &ObservedEngine, engines: usize) -> State {
    let name = |index| EngineName {
        model: "tensorrt_llm".to_owned(),
        version: format!("{index}"),
        labels: Vec::new(),
        source: "trtllm-serve",
        objectives: Objectives::default(),
    };
    let state = State::new((1..=engines).map(name).collect());
    for index in 0..engines {
        let slots = state.slots();
        let mut slot = slots[index].lock();
        (slot.state, slot.observed) = (engine.fold.health.state(Instant::now()), engine.clone());
    }
    state
}

fn series(sample: &trtllm_page::metrics::page::Sample) -> usize {
    match &sample.value {
        Value::Histogram(histogram) => histogram.cumulative().count() + 3,
        Value::ClientHistogram(histogram) => histogram.bucket.len() + 2,
        _ => 1,
    }
}

/// One line of the page: the text before the value, and the value.
enum Prepared {
    Text(String),
    Integer(String, u64),
    Float(String, f64),
}

fn prepared(page: &Page) -> Vec<Prepared> {
    let mut lines = Vec::new();
    render(page, Format::Text, &mut lines);
    String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(|line| match line.rsplit_once(' ') {
            _ if line.starts_with('#') => Prepared::Text(format!("{line}\n")),
            Some((before, value)) => match value.parse() {
                Ok(integer) => Prepared::Integer(format!("{before} "), integer),
                Err(_) => Prepared::Float(format!("{before} "), value.parse().unwrap()),
            },
            None => panic!("{line}"),
        })
        .collect()
}

fn write_prepared(lines: &[Prepared], out: &mut String) {
    let mut buffer = itoa::Buffer::new();
    for line in lines {
        match line {
            Prepared::Text(text) => out.push_str(text),
            Prepared::Integer(before, value) => {
                out.push_str(before);
                out.push_str(buffer.format(*value));
                out.push('\n');
            }
            Prepared::Float(before, value) => {
                out.push_str(before);
                let _ = writeln!(out, "{value}");
            }
        }
    }
}

/// Nanoseconds per unit. Takes the fastest of many short runs, because noise only adds time.
fn time(what: &str, units: usize, mut run: impl FnMut()) -> f64 {
    let (mut best, begun) = (f64::INFINITY, Instant::now());
    while begun.elapsed() < Duration::from_millis(1500) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    let per_unit = best / units as f64;
    println!("{what:52} {per_unit:9.1} ns each, {:9.1} µs in all", best / 1000.0);
    per_unit
}

fn ratio(what: &str, ours: f64, baseline: f64) {
    println!("  → {what:48} {:9.2} ×", ours / baseline);
}
