//! The options of an Executor. An option that is not set keeps TensorRT-LLM's own default, which differs between releases.

use crate::error::BridgeError;
use crate::ffi::HostConfig;

/// How many iterations the engine's statistics rings hold between two drains. A full ring silently drops the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorOptions {
    /// 0 disables iteration statistics.
    pub iter_stats_max_iterations: u32,
    /// 0 disables request statistics. They cost the engine time for every active and queued request.
    pub request_stats_max_iterations: u32,
}

/// TensorRT-LLM's own defaults: 1000 iterations, no request statistics.
impl Default for ExecutorOptions {
    fn default() -> Self {
        ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 0 }
    }
}

/// The options of an Executor: its rings, and what an engine needs to fit on a GPU that it shares. Opening fails, and
/// names the option, if a TensorRT-LLM release does not support it. All but the rings exist since 0.11.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostOptions {
    pub statistics: ExecutorOptions,
    /// Maximum number of requests in a batch.
    pub max_batch_size: Option<u32>,
    /// Maximum number of tokens in an iteration.
    pub max_num_tokens: Option<u32>,
    /// Reuse KV cache blocks for later requests with the same prefix.
    pub enable_block_reuse: Option<bool>,
    /// Fraction of the GPU memory free after loading that the KV cache gets, above 0 and below 1.
    pub free_gpu_memory_fraction: Option<f32>,
}

impl HostOptions {
    pub(crate) fn to_ffi(self, engine: &str) -> Result<HostConfig, BridgeError> {
        let number = |name: &str, value: u32| {
            i32::try_from(value).map_err(|_| {
                BridgeError::open(engine, &format!("{name} {value} is too large; the maximum is {}", i32::MAX))
            })
        };
        let limit = |name, value: Option<u32>| value.map_or(Ok(-1), |value| number(name, value));
        let Self { statistics, .. } = self;
        Ok(HostConfig {
            iter_stats_max_iterations: number("iter_stats_max_iterations", statistics.iter_stats_max_iterations)?,
            request_stats_max_iterations: number(
                "request_stats_max_iterations",
                statistics.request_stats_max_iterations,
            )?,
            max_batch_size: limit("max_batch_size", self.max_batch_size)?,
            max_num_tokens: limit("max_num_tokens", self.max_num_tokens)?,
            enable_block_reuse: self.enable_block_reuse.map_or(-1, i32::from),
            free_gpu_memory_fraction: self.free_gpu_memory_fraction.unwrap_or(f32::NAN),
        })
    }
}
