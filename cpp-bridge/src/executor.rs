//! An Executor in this process, as its statistics' reader sees it. Knows nothing about metrics.

use crate::error::BridgeError;
use crate::ffi::{self, IterationRow, KvEventRow, RequestRow, Truth};
use crate::host::{Crossing, HostOptions};
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

/// Ends the process at once, without running exit handlers or the destructors of C++ globals. For a process in which an
/// engine is still being constructed, or does not stop: its threads would use these globals while they are destroyed.
pub fn exit_now(code: u8) -> ! {
    ffi::exit_now(i32::from(code));
    // Not reached; cxx has no type for a function that does not return.
    std::process::abort()
}

/// One open engine. Its statistics are drained: each record is handed out once, so it has one reader.
/// Dropping it shuts the engine down.
pub struct Executor {
    pub(crate) handle: UniquePtr<ffi::ExecutorHandle>,
}

impl Executor {
    /// Loads an engine and starts it; blocks until it is ready.
    ///
    /// `engine` is a directory or, where the library is the simulated one, `sim:?key=value&…`.
    ///
    /// # Errors
    /// [`BridgeError::Open`] with the cause in the engine's words.
    pub fn open(engine: &str, options: &ExecutorOptions) -> Result<Executor, BridgeError> {
        Executor::host(engine, &HostOptions { statistics: *options, ..HostOptions::default() })
    }

    /// As [`open`](Self::open), with all that a host may choose.
    ///
    /// # Errors
    /// As [`open`](Self::open); also for an option that this release of TensorRT-LLM cannot set.
    pub fn host(engine: &str, options: &HostOptions) -> Result<Executor, BridgeError> {
        if engine.starts_with("sim:") && !ffi::is_simulated() {
            let cause = "this build is linked with a real TensorRT-LLM; build without TENSORRT_LLM_ROOT to simulate";
            return Err(BridgeError::open(engine, cause));
        }
        let Crossing { config, participant_ids, device_ids } = options.crossing(engine)?;
        let worker = options.worker_executable.as_deref().unwrap_or_default();
        let handle = ffi::open_executor(engine, &config, &participant_ids, &device_ids, worker)
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

    /// Takes the records since the last drain, oldest first, into `out`; returns how many were written. What does not
    /// fit is handed out by the next call, so a return of `out.len()` means: call again. Any other ends the drain: it
    /// gave what there was when it began, however fast the engine writes meanwhile. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`], [`BridgeError::NotLeader`] or [`BridgeError::Failed`]; nothing was written then.
    pub fn drain_iterations(&mut self, out: &mut [IterationRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_iterations(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Takes the request rows since the last drain, oldest iteration first, into `out`, as
    /// [`drain_iterations`](Self::drain_iterations) does with records.
    ///
    /// # Errors
    /// As [`drain_iterations`](Self::drain_iterations).
    pub fn drain_requests(&mut self, out: &mut [RequestRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_requests(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Takes the events of the KV cache since the last call, oldest first, a row for each block, into `out`, as
    /// [`drain_iterations`](Self::drain_iterations) does with records. None where this release has no events, or the
    /// engine was opened without [`event_buffer_max_size`](HostOptions::event_buffer_max_size).
    ///
    /// # Errors
    /// As [`drain_iterations`](Self::drain_iterations).
    pub fn drain_kv_events(&mut self, out: &mut [KvEventRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_kv_events(out).map_err(|error| BridgeError::from_what(error.what()))
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
    use crate::ffi::{self, HostConfig};

    #[test]
    fn a_negative_ring_is_refused_by_the_engine_and_not_by_the_process() {
        for (iterations, requests) in [(-1, 0), (1000, -1)] {
            let config = HostConfig {
                iter_stats_max_iterations: iterations,
                request_stats_max_iterations: requests,
                ..HostConfig::default()
            };
            let error = ffi::open_executor("sim:", &config, &[], &[], "").err().map(|error| error.what().to_owned());
            assert!(error.is_some_and(|what| what.contains("MaxIterations >= 0")));
        }
    }
}
