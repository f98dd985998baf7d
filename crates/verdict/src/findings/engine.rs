//! Findings about an engine: numbers that do not arrive, are incomplete or are old, and a rate below that of its benchmark.

use trtllm_analysis::cost_model::EqualWork;
use trtllm_analysis::numbers::share;
use trtllm_analysis::window::Span;
use trtllm_fold::EngineState;
use trtllm_records::BenchReport;

use super::finding::{Finding, Rule, TEXTS};
use crate::cause::Cause;
use crate::finding_rules;
use crate::input::VerdictInput;
use crate::rules::incomplete;
use crate::verdict::Unit;

finding_rules! {
    TEXTS;
    RESTARTED = "engine-restarted", Engine, Warning;
    STATISTICS = "statistics-incomplete", Engine, Warning;
    FAILING = "source-failing", Engine, Warning;
    REJECTED = "records-rejected", Engine, Warning;
    SAMPLED = "statistics-sampled", Engine, Info;
    NEWER = "engine-newer", Engine, Info;
    SPECULATION_OFF = "speculation-off", Engine, Info;
    DECODING_STEP = "decoding-step", Engine, Info;
    NO_LATENCIES = "request-latencies-missing", Engine, Info;
    FIRST_TOKEN_EARLY = "first-token-early", Engine, Info;
    WITHOUT_REASON = "requests-without-reason", Engine, Info;
    OBJECTIVES_UNKNOWN = "objectives-unknown", Engine, Info;
    GOODPUT_UNKNOWN = "goodput-unknown", Engine, Info;
    BELOW_BENCHMARK = "below-benchmark", Engine, Warning;
}

/// There is a finding if output tokens per second are below this share of the benchmark's at equal concurrency.
pub const BENCHMARK_SHARE: f64 = 0.8;
/// The rates are compared if concurrency and lengths differ from the benchmark's by at most this share.
pub const SAME_LOAD: f64 = 0.2;
/// There is a finding from this share of failed polls on.
pub const FAILING_SHARE: f64 = 0.1;
/// After this many completed requests, their times should be known.
const SOME_REQUESTS: f64 = 20.0;
/// So many iterations without drafts are no coincidence.
const MANY: f64 = 100.0;
/// A mean is used only if it covers at least this many iterations or requests.
const ENOUGH: f64 = 10.0;

/// What is known of an engine: what its verdict is made from, and other facts.
#[derive(Debug, Clone, Copy)]
pub struct EngineCase<'a> {
    /// The model and version of the engine.
    pub subject: &'a str,
    pub input: &'a VerdictInput,
    pub cause: Option<Cause>,
    /// Number of requests that were completed since the exporter first saw the engine.
    pub completed: f64,
    /// No source reports the times of the engine's requests.
    pub has_no_latencies: bool,
    /// The engine has objectives, but the number of output tokens of its requests is not known.
    pub has_no_goodput: bool,
    /// The engine has drafted tokens since its start.
    pub has_drafted: bool,
    /// Two kinds of iterations between which the costs of decoding have a step.
    pub decoding_step: Option<[EqualWork; 2]>,
    pub unread_keys: &'a [String],
    pub bench: Option<&'a BenchReport>,
}

/// All findings about an engine.
pub fn findings(case: &EngineCase<'_>) -> Vec<Finding> {
    let EngineCase { subject, input, .. } = *case;
    let (span, mut found) = (&input.now, Vec::new());
    let counted = |rule: &Rule, name, count: f64| rule.about(subject).with(name, count, Unit::Count, None);
    if span.counts.restarts > 0.0 {
        found.push(counted(&RESTARTED, "restarts", span.counts.restarts));
    }
    if case.cause != Some(Cause::Statistics)
        && let Some((_, incomplete)) = incomplete(input)
    {
        found.push(Finding::beside(&STATISTICS, subject, incomplete));
    }
    let polling = &span.polling;
    let failed = share(polling.polls_failed, polling.polls);
    if matches!(input.facts.state, EngineState::Busy | EngineState::Idle) && failed >= FAILING_SHARE {
        found.push(FAILING.about(subject).with("polls that failed", failed, Unit::Share, FAILING_SHARE));
    }
    if polling.records_rejected + polling.values_rejected > 0.0 {
        let some = |count: f64| Some(count).filter(|count| *count > 0.0);
        let rejected = REJECTED.about(subject);
        let rejected = rejected.with("rejected records", some(polling.records_rejected), Unit::Count, None);
        found.push(rejected.with("rejected values", some(polling.values_rejected), Unit::Count, None));
    }
    if span.sampling > 1.0 {
        found.push(SAMPLED.about(subject).with("iterations per record", span.sampling, Unit::Count, 1.0));
    }
    let decoded = span.sums.generation_iterations;
    if case.has_drafted && span.sums.draft_tokens <= 0.0 && decoded >= MANY {
        let off = SPECULATION_OFF.about(subject);
        found.push(off.with("iterations that decoded without drafts", decoded, Unit::Count, MANY));
    }
    let tokens = input.of_iterations(span.sums.work.generation_tokens);
    if let Some([below, above]) =
        case.decoding_step.filter(|[below, _]| input.facts.is_pytorch && tokens >= below.work.generation_tokens)
    {
        let step = counted(&DECODING_STEP, "decoded tokens below the step", below.work.generation_tokens)
            .with("time of such an iteration", below.seconds, Unit::Seconds, None)
            .with("decoded tokens above the step", above.work.generation_tokens, Unit::Count, None);
        found.push(step.with("time of such an iteration", above.seconds, Unit::Seconds, None));
    }
    found.extend(newer(subject, case.unread_keys));
    if case.has_no_latencies && case.completed >= SOME_REQUESTS && span.counts.completed > 0.0 {
        found.push(counted(&NO_LATENCIES, "completed requests", case.completed));
    }
    if input.facts.notices.first_token_is_early && span.distributions.ttft.count > 0.0 {
        found.push(FIRST_TOKEN_EARLY.about(subject));
    }
    if input.lacks_reasons() && input.failures().0 > 0.0 {
        let (missing, share) = input.without_reason();
        let without = counted(&WITHOUT_REASON, "requests without a finish reason", missing);
        found.push(without.with("their share", share, Unit::Share, crate::input::WITHOUT_REASON));
    }
    let counts = &span.counts;
    if counts.all.missed_share().is_none() && counts.unjudged > 0.0 {
        found.push(counted(&OBJECTIVES_UNKNOWN, "requests with an unknown outcome", counts.unjudged));
    }
    if case.has_no_goodput && counts.all.met > 0.0 {
        found.push(counted(&GOODPUT_UNKNOWN, "requests that met all objectives", counts.all.met));
    }
    found.extend(case.bench.and_then(|bench| below_benchmark(case, bench)));
    found
}

/// The finding that an engine or an orchestrator is newer than this exporter. A missing endpoint shows no newer release: a server mounts
/// `/perf_metrics` and `/prometheus/metrics` only with `return_perf_metrics`.
pub fn newer(subject: &str, unread_keys: &[String]) -> Option<Finding> {
    let detail = || format!("unread keys {}", unread_keys.join(", "));
    (!unread_keys.is_empty()).then(|| NEWER.about(subject).detail(&detail()))
}

fn below_benchmark(case: &EngineCase<'_>, bench: &BenchReport) -> Option<Finding> {
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let (span, sums) = (&case.input.now, &case.input.now.sums);
    let performance = &bench.performance;
    let bench_rate = positive(performance.token_throughput_per_sec)?;
    // If the report lacks the number of concurrent requests, compute it as trtllm-bench does.
    let by_latency =
        || Some(performance.request_throughput_per_sec? * bench.latency_stats.e2e_ms.avg.map(|ms| ms / 1000.0)?);
    let bench_requests = positive(bench.requests.concurrent).or_else(|| positive(by_latency()))?;
    if sums.iterations < ENOUGH || !span.is_complete() || !has_same_lengths(span, bench) {
        return None;
    }
    // The sums cover only the time of iterations. While no iteration runs, there is no request in the engine.
    let requests = span.busy() * share(sums.scheduled + sums.backlog, sums.iterations);
    // Requests beyond the size of all batches only wait. With attention data parallelism, each GPU has its own batch. The
    // report does not say whether the benchmark used it, so assume that it did.
    let gpus = positive(bench.metadata.num_gpus).or(positive(bench.configuration.tp_size));
    let most =
        positive(bench.configuration.max_batch_size).zip(gpus).map_or(f64::INFINITY, |(batch, gpus)| batch * gpus);
    let load = requests.min(most) / bench_requests.min(most);
    if (load - 1.0).abs() > SAME_LOAD {
        return None;
    }
    let rate = span.rate(span.output_tokens());
    let reached = rate / (bench_rate * load.min(1.0));
    let known = [&bench.metadata.model, &bench.metadata.gpu, &bench.metadata.version].map(Option::as_deref);
    let known: Vec<&str> = known.into_iter().flatten().collect();
    let found = BELOW_BENCHMARK
        .about(case.subject)
        .with("tokens/s of its benchmark at equal concurrency", reached, Unit::Share, BENCHMARK_SHARE)
        .with("output tokens per second", rate, Unit::Count, None)
        .with("output tokens per second in the benchmark", bench_rate, Unit::Count, None)
        .with("mean requests in the engine", requests, Unit::Count, None)
        .with("mean requests in the benchmark", bench_requests, Unit::Count, None);
    // The names of model, GPU and release let the reader notice if the report is about another engine.
    let found = if known.is_empty() { found } else { found.detail(&format!("benchmark of {}", known.join(", "))) };
    (reached < BENCHMARK_SHARE).then_some(found)
}

/// True if prompts and outputs are about as long as in the benchmark. Prompts may be shorter, or found in the KV cache: that does not make
/// an engine slower.
fn has_same_lengths(span: &Span, bench: &BenchReport) -> bool {
    let counts = &span.counts;
    let is_same = |bench: Option<f64>, tokens: f64, requests: f64, least: f64| match bench {
        None => true,
        Some(bench) => requests >= ENOUGH && (least..=1.0 + SAME_LOAD).contains(&(tokens / requests / bench)),
    };
    let lengths = &bench.input_output_stats;
    is_same(lengths.output_tokens.avg, span.output_tokens(), counts.completed, 1.0 - SAME_LOAD)
        && is_same(lengths.input_tokens.avg, span.sums.work.context_tokens, counts.started, 0.0)
}
