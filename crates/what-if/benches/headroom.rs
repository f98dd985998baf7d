//! `cargo bench -p trtllm-what-if`: CPU time to simulate an engine's capacity, which the exporter does once a minute.
// A benchmark prints to stdout, and may panic, because no service depends on it.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use trtllm_what_if::capacity;
use trtllm_what_if::measured_engine::{Cache, EqualWork, Limits, MeasuredEngine, Prices, Request, Work};

const ROUNDS: u32 = 10;

fn main() {
    for batch in [16, 64, 256] {
        let present = busy(batch);
        let found = capacity(&present).unwrap();
        let began = cpu_seconds();
        (0..ROUNDS).for_each(|_| _ = capacity(&present).unwrap());
        let each = (cpu_seconds() - began) / f64::from(ROUNDS);
        println!("batches of {batch:3}, capacity {:5.1} requests/s: {:4.0} ms of CPU", found.value, 1e3 * each);
    }
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// An engine at about half of its capacity that has served 2048 requests with 300 prompt and 100 output tokens each.
fn busy(batch: u32) -> MeasuredEngine {
    let prices = Prices { base: 0.008, context_token: 40e-6, generation_token: 60e-6, kv_token: 40e-9, error: 0.02 };
    let work = |context_tokens: f64, generation_tokens: f64| {
        let kv_tokens = 350.0 * generation_tokens;
        let seconds = prices.base
            + prices.context_token * context_tokens
            + prices.generation_token * generation_tokens
            + prices.kv_token * kv_tokens;
        let work = Work { context_tokens, generation_tokens, kv_tokens };
        EqualWork { iterations: 200.0, seconds, work, ..EqualWork::default() }
    };
    let sizes: Vec<f64> = (0..=16).map(|step| 2.0_f64.powf(f64::from(step) / 2.0).ceil()).collect();
    let sizes: Vec<f64> = sizes.into_iter().filter(|size| *size <= f64::from(batch)).collect();
    let equal_work = sizes.iter().flat_map(|size| [0.0, 300.0, 900.0].map(|context| work(context, *size))).collect();
    let (mut random, mut at) = (0x9e37_79b9_7f4a_7c15_u64, 0.0);
    let mut requests = Vec::new();
    // In each iteration, one in a hundred requests of the batch is new and computes its prompt.
    let prompts = f64::from(batch) / 200.0 * 300.0 * prices.context_token;
    let each = work(0.0, f64::from(batch) / 2.0).seconds + prompts;
    let rate = f64::from(batch) / 2.0 / (100.0 * each);
    for _ in 0..2048 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
        at += -(1.0 - unit).ln() / rate;
        let ended = 0.03 + 99.0 * each;
        requests.push(Request { arrived: at, prompt: 300, cached: 0, output: 100, first_token: 0.03, ended });
    }
    MeasuredEngine {
        limits: Limits { max_batch_size: Some(batch), max_num_tokens: Some(8192), ..Limits::default() },
        cache: Some(Cache { blocks: 20_000, tokens_per_block: 32 }),
        prices: Some(prices),
        equal_work,
        requests,
        sampling: 1.0,
        attention_dp_ranks: 1,
        ..MeasuredEngine::default()
    }
}
