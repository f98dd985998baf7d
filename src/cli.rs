//! The command line as typed. Each flag can also be set by the environment variable
//! `TRTLLM_EXPORTER_<FLAG>` ([`command`]).

mod limits;
mod parsing;
mod size;
mod variables;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use trtllm_config::command_line::Shell;
use trtllm_config::{self as config, ConfigError, EngineConfig, SourceSpec};
use trtllm_gpu::GpuMode;
use trtllm_http::listen::Address;
use trtllm_http::router::{AllowedHost, TelemetryPath};
use trtllm_http::server::MAX_REQUESTS;
use trtllm_page::build;
use trtllm_page::metrics::catalog::Profile;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_recording::recorder::RecorderConfig;
use trtllm_records::{BenchReport, Objectives};
use trtllm_service::log::LogFormat;

pub use variables::command;

/// The default ingest socket.
pub const DEFAULT_SOCKET: &str = "/run/trtllm-exporter/ingest.sock";

/// A value of --metrics.compat, and the set of families that it adds.
type CompatSet = (&'static str, fn(&mut CompatSets) -> &mut bool);

const COMPAT_SETS: [CompatSet; 5] = [
    ("trtllm", |sets| &mut sets.trtllm),
    ("vllm", |sets| &mut sets.vllm),
    ("triton-core", |sets| &mut sets.triton_core),
    ("dcgm", |sets| &mut sets.dcgm),
    ("spec", |sets| &mut sets.spec),
];

/// Prometheus exporter for NVIDIA TensorRT-LLM engines and their GPUs.
#[derive(Debug, Parser)]
#[command(name = "trtllm-exporter", version = build::LINE, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

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

    /// Interval between polls of a source. An idle engine is polled half as often if that is at most 200ms
    #[arg(long = "poll.interval", value_name = "D", default_value = "100ms", value_parser = duration, allow_hyphen_values = true)]
    pub poll_interval: Duration,

    /// Timeout of a poll
    #[arg(long = "poll.timeout", value_name = "D", default_value = "5s", value_parser = duration, allow_hyphen_values = true)]
    pub poll_timeout: Duration,

    /// Time without news after which an engine is stale and its load gauges are withdrawn
    #[arg(long = "stale-after", value_name = "D", default_value = "15s", value_parser = duration, allow_hyphen_values = true)]
    pub stale_after: Duration,

    /// GPU metrics: off, auto (a missing driver is not an error) or required
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = one_of(GpuMode::ALL.map(|mode| (mode.name(), mode))))]
    pub gpu: GpuMode,

    /// NVML library to load instead of searching for it
    #[arg(long = "gpu.library", value_name = "PATH")]
    pub gpu_library: Option<PathBuf>,

    /// Interval between polls of a GPU, at least 100ms
    #[arg(long = "gpu.interval", value_name = "D", default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    pub gpu_interval: Duration,

    /// Export only these GPUs (repeatable). Default: all
    #[arg(long = "gpu.uuid", value_name = "UUID", value_delimiter = ',')]
    pub gpu_uuid: Vec<String>,

    /// Export GPU memory and utilization per process; costs the driver some milliseconds per GPU and poll
    #[arg(long = "gpu.processes")]
    pub gpu_processes: bool,

    /// Socket of the kubelet's PodResources API, for the containers of each GPU. It may be missing; --gpu.pod-resources= disables it
    #[arg(
        long = "gpu.pod-resources",
        value_name = "PATH",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pub gpu_pod_resources: std::ffi::OsString,

    /// Families on the metrics page: full, or default (what the alerts, dashboards and autoscalers that come with the exporter read, a
    /// third of the series of an engine), as the Helm chart sets it
    #[arg(
        long = "metrics.profile",
        value_name = "PROFILE",
        default_value = "full",
        value_parser = one_of(Profile::ALL.map(|profile| (profile.name(), profile)))
    )]
    pub profile: Profile,

    /// Additional metric names of other exporters: trtllm (trtllm-serve), vllm (vllm:*), triton-core (nv_inference_*), dcgm (DCGM_FI_*), spec
    #[arg(long = "metrics.compat", value_name = "LIST", value_delimiter = ',', value_parser = COMPAT_SETS.map(|(name, _)| name))]
    pub compat: Vec<String>,

    /// User id that may publish to ingest sockets (repeatable). Default: everybody who may open the socket
    #[arg(long = "ingest.allow-uid", value_name = "UID", value_parser = integer::<u32>, value_delimiter = ',')]
    pub allow_uid: Vec<u32>,

    /// Time to keep an engine's series after its last publisher has left, or auto or kubernetes: last found it. Below 24h, its
    /// alerts end early
    #[arg(long = "engine.forget-after", value_name = "D", default_value = "25h", value_parser = duration, allow_hyphen_values = true)]
    pub forget_after: Duration,

    /// Directory of the flight recorder, which keeps the last records of every engine on disk. Default: nothing is recorded
    #[arg(long = "record.dir", value_name = "DIR", value_parser = path_or_empty())]
    pub record_dir: Option<PathBuf>,

    /// Size of all files of the flight recorder together, at least 4MiB. The oldest are deleted first. The default keeps a day of one
    /// busy engine
    #[arg(long = "record.max-size", value_name = "SIZE", default_value = "2GiB", value_parser = size::size, allow_hyphen_values = true)]
    pub record_max_size: u64,

    /// Age after which the files of the flight recorder are deleted. Default: only their size counts
    #[arg(long = "record.max-age", value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub record_max_age: Option<Duration>,

    /// Log level: error, warn, info, debug or trace
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: tracing::Level,

    /// Print the sources, the listen addresses and the files that would be used, and exit. Checks as check-config does
    #[arg(long = "dry-run")]
    pub dry_run: bool,

    /// Log format: logfmt or json
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt", value_parser = one_of(LogFormat::ALL))]
    pub log_format: LogFormat,
}

/// A command to run instead of the exporter.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a --config.file and the files it names, as a start with it does, and print its engines
    CheckConfig { file: PathBuf },
    /// Write a commented configuration with the engines that are found now, as --source auto finds them
    Init(InitArgs),
    /// Print all metrics with type, unit, labels, help and origin
    Catalog {
        #[arg(long, value_name = "FORMAT", default_value = "markdown")]
        format: CatalogFormat,
        /// Print the scenarios of the simulated engine instead, for --source sim:?scenario=NAME
        #[arg(long)]
        scenarios: bool,
        /// Print the answers of the drills, too
        #[arg(long, requires = "scenarios")]
        answers: bool,
    },
    /// Print the manual page in roff format
    Man,
    /// Print the completions of a shell
    Completions { shell: Shell },
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// File to write. It must not exist. Default: the configuration is printed
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Ports of this host to ask for a trtllm-serve (repeatable), beside those that its processes name
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_value = "8000")]
    pub ports: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    Markdown,
    Json,
}

impl Cli {
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

    /// The sets of additional metric names that --metrics.compat selects.
    #[must_use]
    pub fn compat_sets(&self) -> CompatSets {
        let mut sets = CompatSets::default();
        for (name, set) in COMPAT_SETS {
            *set(&mut sets) = self.compat.iter().any(|selected| selected == name);
        }
        sets
    }

    /// The addresses of --web.health-address. Fails if one is invalid.
    pub fn health_addresses(&self) -> Result<Vec<Address>, ConfigError> {
        // Helm charts pass an empty value for a flag that is not set.
        let given = self.health_address.iter().filter(|text| !text.is_empty());
        let invalid = |text, why: String| ConfigError::flag("--web.health-address", text, why);
        given.map(|text| text.parse().map_err(|why| invalid(text, why))).collect()
    }

    /// The settings of the flight recorder. `None` without --record.dir.
    #[must_use]
    pub fn recorder(&self) -> Option<RecorderConfig> {
        let directory = self.record_dir.clone()?;
        Some(RecorderConfig {
            directory,
            max_size: self.record_max_size,
            max_age: self.record_max_age,
            stale_after: self.stale_after,
        })
    }
}

/// Reads and checks `--config.file`, or returns its first mistake. A start, a reload and check-config accept the same
/// files, because all three call this.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    reject_executor_if_not_built(config::read_file(path)?)
}

/// The same engines. Fails if this program is built without the Executor, and one of them needs it.
fn reject_executor_if_not_built(engines: Vec<EngineConfig>) -> Result<Vec<EngineConfig>, ConfigError> {
    let executor_directory = |engine: &EngineConfig| match &engine.source {
        SourceSpec::Executor(hosting) => Some(hosting.engine.clone()),
        _ => None,
    };
    match engines.iter().find_map(executor_directory).filter(|_| !cfg!(feature = "executor")) {
        Some(directory) => Err(ConfigError::Other(format!(
            "executor:{directory}: this build has no Executor; build it with the feature \"executor\""
        ))),
        None => Ok(engines),
    }
}

/// Parses one of the values by its name.
fn one_of<T, const N: usize>(all: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.each_ref().map(|(name, _)| *name));
    names.try_map(move |text| match all.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(value.clone()),
        None => Err("unknown value"),
    })
}

/// Parses a path. Unlike clap's own parser, it accepts an empty value, which counts as not given.
fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Helm charts pass an empty value for a flag that is not set.
fn objectives(text: &str) -> Result<Objectives, String> {
    if text.is_empty() { Ok(Objectives::default()) } else { text.parse() }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "this is not a duration; write 100ms, 5s or 1m".to_owned())
}

fn integer<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "this is not a whole number; write a number such as 1000".to_owned())
}

fn log_level(text: &str) -> Result<tracing::Level, String> {
    text.parse().map_err(|_| "unknown level; use one of error, warn, info, debug, trace".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_form_of_a_source_is_in_the_help() {
        let command = super::command();
        let source = command.get_arguments().find(|argument| argument.get_id() == "source").unwrap();
        let help = source.get_help().unwrap().to_string();
        for form in trtllm_config::FORMS {
            let scheme = form.split_inclusive(':').next().unwrap();
            assert!(help.contains(scheme), "{scheme} is missing in the help of --source");
        }
    }

    /// An engine that leaves the page of a running exporter ends its alerts, which last for a day.
    #[test]
    fn an_engine_stays_on_the_page_for_longer_than_its_alerts_last() {
        let cli = <super::Cli as clap::Parser>::parse_from(["trtllm-exporter"]);
        let rules = include_str!("../deploy/prometheus/alerts.yml");
        assert!(rules.contains("> time() - 86400\n") && cli.forget_after.as_secs() > 86400);
    }
}
