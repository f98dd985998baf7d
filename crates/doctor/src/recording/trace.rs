//! Writes a recording as a Chrome JSON trace for Perfetto: a process for each engine and GPU, tracks for the iterations and phases
//! of each rank, an asynchronous track for each request, and counters for load and GPUs. Times are in µs since 1970 UTC.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ExportError, Selection};
use trtllm_analysis::ObservedEngine;
use trtllm_fold::batch_time::TimedBatch;
use trtllm_recording::{Entry, Line, RecordedMoment};
use trtllm_records::gpu::Gpu;
use trtllm_records::perf_metrics::TimingMetrics;
use trtllm_records::{IterationStats, Message, PerfMetricsEntry, PollFailure};

/// Maximum delay between the end of a request and its receipt. After a longer delay, its times are from another clock.
const MAX_DELAY_US: f64 = 600e6;
/// The tracks of each rank.
const TRACKS: [&str; 3] = ["iterations", "prefill", "decode"];

/// Writes the trace. Reads the recording twice, because the times of requests are from the engine's clock: the first read finds
/// the difference between the clocks. This is the smallest difference between the end of a request and its receipt.
pub(super) fn write(lines: &mut Selection, out: &mut impl Write) -> Result<(), ExportError> {
    // For each engine: the difference between its clock and ours, and whether its requests come from spans. If an engine has both,
    // `FinishedRequest` wins, so that each request is drawn once.
    let mut clocks: BTreeMap<String, (f64, bool)> = BTreeMap::new();
    lines.each(|engine, line| {
        if let Entry::Message(Message::FinishedRequest(entry) | Message::Span(entry)) = &line.entry
            && let Some(end) = times(entry).and_then(|times| times.last_token_time)
        {
            let distance = line.at.us as f64 - end * 1e6;
            let is_span = matches!(line.entry, Entry::Message(Message::Span(_)));
            let (least, of_spans) = clocks.entry(engine.to_owned()).or_insert((distance, is_span));
            if *of_spans != is_span {
                if *of_spans {
                    (*least, *of_spans) = (distance, false);
                }
                return Ok(());
            }
            // After a restart of the engine's host, its clock may differ. Keep the difference of the last clock.
            // `TracedEngine::request` recognises requests with an earlier clock, because their difference is too large.
            *least = if (distance - *least).abs() > MAX_DELAY_US { distance } else { least.min(distance) };
        }
        Ok(())
    })?;
    let mut trace =
        Trace { out, from_us: lines.from_us.max(0), is_first: true, processes: BTreeMap::new(), requests: 0 };
    let mut engines: BTreeMap<String, TracedEngine> = BTreeMap::new();
    let begin =
        b"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"clock\":\"microseconds since 1970 UTC\"},\"traceEvents\":[";
    trace.out.write_all(begin)?;
    lines.each(|name, line| {
        let clock = clocks.get(name).copied();
        let process = trace.process(&format!("engine {name}"))?;
        let engine = engines.entry(name.to_owned()).or_insert_with(|| TracedEngine::new(process, clock));
        engine.line(line, &mut trace)
    })?;
    Ok(writeln!(trace.out, "\n]}}")?)
}

struct Trace<'a, W> {
    out: &'a mut W,
    /// When the trace begins.
    from_us: i64,
    is_first: bool,
    processes: BTreeMap<String, usize>,
    requests: u64,
}

impl<W: Write> Trace<'_, W> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{event}")
    }

    fn named(&mut self, what: &str, process: usize, thread: usize, name: &str) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}))
    }

    fn process(&mut self, name: &str) -> io::Result<usize> {
        if let Some(known) = self.processes.get(name) {
            return Ok(*known);
        }
        let process = self.processes.len() + 1;
        self.processes.insert(name.to_owned(), process);
        self.named("process_name", process, 0, name)?;
        Ok(process)
    }

    fn counter(&mut self, process: usize, at: i64, name: &str, values: Value) -> io::Result<()> {
        self.event(&json!({"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": values}))
    }
}

struct TracedEngine {
    process: usize,
    /// Difference between the clocks in µs: a time of a request plus this is a time of the trace.
    clock_offset_us: Option<f64>,
    /// True if the requests come from spans. False if they come from `FinishedRequest`.
    has_spans: bool,
    received: RecordedMoment,
    /// Why polls fail. Each segment begins with a copy of the last change.
    failure: Option<PollFailure>,
    /// Finds the time of each batch.
    observed: ObservedEngine,
    /// The last batch whose time is known, for the rows of other ranks.
    timed: Option<TimedBatch>,
    /// End of the last iteration of each rank, in µs.
    ends: BTreeMap<i64, i64>,
    /// The last record of each rank. The C++ executor tells the time of its batch in the next record.
    last: BTreeMap<i64, Box<IterationStats>>,
}

impl TracedEngine {
    fn new(process: usize, clock: Option<(f64, bool)>) -> Self {
        Self {
            process,
            clock_offset_us: clock.map(|(offset_us, _)| offset_us),
            has_spans: clock.is_some_and(|(_, of_spans)| of_spans),
            received: RecordedMoment::default(),
            failure: None,
            observed: ObservedEngine::new(Duration::MAX),
            timed: None,
            ends: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    fn line(&mut self, line: &Line, trace: &mut Trace<'_, impl Write>) -> io::Result<()> {
        self.received = line.at;
        match &line.entry {
            Entry::Message(Message::Record(record)) => self.record(record, trace)?,
            Entry::Message(Message::FinishedRequest(entry)) => self.request(entry, trace)?,
            Entry::Message(Message::Span(entry)) if self.has_spans => self.request(entry, trace)?,
            Entry::Gpu(gpu) => of_gpu(gpu, line.at.us, trace)?,
            Entry::Failing(failure) if *failure != self.failure => {
                self.failure.clone_from(failure);
                let name = failure.as_ref().map_or("polls succeed", |failure| &failure.text);
                // The copy at the beginning of the first segment may be older than what is written.
                let (process, at) = (self.process, line.at.us.max(trace.from_us));
                trace.event(&json!({"ph": "i", "s": "p", "name": name, "pid": process, "tid": 0, "ts": at}))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&mut self, record: &IterationStats, trace: &mut Trace<'_, impl Write>) -> io::Result<()> {
        if self.observed.absorb(record, Instant::now(), self.received.us).is_err() {
            return Ok(());
        }
        let told = self.observed.fold.timed_batch;
        self.timed = told.or(self.timed);
        let rank = rank(record);
        if !self.last.contains_key(&rank) {
            for (at, track) in TRACKS.iter().enumerate() {
                trace.named("thread_name", self.process, first_track(rank) + at, &format!("rank {rank} {track}"))?;
            }
        }
        let before = self.last.insert(rank, Box::new(record.clone()));
        for record in [before.as_deref().filter(|_| told.is_some()), Some(record)].into_iter().flatten() {
            if let Some(timed) = self.timed.filter(|timed| timed.iter.is_some() && timed.iter == record.iter) {
                self.iteration(record, &timed, trace)?;
            }
        }
        let at = self.observed.fold.latest().map_or(self.received.us, |latest| latest.time_us);
        let requests = [("active", record.num_active_requests), ("queued", record.num_queued_requests)];
        let known = requests.into_iter().filter_map(|(name, count)| Some((name.to_owned(), json!(count?))));
        let known: serde_json::Map<String, Value> = known.collect();
        if !known.is_empty() {
            trace.counter(self.process, at, &format!("rank {rank} requests"), known.into())?;
        }
        if let Some(used) = record.kv_cache_stats.as_ref().and_then(|cache| cache.used_num_blocks) {
            trace.counter(self.process, at, &format!("rank {rank} KV cache blocks"), json!({"used": used}))?;
        }
        Ok(())
    }

    fn iteration(
        &mut self,
        record: &IterationStats,
        timed: &TimedBatch,
        trace: &mut Trace<'_, impl Write>,
    ) -> io::Result<()> {
        let (process, first) = (self.process, first_track(rank(record)));
        // Events of a track must not overlap, but the times of batches are more exact than the moments when they ended.
        let before = self.ends.get(&rank(record)).copied().unwrap_or(i64::MIN);
        let end = timed.ended_us.max(before);
        let began = (end - (timed.time.seconds * 1e6).round() as i64).max(before);
        self.ends.insert(rank(record), end);
        let batch = record.inflight_batching_stats.as_ref();
        let context = batch.and_then(|batch| batch.num_context_requests);
        let generation = batch.and_then(|batch| batch.num_gen_requests);
        let args = json!({
            "iter": record.iter, "latencyMs": record.iter_latency_ms,
            "contextRequests": context, "generationRequests": generation,
            "contextTokens": batch.and_then(|batch| batch.num_ctx_tokens),
        });
        let mut track = |at: usize, name: &str| {
            let thread = first + at;
            trace
                .event(&json!({"ph": "X", "name": name, "cat": "iteration", "pid": process, "tid": thread, "ts": began,
                "dur": end - began, "args": args}))
        };
        track(0, "iteration")?;
        if context > Some(0) {
            track(1, "prefill")?;
        }
        if generation > Some(0) {
            track(2, "decode")?;
        }
        Ok(())
    }

    fn request(&mut self, entry: &PerfMetricsEntry, trace: &mut Trace<'_, impl Write>) -> io::Result<()> {
        let Some(times) = times(entry) else { return Ok(()) };
        let (Some(arrival), Some(end)) = (times.server_arrival_time.or(times.arrival_time), times.last_token_time)
        else {
            return Ok(());
        };
        let received = self.received.us as f64;
        let near = self.clock_offset_us.filter(|offset_us| (received - end * 1e6 - offset_us).abs() <= MAX_DELAY_US);
        let offset_us = near.unwrap_or(received - end * 1e6);
        let us = |seconds: f64| (seconds * 1e6 + offset_us).round() as i64;
        trace.requests += 1;
        let (process, id) = (self.process, trace.requests.to_string());
        let mut event = |phase: &str, name: &str, seconds: f64, args: Value| {
            let at = us(seconds);
            trace.event(&json!({"ph": phase, "cat": "request", "id": id, "name": name, "pid": process, "tid": 0, "ts": at, "args": args}))
        };
        let name = entry.request_id.map_or("request".to_owned(), |id| format!("request {id}"));
        let metrics = entry.perf_metrics.as_ref();
        let [first, last] =
            [metrics.and_then(|metrics| metrics.first_iter), metrics.and_then(|metrics| metrics.last_iter)];
        event("b", &name, arrival, json!({"firstIter": first, "lastIter": last}))?;
        let scheduled = times.first_scheduled_time;
        let mut last = arrival;
        for (part, from, until) in [
            ("queue", Some(arrival), scheduled),
            ("prefill", scheduled, times.first_token_time),
            ("decode", times.first_token_time, Some(end)),
        ] {
            if let (Some(from), Some(until)) = (from, until) {
                // Queue, prefill and decode must not overlap in the trace, even if the times of the request do.
                let from = from.clamp(last, end.max(last));
                last = until.clamp(from, end.max(from));
                event("b", part, from, json!({}))?;
                event("e", part, last, json!({}))?;
            }
        }
        event("e", &name, end.max(last), json!({}))
    }
}

fn of_gpu(gpu: &Gpu, at: i64, trace: &mut Trace<'_, impl Write>) -> io::Result<()> {
    let process = trace.process(&format!("GPU {} {}", gpu.identity.index, gpu.identity.uuid))?;
    let readings = &gpu.readings;
    let scaled = |value: Option<u64>, unit: f64| value.map(|value| value as f64 / unit);
    for (name, value) in [
        ("utilization %", readings.utilization_ratio.map(|ratio| 100.0 * ratio)),
        ("power W", readings.power_usage_watts),
        ("memory GiB", scaled(readings.memory.used_bytes, f64::from(1 << 30))),
        ("SM clock MHz", scaled(readings.clock_hertz.sm, 1e6)),
        ("temperature °C", readings.temperature_celsius.gpu),
    ] {
        if let Some(value) = value {
            trace.counter(process, at, name, json!({"value": value}))?;
        }
    }
    Ok(())
}

fn rank(record: &IterationStats) -> i64 {
    record.rank.or(record.attention_dp_rank).unwrap_or(0)
}

/// The number of the first track of a rank.
fn first_track(rank: i64) -> usize {
    usize::try_from(rank).unwrap_or(0) * TRACKS.len() + 1
}

fn times(entry: &PerfMetricsEntry) -> Option<TimingMetrics> {
    entry.perf_metrics.as_ref()?.timing_metrics.map(TimingMetrics::measured)
}
