//! The result of one benchmark, in one format for all releases of trtllm-bench. A value that the report lacks is
//! `None`. The field names are those of the first report format, because recordings contain them.

use serde::{Deserialize, Serialize};

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

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchMetadata {
    pub model: Option<String>,
    pub timestamp: Option<String>,
    /// Product name of the GPU.
    pub gpu: Option<String>,
    pub num_gpus: Option<f64>,
    /// Version of TensorRT-LLM.
    pub version: Option<String>,
    /// `TRT` or `Pytorch`.
    pub backend: Option<String>,
    /// Data type of the weights, e.g. `bfloat16`.
    pub dtype: Option<String>,
    pub quantization: Option<String>,
    pub kv_cache_dtype: Option<String>,
    /// Method of speculative decoding, e.g. `Eagle`.
    pub decoding_mode: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchPerformance {
    /// Output tokens per second.
    pub token_throughput_per_sec: Option<f64>,
    /// Input and output tokens per second.
    pub total_token_throughput_per_sec: Option<f64>,
    pub request_throughput_per_sec: Option<f64>,
    /// Duration of the whole benchmark.
    pub total_latency_ms: Option<f64>,
    /// Output tokens per second and GPU.
    pub gpu_token_throughput_per_sec: Option<f64>,
    /// Output tokens of a request divided by its end-to-end time in seconds, on average.
    pub user_token_throughput_per_sec: Option<f64>,
    /// Output tokens of a request per second, counted after its first token.
    pub user_generation_per_sec: Percentiles,
}

/// Latencies of the requests in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchLatencies {
    /// Time to the first token.
    pub ttft_ms: Percentiles,
    /// Time between tokens.
    pub tbt_ms: Percentiles,
    /// Time from the arrival of a request to its last token.
    pub e2e_ms: Percentiles,
}

/// Numbers of tokens per request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchLengths {
    pub input_tokens: Percentiles,
    pub output_tokens: Percentiles,
    /// Input and output tokens together.
    pub sequence_tokens: Percentiles,
}

/// Percentiles, extremes and the mean of a measured quantity. The field states the unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub avg: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchConfiguration {
    pub tp_size: Option<f64>,
    pub pp_size: Option<f64>,
    pub ep_size: Option<f64>,
    pub max_batch_size: Option<f64>,
    pub max_num_tokens: Option<f64>,
    /// Limits that only TensorRT engines have.
    pub max_input_length: Option<f64>,
    pub max_sequence_length: Option<f64>,
    pub scheduler_policy: Option<String>,
    /// A fraction 0..1, despite its name.
    pub kv_memory_percentage: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchRequests {
    pub count: Option<f64>,
    /// Mean number of requests in flight.
    pub concurrent: Option<f64>,
}

/// Energy of all GPUs during the benchmark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchEnergy {
    pub joules: Option<f64>,
    pub output_tokens_per_joule: Option<f64>,
    /// Mean power in watts.
    pub power_watts: Option<f64>,
}

/// Speculative decoding, per request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BenchSpeculation {
    pub draft_tokens: Percentiles,
    pub accepted_tokens: Percentiles,
    pub acceptance_ratio: Percentiles,
    pub acceptance_length: Percentiles,
}
