//! The options of an Executor, and their conversion for cxx. An option that is not set keeps TensorRT-LLM's own
//! default, which differs between releases.

use crate::error::BridgeError;
use crate::ffi::{HostConfig, HostSet};

/// How many iterations the engine's statistics rings hold between two drains. A full ring silently drops the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorOptions {
    /// 0 disables iteration statistics.
    pub iter_stats_max_iterations: u32,
    /// 0 disables request statistics. They cost the engine time for every active and queued request.
    pub request_stats_max_iterations: u32,
}

/// TensorRT-LLM's own defaults: 1000 iterations, no request statistics.
impl Default for ExecutorOptions {
    fn default() -> Self {
        ExecutorOptions { iter_stats_max_iterations: 1000, request_stats_max_iterations: 0 }
    }
}

/// The kind of model in the engine directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelType {
    #[default]
    DecoderOnly,
    /// Since 0.11.
    EncoderOnly,
    /// Since 0.11.
    EncoderDecoder,
}

/// How the engine forms batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchingType {
    Static,
    Inflight,
}

/// Which of the engine's processes accepts requests and has statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommMode {
    /// The first participant.
    Leader,
    /// A separate process, which may start the workers. Since 0.10.
    Orchestrator,
}

/// All options of an Executor. If a TensorRT-LLM release does not support an option, opening fails and names the
/// option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostOptions {
    pub statistics: ExecutorOptions,
    pub model_type: ModelType,
    pub batching_type: Option<BatchingType>,
    /// Maximum number of requests in a batch. Since 0.11.
    pub max_batch_size: Option<u32>,
    /// Maximum number of tokens in an iteration. Since 0.11.
    pub max_num_tokens: Option<u32>,
    /// Maximum number of queued requests. The engine rejects more. Since 0.12.
    pub max_queue_size: Option<u32>,
    pub enable_chunked_context: Option<bool>,
    /// Reuse KV cache blocks for later requests with the same prefix. Since 0.11.
    pub enable_block_reuse: Option<bool>,
    /// Fraction of the GPU memory free after loading that the KV cache gets, above 0 and below 1. Since 0.11.
    pub free_gpu_memory_fraction: Option<f32>,
    /// Maximum number of tokens in the KV cache. The smaller of this and the fraction applies. Since 0.11.
    pub max_tokens: Option<u32>,
    /// Number of KV cache events to keep between two drains. The engine reports no events if not set. Since 1.0.
    pub event_buffer_max_size: Option<u32>,
    pub comm_mode: Option<CommMode>,
    /// MPI ranks of the engine's processes, the leader first. Empty: all ranks.
    pub participant_ids: Vec<u32>,
    /// CUDA indices of the GPUs. Empty: TensorRT-LLM chooses.
    pub device_ids: Vec<u32>,
    /// Orchestrator mode: true if this process is the orchestrator.
    pub is_orchestrator: Option<bool>,
    /// Orchestrator mode: path of the program that the workers run.
    pub worker_executable: Option<String>,
    /// Orchestrator mode: true if the orchestrator starts the workers. Since 0.13.
    pub spawn_processes: Option<bool>,
}

/// [`HostOptions`] in the types that cxx can pass.
pub(crate) struct FfiOptions {
    pub(crate) config: HostConfig,
    pub(crate) participant_ids: Vec<i32>,
    pub(crate) device_ids: Vec<i32>,
}

impl HostOptions {
    pub(crate) fn to_ffi(&self, engine: &str) -> Result<FfiOptions, BridgeError> {
        let number = |name: &str, value: u32| {
            i32::try_from(value).map_err(|_| {
                BridgeError::open(engine, &format!("{name} {value} is too large; the maximum is {}", i32::MAX))
            })
        };
        let ids = |name: &str, values: &[u32]| values.iter().map(|id| number(name, *id)).collect::<Result<Vec<_>, _>>();
        let stats = &self.statistics;
        let mut config = HostConfig {
            iter_stats_max_iterations: number("iter_stats_max_iterations", stats.iter_stats_max_iterations)?,
            request_stats_max_iterations: number("request_stats_max_iterations", stats.request_stats_max_iterations)?,
            model_type: self.model_type as u8,
            ..HostConfig::default()
        };
        if let Some(batching) = self.batching_type {
            config.set |= HostSet::Batching.repr;
            config.static_batching = batching == BatchingType::Static;
        }
        for (value, name, to, bit) in [
            (self.max_batch_size, "max_batch_size", &mut config.max_batch_size, HostSet::MaxBatchSize),
            (self.max_num_tokens, "max_num_tokens", &mut config.max_num_tokens, HostSet::MaxNumTokens),
            (self.max_queue_size, "max_queue_size", &mut config.max_queue_size, HostSet::MaxQueueSize),
            (self.max_tokens, "max_tokens", &mut config.kv_max_tokens, HostSet::KvMaxTokens),
            (
                self.event_buffer_max_size,
                "event_buffer_max_size",
                &mut config.event_buffer_max_size,
                HostSet::EventBuffer,
            ),
        ] {
            if let Some(value) = value {
                config.set |= bit.repr;
                *to = number(name, value)?;
            }
        }
        for (value, to, bit) in [
            (self.enable_chunked_context, &mut config.enable_chunked_context, HostSet::ChunkedContext),
            (self.enable_block_reuse, &mut config.enable_block_reuse, HostSet::BlockReuse),
            (self.is_orchestrator, &mut config.is_orchestrator, HostSet::IsOrchestrator),
            (self.spawn_processes, &mut config.spawn_processes, HostSet::SpawnProcesses),
        ] {
            if let Some(value) = value {
                config.set |= bit.repr;
                *to = value;
            }
        }
        if let Some(fraction) = self.free_gpu_memory_fraction {
            config.set |= HostSet::GpuFraction.repr;
            config.free_gpu_memory_fraction = fraction;
        }
        if let Some(mode) = self.comm_mode {
            config.set |= HostSet::CommMode.repr;
            config.orchestrator_mode = mode == CommMode::Orchestrator;
        }
        Ok(FfiOptions {
            config,
            participant_ids: ids("participant_ids", &self.participant_ids)?,
            device_ids: ids("device_ids", &self.device_ids)?,
        })
    }
}
