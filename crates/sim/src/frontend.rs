//! The HTTP process in front of the engine. Its workers tokenise prompts and send tokens, in the order of arrival.

use crate::config::Frontend;

#[derive(Debug)]
pub(crate) struct FrontendState {
    costs: Frontend,
    /// When each worker is free.
    free_at: Vec<f64>,
}

impl FrontendState {
    pub(crate) fn new(costs: Frontend) -> Self {
        let free_at = vec![0.0; costs.workers.max(1) as usize];
        Self { costs, free_at }
    }

    /// When the engine receives a request that arrives at `at`. Absent if the frontend refuses it.
    pub(crate) fn accept(&mut self, at: f64, prompt: u32) -> Option<f64> {
        let worker = self.free_at.iter_mut().min_by(|a, b| a.total_cmp(b))?;
        let start = worker.max(at);
        if start - at > self.costs.max_wait {
            return None;
        }
        *worker = start + self.costs.seconds_per_request + self.costs.seconds_per_prompt_token * f64::from(prompt);
        Some(*worker)
    }

    /// When clients receive the tokens that the engine generates at `at`.
    pub(crate) fn send(&mut self, at: f64, tokens: u64) -> f64 {
        let seconds = self.costs.seconds_per_output_token * tokens as f64 / self.free_at.len() as f64;
        let mut seen = f64::INFINITY;
        for worker in &mut self.free_at {
            *worker = worker.max(at) + seconds;
            seen = seen.min(*worker);
        }
        seen
    }
}
