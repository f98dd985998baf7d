//! The output of an engine, compared with that of a benchmark.

use trtllm_analysis::window::Window;
use trtllm_records::BenchReport;

/// Seconds over which the output is measured. They are known if the marks of the window span nearly as many.
const MINUTES: f64 = 300.0;
const NEARLY: f64 = 0.95;

/// The output of the last five minutes ÷ that of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutputRatios {
    /// Ratio of the tokens per second and GPU.
    pub throughput: Option<f64>,
    /// Ratio of the tokens per joule.
    pub efficiency: Option<f64>,
}

impl OutputRatios {
    /// Absent until five minutes are known, if the tokens of some iterations are not, and after a change of the GPUs:
    /// the mean rate of two sets of GPUs says nothing.
    pub fn of(window: &Window, bench: &BenchReport) -> Option<Self> {
        let span = window.span(MINUTES).filter(|span| span.seconds >= NEARLY * MINUTES && span.is_complete())?;
        let gpus = window.last()?.gpus;
        if window.marks().any(|mark| mark.sampling > 1.0 || mark.gpus != gpus) {
            return None;
        }
        let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
        let (performance, tokens) = (&bench.performance, span.output_tokens());
        let of_bench = bench.metadata.num_gpus.filter(|gpus| *gpus >= 1.0).map(f64::floor);
        let by_gpu = || Some(performance.gpu_token_throughput_per_sec? * of_bench?);
        let all = positive(performance.token_throughput_per_sec.or_else(by_gpu));
        // If a number of GPUs is unknown, the two are assumed to be equal.
        let scale = of_bench.filter(|_| gpus > 0).map_or(1.0, |of_bench| of_bench / gpus as f64);
        let per_joule = positive(span.joules).map(|joules| tokens / joules);
        let efficiency = per_joule.zip(positive(bench.energy.output_tokens_per_joule));
        Some(Self {
            throughput: all.map(|all| span.rate(tokens) / all * scale),
            efficiency: efficiency.map(|(now, bench)| now / bench),
        })
    }
}

#[cfg(test)]
mod tests {
    use trtllm_analysis::ObservedEngine;
    use trtllm_analysis::window::{Mark, SLOT_SECONDS};

    use super::*;

    /// Plays an engine with this many tokens per second on two GPUs of 300 W each. The benchmark ran on one GPU.
    fn play(window: &mut Window, minutes: u32, rate: f64) -> Option<OutputRatios> {
        let first = Mark::of(&ObservedEngine::new(std::time::Duration::from_secs(15)), 0.0);
        let mut now = window.last().copied().unwrap_or(Mark { joules: Some(0.0), gpus: 2, ..first });
        window.push(now);
        for _ in 0..minutes * 12 {
            now.at += SLOT_SECONDS;
            now.sums.decoded_tokens += SLOT_SECONDS * rate;
            now.counts.iterations += 50.0;
            now.joules = now.joules.map(|joules| joules + 3000.0);
            window.push(now);
        }
        let mut bench = BenchReport::default();
        (bench.metadata.num_gpus, bench.performance.token_throughput_per_sec) = (Some(1.0), Some(800.0));
        bench.energy.output_tokens_per_joule = Some(2.0);
        OutputRatios::of(window, &bench)
    }

    #[test]
    fn an_engine_is_compared_with_its_benchmark() {
        let mut window = Window::default();
        assert_eq!(play(&mut window, 4, 1000.0), None, "five minutes are not known");
        assert!(play(&mut window, 1, 1000.0).is_some());
        let ratios = play(&mut window, 5, 400.0).unwrap();
        assert!((ratios.throughput.unwrap() - 0.25).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.efficiency.unwrap() - 400.0 / 600.0 / 2.0).abs() < 1e-9, "{ratios:?}");
    }

    #[test]
    fn lost_records_and_a_change_of_the_gpus_hide_the_output() {
        let mut window = Window::default();
        play(&mut window, 10, 100.0);
        let now = *window.last().unwrap();
        let hides = |change: fn(&mut Mark)| {
            let (mut window, mut next) = (window.clone(), Mark { at: now.at + SLOT_SECONDS, ..now });
            change(&mut next);
            window.push(next);
            play(&mut window, 0, 100.0).is_none()
        };
        assert!(!hides(|_| ()));
        assert!(hides(|mark| mark.counts.iterations_lost += 900.0));
        assert!(hides(|mark| mark.sampling = 10.0));
        assert!(hides(|mark| mark.gpus = 4));
    }
}
