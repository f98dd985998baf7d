//! Lines of the perf-metrics files, and entries of `/perf_metrics`.

use serde_json::{Value, json};

use crate::completion::SAMPLING;
use crate::record::{Entry, StepTime, StepTimes};

/// The form of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The form of trtllm-serve.
    V2,
    /// The form that the host of an Executor publishes, with the Executor's id.
    Host,
}

/// A virtual time as an entry has it. The steady clock is above 0 at virtual time 0, because upstream omits times that are not above 0.
#[must_use]
pub fn steady(at: f64) -> f64 {
    1000.0 + at
}

/// The same for the times of steps. Upstream adds an offset to all other times, but not to these.
const RAW_STEADY: f64 = 51_000.0;

fn steps(of: &[StepTime]) -> Value {
    let step = |(index, step): (usize, &StepTime)| {
        // Sampling follows the forward pass.
        let sampled = step.end - (step.end - step.start) * SAMPLING;
        json!({
            "iter": index + 1,
            "forward_start_time": RAW_STEADY + step.start,
            "forward_end_time": RAW_STEADY + sampled,
            "sample_start_time": RAW_STEADY + sampled,
            "sample_end_time": RAW_STEADY + step.end,
            "token_time": RAW_STEADY + step.end,
            "gpu_forward_time": step.gpu_forward * 1e3,
            "gpu_sample_time": step.gpu_sample * 1e3,
        })
    };
    of.iter().enumerate().map(step).collect()
}

/// The value of `time_breakdown_metrics`. A phase without steps has no key.
fn step_times(times: &StepTimes) -> Value {
    let mut value = json!({});
    if !times.context.is_empty() {
        let sum = |of: fn(&StepTime) -> f64| times.context.iter().map(of).sum::<f64>() * 1e3;
        value["ctx_chunk_metrics"] = steps(&times.context);
        value["ctx_gpu_forward_time"] = json!(sum(|step| step.gpu_forward));
        value["ctx_gpu_sample_time"] = json!(sum(|step| step.gpu_sample));
    }
    if !times.generation.is_empty() {
        value["step_metrics"] = steps(&times.generation);
    }
    value
}

/// An entry as the worker writes it.
#[must_use]
pub fn entry(entry: &Entry, version: Version) -> Value {
    let mut timing = json!({
        "server_arrival_time": steady(entry.server_arrival),
        "arrival_time": steady(entry.arrival),
        "first_scheduled_time": steady(entry.first_scheduled),
        "first_token_time": steady(entry.first_token),
        "last_token_time": steady(entry.last_token),
    });
    if let Some(time) = entry.server_first_token {
        timing["server_first_token_time"] = json!(steady(time));
    }
    if let Some((start, end, bytes)) = entry.transfer {
        timing["kv_cache_size"] = json!(bytes);
        timing["kv_cache_transfer_start"] = json!(steady(start));
        timing["kv_cache_transfer_end"] = json!(steady(end));
    }
    let mut metrics = json!({
        "first_iter": entry.first_iter,
        "last_iter": entry.last_iter,
        "timing_metrics": timing,
        "kv_cache_metrics": {
            "num_total_allocated_blocks": entry.counts.alloc_total,
            "num_new_allocated_blocks": entry.counts.alloc_new,
            "num_reused_blocks": entry.counts.reused(),
            "num_missed_blocks": entry.counts.missed,
        },
    });
    if entry.drafted > 0 {
        metrics["speculative_decoding"] = json!({
            "acceptance_rate": f64::from(entry.accepted) / f64::from(entry.drafted),
            "total_accepted_draft_tokens": entry.accepted,
            "total_draft_tokens": entry.drafted,
        });
    }
    if version == Version::Host {
        return json!({"request_id": entry.id, "executorId": entry.id, "perf_metrics": metrics});
    }
    let mut line = json!({"request_id": entry.api_id, "perf_metrics": metrics, "status": "complete"});
    if let Some(times) = &entry.steps {
        line["time_breakdown_metrics"] = step_times(times);
    }
    if entry.has_orchestrator_id {
        line["ctx_request_id"] = json!(entry.id);
        line["disagg_request_id"] = json!(entry.id);
    }
    line
}
