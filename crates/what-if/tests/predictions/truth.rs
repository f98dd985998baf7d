//! What the changed engine really does, over a long time and with another seed.

use std::collections::BTreeMap;

use trtllm_sim::load::Arrivals;
use trtllm_sim::truth::RequestTruth;
use trtllm_sim::{Config, Engine};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Truth {
    pub(crate) requests_per_second: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) ttft_p50: f64,
    pub(crate) ttft_p95: f64,
    pub(crate) tpot_p50: f64,
    /// Requests by which the number in the engine grows per second ÷ requests that arrive per second.
    pub(crate) growth: f64,
    /// Requests by which the number in the engine grows per second.
    pub(crate) growth_per_second: f64,
    pub(crate) ttft_met: f64,
    /// Arrivals ÷ what the engine can serve.
    pub(crate) utilization: f64,
    /// How much the median TTFT varies if it is computed from as many requests as the exporter knew: half of the 90 %
    /// interval, as a share.
    pub(crate) ttft_varies: f64,
}

/// Seconds at the start that do not count.
const FROM: f64 = 200.0;

/// `known`: requests that the exporter knew.
pub(crate) fn truth(config: &Config, seed: u64, ttft_objective: f64, known: usize) -> Truth {
    // So many requests or bursts that chance changes the result by only about 1 %.
    let until = FROM
        + match config.load.arrivals {
            Arrivals::Poisson { rate } => (10_000.0 / rate).clamp(1000.0, 5000.0),
            Arrivals::Bursty { rate, burst } => (10_000.0 * f64::from(burst) / rate).clamp(8000.0, 20_000.0),
            _ => 1000.0,
        };
    let mut engine = Engine::new(config.clone(), seed);
    engine.run(until, |_| ());
    let seconds = until - FROM;
    let all = &engine.truth().requests;
    let ended: Vec<&RequestTruth> =
        all.iter().filter(|request| request.last_token >= FROM && request.last_token < until).collect();
    let arrived = engine.truth().arrived as f64;
    let mut ttft: Vec<f64> = ended.iter().filter_map(|r| Some(r.first_token? - r.queued)).collect();
    let ttft_varies = median_varies(&ttft, known);
    let met = ttft.iter().filter(|time| **time <= ttft_objective).count() as f64 / ttft.len().max(1) as f64;
    let tpot = ended.iter().filter(|request| request.generated > 1);
    let mut tpot: Vec<f64> =
        tpot.filter_map(|r| Some((r.last_token - r.first_token?) / f64::from(r.generated - 1))).collect();
    Truth {
        requests_per_second: ended.len() as f64 / seconds,
        tokens_per_second: ended.iter().map(|r| f64::from(r.generated)).sum::<f64>() / seconds,
        ttft_p50: percentile(&mut ttft, 0.5),
        ttft_p95: percentile(&mut ttft, 0.95),
        tpot_p50: percentile(&mut tpot, 0.5),
        growth: (arrived - all.len() as f64) / arrived.max(1.0),
        growth_per_second: (arrived - all.len() as f64) / until,
        ttft_met: met,
        utilization: arrived / until / capacity(config, seed + 50),
        ttft_varies,
    }
}

/// Requests served per second while others are always waiting.
pub(crate) fn capacity(config: &Config, seed: u64) -> f64 {
    let mut config = config.clone();
    config.load.arrivals = Arrivals::Offline { requests: 4000 };
    let mut engine = Engine::new(config, seed);
    engine.run(20_000.0, |_| ());
    let mut ends: Vec<f64> = engine.truth().requests.iter().map(|request| request.last_token).collect();
    ends.sort_by(f64::total_cmp);
    2000.0 / (ends[3000] - ends[1000])
}

/// For iterations without prompts: their number and their seconds, by the number of decoding requests.
pub(crate) struct Sizes(BTreeMap<u32, (u32, f64)>);

impl Sizes {
    pub(crate) fn of(config: &Config, seed: u64, seconds: f64) -> Self {
        let (mut engine, mut sizes) = (Engine::new(config.clone(), seed), BTreeMap::new());
        engine.run(seconds, |step| {
            for record in step.records.iter().filter(|record| record.work.context_requests == 0) {
                let size: &mut (u32, f64) = sizes.entry(record.work.generation_requests).or_default();
                size.0 += 1;
                size.1 += record.latency;
            }
        });
        Self(sizes)
    }

    /// Share of the time with batch sizes that `watched` ran in fewer than three iterations. Sizes up to a quarter of a
    /// doubling apart count as equal.
    pub(crate) fn unseen_in(&self, watched: &Self) -> f64 {
        let is_seen = |size: u32| {
            let near = |factor: f64| (f64::from(size) * factor).round() as u32;
            watched.0.range(near(1.0 / 1.19)..=near(1.19)).map(|(_, (count, _))| count).sum::<u32>() >= 3
        };
        let seconds = |seen: bool| -> f64 {
            self.0.iter().filter(|(size, _)| is_seen(**size) == seen).map(|(_, (_, seconds))| seconds).sum()
        };
        seconds(false) / (seconds(true) + seconds(false)).max(1e-9)
    }
}

fn median_varies(times: &[f64], known: usize) -> f64 {
    let parts = times.chunks_exact(known.max(1));
    let logs: Vec<f64> = parts.map(|part| percentile(&mut part.to_vec(), 0.5).ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (logs.len() as f64 - 1.0).max(1.0);
    (1.65 * variance.sqrt()).exp() - 1.0
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}
