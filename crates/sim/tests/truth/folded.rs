//! A simulated engine as the exporter sees it, in virtual time.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_records::Message;
use trtllm_records::{Objectives, RequestStatsPerIteration};
use trtllm_sim::{Config, Engine, write};
use trtllm_sources::{Batch, trtllm_json};

pub(crate) const EPOCH_US: i64 = 1_760_000_000_000_000;

/// Runs an engine for `seconds`, writes all reports as JSON text and folds them. `each` sees the engine and the fold after each step.
pub(crate) fn fold(
    config: &Config,
    seed: u64,
    objectives: Objectives,
    seconds: f64,
    each: impl FnMut(f64, &Engine, &ObservedEngine),
) -> (Engine, ObservedEngine) {
    fold_some(|_| true, config, seed, objectives, seconds, each)
}

/// Like [`fold`], with the reports of the times that `reads` accepts.
pub(crate) fn fold_some(
    reads: impl Fn(f64) -> bool,
    config: &Config,
    seed: u64,
    objectives: Objectives,
    seconds: f64,
    mut each: impl FnMut(f64, &Engine, &ObservedEngine),
) -> (Engine, ObservedEngine) {
    let start = Instant::now();
    let mut observed = ObservedEngine::new(Duration::from_secs(15)).with_objectives(objectives);
    let mut engine = Engine::new(config.clone(), seed);
    let release = config.release;
    let mut at = Some(0.0);
    while let Some(time) = at.filter(|time| *time < seconds) {
        let now = start + Duration::from_secs_f64(time);
        let wall = EPOCH_US + (time * 1e6) as i64;
        let step = engine.step(time);
        at = step.next;
        if !reads(time) {
            continue;
        }
        let array = |values: Vec<serde_json::Value>| serde_json::Value::from(values).to_string();
        let mut batch = Batch::default();
        let records = step.records.iter().map(|record| write::record(record, release, EPOCH_US)).collect();
        trtllm_json::parse_records(array(records).as_bytes(), &mut batch).unwrap();
        // A host program of the C++ Executor publishes entries in its own form. PyTorch's entries have trtllm-serve's form.
        let version = if release.is_cpp() { write::Version::Host } else { write::Version::V2 };
        let entries = step.entries.iter().map(|entry| write::entry(entry, version)).collect();
        trtllm_json::parse_perf_metrics(array(entries).as_bytes(), &mut batch).unwrap();
        assert_eq!(batch.messages.len(), step.records.len() + step.entries.len());
        for item in batch.drain() {
            match item {
                Message::Record(record) => observed.absorb(&record, now, wall).unwrap(),
                Message::FinishedRequest(entry) => observed.absorb_perf_metrics(&entry, now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        for (iter, rows) in &step.rows {
            let text = write::rows(*iter, rows, release).to_string();
            let parsed: RequestStatsPerIteration = serde_json::from_str(&text).unwrap();
            observed.absorb_requests(&parsed, now).unwrap();
        }
        observed.settle(true, now);
        each(time, &engine, &observed);
    }
    (engine, observed)
}
