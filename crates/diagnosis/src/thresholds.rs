//! Limits that rules share with alerts, runbooks, dashboards and `top`. tests/it/doctor.rs compares the rules and the alerts with them,
//! tests/judges/alerts.py the runbooks with the alerts; the dashboards take them from the alerts.

/// Tuning guideline: queued requests below this share of the limit.
pub const QUEUED_SHARE: f64 = 0.1;
/// Tuning guideline: KV cache blocks in use below this share. With a fuller one, a larger batch only moves the wait.
pub const FULL_KV_CACHE: f64 = 0.9;
/// KV cache blocks in use above this share: hardly one is free. No rule has it; `top` and an alert do.
pub const EXHAUSTED_KV_CACHE: f64 = 0.95;
/// Share of the batch size limit above which more load soon waits. Not for the KV cache: that is as full for a few seconds.
pub const FULL_BATCH: f64 = 0.7;
/// Seconds. The alert judges the 95th percentile, the rule the mean: a window may have too few requests for a percentile.
pub const LONG_QUEUE_TIME: f64 = 5.0;
/// Tuning guideline: share of the looked-up blocks that are found, where prompts are long.
pub const REUSED_BLOCKS: f64 = 0.7;
/// Tuning guideline: share of a request's time that moving its KV cache may take.
pub const TRANSFER_SHARE: f64 = 0.1;
/// Decoded tokens of a step, divided by how much longer the step takes with drafts. Below this, drafts do not pay.
pub const SPECULATION_GAIN: f64 = 1.1;
/// Output tokens per second, divided by those of the benchmark at equal concurrency. A server with HTTP and a tokenizer is a little
/// slower than a benchmark without.
pub const BENCHMARK_SHARE: f64 = 0.8;
/// Requests at once, and lengths, that differ from the benchmark's by at most this share are compared.
pub const SAME_LOAD: f64 = 0.2;
/// Seconds without an answer after which the address is probably wrong, or the server does not run.
pub const ANSWERS_BY: f64 = 120.0;
/// Seconds after which hardly any model still loads.
pub const LOADED_BY: f64 = 3600.0;
/// Share of the requests through an orchestrator, or to the workers of one of its sides, that may fail or be repeated.
pub const ORCHESTRATOR_ERRORS: f64 = 0.05;
