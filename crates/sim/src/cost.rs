//! What an iteration costs, on the host and on the GPU. The costs are not linear: padding grows in steps, attention is quadratic,
//! and more tokens load more experts.

#[derive(Debug, Clone)]
pub struct Costs {
    /// Seconds of the host for each iteration, and for each scheduled request.
    pub host: f64,
    pub host_per_request: f64,
    /// Whether the host prepares the next batch while the GPU works.
    pub overlap: bool,
    /// Seconds of the GPU to read the weights.
    pub base: f64,
    pub per_context_token: f64,
    /// Seconds of the GPU for each pair of a context token and an earlier token.
    pub per_attention_pair: f64,
    pub per_generation_token: f64,
    pub per_kv_token: f64,
    /// Measured seconds of batches that only decode, by the number of requests, ascending. If there are any, they replace `base` and
    /// `per_generation_token`.
    pub steps: Vec<(u32, f64)>,
    /// Batch sizes with a CUDA graph, ascending. A batch between two sizes costs as much as the larger size.
    pub graphs: Vec<u32>,
    /// Seconds that a batch without a CUDA graph takes at least, because the host launches each kernel.
    pub eager: f64,
    pub experts: Option<Experts>,
    /// Relative standard deviation of an iteration's time on the GPU.
    pub jitter: f64,
}

#[derive(Debug, Clone)]
pub struct Experts {
    pub count: u32,
    pub per_token: u32,
    /// Seconds to read one expert's weights in all layers.
    pub seconds: f64,
}

/// The work of one rank in an iteration.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    pub scheduled: u32,
    pub context_requests: u32,
    pub context_tokens: u64,
    pub attention_pairs: f64,
    pub context_kv_tokens: u64,
    pub generation_requests: u32,
    /// Including draft tokens.
    pub generation_tokens: u64,
    pub generation_kv_tokens: u64,
    pub paused: u32,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            host: 0.001,
            host_per_request: 10e-6,
            overlap: true,
            base: 0.008,
            per_context_token: 40e-6,
            per_attention_pair: 2e-9,
            per_generation_token: 60e-6,
            per_kv_token: 40e-9,
            steps: Vec::new(),
            eager: 0.0,
            graphs: vec![1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256],
            experts: None,
            jitter: 0.0,
        }
    }
}

impl Costs {
    /// Seconds on the host.
    #[must_use]
    pub fn host_seconds(&self, work: &Work) -> f64 {
        self.host + self.host_per_request * f64::from(work.scheduled)
    }

    /// Seconds on the GPU.
    #[must_use]
    pub fn gpu_seconds(&self, work: &Work) -> f64 {
        if work.scheduled == 0 {
            return 0.0;
        }
        let graph = self.graphs.iter().find(|size| **size >= work.generation_requests);
        // Graphs are for batches without context requests.
        let padded = graph.filter(|_| work.context_requests == 0).copied().unwrap_or(work.generation_requests);
        let padding = f64::from(padded) / f64::from(work.generation_requests.max(1));
        let generation = work.generation_tokens as f64 * padding;
        let seconds = self.decoding_seconds(generation)
            + self.per_context_token * work.context_tokens as f64
            + self.per_attention_pair * work.attention_pairs
            + self.per_kv_token * work.generation_kv_tokens as f64
            + self.experts.as_ref().map_or(0.0, |experts| experts.seconds(work.context_tokens as f64 + generation));
        if graph.is_none() || work.context_requests > 0 { seconds.max(self.eager) } else { seconds }
    }

    /// Seconds of a batch that decodes this many tokens, without its attention: on the line through the two nearest measured steps.
    fn decoding_seconds(&self, tokens: f64) -> f64 {
        let size = |step: &(u32, f64)| f64::from(step.0);
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return self.base + self.per_generation_token * tokens;
        };
        let pairs = || self.steps.windows(2);
        match pairs().find(|pair| tokens <= size(&pair[1])).or_else(|| pairs().last()) {
            Some(pair) if tokens > size(first) => {
                let slope = (pair[1].1 - pair[0].1) / (size(&pair[1]) - size(&pair[0]));
                pair[0].1 + slope * (tokens - size(&pair[0]))
            }
            Some(_) => first.1,
            None => last.1,
        }
    }

    /// Seconds of an iteration.
    #[must_use]
    pub fn iteration_seconds(&self, host: f64, gpu: f64) -> f64 {
        if self.overlap { host.max(gpu) } else { host + gpu }
    }
}

impl Experts {
    /// Seconds to read the experts that at least one of the tokens uses.
    fn seconds(&self, tokens: f64) -> f64 {
        let unused = (1.0 - f64::from(self.per_token) / f64::from(self.count)).powf(tokens);
        self.seconds * f64::from(self.count) * (1.0 - unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoding(requests: u32) -> Work {
        let tokens = u64::from(requests);
        Work { scheduled: requests, generation_requests: requests, generation_tokens: tokens, ..Work::default() }
    }

    #[test]
    fn nine_requests_cost_as_much_as_sixteen() {
        let costs = Costs::default();
        assert!((costs.gpu_seconds(&decoding(9)) - costs.gpu_seconds(&decoding(16))).abs() < 1e-12);
        assert!(costs.gpu_seconds(&decoding(8)) < costs.gpu_seconds(&decoding(9)));
    }

    #[test]
    fn measured_steps_are_met_and_a_batch_without_a_graph_takes_its_kernels_one_by_one() {
        let steps = vec![(1, 0.004), (5, 0.008), (9, 0.010)];
        let costs = Costs { steps, eager: 0.009, graphs: vec![1, 5], per_kv_token: 0.0, ..Costs::default() };
        let seconds = [1, 3, 5, 7, 9, 11].map(|requests| costs.gpu_seconds(&decoding(requests)));
        let expected = [0.004, 0.008, 0.008, 0.009, 0.010, 0.011];
        assert!(seconds.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-9), "{seconds:?}");
    }

    #[test]
    fn experts_are_loaded_by_the_first_tokens() {
        let costs = Costs { experts: Some(Experts { count: 64, per_token: 4, seconds: 1e-4 }), ..Costs::default() };
        let first = costs.gpu_seconds(&decoding(16)) - costs.gpu_seconds(&decoding(8));
        let last = costs.gpu_seconds(&decoding(256)) - costs.gpu_seconds(&decoding(248));
        assert!(first > last);
    }
}
