//! An Executor in this process, as its statistics' reader sees it. Knows nothing about metrics.

use crate::error::BridgeError;
use crate::ffi::{self, IterationRow, RequestRow, Truth};
use cxx::UniquePtr;
use std::fmt;

/// How many iterations the engine's rings keep between two drains. A full ring silently loses its oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorOptions {
    /// 0 turns iteration statistics off.
    pub iter_stats_max_iterations: u32,
    /// 0 turns request statistics off; they cost the engine time for every active and queued request.
    pub request_stats_max_iterations: u32,
}

/// TensorRT-LLM's own defaults: 1000 iterations, no request statistics.
impl Default for ExecutorOptions {
    fn default() -> Self {
        ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 0 }
    }
}

/// One open engine. Its statistics are drained: each record is handed out once, so it has one reader.
/// Dropping it shuts the engine down.
pub struct Executor {
    handle: UniquePtr<ffi::ExecutorHandle>,
}

impl Executor {
    /// Loads an engine and starts it; blocks until it is ready.
    ///
    /// `engine` is a directory or, where the library is the simulated one, `sim:?key=value&…`.
    ///
    /// # Errors
    /// [`BridgeError::Open`] with the cause in the engine's words.
    pub fn open(engine: &str, options: &ExecutorOptions) -> Result<Executor, BridgeError> {
        if engine.starts_with("sim:") && !ffi::is_simulated() {
            let cause = "this build is linked with a real TensorRT-LLM; build without TENSORRT_LLM_ROOT to simulate";
            return Err(BridgeError::open(engine, cause));
        }
        let ring = |name: &str, size: u32| {
            i32::try_from(size).map_err(|_| BridgeError::open(engine, &format!("{name} {size} is above {}", i32::MAX)))
        };
        let iterations = ring("iter_stats_max_iterations", options.iter_stats_max_iterations)?;
        let requests = ring("request_stats_max_iterations", options.request_stats_max_iterations)?;
        let handle = ffi::open_executor(engine, iterations, requests)
            .map_err(|error| BridgeError::open(engine, error.what()))?;
        Ok(Executor { handle })
    }

    /// Whether this process is the engine's leader (or orchestrator) and the engine runs: whether draining can work.
    pub fn can_enqueue_requests(&self) -> bool {
        self.handle.can_enqueue_requests().unwrap_or(false)
    }

    /// Whether the engine is the simulated one.
    pub fn is_simulated(&self) -> bool {
        ffi::is_simulated()
    }

    /// The version of the TensorRT-LLM library; empty where it does not say.
    pub fn version(&self) -> String {
        ffi::library_version()
    }

    /// Takes the records since the last call, oldest first, into `out`; returns how many were written. What does not
    /// fit is handed out by the next call, so a return of `out.len()` means: call again. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`], [`BridgeError::NotLeader`] or [`BridgeError::Failed`]; nothing was written then.
    pub fn drain_iterations(&mut self, out: &mut [IterationRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_iterations(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Takes the request rows since the last call, oldest iteration first, into `out`, as
    /// [`drain_iterations`](Self::drain_iterations) does with records.
    ///
    /// # Errors
    /// As [`drain_iterations`](Self::drain_iterations).
    pub fn drain_requests(&mut self, out: &mut [RequestRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_requests(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Ends the engine. Records that were not drained before are lost, except those already kept for the next drain.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] if it was ended before, [`BridgeError::Failed`] for all else.
    pub fn shutdown(&mut self) -> Result<(), BridgeError> {
        self.handle.pin_mut().shutdown().map_err(|error| BridgeError::from_what(error.what()))
    }

    /// What a simulated engine really did, for comparison with what was drained; None for a real one.
    pub fn truth(&self) -> Option<Truth> {
        self.handle.truth().ok()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("simulated", &self.is_simulated()).finish_non_exhaustive()
    }
}

#[cfg(all(test, simulated_sdk))]
mod tests {
    use crate::ffi;

    #[test]
    fn a_negative_ring_is_refused_by_the_engine_and_not_by_the_process() {
        for (iterations, requests) in [(-1, 0), (1000, -1)] {
            let error = ffi::open_executor("sim:", iterations, requests).err().map(|error| error.what().to_owned());
            assert!(error.is_some_and(|what| what.contains("MaxIterations >= 0")));
        }
    }
}
