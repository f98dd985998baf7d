//! Tests the scheduler and the costs with real engines: 63 reports of trtllm-bench about one engine (Llama 3.1 70B in
//! FP8 on 8 H100 GPUs, TensorRT-LLM 0.16) under different loads, and ten loads of eight more engines. The prices are
//! fitted to six loads of an engine, and its others are predicted.

use super::*;
use crate::measured_engine::{EqualWork, Prices};

/// Tokens of each prompt and answer, requests that arrive at once, and seconds until all were answered. Measured by
/// <https://github.com/shaamil101-etched/trtllm-benchmarks> at aeec9f2; its logs name the limits and blocks below.
#[rustfmt::skip]
const REPORTS: [(u32, u32, usize, f64); 63] = [
    (1024, 1024, 3000, 282.0), (1024, 128, 7500, 268.5), (1024, 16384, 200, 836.1), (1024, 2048, 1500, 275.1),
    (1024, 256, 6000, 250.9), (1024, 4096, 800, 351.3), (1024, 512, 5000, 279.7), (1024, 8192, 400, 516.6),
    (128, 1024, 7500, 388.1), (128, 128, 30000, 266.9), (128, 16384, 400, 1437.9), (128, 2048, 3000, 363.5),
    (128, 256, 20000, 290.9), (128, 4096, 1500, 494.4), (128, 512, 15000, 397.4), (128, 8192, 750, 773.4),
    (16384, 1024, 200, 167.2), (16384, 128, 400, 222.2), (16384, 2048, 200, 234.4), (16384, 256, 300, 175.0),
    (16384, 4096, 100, 190.5), (16384, 512, 250, 165.3), (16384, 8192, 75, 294.0), (2048, 1024, 1500, 209.3),
    (2048, 128, 3000, 202.1), (2048, 16384, 200, 880.0), (2048, 2048, 1500, 353.6), (2048, 256, 2500, 189.1),
    (2048, 4096, 750, 392.6), (2048, 512, 2000, 187.0), (2048, 8192, 400, 557.5), (256, 1024, 6000, 335.0),
    (256, 128, 20000, 249.3), (256, 16384, 300, 1070.6), (256, 2048, 2500, 331.2), (256, 256, 15000, 275.6),
    (256, 4096, 1200, 445.9), (256, 512, 10000, 303.1), (256, 8192, 600, 704.9), (4096, 1024, 800, 186.6),
    (4096, 128, 1500, 198.1), (4096, 16384, 100, 482.0), (4096, 2048, 750, 276.0), (4096, 256, 1200, 172.9),
    (4096, 4096, 400, 313.8), (4096, 512, 1000, 169.6), (4096, 8192, 200, 317.0), (512, 1024, 5000, 333.6),
    (512, 128, 15000, 300.3), (512, 16384, 250, 950.7), (512, 2048, 2000, 277.3), (512, 256, 10000, 259.1),
    (512, 4096, 1000, 353.5), (512, 512, 7500, 290.0), (512, 8192, 500, 532.7), (8192, 1024, 400, 172.1),
    (8192, 128, 750, 201.3), (8192, 16384, 75, 485.6), (8192, 2048, 400, 251.4), (8192, 256, 600, 170.7),
    (8192, 4096, 200, 210.7), (8192, 512, 500, 163.5), (8192, 8192, 150, 344.6),
];
pub(crate) const RULES: Rules = Rules {
    max_batch_size: 2048,
    max_num_tokens: 8192,
    chunked_context: true,
    policy: Policy::GuaranteedNoEvict,
    cache: Some(Cache { blocks: 42_668, tokens_per_block: 64 }),
    draft_len: 0,
    acceptance: 0.0,
    overlap: false,
    host: HostTime::AsKnown,
};

#[test]
fn requests_behind_one_that_never_fits_are_served() {
    let nothing = EqualWork { iterations: 1.0, seconds: 1.0, ..EqualWork::default() };
    let prices = Prices { base: 1.0, context_token: 0.0, generation_token: 0.0, kv_token: 0.0, error: 0.0 };
    let costs = CostEstimator::new(&[nothing], prices).unwrap();
    // The first one needs five or six blocks of four. Its prompt alone fits in the second case.
    for (policy, prompt) in
        [(Policy::GuaranteedNoEvict, 320), (Policy::MaxUtilization, 320), (Policy::MaxUtilization, 256)]
    {
        let rules = Rules { policy, cache: Some(Cache { blocks: 4, tokens_per_block: 64 }), ..RULES };
        for (overlap, clients) in [(false, None), (true, None), (false, Some(1)), (true, Some(1))] {
            let coming = [prompt, 64, 64].map(|prompt| Request { prompt, output: 32, ..Request::default() });
            let served =
                Scheduler::new(Rules { overlap, ..rules }, &costs, 0.0, Random::new(1)).serve(&coming, clients);
            let ended = served.iter().map(|request| request.ended).collect::<Vec<_>>();
            assert!(ended.iter().all(|ended| *ended > 0.0), "{policy:?} {prompt} {overlap} {clients:?}: {ended:?}");
            assert!(ended[0] < 40.0, "32 tokens take 32 iterations of a second: {ended:?}");
        }
    }
}

/// The prices of an iteration, a prompt's token, a decoded token, and a token in the cache.
type Four = [f64; 4];

fn seconds(report: &(u32, u32, usize, f64), prices: Four) -> f64 {
    let [base, context_token, generation_token, kv_token] = prices;
    let prices = Prices { base, context_token, generation_token, kv_token, error: 0.0 };
    let nothing = EqualWork { iterations: 1.0, seconds: base, ..EqualWork::default() };
    let costs = CostEstimator::new(&[nothing], prices).unwrap();
    let (prompt, output, requests, _) = *report;
    let coming = vec![Request { prompt, output, ..Request::default() }; requests];
    let served = Scheduler::new(RULES, &costs, 0.0, Random::new(1)).serve(&coming, None);
    served.iter().map(|request| request.ended).fold(0.0, f64::max)
}

/// The number of units for each of the four prices. Prices do not change the batches, as all requests arrive at once.
fn work(report: &(u32, u32, usize, f64)) -> Four {
    let (prompt, output, requests) = (f64::from(report.0), f64::from(report.1), report.2 as f64);
    let steps = output - 1.0;
    let in_cache = steps * prompt + steps * (steps - 1.0) / 2.0;
    [seconds(report, [1.0, 0.0, 0.0, 0.0]), requests * prompt, requests * steps, requests * in_cache]
}

/// The prices from this one on with the least relative errors. Solves the normal equations by Gauss-Jordan elimination.
fn fit(reports: &[(u32, u32, usize, f64)], first: usize) -> Four {
    let mut sums = [[0.0; 5]; 4];
    for report in reports {
        let work = work(report).map(|work| work / report.3);
        for (row, of_row) in sums.iter_mut().zip(work) {
            for (sum, of_column) in row.iter_mut().zip(work.into_iter().chain([1.0])) {
                *sum += of_row * of_column;
            }
        }
    }
    for at in first..4 {
        let pivot = sums[at];
        for (index, row) in sums.iter_mut().enumerate().filter(|(index, _)| *index != at) {
            let times = row[at] / pivot[at];
            (0..5).for_each(|column| row[column] -= times * pivot[column]);
            assert!(row.iter().all(|sum| sum.is_finite()), "row {index}");
        }
    }
    std::array::from_fn(|at| if at < first { 0.0 } else { sums[at][4] / sums[at][at] })
}

/// `cargo test -p trtllm-what-if --lib -- --nocapture bench` prints the table.
#[test]
fn six_reports_of_an_engine_predict_how_long_it_takes_under_57_other_loads() {
    let is_fitted =
        |report: &&(u32, u32, usize, f64)| [128, 8192].contains(&report.0) && [128, 1024, 16_384].contains(&report.1);
    let fitted: Vec<_> = REPORTS.iter().filter(is_fitted).copied().collect();
    let prices = fit(&fitted, 0);
    println!("fitted to {fitted:?}: {prices:?}");
    let mut errors: Vec<f64> = Vec::new();
    for report in REPORTS.iter().filter(|report| !is_fitted(report)) {
        let predicted = seconds(report, prices);
        let error = predicted / report.3 - 1.0;
        println!("{report:?}: predicted {predicted:.1} s, {:+.1} %", 100.0 * error);
        errors.push(error.abs());
    }
    errors.sort_by(f64::total_cmp);
    let within = errors.iter().filter(|error| **error <= 0.05).count();
    println!("median {:.3}, worst {:.3}, {within} of {} within 5 %", errors[28], errors[56], errors.len());
    assert!(fitted.len() == 6 && errors.len() == 57);
    assert!(errors[28] < 0.03 && within >= 54 && errors[56] < 0.16, "{errors:?}");
}

/// NVIDIA's performance overview of release 1.0 has the output tokens a second of eight engines at full load. It does
/// not name their limits. At full load, the fixed part of an iteration is small. Without it, the limits change nothing.
#[test]
fn six_loads_of_each_of_eight_engines_predict_the_four_others() {
    let table = include_str!("../../../../tests/fixtures/tables/perf_overview_v1.0_output_tok_s.csv");
    let requests = [30_000, 3000, 1500, 3000, 3000, 1500, 3000, 1500, 1500, 1000];
    let rows: Vec<Vec<f64>> =
        table.lines().skip(1).map(|row| row.split(',').map(|value| value.parse().unwrap()).collect()).collect();
    let mut errors: Vec<f64> = Vec::new();
    for (column, engine) in table.lines().next().unwrap().split(',').enumerate().skip(2) {
        let report = |(row, requests): (&Vec<f64>, usize)| {
            let seconds = requests as f64 * row[1] / row[column];
            (row[0] as u32, row[1] as u32, requests, seconds)
        };
        let is_fitted =
            |(prompt, output, ..): &(u32, u32, usize, f64)| [128, 2048, 20_000].contains(prompt) && *output > 0;
        let (fitted, others): (Vec<_>, Vec<_>) = rows.iter().zip(requests).map(report).partition(is_fitted);
        assert_eq!((fitted.len(), others.len()), (6, 4));
        let prices = fit(&fitted, 1);
        println!("{engine}: {prices:?}");
        for report in others {
            let error = seconds(&report, prices) / report.3 - 1.0;
            println!("{report:?}: {:+.1} %", 100.0 * error);
            errors.push(error.abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    println!("median {:.3}, worst {:.3} of {}", errors[16], errors[31], errors.len());
    assert!(errors[16] < 0.04 && errors[31] < 0.12, "{errors:?}");
}
