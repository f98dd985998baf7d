//! What a host may choose when it constructs an Executor, and how the choice crosses the border. Every option left out
//! keeps TensorRT-LLM's own default, which differs between releases.

use crate::error::BridgeError;
use crate::executor::ExecutorOptions;
use crate::ffi::{HostConfig, HostSet};

/// What kind of model the engine directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelType {
    #[default]
    DecoderOnly,
    /// From 0.11 on.
    EncoderOnly,
    /// From 0.11 on.
    EncoderDecoder,
}

/// How requests form a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchingType {
    Static,
    Inflight,
}

/// Who of an engine's processes takes requests and keeps statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommMode {
    /// The first participant.
    Leader,
    /// A process beside the workers, which it may spawn. From 0.10 on.
    Orchestrator,
}

/// How to construct an Executor. A release that lacks an option's setter refuses the option by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostOptions {
    pub statistics: ExecutorOptions,
    pub model_type: ModelType,
    pub batching_type: Option<BatchingType>,
    /// Requests; from 0.11 on.
    pub max_batch_size: Option<u32>,
    /// Tokens of one iteration; from 0.11 on.
    pub max_num_tokens: Option<u32>,
    /// Requests waiting in the engine, beyond which it refuses more; from 0.12 on.
    pub max_queue_size: Option<u32>,
    pub enable_chunked_context: Option<bool>,
    /// KV cache blocks serve later requests with an equal prefix; from 0.11 on.
    pub enable_block_reuse: Option<bool>,
    /// Of the GPU memory that is free after loading, the part for the KV cache: above 0, below 1; from 0.11 on.
    pub free_gpu_memory_fraction: Option<f32>,
    /// Tokens in the KV cache; the smaller of this and the fraction holds; from 0.11 on.
    pub max_tokens: Option<u32>,
    /// Events of the KV cache kept between two drains, without which it tells none; from 1.0 on.
    pub event_buffer_max_size: Option<u32>,
    pub comm_mode: Option<CommMode>,
    /// MPI ranks of the engine's processes, the leader first; empty = all.
    pub participant_ids: Vec<u32>,
    /// GPUs by CUDA's index; empty = TensorRT-LLM chooses.
    pub device_ids: Vec<u32>,
    /// Orchestrator mode: whether this process is the orchestrator.
    pub is_orchestrator: Option<bool>,
    /// Orchestrator mode: the program that a spawned worker runs.
    pub worker_executable: Option<String>,
    /// Orchestrator mode: whether the orchestrator starts the workers; from 0.13 on.
    pub spawn_processes: Option<bool>,
}

/// The same, as it crosses.
pub(crate) struct Crossing {
    pub(crate) config: HostConfig,
    pub(crate) participant_ids: Vec<i32>,
    pub(crate) device_ids: Vec<i32>,
}

impl HostOptions {
    pub(crate) fn crossing(&self, engine: &str) -> Result<Crossing, BridgeError> {
        let number = |name: &str, value: u32| {
            i32::try_from(value)
                .map_err(|_| BridgeError::open(engine, &format!("{name} {value} is above {}", i32::MAX)))
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
        Ok(Crossing {
            config,
            participant_ids: ids("participant_ids", &self.participant_ids)?,
            device_ids: ids("device_ids", &self.device_ids)?,
        })
    }
}
