//! The result of one benchmark, whichever release of trtllm-bench wrote it. A part that the report lacks is empty.
//! The names are those of the first report format. Recordings keep them.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchReport {
    pub metadata: BenchMetadata,
    pub performance: BenchPerformance,
    pub latency_stats: BenchLatencies,
    pub input_output_stats: BenchLengths,
    pub configuration: BenchConfiguration,
    pub requests: BenchRequests,
    pub energy: BenchEnergy,
    pub speculation: BenchSpeculation,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchMetadata {
    pub model: Option<String>,
    pub timestamp: Option<String>,
    /// Product name.
    pub gpu: Option<String>,
    pub num_gpus: Option<f64>,
    /// Of TensorRT-LLM.
    pub version: Option<String>,
    /// `TRT` or `Pytorch`.
    pub backend: Option<String>,
    /// Of the weights, `bfloat16`.
    pub dtype: Option<String>,
    pub quantization: Option<String>,
    pub kv_cache_dtype: Option<String>,
    /// Of speculative decoding, `Eagle`.
    pub decoding_mode: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchPerformance {
    /// Output tokens per second.
    pub token_throughput_per_sec: Option<f64>,
    /// Input and output tokens per second.
    pub total_token_throughput_per_sec: Option<f64>,
    pub request_throughput_per_sec: Option<f64>,
    /// Milliseconds of the whole benchmark.
    pub total_latency_ms: Option<f64>,
    /// Output tokens per second, divided by the GPUs.
    pub gpu_token_throughput_per_sec: Option<f64>,
    /// Output tokens of a request per second of its time from start to end, on average.
    pub user_token_throughput_per_sec: Option<f64>,
    /// Output tokens of a request per second after its first token.
    pub user_generation_per_sec: Distribution,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchLatencies {
    /// Time to the first token.
    pub ttft_ms: Distribution,
    /// Time between tokens.
    pub tbt_ms: Distribution,
    /// End to end.
    pub e2e_ms: Distribution,
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchLengths {
    pub input_tokens: Distribution,
    pub output_tokens: Distribution,
    /// Both together.
    pub sequence_tokens: Distribution,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Distribution {
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub avg: Option<f64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchConfiguration {
    pub tp_size: Option<f64>,
    pub pp_size: Option<f64>,
    pub ep_size: Option<f64>,
    pub max_batch_size: Option<f64>,
    pub max_num_tokens: Option<f64>,
    /// Limits of a TensorRT engine.
    pub max_input_length: Option<f64>,
    pub max_sequence_length: Option<f64>,
    pub scheduler_policy: Option<String>,
    /// A fraction 0..1, despite its name.
    pub kv_memory_percentage: Option<f64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchRequests {
    pub count: Option<f64>,
    /// Mean number in flight.
    pub concurrent: Option<f64>,
}

/// Of all GPUs, during the benchmark.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchEnergy {
    pub joules: Option<f64>,
    pub output_tokens_per_joule: Option<f64>,
    /// Mean watts.
    pub power_watts: Option<f64>,
}

/// Of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchSpeculation {
    pub draft_tokens: Distribution,
    pub accepted_tokens: Distribution,
    pub acceptance_ratio: Distribution,
    pub acceptance_length: Distribution,
}
