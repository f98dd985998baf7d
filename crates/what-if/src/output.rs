//! The output of an engine, and how it compares with a benchmark. Pure: times are arguments.

use std::collections::VecDeque;

use trtllm_records::BenchReport;

/// Seconds between two marks (kept values of [`Output`]), and the number of marks: five minutes.
const STEP: f64 = 60.0;
const MARKS: usize = 6;
/// Two marks may be nearer to each other than a step, down to this share of it, because they are taken every five seconds.
const NEARLY: f64 = 0.95;
/// The tokens of iterations without a record are unknown. Up to this share of such iterations does not matter.
const FEW_UNSEEN: f64 = 0.05;

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

/// The output of the last five minutes.
#[derive(Debug, Clone, Default)]
pub struct RecentOutput(VecDeque<Output>);

impl RecentOutput {
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

    /// Absent until five minutes are known, which all marks together span.
    #[must_use]
    pub fn rates(&self) -> Option<Rates> {
        let (first, last) = self.0.front().zip(self.0.back()).filter(|_| self.0.len() == MARKS)?;
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

/// The current output ÷ that of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutputRatios {
    /// Ratio of the tokens per second and GPU.
    pub throughput: Option<f64>,
    /// Ratio of the tokens per joule.
    pub efficiency: Option<f64>,
}

impl OutputRatios {
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

    /// Adds one [`Output`] every 5 s: `rate` tokens per second on two GPUs of 300 W each.
    fn play(recent: &mut RecentOutput, minutes: u32, rate: f64) {
        let mut now = recent.0.back().copied().unwrap_or(Output { joules: Some(0.0), gpus: 2, ..Output::default() });
        recent.push(now);
        for _ in 0..minutes * 12 {
            now.at += 5.0;
            now.tokens += 5.0 * rate;
            now.iterations += 50.0;
            now.joules = now.joules.map(|joules| joules + 3000.0);
            recent.push(now);
        }
    }

    #[test]
    fn an_engine_is_compared_with_its_benchmark() {
        let mut recent = RecentOutput::default();
        play(&mut recent, 4, 1000.0);
        assert_eq!(recent.rates(), None, "five minutes are not known");
        play(&mut recent, 1, 1000.0);
        assert_eq!(recent.rates().unwrap().tokens_per_second, 1000.0);
        play(&mut recent, 5, 400.0);
        // The benchmark ran on one GPU.
        let mut bench = BenchReport::default();
        (bench.metadata.num_gpus, bench.performance.token_throughput_per_sec) = (Some(1.0), Some(800.0));
        bench.energy.output_tokens_per_joule = Some(2.0);
        let ratios = OutputRatios::of_benchmark(&recent.rates().unwrap(), &bench);
        assert!((ratios.throughput.unwrap() - 0.25).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.efficiency.unwrap() - 400.0 / 600.0 / 2.0).abs() < 1e-9, "{ratios:?}");
        assert_eq!(recent.0.len(), MARKS);
    }

    #[test]
    fn lost_records_hide_the_output() {
        let mut recent = RecentOutput::default();
        play(&mut recent, 10, 100.0);
        let mut now = *recent.0.back().unwrap();
        (now.at, now.iterations, now.unseen) = (now.at + 60.0, now.iterations + 10.0, 900.0);
        recent.push(now);
        assert_eq!(recent.rates(), None);
    }
}
