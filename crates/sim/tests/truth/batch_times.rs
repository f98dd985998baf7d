//! Compares the time of each batch, as the exporter derives it from the records, with the truth of the simulated engine, in every
//! scenario of the PyTorch engine.

use std::collections::HashMap;

use trtllm_fold::batch_time::TimedBatch;
use trtllm_records::Objectives;
use trtllm_sim::config::Fault;
use trtllm_sim::{Config, scenario};

use crate::folded;

const SECONDS: f64 = 60.0;

#[test]
fn the_time_of_each_batch_is_the_true_one_in_every_scenario() {
    let mut wrong = Vec::new();
    for scenario in scenario::all() {
        let config = &scenario.config;
        // The rows of ranks tell the time of their iteration together, and the closure sees only the last row.
        if config.release.is_cpp() || config.ranks.pipeline > 1 || config.ranks.attention_dp > 1 {
            continue;
        }
        let mut times: HashMap<u64, f64> = HashMap::new();
        let (engine, _) = folded::fold(config, 5, Objectives::default(), SECONDS, |_, _, observed| {
            if let Some(TimedBatch { iter: Some(iter), time, .. }) = observed.fold.timed_batch {
                times.insert(iter, time.seconds);
            }
        });
        // A restart begins a new numbering, so take only batches whose number is unique.
        let mut truth: HashMap<u64, Vec<f64>> = HashMap::new();
        for batch in &engine.truth().batches {
            truth.entry(batch.iter).or_default().push(batch.seconds);
        }
        let unique = |iter: &u64| truth.get(iter).filter(|batches| batches.len() == 1).map(|batches| batches[0]);
        let mut errors: Vec<(f64, u64)> =
            times.iter().filter_map(|(iter, seconds)| Some((((seconds / unique(iter)?) - 1.0).abs(), *iter))).collect();
        errors.sort_by(|one, other| one.0.total_cmp(&other.0));
        let at = |share: f64| errors.get((errors.len() as f64 * share) as usize).map_or(0.0, |(error, _)| *error);
        let batches = engine.truth().batches.len();
        let told = times.len() as f64 / batches.max(1) as f64;
        let line = format!(
            "{}: {batches} batches, {:.0} % told, errors of 50, 95 and 99 of 100: {:.2} %, {:.1} %, {:.1} %",
            scenario.name,
            100.0 * told,
            100.0 * at(0.5),
            100.0 * at(0.95),
            100.0 * at(0.99),
        );
        println!("{line}");
        let is_complete = config.statistics.enabled && config.statistics.interval == 1 && !loses_records(config);
        let (median, most) = bounds(&scenario.name, is_complete);
        if at(0.5) > median || at(0.95) > most || is_complete && batches > 0 && told < 0.95 {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn loses_records(config: &Config) -> bool {
    config.faults.iter().any(|fault| matches!(fault, Fault::LoseRecords { .. } | Fault::SecondReader { .. }))
}

/// The largest allowed errors of the median batch and of 95 of 100.
fn bounds(scenario: &str, is_complete: bool) -> (f64, f64) {
    match scenario {
        // The host is the limit: what it spends on the next batch is not moved there.
        "host" | "host-v1" | "host-per-request" | "host-per-request-v1" => (0.15, f64::INFINITY),
        // Each third batch follows an idle time.
        "healthy-short-answers" | "healthy-short-answers-v1" => (0.02, 0.05),
        // Most batches have no neighbour: the loop is blocked while KV caches are sent.
        "healthy-context-server" => (0.05, 0.1),
        // Without neighbours, the latency lacks what the pass does after it has handled the batch.
        _ if !is_complete => (0.05, 0.05),
        _ => (0.001, 0.01),
    }
}
