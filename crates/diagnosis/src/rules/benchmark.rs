//! The engine against its benchmark. Silent unless both have the same load.

use super::super::finding::{Check, Fact, Facts, Rule, Severity, count, share, text};
use super::super::observation::Engine;
use super::super::thresholds::{BENCHMARK_SHARE, SAME_LOAD};

/// Iterations without a record hide tokens. This share of them does not matter.
const FEW_UNSEEN: f64 = 0.05;
/// Requests whose mean length proves something.
const ENOUGH_REQUESTS: f64 = 10.0;

pub(super) const RULES: &[Rule] = &[Rule {
    name: "below-benchmark",
    severity: Severity::Warning,
    check: Check::Engine(below_benchmark),
    says: "The engine generates fewer tokens per second than its benchmark did at equal concurrency.",
    when: "Output tokens per second are below 80 % of those of --bench-report, while the requests in the engine, the queue included, are \
           on average within 20 % of the benchmark's. With fewer requests, the benchmark's rate counts in proportion. Not if outputs \
           differ by more than 20 % in length, prompts are more than 20 % longer, too few requests end to know that, or iterations have \
           no record.",
    guideline: "A report of trtllm-bench (docs/sources.md). It has no HTTP server and no tokenizer, so a little less than its rate \
                is normal.",
    change: "If another finding names a cause (host-bound, gpu-throttled, poor-speculation), see there. Compare the release and the \
             settings with the benchmark's (nv_trt_llm_bench_info, nv_trt_llm_bench_config). Look for other processes on the GPUs. If \
             the benchmark is of another model, GPU or load, make a new one.",
    alerts: &["TrtllmBelowBenchmark"],
}];

fn below_benchmark(engine: &Engine) -> Facts {
    let of_bench = |name: &str| positive(engine.page.now(name, &[]));
    let bench_rate = of_bench("nv_trt_llm_bench_output_tokens_per_second")?;
    let bench_requests = of_bench("nv_trt_llm_bench_concurrent_requests").or_else(|| by_latency(engine))?;
    if !engine.was_busy() || !sees_all_tokens(engine) || !has_same_lengths(engine) {
        return None;
    }
    // While no iteration runs, no request is in the engine.
    let requests = engine.busy_share() * (engine.batches.scheduled + engine.batches.backlog);
    let most = most_in_batch(engine).unwrap_or(f64::INFINITY);
    let load = requests.min(most) / bench_requests.min(most);
    if (load - 1.0).abs() > SAME_LOAD {
        return None;
    }
    let rate = output_tokens(engine)? / engine.window;
    let reached = rate / (bench_rate * load.min(1.0));
    (reached < BENCHMARK_SHARE).then(|| {
        let mut facts = vec![
            share("tokens/s of its benchmark at equal concurrency", reached),
            count("output tokens per second", rate),
            count("output tokens per second in the benchmark", bench_rate),
            count("mean requests in the engine", requests),
            count("mean requests in the benchmark", bench_requests),
        ];
        facts.extend(described(engine));
        facts
    })
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// Requests at once, as trtllm-bench computes them, for a report without that number.
fn by_latency(engine: &Engine) -> Option<f64> {
    let rate = engine.page.now("nv_trt_llm_bench_requests_per_second", &[])?;
    let latency = engine.page.now("nv_trt_llm_bench_e2e_request_latency_seconds", &[("statistic", "avg")])?;
    positive(Some(rate * latency))
}

/// More requests than this only wait. Each rank of attention data parallelism has a batch of its own, and the report does not say
/// whether there are several.
fn most_in_batch(engine: &Engine) -> Option<f64> {
    let setting = |name| positive(engine.page.now("nv_trt_llm_bench_config", &[("setting", name)]));
    Some(setting("max_batch_size")? * setting("num_gpus").or_else(|| setting("tp_size"))?)
}

fn sees_all_tokens(engine: &Engine) -> bool {
    let grew = |name| engine.page.grew(name, &[]);
    let unseen = grew("nv_trt_llm_iterations_lost_total") + grew("nv_trt_llm_iterations_unreported_total");
    engine.sampling() <= 1.0 && unseen <= FEW_UNSEEN * grew("nv_trt_llm_iterations_total")
}

/// As the benchmark counts them: the first token of each request comes from its context phase.
fn output_tokens(engine: &Engine) -> Option<f64> {
    let generated = engine.page.growth("nv_trt_llm_generation_tokens_total", &[])?;
    Some(generated + engine.page.grew("nv_trt_llm_requests_started_total", &[]))
}

/// Shorter prompts, or those found in the KV cache, are no reason to be slower.
fn has_same_lengths(engine: &Engine) -> bool {
    let of_bench = |name| positive(engine.page.now(name, &[("statistic", "avg")]));
    let is_same = |bench: Option<f64>, engine: Option<f64>, least: f64| match (bench, engine) {
        (None, _) => true,
        (Some(bench), Some(length)) => (least..=1.0 + SAME_LOAD).contains(&(length / bench)),
        (Some(_), None) => false,
    };
    let outputs = of_bench("nv_trt_llm_bench_output_tokens");
    let prompts = of_bench("nv_trt_llm_bench_input_tokens");
    is_same(outputs, output_length(engine), 1.0 - SAME_LOAD) && is_same(prompts, prompt_length(engine), 0.0)
}

fn output_length(engine: &Engine) -> Option<f64> {
    let of_requests = engine.page.mean("nv_llm_output_token_len", ENOUGH_REQUESTS);
    of_requests.or_else(|| per_request(engine, output_tokens(engine), "nv_trt_llm_requests_completed_total"))
}

/// Without the lengths of prompts, the tokens that are computed for each.
fn prompt_length(engine: &Engine) -> Option<f64> {
    let computed = engine.page.growth("nv_trt_llm_context_tokens_total", &[]);
    let of_requests = engine.page.mean("nv_llm_input_token_len", ENOUGH_REQUESTS);
    of_requests.or_else(|| per_request(engine, computed, "nv_trt_llm_requests_started_total"))
}

fn per_request(engine: &Engine, tokens: Option<f64>, requests: &str) -> Option<f64> {
    let requests = engine.page.growth(requests, &[]).filter(|requests| *requests >= ENOUGH_REQUESTS)?;
    Some(tokens? / requests)
}

/// What was measured, so that a report of something else is noticed.
fn described(engine: &Engine) -> Option<Fact> {
    let labels = ["bench_model", "gpu_name", "engine_version"];
    let known = labels.map(|label| engine.page.after.label("nv_trt_llm_bench_info", label));
    let known: Vec<&str> = known.into_iter().flatten().filter(|value| *value != "unknown").collect();
    (!known.is_empty()).then(|| text("benchmark of", known.join(", ")))
}
