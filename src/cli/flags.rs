//! The flags in groups. Each flag can also be set by an environment variable: see [`command`](super::command).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use trtllm_config::{self as config, ConfigError, EngineConfig};
use trtllm_gpu::GpuMode;
use trtllm_http::listen::Address;
use trtllm_http::router::{AllowedHost, TelemetryPath};
use trtllm_http::server::MAX_REQUESTS;
use trtllm_records::{BenchReport, Objectives};

use super::values::{duration, integer, objectives, one_of, path_or_empty, size};
use super::{read_file, reject_executor_if_not_built};

/// Which engines are read, and what is known about them.
#[derive(Debug, Args)]
pub struct SourceFlags {
    /// Source of engine statistics (repeatable): sim:[?rate=…&in_flight=…&speed=…&seed=…], executor:DIR,
    /// trtllm-serve:http://HOST:PORT, trtllm-disagg:http://HOST:PORT (orchestrator), perf-metrics:DIR, socket:PATH,
    /// otlp:HOST:PORT, log:FILE (the iteration log, or log:- for the standard input), replay:FILE, replay:DIR,
    /// kubernetes:NAMESPACE for each trtllm-serve in the pods of this node, or auto for each trtllm-serve of this host or pod. Without --source and --config.file: GPU metrics and the default ingest socket.
    /// The variable may hold several, separated by spaces or newlines
    #[arg(long, value_name = "URL")]
    pub source: Vec<String>,

    /// Label `model`: one for all --source flags, or one per --source [default: tensorrt_llm; on an ingest socket without
    /// --model and --model-version, each publisher names its engine]
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,

    /// Label `version`: one for all --source flags, or one per --source [default: 1]
    #[arg(long = "model-version", value_name = "V")]
    pub model_version: Vec<String>,

    /// Times that are promised to users, for all --source flags: ttft (time to first token), tpot (time per output token after
    /// the first), e2e (end to end), as in ttft=500ms,tpot=50ms,e2e=10s. nv_trt_llm_objective_* say which requests met them
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true, value_parser = objectives)]
    pub objectives: Objectives,

    /// Report of trtllm-bench (--report_json) to compare the engines of all --source flags with: its numbers are on the page as
    /// nv_trt_llm_bench_*
    #[arg(long = "bench-report", value_name = "FILE", value_parser = path_or_empty())]
    pub bench_report: Option<PathBuf>,

    /// Price of a GPU for an hour, in any currency: nv_trt_llm_gpu_cost_total says what the GPUs of the engines of all --source
    /// flags have cost
    #[arg(long = "cost.gpu-hour", value_name = "X", allow_negative_numbers = true, value_parser = config::gpu_hour_cost)]
    pub gpu_hour_cost: Option<f64>,

    /// URL of the next receiver of OTLP traces, such as a Collector: all spans that the --source flags receive are sent on to it, over
    /// HTTP with protobuf. What it does not take is dropped and counted
    #[arg(long = "otlp.endpoint", value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// YAML file that lists engines with source, model, version, labels, objectives, gpus, bench_report, gpu_hour_cost and
    /// otlp_endpoint. SIGHUP reads it again
    #[arg(long = "config.file", value_name = "PATH", conflicts_with = "source")]
    pub config_file: Option<PathBuf>,
}

impl SourceFlags {
    /// The configured engines, or the first mistake in them. `None` if neither --source nor --config.file is given.
    pub fn engines(&self) -> Result<Option<Vec<EngineConfig>>, ConfigError> {
        match &self.config_file {
            Some(path) => read_file(path).map(Some),
            None if self.source.is_empty() => Ok(None),
            None => {
                let engines = config::from_flags(&self.source, &self.model, &self.model_version, self.objectives)?;
                reject_executor_if_not_built(engines).map(Some)
            }
        }
    }

    /// The report of --bench-report. Fails if the file cannot be read or is not a report.
    pub fn bench_report(&self) -> Result<Option<Arc<BenchReport>>, ConfigError> {
        let Some(path) = &self.bench_report else { return Ok(None) };
        let invalid = |why: String| ConfigError::flag("--bench-report", path.display(), why);
        config::read_bench_report(path).map(Some).map_err(invalid)
    }
}

/// Where pages are served, and to whom.
#[derive(Debug, Args)]
pub struct WebFlags {
    /// Listen address (repeatable): HOST:PORT, :PORT (IPv6 and IPv4) or unix:PATH. Port 0 means any free port
    #[arg(long = "web.listen-address", value_name = "ADDR", value_delimiter = ',', default_value = ":8002")]
    pub listen_address: Vec<Address>,

    /// Path of the metrics page
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics")]
    pub telemetry_path: TelemetryPath,

    /// Web configuration file of Prometheus's exporter-toolkit: TLS, client certificates, passwords, rate limit
    #[arg(long = "web.config.file", value_name = "PATH", value_parser = path_or_empty())]
    pub web_config_file: Option<PathBuf>,

    /// Listen on the sockets of a systemd .socket unit instead of --web.listen-address. A Unix socket at the path of an
    /// ingest socket is used for ingest, also without this flag
    #[arg(long = "web.systemd-socket")]
    pub systemd_socket: bool,

    /// Maximum number of concurrent requests; further ones get 503. 0 means no limit
    #[arg(long = "web.max-requests", value_name = "N", default_value_t = MAX_REQUESTS, value_parser = integer::<usize>)]
    pub max_requests: usize,

    /// Host names that clients may use for the pages and /api (repeatable), against DNS rebinding. IP addresses, localhost and
    /// health checks are always allowed. Default: all names
    #[arg(long = "web.allowed-hosts", value_name = "NAME", value_delimiter = ',')]
    pub allowed_hosts: Vec<AllowedHost>,

    /// Listen address for /healthz and /readyz only, without TLS and passwords (repeatable)
    #[arg(long = "web.health-address", value_name = "ADDR", value_delimiter = ',')]
    pub health_address: Vec<String>,

    /// File for the bound addresses, one per line
    #[arg(long = "web.port-file", value_name = "PATH")]
    pub port_file: Option<PathBuf>,
}

impl WebFlags {
    /// The addresses of --web.health-address. Fails if one is invalid.
    pub fn health_addresses(&self) -> Result<Vec<Address>, ConfigError> {
        // Helm charts pass an empty value for a flag that is not set.
        let given = self.health_address.iter().filter(|text| !text.is_empty());
        let invalid = |text, why: String| ConfigError::flag("--web.health-address", text, why);
        given.map(|text| text.parse().map_err(|why| invalid(text, why))).collect()
    }
}

/// How often engines are read, and when they count as stale.
#[derive(Debug, Args)]
pub struct PollFlags {
    /// Interval between polls of a source. An idle engine is polled half as often if that is at most 200ms
    #[arg(id = "poll_interval", long = "poll.interval", value_name = "D", default_value = "100ms", value_parser = duration, allow_hyphen_values = true)]
    pub interval: Duration,

    /// Timeout of a poll
    #[arg(long = "poll.timeout", value_name = "D", default_value = "5s", value_parser = duration, allow_hyphen_values = true)]
    pub timeout: Duration,

    /// Time without news after which an engine is stale and its load gauges are withdrawn
    #[arg(long = "stale-after", value_name = "D", default_value = "15s", value_parser = duration, allow_hyphen_values = true)]
    pub stale_after: Duration,
}

/// Which GPUs are read, how often, and what about them.
#[derive(Debug, Args)]
pub struct GpuFlags {
    /// GPU metrics: off, auto (a missing driver is not an error) or required
    #[arg(long = "gpu", value_name = "MODE", default_value = "auto", value_parser = one_of(GpuMode::ALL.map(|mode| (mode.name(), mode))))]
    pub mode: GpuMode,

    /// NVML library to load instead of searching for it
    #[arg(long = "gpu.library", value_name = "PATH")]
    pub library: Option<PathBuf>,

    /// Interval between polls of a GPU, at least 100ms
    #[arg(id = "gpu_interval", long = "gpu.interval", value_name = "D", default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    pub interval: Duration,

    /// Export only these GPUs (repeatable). Default: all
    #[arg(long = "gpu.uuid", value_name = "UUID", value_delimiter = ',')]
    pub uuids: Vec<String>,

    /// Export GPU memory and utilization per process; costs the driver some milliseconds per GPU and poll
    #[arg(long = "gpu.processes")]
    pub processes: bool,

    /// Socket of the kubelet's PodResources API, for the containers of each GPU. It may be missing; --gpu.pod-resources= disables it
    #[arg(
        long = "gpu.pod-resources",
        value_name = "PATH",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pub pod_resources: std::ffi::OsString,
}

/// The flight recorder.
#[derive(Debug, Args)]
pub struct RecordFlags {
    /// Directory of the flight recorder, which keeps the last records of every engine on disk. Default: nothing is recorded
    #[arg(long = "record.dir", value_name = "DIR", value_parser = path_or_empty())]
    pub dir: Option<PathBuf>,

    /// Size of all files of the flight recorder together, at least 4MiB. The oldest are deleted first. The default keeps a day of one
    /// busy engine
    #[arg(long = "record.max-size", value_name = "SIZE", default_value = "2GiB", value_parser = size, allow_hyphen_values = true)]
    pub max_size: u64,

    /// Age after which the files of the flight recorder are deleted. Default: only their size counts
    #[arg(long = "record.max-age", value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub max_age: Option<Duration>,
}
