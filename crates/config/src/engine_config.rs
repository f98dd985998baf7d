//! One source as configured.

use std::path::Path;
use std::sync::Arc;

use trtllm_engines::EngineOrigin;
use trtllm_records::{BenchReport, EngineName, Objectives};
use trtllm_sources::bench_report;

use super::source::SourceSpec;

/// The labels of an engine without a configured model or version.
pub const DEFAULT_MODEL: &str = "tensorrt_llm";
pub const DEFAULT_VERSION: &str = "1";
/// The label `model` of an orchestrator, which has no model of its own.
pub const ORCHESTRATOR_MODEL: &str = "disaggregated";

/// A configured source, and what is configured for its engine or engines.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    pub name: EngineName,
    pub source: SourceSpec,
    /// The source as it was given.
    pub url: String,
    /// True if the source names its engines itself: an ingest socket without a configured model and version, `auto` or `kubernetes:`.
    /// Then model and version in `name` are not used.
    pub names_its_engines: bool,
    /// True for the default ingest socket, which is used if no source is configured.
    pub is_default: bool,
    /// UUIDs of the engine's GPUs. Empty if they are not configured.
    pub gpus: Vec<String>,
    /// The benchmark with which the engine is compared.
    pub bench_report: Option<Arc<BenchReport>>,
    /// The price of a GPU for an hour, in any currency.
    pub gpu_hour_cost: Option<f64>,
}

impl EngineConfig {
    /// The ingest socket at `path`, to which any engine may publish.
    #[must_use]
    pub fn default_socket(path: &Path, objectives: Objectives) -> Self {
        Self {
            name: EngineName { objectives, ..EngineName::new(DEFAULT_MODEL, DEFAULT_VERSION, "socket") },
            source: SourceSpec::Socket(path.to_owned()),
            url: format!("socket:{}", path.display()),
            names_its_engines: true,
            is_default: true,
            gpus: Vec::new(),
            bench_report: None,
            gpu_hour_cost: None,
        }
    }

    /// Where the engine runs.
    #[must_use]
    pub fn origin(&self) -> EngineOrigin {
        let (is_own_process, port) = match &self.source {
            SourceSpec::TrtllmServe { access, .. } => (false, local_port(&access.target)),
            SourceSpec::Simulated(_) | SourceSpec::Executor(_) => (true, None),
            _ => (false, None),
        };
        EngineOrigin { gpus: self.gpus.clone(), is_own_process, port, ..EngineOrigin::default() }
    }
}

/// The port of a server, if it runs on this host: 8000 of `http://127.0.0.1:8000/base`.
#[must_use]
pub fn local_port(target: &str) -> Option<u16> {
    let authority = target.split_once("://")?.1.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    matches!(host, "localhost" | "127.0.0.1" | "[::1]").then(|| port.parse().ok())?
}

/// The price of a GPU for an hour: a number above 0. The error says what to write.
pub fn gpu_hour_cost(text: &str) -> Result<f64, String> {
    let cost = text.parse().ok().filter(|cost: &f64| *cost > 0.0 && *cost <= 1e6);
    cost.ok_or_else(|| format!("{text:?} is not the price of a GPU for an hour; write a number above 0, as in 2.5"))
}

/// Reads the report of a benchmark. The error has the reason and the remedy.
pub fn read_bench_report(path: &Path) -> Result<Arc<BenchReport>, String> {
    let report = bench_report::read(path);
    report.map(Arc::new).map_err(|error| format!("{error}; name the file that trtllm-bench wrote for --report_json"))
}
