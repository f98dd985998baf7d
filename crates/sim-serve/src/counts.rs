//! Sums over iterations.

use std::ops::{AddAssign, Sub};

use serde_json::{Value, json};
use trtllm_sim::truth::Truth;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) iterations: u64,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) context_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) queue_seconds: f64,
}

impl Counts {
    pub(crate) fn of(truth: &Truth) -> Self {
        Self {
            iterations: truth.iterations,
            started: truth.started,
            completed: truth.completed,
            context_tokens: truth.context_tokens,
            generation_tokens: truth.decoded_tokens,
            queue_seconds: truth.queue_seconds,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "iterations": self.iterations, "started_requests": self.started, "completed_requests": self.completed,
            "context_tokens": self.context_tokens, "generation_tokens": self.generation_tokens,
            "queue_time_ms": self.queue_seconds * 1e3,
        })
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            iterations: self.iterations - before.iterations,
            started: self.started - before.started,
            completed: self.completed - before.completed,
            context_tokens: self.context_tokens - before.context_tokens,
            generation_tokens: self.generation_tokens - before.generation_tokens,
            queue_seconds: self.queue_seconds - before.queue_seconds,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.iterations += more.iterations;
        self.started += more.started;
        self.completed += more.completed;
        self.context_tokens += more.context_tokens;
        self.generation_tokens += more.generation_tokens;
        self.queue_seconds += more.queue_seconds;
    }
}
