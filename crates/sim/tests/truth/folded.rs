//! A simulated engine as the exporter sees it, in virtual time.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_records::{Message, Objectives};
use trtllm_sim::{Config, Engine};
use trtllm_sources::Batch;
use trtllm_sources::simulated::read_step;

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
    let mut at = Some(0.0);
    while let Some(time) = at.filter(|time| *time < seconds) {
        let now = start + Duration::from_secs_f64(time);
        let wall = EPOCH_US + (time * 1e6) as i64;
        let step = engine.step(time);
        at = step.next;
        if !reads(time) {
            continue;
        }
        let mut batch = Batch::default();
        read_step(&step, config.release, EPOCH_US, &mut batch).unwrap();
        assert_eq!(batch.messages.len(), step.records.len() + step.rows.len() + step.entries.len());
        for item in batch.drain() {
            match item {
                Message::Record(record) => observed.absorb(&record, now, wall).unwrap(),
                Message::RequestRows(rows) => observed.absorb_requests(&rows, now).unwrap(),
                Message::FinishedRequest(entry) => observed.absorb_perf_metrics(&entry, now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        observed.settle(true, now);
        each(time, &engine, &observed);
    }
    (engine, observed)
}
