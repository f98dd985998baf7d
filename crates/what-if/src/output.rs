//! The output of an engine, and how it compares with its best hour and with a benchmark. Pure: times are arguments.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use trtllm_model::BenchReport;

/// Seconds between two marks (kept values of [`Output`]), and the number of marks: one hour.
const STEP: f64 = 60.0;
const MARKS: usize = 61;
/// A span of time may be shorter than required, down to this share, because the times of marks are not exact.
const NEARLY: f64 = 0.95;
/// The present output is measured over this many seconds.
const PRESENT: f64 = 300.0;
/// The tokens of iterations without a record are unknown. Up to this share of such iterations does not matter.
const FEW_UNSEEN: f64 = 0.05;
/// Seconds after which a best hour is forgotten, because the engine may run on other GPUs by then.
const FORGET_AFTER: f64 = 30.0 * 86_400.0;

/// The totals of an engine at one time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Output {
    /// Seconds on a clock that never runs backwards.
    pub at: f64,
    pub tokens: f64,
    pub iterations: f64,
    /// Iterations without a record.
    pub unseen: f64,
    /// Energy of the engine's GPUs. Absent if they serve another engine, too, or if some of them were not found.
    pub joules: Option<f64>,
    /// 0 if not all GPUs that serve the engine are known.
    pub gpus: usize,
}

/// The output in a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The sum of all GPUs.
    pub tokens_per_second: f64,
    pub tokens_per_joule: Option<f64>,
    pub gpus: usize,
}

/// The output of the last hour.
#[derive(Debug, Clone, Default)]
pub struct LastHour(VecDeque<Output>);

impl LastHour {
    pub fn push(&mut self, now: Output) {
        let Some(last) = self.0.back() else { return self.0.push_back(now) };
        if now.at - last.at < NEARLY * STEP {
            return;
        }
        // Totals restart when an engine reconnects to a socket, and the mean rate of two sets of GPUs says nothing.
        if now.tokens < last.tokens || now.gpus != last.gpus {
            self.0.clear();
        }
        if self.0.len() >= MARKS {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    #[must_use]
    pub fn present(&self) -> Option<Rates> {
        self.rates(PRESENT)
    }

    #[must_use]
    pub fn hour(&self) -> Option<Rates> {
        self.rates(STEP * (MARKS - 1) as f64)
    }

    /// Absent until this many seconds are known.
    fn rates(&self, seconds: f64) -> Option<Rates> {
        let last = self.0.back()?;
        let first = self.0.iter().rev().find(|mark| last.at - mark.at >= NEARLY * seconds)?;
        let tokens = last.tokens - first.tokens;
        let (iterations, unseen) = (last.iterations - first.iterations, last.unseen - first.unseen);
        let joules = last.joules.zip(first.joules).map(|(last, first)| last - first).filter(|joules| *joules > 0.0);
        (unseen <= FEW_UNSEEN * iterations).then(|| Rates {
            tokens_per_second: tokens / (last.at - first.at),
            tokens_per_joule: joules.map(|joules| tokens / joules),
            gpus: last.gpus,
        })
    }
}

/// The best hours of an engine. The best hour for energy may differ from the best hour for throughput.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Best {
    pub tokens_per_second: Option<BestHour>,
    pub tokens_per_joule: Option<BestHour>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestHour {
    pub value: f64,
    /// See [`Output::gpus`].
    pub gpus: usize,
    /// The end of the hour, in seconds since 1970.
    pub at: f64,
}

impl BestHour {
    /// The value per GPU, or of all GPUs if their number is not known.
    fn each(&self) -> f64 {
        self.value / self.gpus.max(1) as f64
    }
}

impl Best {
    /// Keeps the better hour of each kind, unless it is too old. `now`: seconds since 1970.
    pub fn merge(&mut self, other: &Self, now: f64) {
        let better = |one: Option<BestHour>, other: Option<BestHour>, by: fn(&BestHour) -> f64| {
            let both =
                [one, other].into_iter().flatten().filter(|hour| hour.value > 0.0 && now - hour.at < FORGET_AFTER);
            both.max_by(|one, other| by(one).total_cmp(&by(other)))
        };
        self.tokens_per_second = better(self.tokens_per_second, other.tokens_per_second, BestHour::each);
        self.tokens_per_joule = better(self.tokens_per_joule, other.tokens_per_joule, |hour| hour.value);
    }

    /// An hour that ends at `now`, as the best hour so far. `now`: seconds since 1970.
    #[must_use]
    pub fn of(hour: &Rates, now: f64) -> Self {
        let best = |value| BestHour { value, gpus: hour.gpus, at: now.floor() };
        Self {
            tokens_per_second: Some(best(hour.tokens_per_second)),
            tokens_per_joule: hour.tokens_per_joule.map(best),
        }
    }
}

/// The present output ÷ that of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutputRatios {
    /// Ratio of the tokens per second and GPU.
    pub throughput: Option<f64>,
    /// Ratio of the tokens per joule.
    pub efficiency: Option<f64>,
}

impl OutputRatios {
    #[must_use]
    pub fn of_best(now: &Rates, best: &Best) -> Self {
        let throughput = best.tokens_per_second.and_then(|best| rate(now, best.value, best.gpus));
        Self { throughput, efficiency: efficiency(now, best.tokens_per_joule.map(|best| best.value)) }
    }

    #[must_use]
    pub fn of_benchmark(now: &Rates, bench: &BenchReport) -> Self {
        let gpus = bench.metadata.num_gpus.filter(|gpus| *gpus >= 1.0).map_or(0, |gpus| gpus as usize);
        let performance = &bench.performance;
        let by_gpu = || Some(performance.gpu_token_throughput_per_sec? * gpus as f64);
        let all = performance.token_throughput_per_sec.or_else(by_gpu);
        Self {
            throughput: all.and_then(|all| rate(now, all, gpus)),
            efficiency: efficiency(now, bench.energy.output_tokens_per_joule),
        }
    }
}

/// Compares rates per GPU if both numbers of GPUs are known. Otherwise assumes that the numbers are equal.
fn rate(now: &Rates, reference: f64, gpus: usize) -> Option<f64> {
    let scale = if now.gpus > 0 && gpus > 0 { gpus as f64 / now.gpus as f64 } else { 1.0 };
    (reference > 0.0).then(|| now.tokens_per_second / reference * scale)
}

fn efficiency(now: &Rates, reference: Option<f64>) -> Option<f64> {
    Some(now.tokens_per_joule? / reference.filter(|reference| *reference > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one [`Output`] every 5 s: `rate` tokens per second on two GPUs of 300 W each. Returns the last time.
    fn play(hour: &mut LastHour, from: f64, minutes: u32, rate: f64) -> f64 {
        let mut now =
            hour.0.back().copied().unwrap_or(Output { at: from, joules: Some(0.0), gpus: 2, ..Output::default() });
        hour.push(now);
        for _ in 0..minutes * 12 {
            now.at += 5.0;
            now.tokens += 5.0 * rate;
            now.iterations += 50.0;
            now.joules = now.joules.map(|joules| joules + 3000.0);
            hour.push(now);
        }
        now.at
    }

    #[test]
    fn an_engine_is_compared_with_its_best_hour_and_its_benchmark() {
        let (mut last, mut best) = (LastHour::default(), Best::default());
        let at = play(&mut last, 0.0, 50, 1000.0);
        assert_eq!(last.hour(), None, "no whole hour is known");
        assert_eq!(last.present().unwrap().tokens_per_second, 1000.0);
        let at = play(&mut last, at, 10, 1000.0);
        best.merge(&Best::of(&last.hour().unwrap(), at), at);
        let at = play(&mut last, at, 60, 400.0);
        best.merge(&Best::of(&last.hour().unwrap(), at), at);
        let now = last.present().unwrap();
        let ratios = OutputRatios::of_best(&now, &best);
        assert!(ratios.throughput.is_some_and(|ratio| (ratio - 0.4).abs() < 1e-9), "{ratios:?}");
        assert!(ratios.efficiency.is_some_and(|ratio| (ratio - 0.4).abs() < 1e-9), "{ratios:?}");
        // The benchmark ran on one GPU.
        let mut bench = BenchReport::default();
        (bench.metadata.num_gpus, bench.performance.token_throughput_per_sec) = (Some(1.0), Some(800.0));
        bench.energy.output_tokens_per_joule = Some(2.0);
        let ratios = OutputRatios::of_benchmark(&now, &bench);
        assert!((ratios.throughput.unwrap() - 0.25).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.efficiency.unwrap() - 400.0 / 600.0 / 2.0).abs() < 1e-9, "{ratios:?}");
        assert_eq!(last.0.len(), MARKS);
    }

    #[test]
    fn a_best_hour_is_forgotten_after_30_days_and_lost_records_hide_the_output() {
        let hour = Rates { tokens_per_second: 900.0, tokens_per_joule: None, gpus: 2 };
        let mut best = Best::of(&hour, 0.0);
        let other = Best::of(&Rates { tokens_per_second: 700.0, gpus: 1, ..hour }, 86_400.0);
        best.merge(&other, 86_400.0);
        assert_eq!(best.tokens_per_second.unwrap().value, 700.0, "each of its GPUs did more");
        best.merge(&Best::of(&hour, 40.0 * 86_400.0), 40.0 * 86_400.0);
        assert_eq!(best.tokens_per_second.unwrap().value, 900.0);
        let mut last = LastHour::default();
        play(&mut last, 0.0, 10, 100.0);
        let mut now = *last.0.back().unwrap();
        (now.at, now.iterations, now.unseen) = (now.at + 60.0, now.iterations + 10.0, 900.0);
        last.push(now);
        assert_eq!(last.present(), None);
    }
}
