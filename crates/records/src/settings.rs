//! The settings of an engine that explain its performance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest value in characters. It is limited because a value becomes a label value.
const MAX_VALUE: usize = 64;

/// The values of settings by their label name in `nv_trt_llm_engine_config_info`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSettings(BTreeMap<String, String>);

impl EngineSettings {
    pub const NAMES: [&str; 10] = [
        "dtype",
        "quantization",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "expert_parallel_size",
        "kv_cache_dtype",
        "tokens_per_block",
        "speculative_method",
        "max_batch_size",
        "max_num_tokens",
    ];

    /// A value longer than 64 characters is cut. An unknown name and an empty value are ignored.
    pub fn set(&mut self, name: &str, value: &str) {
        if Self::NAMES.contains(&name) && !value.is_empty() {
            self.0.insert(name.to_owned(), value.chars().take(MAX_VALUE).collect());
        }
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
