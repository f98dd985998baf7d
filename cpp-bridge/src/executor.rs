//! Opens an Executor in this process and drains its statistics. Knows nothing about metrics.

use crate::error::BridgeError;
use crate::ffi::{self, FinishedRequest, IterationStats, LoadConfig, RequestStatsPerIteration, Truth};
use crate::options::ExecutorOptions;
use cxx::UniquePtr;
use std::fmt;

/// Ends the process immediately, without exit handlers and without the destructors of C++ globals. Use it while an
/// engine is still being constructed or does not stop: its threads would use these globals during their destruction.
pub fn exit_now(code: u8) -> ! {
    ffi::exit_now(i32::from(code));
    // Not reached; cxx has no type for a function that does not return.
    std::process::abort()
}

/// True if every engine of this build is simulated.
pub fn is_simulated() -> bool {
    ffi::is_simulated()
}

/// Synthetic requests of equal size with different prompts. The number of requests in flight is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticLoad {
    /// Number of requests in flight.
    pub in_flight: u32,
    /// Number of tokens in each prompt.
    pub prompt_tokens: u32,
    /// Number of tokens that each request generates.
    pub output_tokens: u32,
    /// The load ends after this many requests. None: it does not end.
    pub requests: Option<u64>,
}

/// One open engine. It returns each record once, so it must have only one reader. Dropping it shuts the engine down.
pub struct Executor {
    handle: UniquePtr<ffi::HostedExecutor>,
}

impl Executor {
    /// Loads and starts an engine. Blocks until the engine is ready.
    ///
    /// `engine` is a directory. With the simulated library it may also be `sim:?key=value&…`.
    ///
    /// # Errors
    /// [`BridgeError::Open`] with the engine's message as the cause.
    pub fn open(engine: &str, options: &ExecutorOptions) -> Result<Executor, BridgeError> {
        if engine.starts_with("sim:") && !is_simulated() {
            let cause = "this build links a real TensorRT-LLM; build without TENSORRT_LLM_ROOT to simulate";
            return Err(BridgeError::open(engine, cause));
        }
        let handle = ffi::open_executor(engine, options.to_ffi(engine)?)
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
        ffi::drain_iterations(self.handle.pin_mut(), records).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Writes the requests of the oldest iteration that was not returned yet into `record`. False means that the drain has
    /// ended: `record` is unchanged, and the next call begins another drain.
    ///
    /// # Errors
    /// Like [`drain_iterations`](Self::drain_iterations).
    pub fn next_requests(&mut self, record: &mut RequestStatsPerIteration) -> Result<bool, BridgeError> {
        ffi::next_requests(self.handle.pin_mut(), record).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Starts sending synthetic requests, to try, stress or measure the engine. A thread inside the bridge sends them.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] or [`BridgeError::NotLeader`] if the engine does not accept requests.
    /// [`BridgeError::Failed`] for an invalid number of tokens, or if there is a load already.
    pub fn start_load(&mut self, load: &SyntheticLoad) -> Result<(), BridgeError> {
        let tokens = |name: &str, count: u32| {
            let what = || format!("{name} {count} is too large; the maximum is {}", i32::MAX);
            i32::try_from(count).map_err(|_| BridgeError::Failed { what: what() })
        };
        let config = LoadConfig {
            in_flight: load.in_flight,
            prompt_tokens: tokens("prompt_tokens", load.prompt_tokens)?,
            output_tokens: tokens("output_tokens", load.output_tokens)?,
            requests: load.requests.unwrap_or(u64::MAX),
        };
        self.handle.pin_mut().start_load(&config).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Writes the load's requests that ended since the last call into `requests`, in the order in which they ended, and
    /// returns how many. If it returns `requests.len()`, there may be more. Works after a shutdown. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::Failed`].
    pub fn drain_finished(&mut self, requests: &mut [FinishedRequest]) -> Result<usize, BridgeError> {
        ffi::drain_finished(self.handle.pin_mut(), requests).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Shuts the engine down. Undrained records are lost, except the records that an unfinished drain has fetched.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] if the engine was shut down before, otherwise [`BridgeError::Failed`].
    pub fn shutdown(&mut self) -> Result<(), BridgeError> {
        self.handle.pin_mut().shutdown().map_err(|error| BridgeError::from_what(error.what()))
    }

    /// What a simulated engine really did, for comparison with the drained records. None for a real engine.
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
    use crate::ffi::{self, RingSizes};

    #[test]
    fn the_engine_rejects_a_negative_ring_size_without_ending_the_process() {
        for (iterations, requests) in [(-1, 0), (1000, -1)] {
            let error = ffi::open_executor("sim:", RingSizes { iterations, requests })
                .err()
                .map(|error| error.what().to_owned());
            assert!(error.is_some_and(|what| what.contains("MaxIterations >= 0")));
        }
    }
}
