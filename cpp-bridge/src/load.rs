//! Sends synthetic requests to an engine that this process opened, to try, stress or measure it. A thread inside the
//! bridge sends the requests.

use crate::error::BridgeError;
use crate::executor::Executor;
use crate::ffi::{FinishedRequest, LoadConfig, LoadProgress};

/// A constant number of synthetic requests in flight, all of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of requests in flight.
    pub in_flight: u32,
    /// Number of tokens in each prompt.
    pub prompt_tokens: u32,
    /// Number of tokens at the start of the prompt that are the same in all prompts. The others differ.
    pub shared_prefix_tokens: u32,
    /// Number of tokens that each request generates.
    pub output_tokens: u32,
    /// The load ends after this many requests. None: it does not end.
    pub requests: Option<u64>,
}

impl Executor {
    /// Starts a load. It replaces the load of an earlier call.
    ///
    /// # Errors
    /// [`BridgeError::ShutDown`] or [`BridgeError::NotLeader`] if the engine does not accept requests.
    /// [`BridgeError::Failed`] for an invalid number of tokens.
    pub fn start_load(&mut self, load: &Load) -> Result<(), BridgeError> {
        let config = LoadConfig {
            in_flight: load.in_flight,
            prompt_tokens: tokens("prompt_tokens", load.prompt_tokens)?,
            shared_prefix_tokens: tokens("shared_prefix_tokens", load.shared_prefix_tokens)?,
            output_tokens: tokens("output_tokens", load.output_tokens)?,
            // For C++, 0 means that the load does not end. A load of 0 requests has none in flight instead.
            requests: load.requests.unwrap_or(0),
        };
        let config = if load.requests == Some(0) { LoadConfig { in_flight: 0, ..config } } else { config };
        self.handle.pin_mut().start_load(&config).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Stops the load. Results of requests that are still in flight are discarded. Does nothing if there is no load.
    ///
    /// # Errors
    /// [`BridgeError::Failed`] if the load's thread cannot be joined.
    pub fn stop_load(&mut self) -> Result<(), BridgeError> {
        self.handle.pin_mut().stop_load().map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Enqueues one request and returns its id. For callers that time the requests themselves.
    /// [`drain_finished`](Self::drain_finished) returns the finished request.
    ///
    /// # Errors
    /// Like [`start_load`](Self::start_load). Also [`BridgeError::Failed`] if the engine rejects the request.
    pub fn enqueue_synthetic(&mut self, prompt_tokens: u32, output_tokens: u32) -> Result<u64, BridgeError> {
        let prompt = tokens("prompt_tokens", prompt_tokens)?;
        let output = tokens("output_tokens", output_tokens)?;
        self.handle.pin_mut().enqueue_synthetic(prompt, output).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Like [`enqueue_synthetic`](Self::enqueue_synthetic), with the given prompt.
    ///
    /// # Errors
    /// Like [`enqueue_synthetic`](Self::enqueue_synthetic).
    pub fn enqueue(&mut self, prompt: &[i32], output_tokens: u32) -> Result<u64, BridgeError> {
        let output = tokens("output_tokens", output_tokens)?;
        self.handle.pin_mut().enqueue(prompt, output).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// Writes the requests that finished since the last call into `requests`, in the order in which they finished, and returns
    /// how many. If it returns `requests.len()`, there may be more. Works after a shutdown. Never blocks.
    ///
    /// # Errors
    /// [`BridgeError::Failed`].
    pub fn drain_finished(&mut self, requests: &mut [FinishedRequest]) -> Result<usize, BridgeError> {
        self.handle.pin_mut().drain_finished(requests).map_err(|error| BridgeError::from_what(error.what()))
    }

    /// The progress of the synthetic requests.
    pub fn load_progress(&self) -> LoadProgress {
        self.handle.load_progress().unwrap_or_default()
    }
}

fn tokens(name: &str, count: u32) -> Result<i32, BridgeError> {
    i32::try_from(count)
        .map_err(|_| BridgeError::Failed { what: format!("{name} {count} is too large; the maximum is {}", i32::MAX) })
}
