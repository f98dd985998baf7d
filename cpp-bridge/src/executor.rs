//! Opens an Executor in this process and drains its statistics. Knows nothing about metrics.

use crate::error::BridgeError;
use crate::ffi::{self, IterationStats, KvEventRow, RequestStatsPerIteration, Truth};
use crate::options::{ExecutorOptions, FfiOptions, HostOptions};
use cxx::UniquePtr;
use std::fmt;

/// Ends the process at once, without exit handlers and without the destructors of C++ globals. For a process in which an
/// engine is still being constructed or does not stop: its threads would use these globals while they are destroyed.
pub fn exit_now(code: u8) -> ! {
    ffi::exit_now(i32::from(code));
    // Not reached; cxx has no type for a function that does not return.
    std::process::abort()
}

/// True if every engine of this build is simulated.
pub fn is_simulated() -> bool {
    ffi::is_simulated()
}

/// One open engine. It returns each record once, so it must have only one reader. Dropping it shuts the engine down.
pub struct Executor {
    pub(crate) handle: UniquePtr<ffi::ExecutorHandle>,
}

impl Executor {
    /// Loads and starts an engine. Blocks until the engine is ready.
    ///
    /// `engine` is a directory. With the simulated library it may also be `sim:?key=value&…`.
    ///
    /// # Errors
    /// [`BridgeError::Open`] with the engine's message as the cause.
    pub fn open(engine: &str, options: &ExecutorOptions) -> Result<Executor, BridgeError> {
        Executor::open_with(engine, &HostOptions { statistics: *options, ..HostOptions::default() })
    }

    /// Like [`open`](Self::open), with all options of the Executor.
    ///
    /// # Errors
    /// Like [`open`](Self::open). Also [`BridgeError::Open`] for an option that this TensorRT-LLM release does not
    /// support.
    pub fn open_with(engine: &str, options: &HostOptions) -> Result<Executor, BridgeError> {
        if engine.starts_with("sim:") && !is_simulated() {
            let cause = "this build links a real TensorRT-LLM; build without TENSORRT_LLM_ROOT to simulate";
            return Err(BridgeError::open(engine, cause));
        }
        let FfiOptions { config, participant_ids, device_ids } = options.to_ffi(engine)?;
        let worker = options.worker_executable.as_deref().unwrap_or_default();
        let handle = ffi::open_executor(engine, &config, &participant_ids, &device_ids, worker)
            .map_err(|error| BridgeError::open(engine, error.what()))?;
        Ok(Executor { handle })
    }

    /// True if the engine runs and this process is its leader (or orchestrator). Draining fails otherwise.
    pub fn can_enqueue_requests(&self) -> bool {
        self.handle.can_enqueue_requests().unwrap_or(false)
    }

    /// True if the engine is simulated.
    pub fn is_simulated(&self) -> bool {
        is_simulated()
    }

    /// The version of the TensorRT-LLM library. Empty for releases that do not report one.
    pub fn version(&self) -> String {
        ffi::library_version()
    }

    /// Writes the records since the last drain into `records`, oldest first, and returns how many. Fewer than `records.len()`
    /// means that the drain has ended. A drain returns only records that existed when it began, so it ends even if the
    /// engine writes faster than the caller reads. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`], [`BridgeError::NotLeader`] or [`BridgeError::Failed`].
    pub fn drain_iterations(&mut self, records: &mut [IterationStats]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_iterations(records).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Writes the requests of the oldest iteration that was not returned yet into `record`. False means that the drain has
    /// ended: `record` is unchanged, and the next call begins another drain.
    ///
    /// # Errors
    /// Like [`drain_iterations`](Self::drain_iterations).
    pub fn next_requests(&mut self, record: &mut RequestStatsPerIteration) -> Result<bool, BridgeError> {
        self.handle.pin_mut().next_requests(record).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Writes the KV cache events since the last call into `out`, oldest first, one row per block, and returns how many it
    /// wrote. If it returns `out.len()`, there may be more. Writes nothing if this release has no events, or if the engine
    /// was opened without [`event_buffer_max_size`](HostOptions::event_buffer_max_size).
    ///
    /// # Errors
    /// Like [`drain_iterations`](Self::drain_iterations).
    pub fn drain_kv_events(&mut self, out: &mut [KvEventRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_kv_events(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Shuts the engine down. Undrained records are lost, except those that an unfinished drain still holds.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] if the engine was shut down before, otherwise [`BridgeError::Failed`].
    pub fn shutdown(&mut self) -> Result<(), BridgeError> {
        self.handle.pin_mut().shutdown().map_err(|error| BridgeError::from_what(error.what()))
    }

    /// What a simulated engine really did, to compare with the drained records. None for a real engine.
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
    fn the_engine_rejects_a_negative_ring_size_without_ending_the_process() {
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
