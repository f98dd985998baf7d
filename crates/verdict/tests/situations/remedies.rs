//! Changes the simulated engine like an operator who follows a verdict. The changes depend only on the settings and words of
//! the remedy, not on the scenario's cause or cure.

use trtllm_sim::Config;
use trtllm_sim::config::{Fault, Policy};
use trtllm_sim::scenario::Scenario;
use trtllm_verdict::verdict::Verdict;

use crate::users::Measure;

/// A remedy helps if the cost falls by a tenth.
const HELPS: f64 = 0.9;

/// Whether following the remedy lowers the cost that users notice in this scenario. `None` if it names no setting.
pub(crate) fn helps(scenario: &Scenario, verdict: &Verdict) -> Option<bool> {
    let mut changed = scenario.config.clone();
    for setting in &verdict.settings {
        change(setting, &verdict.remedy, &mut changed);
    }
    (!verdict.settings.is_empty()).then(|| {
        // Seeds that were not used for the verdict.
        let cost = |config: &Config| Measure::of(scenario).median_cost(config, [11, 12, 13]);
        let [before, after] = [&scenario.config, &changed].map(cost);
        after <= HELPS * before
    })
}

fn change(setting: &str, remedy: &str, config: &mut Config) {
    match setting {
        "max_batch_size" => config.limits.max_batch_size *= 4,
        "max_num_tokens" if remedy.contains("lower") => config.limits.max_num_tokens = 512,
        "max_num_tokens" => config.limits.max_num_tokens *= 4,
        "enable_chunked_prefill" | "enable_chunked_context" => config.limits.chunked_context = true,
        "batching_type" | "gpt_model_type" | "capacity_scheduler_policy" => {
            config.limits.policy = Policy::GuaranteedNoEvict
        }
        "scheduler_config" | "batch_scheduler_policy" => config.limits.policy = Policy::MaxUtilization,
        "enable_kv_cache_reuse" => config.cache.reuse = true,
        "kv_cache_config" if remedy.contains("enable_block_reuse") => config.cache.reuse = true,
        "kv_cache_config" | "kv_cache_host_memory_bytes" if remedy.contains("host") => {
            config.cache.host_blocks = 4 * config.cache.blocks.max(config.cache.host_blocks);
        }
        // Twice the memory or an FP8 cache gives twice the blocks.
        "kv_cache_config" | "kv_cache_free_gpu_mem_fraction" => config.cache.blocks *= 2,
        "speculative_config" => config.speculation = None,
        "disable_overlap_scheduler" => config.costs.overlap = true,
        // With a CUDA graph, an iteration needs less time of the host.
        "cuda_graph_config" => config.costs.host /= 4.0,
        "attention_dp_config" | "pipeline_parallel_size" => config.ranks.imbalance = 0.0,
        "cache_transceiver_config" => {
            config.transfer.bytes_per_second *= 10.0;
            config.transfer.seconds /= 10.0;
        }
        "num_postprocess_workers" | "num_serve_frontends" => config.frontend.workers *= 4,
        "lora_config" => {
            if let Some(adapters) = &mut config.adapters {
                adapters.slots = adapters.count;
            }
        }
        "dynamic_batch_config" => config.faults.retain(|fault| !matches!(fault, Fault::Tuner { .. })),
        "iter_stats_max_iterations" => config.faults.retain(|fault| !matches!(fault, Fault::LoseRecords { .. })),
        "enable_iter_perf_stats" | "iterStatsMaxIterations" => config.statistics.enabled = true,
        other => panic!("no change is known for {other}"),
    }
}
