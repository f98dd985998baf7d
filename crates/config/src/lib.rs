//! What the two programs, `trtllm-exporter` and `trtllm-doctor`, share: the configured engines, from flags or from a file, and
//! [`command_line`]. It reads only that file and the files that it names.
#![forbid(unsafe_code)]

pub mod command_line;
mod engines;
mod entry;
mod file;
mod forms;
mod gpus;
mod hosted;
mod nearest;
mod options;
mod secrets;
mod source;
mod syntax;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trtllm_engines::EngineOrigin;
use trtllm_records::{BenchReport, EngineName, Objectives};
use trtllm_service::small_file;
use trtllm_sources::bench_report;

use entry::{Entry, Origin};

pub use forms::FORMS;
pub use secrets::{hide_secrets, hide_secrets_of_url};
pub use source::{SourceSpec, server_key};

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
        let name = EngineName {
            model: DEFAULT_MODEL.to_owned(),
            version: DEFAULT_VERSION.to_owned(),
            labels: Vec::new(),
            source: "socket",
            objectives,
        };
        Self {
            name,
            source: SourceSpec::Socket(path.to_owned()),
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
        EngineOrigin { gpus: self.gpus.clone(), is_own_process, port, pod: None }
    }
}

/// The port of a server, if it runs on this host: 8000 of `http://127.0.0.1:8000/base`.
#[must_use]
pub fn local_port(target: &str) -> Option<u16> {
    let authority = target.split_once("://")?.1.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    matches!(host, "localhost" | "127.0.0.1" | "[::1]").then(|| port.parse().ok())?
}

/// An invalid configuration. The text names the flag or key and the remedy. It hides what may be secret in a URL.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{at}: {}", hide_secrets(why))]
    Engine { at: String, why: String },
    #[error("--config.file {}: {}", path.display(), hide_secrets(cause))]
    File { path: PathBuf, cause: String },
    #[error("cannot read the recording {path}: {why}")]
    Recording { path: PathBuf, why: String },
    /// A command cannot write its output. All other variants are mistakes in the configuration.
    #[error("{0}")]
    Output(String),
    #[error("{flag} {}: {}", hide_secrets_of_url(value), hide_secrets(why))]
    Flag { flag: &'static str, value: String, why: String },
    /// Any other mistake, with its remedy.
    #[error("{0}")]
    Other(String),
}

impl ConfigError {
    /// A flag or an argument with an invalid value.
    #[must_use]
    pub fn flag(flag: &'static str, value: impl Display, why: impl Into<String>) -> Self {
        Self::Flag { flag, value: value.to_string(), why: why.into() }
    }

    /// The exit code of a program that ends with this error: 2 for a mistake, 1 if an output cannot be written.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        if matches!(self, Self::Output(_)) { 1 } else { 2 }
    }
}

/// The price of a GPU for an hour: a number above 0. The error says what to write.
pub fn gpu_hour_cost(text: &str) -> Result<f64, String> {
    let cost = text.parse().ok().filter(|cost: &f64| *cost > 0.0 && *cost <= 1e6);
    cost.ok_or_else(|| format!("{text:?} is not the price of a GPU for an hour; write a number above 0, as in 2.5"))
}

/// Reads and checks `--config.file`, or returns its first mistake.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    let failed = |cause| ConfigError::File { path: path.to_owned(), cause };
    let bytes = small_file::read(path)
        .map_err(|error| failed(format!("cannot read the file: {error}; check the path and its permissions")))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(format!("the file is not UTF-8: {error}; save it as UTF-8")))?;
    engines::check(file::entries(path, &text)?, "keys model and version")
}

/// The engines of `--source`, or the first mistake in them. `models` and `versions` have one value for all engines, or one per engine
/// in the same order. All engines have the same objectives.
pub fn from_flags(
    sources: &[String],
    models: &[String],
    versions: &[String],
    objectives: Objectives,
) -> Result<Vec<EngineConfig>, ConfigError> {
    for (flag, names) in [("--model", models), ("--model-version", versions)] {
        let (values, flags) = (names.len(), sources.len());
        if values > 1 && values != flags {
            let why = format!("{values} values for {flags} --source flags; use one for all or one per --source");
            return Err(ConfigError::flag(flag, names.join(", "), why));
        }
    }
    let given = |names: &[String], index: usize| names.get(index).or(names.first()).cloned();
    let entries = sources.iter().enumerate().map(|(index, source)| {
        (Origin::flag(source), Entry::of_flags(source.clone(), given(models, index), given(versions, index)))
    });
    let mut engines = engines::check(entries.collect(), "one --model per --source, or --config.file")?;
    for engine in &mut engines {
        engine.name.objectives = objectives;
    }
    Ok(engines)
}

/// Reads the report of a benchmark. The error has the reason and the remedy.
pub fn read_bench_report(path: &Path) -> Result<Arc<BenchReport>, String> {
    let report = bench_report::read(path);
    report.map(Arc::new).map_err(|error| format!("{error}; name the file that trtllm-bench wrote for --report_json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_server_on_this_host_is_known() {
        assert_eq!(local_port("http://127.0.0.1:8000"), Some(8000));
        assert_eq!(local_port("https://localhost:443/base"), Some(443));
        assert_eq!(local_port("http://[::1]:8000"), Some(8000));
        for elsewhere in ["http://llama-0:8000", "http://10.0.0.1:8000", "http://localhost", "localhost:1"] {
            assert_eq!(local_port(elsewhere), None, "{elsewhere}");
        }
    }

    fn read(text: &str) -> Result<Vec<EngineConfig>, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    }

    #[test]
    fn any_number_of_engines_may_share_the_keys_of_one() {
        let entry = |number| format!("- <<: *base\n  source: socket:{number}\n  model: m{number}\n");
        let others: String = (1..200).map(entry).collect();
        let base = "- &base\n  source: socket:0\n  model: m0\n  version: 1.0\n  labels: {team: search}\n";
        let engines = read(&format!("engines:\n{base}{others}")).unwrap();
        assert_eq!(engines.len(), 200);
        for (number, EngineConfig { name, .. }) in engines.iter().enumerate() {
            assert_eq!((name.model.as_str(), name.version.as_str()), (format!("m{number}").as_str(), "1.0"));
            assert_eq!(name.labels, [("team".to_owned(), "search".to_owned())]);
        }
    }

    #[test]
    fn a_file_cannot_fill_the_memory() {
        let levels: String = (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let gpus = |text: &str| format!("engines:\n- source: socket:a\n  model: a\n  gpus: {text}\n");
        for text in [format!("- &a0 x\n{levels}"), gpus(&format!("[{}]", "a, ".repeat(200_000))), gpus("&a [*a]")] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains("; "), "{error}");
        }
    }
}
