//! The command line, as typed. Each flag has its twin in the environment, `TRTLLM_EXPORTER_<FLAG>`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Parser, Subcommand, ValueEnum};

use crate::config::{self, ConfigError, EngineConfig};
use crate::metrics::compat::CompatSets;

/// Where publishers find the exporter unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/trtllm-exporter/ingest.sock";

/// Prometheus exporter for NVIDIA TensorRT-LLM engines and their GPUs.
#[derive(Debug, Parser)]
#[command(name = "trtllm-exporter", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Where engine statistics come from: sim:[?rate=…&in_flight=…&seed=…], executor:DIR,
    /// trtllm-serve:http://HOST:PORT, socket:PATH, replay:FILE.
    /// May be repeated. Without it and --config.file: GPU metrics, and the ingest socket at its default path
    #[arg(long, value_name = "URL", env = "TRTLLM_EXPORTER_SOURCE")]
    pub source: Vec<String>,

    /// Label `model` of the engine of --source; one for all sources or one for each [default: tensorrt_llm]
    #[arg(long, value_name = "NAME", env = "TRTLLM_EXPORTER_MODEL")]
    pub model: Vec<String>,

    /// Label `version` of the engine of --source; one for all sources or one for each [default: 1]
    #[arg(long = "model-version", value_name = "V", env = "TRTLLM_EXPORTER_MODEL_VERSION")]
    pub model_version: Vec<String>,

    /// YAML file with several engines, each with source, model, version and labels
    #[arg(long = "config.file", value_name = "PATH", env = "TRTLLM_EXPORTER_CONFIG_FILE", conflicts_with = "source")]
    pub config_file: Option<PathBuf>,

    /// Where to serve: HOST:PORT, :PORT or unix:PATH; may be repeated. Port 0 is any free port
    #[arg(
        long = "web.listen-address",
        value_name = "ADDR",
        env = "TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS",
        value_delimiter = ',',
        default_value = "0.0.0.0:8002"
    )]
    pub listen_address: Vec<String>,

    /// Path of the metrics page
    #[arg(
        long = "web.telemetry-path",
        value_name = "PATH",
        env = "TRTLLM_EXPORTER_WEB_TELEMETRY_PATH",
        default_value = "/metrics"
    )]
    pub telemetry_path: String,

    /// YAML file with TLS, client certificates, passwords and limits, in the form of Prometheus's exporter-toolkit
    // Charts leave it empty where there is none.
    #[arg(
        long = "web.config.file",
        value_name = "PATH",
        env = "TRTLLM_EXPORTER_WEB_CONFIG_FILE",
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub web_config_file: Option<PathBuf>,

    /// Serve on the sockets that a systemd .socket unit hands over, instead of on addresses
    #[arg(long = "web.systemd-socket", env = "TRTLLM_EXPORTER_WEB_SYSTEMD_SOCKET")]
    pub systemd_socket: bool,

    /// Requests for a page answered at once; more get 503. 0 is no limit
    #[arg(long = "web.max-requests", value_name = "N", env = "TRTLLM_EXPORTER_WEB_MAX_REQUESTS", default_value = "40")]
    pub max_requests: usize,

    /// Where to serve /healthz and /readyz alone, to everybody whatever --web.config.file says; may be repeated
    #[arg(
        long = "web.health-address",
        value_name = "ADDR",
        env = "TRTLLM_EXPORTER_WEB_HEALTH_ADDRESS",
        value_delimiter = ','
    )]
    pub health_address: Vec<String>,

    /// File to write the bound address to, one per line
    #[arg(long = "web.port-file", value_name = "PATH", env = "TRTLLM_EXPORTER_WEB_PORT_FILE")]
    pub port_file: Option<PathBuf>,

    /// Time between polls of a source
    #[arg(long = "poll.interval", value_name = "D", env = "TRTLLM_EXPORTER_POLL_INTERVAL", default_value = "100ms", value_parser = duration, allow_hyphen_values = true)]
    pub poll_interval: Duration,

    /// Time a source has to answer a poll
    #[arg(long = "poll.timeout", value_name = "D", env = "TRTLLM_EXPORTER_POLL_TIMEOUT", default_value = "5s", value_parser = duration, allow_hyphen_values = true)]
    pub poll_timeout: Duration,

    /// After this long without news the engine's load gauges leave the page
    #[arg(long = "stale-after", value_name = "D", env = "TRTLLM_EXPORTER_STALE_AFTER", default_value = "15s", value_parser = duration, allow_hyphen_values = true)]
    pub stale_after: Duration,

    /// GPU metrics: off, auto (an absent driver is not an error) or required
    #[arg(long, value_name = "MODE", env = "TRTLLM_EXPORTER_GPU", default_value = "auto")]
    pub gpu: GpuMode,

    /// NVML library to load instead of searching for it
    #[arg(long = "gpu.library", value_name = "PATH", env = "TRTLLM_EXPORTER_GPU_LIBRARY")]
    pub gpu_library: Option<PathBuf>,

    /// Time between polls of a GPU, at least 100ms
    #[arg(long = "gpu.interval", value_name = "D", env = "TRTLLM_EXPORTER_GPU_INTERVAL", default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    pub gpu_interval: Duration,

    /// Show only these GPUs; may be repeated. Without it CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES decides
    #[arg(long = "gpu.uuid", value_name = "UUID", env = "TRTLLM_EXPORTER_GPU_UUID", value_delimiter = ',')]
    pub gpu_uuid: Vec<String>,

    /// Show the GPU memory of each process, which costs the driver milliseconds a GPU
    #[arg(long = "gpu.processes", env = "TRTLLM_EXPORTER_GPU_PROCESSES")]
    pub gpu_processes: bool,

    /// The kubelet's PodResources socket, which says which container has which GPU; empty not to ask. It need not exist
    #[arg(
        long = "gpu.pod-resources",
        value_name = "PATH",
        env = "TRTLLM_EXPORTER_GPU_POD_RESOURCES",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pub gpu_pod_resources: std::ffi::OsString,

    /// Other exporters' names beside ours: trtllm (trtllm-serve), triton-core (nv_inference_*), dcgm (DCGM_FI_*), spec
    #[arg(long = "metrics.compat", value_name = "LIST", env = "TRTLLM_EXPORTER_METRICS_COMPAT", value_delimiter = ',')]
    pub compat: Vec<CompatSet>,

    /// error, warn, info, debug or trace
    #[arg(long = "log.level", value_name = "LEVEL", env = "TRTLLM_EXPORTER_LOG_LEVEL", default_value = "info")]
    pub log_level: tracing::Level,

    /// logfmt or json
    #[arg(long = "log.format", value_name = "FORMAT", env = "TRTLLM_EXPORTER_LOG_FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a --config.file and say what it means
    CheckConfig { file: PathBuf },
    /// List every metric: name, type, unit, labels, help, origin
    Catalog {
        #[arg(long, value_name = "FORMAT", default_value = "markdown")]
        format: CatalogFormat,
    },
}

/// A place to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAt {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GpuMode {
    Off,
    Auto,
    Required,
}

/// One of `--metrics.compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompatSet {
    Trtllm,
    TritonCore,
    Dcgm,
    Spec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Logfmt,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    Markdown,
    Json,
}

impl Cli {
    /// The engines asked for, checked; `None` when neither a source nor a file is given.
    ///
    /// # Errors
    /// When a source or the file is wrong.
    pub fn engines(&self) -> Result<Option<Vec<EngineConfig>>, ConfigError> {
        match &self.config_file {
            Some(path) => config::read_file(path).map(Some),
            None if self.source.is_empty() => Ok(None),
            None => config::from_flags(&self.source, &self.model, &self.model_version).map(Some),
        }
    }

    /// The name sets asked for.
    #[must_use]
    pub fn compat_sets(&self) -> CompatSets {
        let asked = |set| self.compat.contains(&set);
        CompatSets {
            trtllm: asked(CompatSet::Trtllm),
            triton_core: asked(CompatSet::TritonCore),
            dcgm: asked(CompatSet::Dcgm),
            spec: asked(CompatSet::Spec),
        }
    }

    /// Where to serve. `:PORT` is every IPv4 interface.
    ///
    /// # Errors
    /// When one is no address or its host is unknown.
    pub fn addresses(&self) -> Result<Vec<ListenAt>, ConfigError> {
        self.listen_address.iter().map(|text| ListenAt::parse("--web.listen-address", text)).collect()
    }

    /// Where to serve health alone.
    ///
    /// # Errors
    /// When one is no address or its host is unknown.
    pub fn health_addresses(&self) -> Result<Vec<ListenAt>, ConfigError> {
        let given = self.health_address.iter().filter(|text| !text.is_empty());
        given.map(|text| ListenAt::parse("--web.health-address", text)).collect()
    }

    /// What no single flag can check.
    ///
    /// # Errors
    /// Naming the flag and its bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bounds = [
            ("--poll.interval", self.poll_interval, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--poll.timeout", self.poll_timeout, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--stale-after", self.stale_after, Duration::from_millis(100), Duration::from_secs(86_400)),
            ("--gpu.interval", self.gpu_interval, Duration::from_millis(100), Duration::from_secs(3600)),
        ];
        for (flag, value, least, most) in bounds {
            if value < least || value > most {
                let why = format!("must be between {least:?} and {most:?}");
                return Err(ConfigError::Flag { flag, value: format!("{value:?}"), why });
            }
        }
        if self.stale_after <= self.poll_interval {
            let why = format!("must be longer than --poll.interval ({:?})", self.poll_interval);
            return Err(ConfigError::Flag { flag: "--stale-after", value: format!("{:?}", self.stale_after), why });
        }
        let path = &self.telemetry_path;
        let taken = ["/", "/healthz", "/readyz"].contains(&path.as_str()) || path.starts_with("/api/");
        // As a request spells it: what would have to be escaped there would never be found.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,;=:@".contains(&byte);
        if !path.starts_with('/') || path.ends_with('/') || !path.bytes().all(plain) || taken {
            let why = "must begin with /, not be /, /healthz, /readyz or below /api/, and need no escapes".to_owned();
            return Err(ConfigError::Flag { flag: "--web.telemetry-path", value: path.clone(), why });
        }
        Ok(())
    }
}

impl ListenAt {
    fn parse(flag: &'static str, text: &str) -> Result<Self, ConfigError> {
        let refuse = |why: String| ConfigError::Flag {
            flag,
            value: text.to_owned(),
            why: format!("{why}; expected HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH"),
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(refuse("no path".to_owned())) } else { Ok(Self::Unix(path.into())) };
        }
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        let mut found = full.to_socket_addrs().map_err(|error| refuse(error.to_string()))?;
        found.next().map(Self::Tcp).ok_or_else(|| refuse("the host has no address".to_owned()))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 100ms, 5s or 1m"))
}
