//! The options of an Executor: the sizes of its rings. All other options keep TensorRT-LLM's defaults.

use crate::error::BridgeError;
use crate::ffi::RingSizes;

/// How many iterations the engine's statistics rings hold between two drains. A full ring drops the oldest silently.
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

impl ExecutorOptions {
    pub(crate) fn to_ffi(self, engine: &str) -> Result<RingSizes, BridgeError> {
        let number = |name: &str, value: u32| {
            i32::try_from(value).map_err(|_| {
                BridgeError::open(engine, &format!("{name} {value} is too large; the maximum is {}", i32::MAX))
            })
        };
        Ok(RingSizes {
            iterations: number("iter_stats_max_iterations", self.iter_stats_max_iterations)?,
            requests: number("request_stats_max_iterations", self.request_stats_max_iterations)?,
        })
    }
}
