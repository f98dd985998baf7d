//! Synthetic requests for an engine of our own: to try it, burn it in or measure it. The requests run inside the bridge,
//! on a thread of their own.

use crate::error::BridgeError;
use crate::executor::Executor;
use crate::ffi::{LoadConfig, LoadProgress, PerfRow};

/// Requests of one size, so many of them at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests kept in flight.
    pub in_flight: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Of these, the first that are the same in all prompts; the rest differs.
    pub shared_prefix_tokens: u32,
    /// Tokens that each request generates.
    pub output_tokens: u32,
    /// After so many the load ends; None = it does not.
    pub requests: Option<u64>,
}

impl Executor {
    /// Keeps requests in flight from now on, in place of those of an earlier call.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] or [`BridgeError::NotLeader`] where the engine takes none,
    /// [`BridgeError::Failed`] for lengths that no request can have.
    pub fn start_load(&mut self, load: &Load) -> Result<(), BridgeError> {
        let config = LoadConfig {
            in_flight: load.in_flight,
            prompt_tokens: tokens("prompt_tokens", load.prompt_tokens)?,
            shared_prefix_tokens: tokens("shared_prefix_tokens", load.shared_prefix_tokens)?,
            output_tokens: tokens("output_tokens", load.output_tokens)?,
            // 0 crosses as without end, so a load of no requests is one that keeps none in flight.
            requests: load.requests.unwrap_or(0),
        };
        let config = if load.requests == Some(0) { LoadConfig { in_flight: 0, ..config } } else { config };
        self.handle.pin_mut().start_load(&config).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Enqueues and collects nothing more; what is in flight ends unseen. No error where there is no load.
    ///
    /// # Errors
    /// [`BridgeError::Failed`] if the thread cannot be joined.
    pub fn stop_load(&mut self) -> Result<(), BridgeError> {
        self.handle.pin_mut().stop_load().map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Enqueues one request now, for loads that are recorded or paced by the caller; gives its id. Its row comes by
    /// [`drain_perf_metrics`](Self::drain_perf_metrics).
    ///
    /// # Errors
    /// As [`start_load`](Self::start_load), or the engine's refusal.
    pub fn enqueue_synthetic(&mut self, prompt_tokens: u32, output_tokens: u32) -> Result<u64, BridgeError> {
        let prompt = tokens("prompt_tokens", prompt_tokens)?;
        let output = tokens("output_tokens", output_tokens)?;
        self.handle.pin_mut().enqueue_synthetic(prompt, output).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// As [`enqueue_synthetic`](Self::enqueue_synthetic), with these tokens as the prompt.
    ///
    /// # Errors
    /// As [`start_load`](Self::start_load), or the engine's refusal.
    pub fn enqueue(&mut self, prompt: &[i32], output_tokens: u32) -> Result<u64, BridgeError> {
        let output = tokens("output_tokens", output_tokens)?;
        self.handle.pin_mut().enqueue(prompt, output).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Takes the rows of finished requests since the last call, in the order they ended, into `out`; gives how many
    /// were written. What does not fit is handed out by the next call. Works after a shutdown. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::Failed`]; nothing was written then.
    pub fn drain_perf_metrics(&mut self, out: &mut [PerfRow]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_perf_metrics(out).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// How far the synthetic requests are.
    pub fn load_progress(&self) -> LoadProgress {
        self.handle.load_progress().unwrap_or_default()
    }
}

fn tokens(name: &str, count: u32) -> Result<i32, BridgeError> {
    i32::try_from(count).map_err(|_| BridgeError::Failed { what: format!("{name} {count} is above {}", i32::MAX) })
}
