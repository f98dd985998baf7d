//! A simulated engine as the exporter sees it, in virtual time: writes its records and entries as text and folds them.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_analysis::iteration_sums::ConfiguredLimits;
use trtllm_analysis::window::{Mark, SLOT_SECONDS, Window};
use trtllm_records::Message;
use trtllm_records::Objectives;
use trtllm_sim::{Config, Engine, write};
use trtllm_sources::{Batch, trtllm_json};
use trtllm_what_if::MeasuredEngine;

const EPOCH_US: i64 = 1_760_000_000_000_000;

/// What the exporter knows of the engine after these seconds.
pub(crate) fn observe(config: &Config, seed: u64, objectives: Objectives, seconds: f64) -> MeasuredEngine {
    let mut present = None;
    watch(config, seed, objectives, &[seconds], |_, last, _| present = Some(last));
    present.unwrap()
}

/// Calls `each` with what the exporter knows at each of these times, and with the marks of its window.
pub(crate) fn watch(
    config: &Config,
    seed: u64,
    objectives: Objectives,
    times: &[f64],
    mut each: impl FnMut(f64, MeasuredEngine, &Window),
) {
    let mut fold = ObservedEngine::new(Duration::from_secs(15)).with_objectives(objectives);
    if !config.release.is_cpp() {
        // Its records have the limit of active requests. A publisher with the engine's settings has the other limit.
        fold.analysis.iterations.configured =
            ConfiguredLimits { batch: None, tokens: Some(config.limits.max_num_tokens.into()) };
    }
    let mut engine = Engine::new(config.clone(), seed);
    let (start, mut next) = (Instant::now(), Some(0.0));
    let (mut window, mut times) = (Window::default(), times.iter().copied().peekable());
    while let Some(time) = next {
        if window.last().is_none_or(|mark| time >= mark.at + SLOT_SECONDS) {
            window.push(Mark::of(&fold, time));
        }
        if let Some(at) = times.next_if(|at| time >= *at) {
            each(at, MeasuredEngine::of(&fold, &window), &window);
        }
        if times.peek().is_none() {
            return;
        }
        let step = engine.step(time);
        next = step.next;
        let (now, wall) = (start + Duration::from_secs_f64(time), EPOCH_US + (time * 1e6) as i64);
        let mut batch = Batch::default();
        let array = |values: Vec<serde_json::Value>| serde_json::Value::from(values).to_string();
        let records = step.records.iter().map(|record| write::record(record, config.release, EPOCH_US)).collect();
        trtllm_json::parse_records(array(records).as_bytes(), &mut batch).unwrap();
        let entries = step.entries.iter().map(|entry| {
            let mut text = write::entry(entry, write::Version::V2);
            // A publisher that knows the requests writes these lengths, too.
            text["prompt_tokens"] = entry.prompt_tokens.into();
            text["output_tokens"] = entry.output_tokens.into();
            text
        });
        trtllm_json::parse_perf_metrics(array(entries.collect()).as_bytes(), &mut batch).unwrap();
        for item in batch.drain() {
            match item {
                Message::Record(record) => fold.absorb(&record, now, wall).unwrap(),
                Message::FinishedRequest(entry) => fold.absorb_perf_metrics(&entry, now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        fold.settle(false, now);
    }
}
