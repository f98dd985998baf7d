//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use trtllm_sim::Config;
use trtllm_sim::config::{CacheManager, Era, Release};
use trtllm_sim::options::{Host, Options};

use crate::world::{Part, World};

/// A simulated trtllm-serve. It prints its address when it listens.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// Engine, as in `trtllm-exporter --source`: sim:?key=value&key=value
    #[arg(value_name = "SIM", default_value = "sim:")]
    pub(crate) engine: String,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// Name of the model at /v1/models
    #[arg(long, default_value = "simulated")]
    pub(crate) model: String,
    /// Version of the model, for the exporter that --socket publishes to
    #[arg(long)]
    pub(crate) model_version: Option<String>,
    /// Backend that writes the records
    #[arg(long)]
    backend: Option<Backend>,
    /// Release that writes the records: 0.9 to 1.2, or 1.3.0rc1 to rc20, with tensorrt; with pytorch 0.20, 1.0 to 1.2, 1.3, or 1.4
    /// for the loop without C++. Since 1.3.0rc24, a release lacks /perf_metrics
    #[arg(long)]
    release: Option<String>,
    /// Records, and finished requests, that wait for a reader; the oldest are dropped
    #[arg(long, default_value_t = 1000)]
    pub(crate) ring: usize,
    /// Serve /prometheus/metrics (return_perf_metrics)
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Report no finished requests (perf_metrics_max_requests: 0)
    #[arg(long)]
    no_perf_metrics: bool,
    /// Report when each token of a request was computed, and how long the GPU took (time_breakdown_metrics)
    #[arg(long)]
    step_times: bool,
    /// Append finished requests to a file in this directory (perf_metrics_output_dir), as releases without /perf_metrics
    #[arg(long, value_name = "DIR")]
    pub(crate) perf_metrics_dir: Option<PathBuf>,
    /// Append the iteration log to this file (print_iter_log), as if the output of the server went there
    #[arg(long, value_name = "FILE", conflicts_with = "disaggregated")]
    pub(crate) iteration_log: Option<PathBuf>,
    /// Frontends that share the port, each with its own connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) frontends: u16,
    /// What the frontends share
    #[arg(long, default_value = "own")]
    pub(crate) frontend_mode: FrontendMode,
    /// Show one server of a disaggregated deployment. SIM has the load and the context server; the other servers are
    /// processes with the same SIM, --generation and --start
    #[arg(long, value_name = "SERVER", requires = "start", conflicts_with = "no_perf_metrics")]
    pub(crate) disaggregated: Option<Part>,
    /// Generation server of the deployment, as SIM; its load is not used
    #[arg(long, value_name = "SIM", requires = "disaggregated")]
    pub(crate) generation: Option<String>,
    /// Unix time in seconds at which the simulation starts; default: now
    #[arg(long, value_name = "SECONDS")]
    pub(crate) start: Option<f64>,
    /// Also publish to this socket of an exporter (`--source socket:PATH`)
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Tensorrt,
    Pytorch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontendMode {
    /// Each has a page of its own, and takes the engine's records when one of its requests ends
    Own,
    /// As own, but the first one answers all requests for records (TensorRT-LLM #19394)
    Forwarded,
    /// As forwarded, and each page has the sums of all (PROMETHEUS_MULTIPROC_DIR)
    Multiproc,
}

/// What is simulated, and how fast.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) options: Options,
    pub(crate) config: Config,
    /// The version that `/version` returns.
    pub(crate) version: String,
}

impl Arguments {
    /// Whether this release serves `/perf_metrics`. Since 1.3.0rc24, files replace it (upstream 16668).
    pub(crate) fn has_perf_metrics(&self) -> bool {
        self.perf_metrics_dir.is_none() && !self.release.as_deref().is_some_and(writes_files)
    }

    pub(crate) fn is_orchestrator(&self) -> bool {
        self.disaggregated == Some(Part::Orchestrator)
    }

    /// Creates what is simulated. `engine` is that of SIM.
    pub(crate) fn world(&self, engine: &Simulated) -> Result<World, String> {
        let (config, seed) = (engine.config.clone(), engine.options.seed);
        let Some(part) = self.disaggregated else { return Ok(World::engine(config, seed)) };
        if config.release.is_cpp() {
            return Err("--disaggregated needs --backend pytorch".to_owned());
        }
        let generation = self.simulated(self.generation.as_deref().unwrap_or(&self.engine))?;
        Ok(World::deployment(config, generation.config, seed, part))
    }

    /// The engine of `sim:?key=value`.
    pub(crate) fn simulated(&self, engine: &str) -> Result<Simulated, String> {
        let options = Options::parse(engine)?;
        if options.speed.is_infinite() {
            return Err("speed=max has no time at which a server could answer; use a number".to_owned());
        }
        if let Some(release) = self.release.as_deref().filter(|_| self.perf_metrics_dir.is_some())
            && !writes_files(release)
        {
            return Err(format!(
                "--perf-metrics-dir: release {release} has no perf_metrics_output_dir; it is in 1.3.0rc24 and later"
            ));
        }
        let chosen = match (self.backend, &self.release) {
            (None, None) => None,
            (backend, release) => Some(release_of(backend.unwrap_or(Backend::Pytorch), release.as_deref())?),
        };
        let default = Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 };
        let mut config = options.config(&Host { release: chosen.unwrap_or(default), rows: false, ..Host::default() });
        config.release = chosen.unwrap_or(config.release);
        if self.iteration_log.is_some() && config.release.is_cpp() {
            return Err("--iteration-log needs --backend pytorch".to_owned());
        }
        config.statistics.entries = !self.no_perf_metrics;
        config.statistics.steps = self.step_times;
        config.statistics.unanswered = self.socket.is_some();
        let version = match (&self.release, config.release) {
            (Some(release), _) => release.clone(),
            (None, Release::Cpp { major, minor }) => format!("{major}.{minor}.0"),
            (None, Release::PyTorch { era, .. }) => match era {
                Era::Early => "0.20.0",
                Era::One => "1.1.0",
                Era::Ranks => "1.3.0rc8",
                Era::Frames => "1.4.0",
            }
            .to_owned(),
        };
        Ok(Simulated { options, config, version })
    }
}

/// 24 of `1.3.0rc24`.
fn candidate(release: &str) -> Option<u32> {
    release.split_once("rc")?.1.parse().ok()
}

/// Whether a release writes its finished requests into files: 1.3.0rc24 and later.
fn writes_files(release: &str) -> bool {
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    match (numbers.next(), numbers.next()) {
        (Some(1), Some(3)) => candidate(release).is_some_and(|number| number >= 24),
        (Some(major), Some(minor)) => (major, minor) > (1, 3),
        _ => false,
    }
}

fn release_of(backend: Backend, text: Option<&str>) -> Result<Release, String> {
    let text = text.unwrap_or(if backend == Backend::Tensorrt { "1.1" } else { "1.4" });
    let mut parts = text.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return Err(format!("--release {text}: use a release like 1.2 or 1.3.0rc8"));
    };
    match (backend, (major, minor)) {
        (Backend::Tensorrt, (0, 9..) | (1, ..=2)) => Ok(Release::Cpp { major, minor }),
        (Backend::Tensorrt, (1, 3)) if candidate(text).is_some_and(|candidate| candidate <= 20) => {
            Ok(Release::Cpp { major, minor })
        }
        (Backend::Tensorrt, _) => Err(format!("--release {text}: the TensorRT backend is in 0.9 to 1.3.0rc20")),
        (Backend::Pytorch, (0, _)) => Ok(Release::PyTorch { era: Era::Early, cache: CacheManager::V1 }),
        (Backend::Pytorch, (1, ..=2)) => Ok(Release::PyTorch { era: Era::One, cache: CacheManager::V1 }),
        (Backend::Pytorch, (1, 3)) => Ok(Release::PyTorch { era: Era::Ranks, cache: CacheManager::V1 }),
        (Backend::Pytorch, _) => Ok(Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 }),
    }
}
