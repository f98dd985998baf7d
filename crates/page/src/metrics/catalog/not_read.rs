//! Families of trtllm-serve that the exporter deliberately does not serve, each with the reason, and a function that
//! finds unknown names.

use std::collections::{BTreeSet, HashSet};

use trtllm_records::fields;
use trtllm_records::statistics::NOT_READ;

use super::CATALOG;
use crate::metrics::family::Group;

/// The elements of `names` that no table contains. They are names of keys, families and paths. Keys may be in camelCase
/// or snake_case. Names of families may lack the prefix `trtllm_`, as in older releases.
#[must_use]
pub fn unknown_keys(mut names: BTreeSet<String>) -> BTreeSet<String> {
    let plain = |name: &str| {
        let name = name.strip_prefix("trtllm_").unwrap_or(name);
        name.strip_suffix("_total").unwrap_or(name).replace('_', "").to_lowercase()
    };
    let fields = fields().map(|field| field.key);
    let families = CATALOG.iter().filter(|metric| metric.group == Group::Compat).map(|metric| metric.name);
    // The first word is the key: in some entries, the structure that contains the key follows.
    let left_out = NOT_READ.iter().chain(FAMILIES_NOT_SERVED).filter_map(|(name, _)| name.split(' ').next());
    let known: HashSet<String> = fields.chain(families).chain(left_out).map(plain).collect();
    names.retain(|name| !known.contains(&plain(name)));
    names
}

/// Families of trtllm-serve that are not in the set `trtllm`.
pub static FAMILIES_NOT_SERVED: &[(&str, &str)] = &[
    ("trtllm_inflight_batch_size", "a former name of `trtllm_scheduled_batch_size`"),
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
            unknown_keys(known.iter().chain(&new).map(|name| (*name).to_owned()).collect()),
            new.map(str::to_owned).into()
        );
    }
}
