//! Names of TensorRT-LLM that the exporter deliberately does not read, each with the reason, and a function that finds unknown
//! names.

use std::collections::{BTreeSet, HashSet};

use super::fields::FIELDS;
use super::metric::Group;
use super::table::CATALOG;

/// The elements of `names` that no table contains. They are names of keys, families and paths. Keys may be in camelCase
/// or snake_case. Names of families may lack the prefix `trtllm_`, as in older releases.
#[must_use]
pub fn unread(mut names: BTreeSet<String>) -> BTreeSet<String> {
    let plain = |name: &str| {
        let name = name.strip_prefix("trtllm_").unwrap_or(name);
        name.strip_suffix("_total").unwrap_or(name).replace('_', "").to_lowercase()
    };
    let fields = FIELDS.iter().map(|field| field.name);
    let families = CATALOG.iter().filter(|metric| metric.group == Group::Compat).map(|metric| metric.name);
    // The first word is the key: in some entries, the structure that contains the key follows.
    let left_out = NOT_READ.iter().chain(FAMILIES_NOT_SERVED).filter_map(|(name, _)| name.split(' ').next());
    let known: HashSet<String> = fields.chain(families).chain(left_out).map(plain).collect();
    names.retain(|name| !known.contains(&plain(name)));
    names
}

/// Keys of records and of finished requests, each with the reason why it is not read.
pub static NOT_READ: &[(&str, &str)] = &[
    ("poolGroupId", "identifies a row; the exporter sums over rows, because the engine would choose the label values"),
    ("coldPoolGroupId", "as above"),
    ("lifeCycleId", "as above"),
    ("windowSize", "as above"),
    ("windowSizes", "as above"),
    (
        "iterCacheHitRate of a life cycle",
        "nv_trt_llm_kv_cache_iteration_hit_ratio covers all life cycles and is computed from the blocks",
    ),
    ("iterSnapshotHits", "the sum of iterAlignedSnapshotHits and iterUnalignedSnapshotHits"),
    (
        "iterSnapshotHitRate",
        "covers one life cycle; compute it from nv_trt_llm_ssm_snapshot_hits_total and nv_trt_llm_ssm_snapshot_lookups_total",
    ),
    ("peftCacheIterationStats", "LoRA adapter statistics; proposed upstream, not released"),
    ("currentRequestId", "the request on which VisualGen works; a label for it would be unbounded"),
    ("currentRequestStepIdx", "as above, its step"),
    (
        "ctx_server",
        "the context server's address, in entries of a disaggregated server; a label for it would be unbounded",
    ),
    ("gen_server", "as above, of the generation server"),
    ("disagg_ctx_dispatch_time", "when the orchestrator sent the request on; the times of both servers are read"),
    ("status", "always \"complete\": other requests have no entry"),
    ("schema_version", "the keys themselves are tried, no version number"),
    ("forward_start_time of a step", "time of the host; the time of the GPU is read"),
    ("forward_end_time of a step", "as above"),
    ("sample_start_time of a step", "as above"),
    ("sample_end_time of a step", "as above"),
    ("scheduled_time of a step", "time of the host; the request's own first_scheduled_time is read"),
    ("prev_batch_token_time of a step", "the token_time of the step before, which is read"),
    ("ctx_gpu_forward_time", "the sum over chunks, which are read one by one"),
    ("ctx_gpu_sample_time", "as above"),
];

/// Families of trtllm-serve that are not in the set `trtllm`.
pub static FAMILIES_NOT_SERVED: &[(&str, &str)] = &[
    ("trtllm_scheduled_batch_size", "a gauge of each worker process; `trtllm_num_scheduled_requests` is the nearest"),
    ("trtllm_ep_rank_active", "only the server knows the health of its expert-parallel ranks"),
    ("trtllm_ep_active_ranks", "as above"),
    ("trtllm_ep_failed_ranks", "as above"),
    ("trtllm_ep_health_generation", "as above"),
    ("trtllm_ep_health_available", "as above"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_newer_engine_are_unread_and_names_of_all_known_releases_are_not() {
        let known = [
            "used_num_blocks",
            "tokenTime",
            "gen_perf_metrics",
            "trtllm_request_success_total",
            "request_success_total",
            "trtllm_kv_cache_utilization",
            "trtllm_model_config_info",
            "trtllm_ep_active_ranks",
            "forward_start_time",
        ];
        let new = ["/perf_metrics", "numDreams", "trtllm_dreams_total"];
        assert_eq!(
            unread(known.iter().chain(&new).map(|name| (*name).to_owned()).collect()),
            new.map(str::to_owned).into()
        );
    }
}
