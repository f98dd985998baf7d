//! The engines to watch, from flags or a file, parsed and checked. The only I/O is reading the file and the files it names.

mod gpus;
#[cfg(feature = "executor")]
mod hosted;
mod options;
mod secrets;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::Spanned;

use trtllm_model::{BenchReport, EngineName, Objectives};
use trtllm_page::metrics::catalog::{CATALOG, Metric};
use trtllm_page::state::EngineOrigin;
use trtllm_service::small_file;
#[cfg(feature = "executor")]
use trtllm_sources::executor::{self, hosting::Hosting};
use trtllm_sources::perf_metrics_dir::LinesDir;
use trtllm_sources::replay::Replay;
use trtllm_sources::{OpenError, bench_report, socket};

pub use secrets::hide_user_info;
pub use source::SourceSpec;

/// Labels of an engine without configured ones.
pub const DEFAULT_MODEL: &str = "tensorrt_llm";
pub const DEFAULT_VERSION: &str = "1";

/// A source and its engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    pub name: EngineName,
    pub source: SourceSpec,
    /// The engines have names of their own: those of publishers on an ingest socket without a configured model and version, and
    /// those that are found. Of `name`, only the labels count.
    pub names_its_engines: bool,
    /// Nobody has configured it.
    pub is_default: bool,
    /// UUIDs of the GPUs that serve it. Empty if they are not configured.
    pub gpus: Vec<String>,
    /// To compare it with.
    pub bench_report: Option<Arc<BenchReport>>,
}

impl EngineConfig {
    /// Any engine may publish to the socket at `path`.
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
        }
    }
}

impl EngineConfig {
    /// Where the engine runs.
    #[must_use]
    pub fn origin(&self) -> EngineOrigin {
        let (is_own_process, port) = match &self.source {
            SourceSpec::TrtllmServe { access, .. } => (false, local_port(&access.target)),
            SourceSpec::Simulated(_) => (true, None),
            #[cfg(feature = "executor")]
            SourceSpec::Executor(_) => (true, None),
            _ => (false, None),
        };
        EngineOrigin { gpus: self.gpus.clone(), is_own_process, port }
    }
}

/// The port of a server on this host: `http://127.0.0.1:8000/base`.
#[must_use]
pub fn local_port(target: &str) -> Option<u16> {
    let authority = target.split_once("://")?.1.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    matches!(host, "localhost" | "127.0.0.1" | "[::1]").then(|| port.parse().ok())?
}

/// An invalid configuration; the text names the flag or key and the remedy. It repeats no user and password of a URL.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{at}: {}", hide_user_info(why))]
    Engine { at: String, why: String },
    #[error("--config.file {}: {}", path.display(), hide_user_info(cause))]
    File { path: PathBuf, cause: String },
    #[error("cannot read the recording {path}: {why}")]
    Recording { path: PathBuf, why: String },
    #[error("{flag} {}: {}", hide_user_info(value), hide_user_info(why))]
    Flag { flag: &'static str, value: String, why: String },
}

/// `--config.file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    engines: Vec<Spanned<Entry>>,
}

/// One engine as configured.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    source: String,
    model: Option<String>,
    version: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    objectives: BTreeMap<String, String>,
    gpus: Option<Vec<String>>,
    bench_report: Option<PathBuf>,
}

/// Reads `--config.file`. The daemon, a reload and check-config accept the same files, because all three call this.
///
/// # Errors
/// When the file cannot be read, is malformed, or an engine in it is invalid or cannot be opened.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    let failed = |cause| ConfigError::File { path: path.to_owned(), cause };
    let unreadable = |error| failed(format!("cannot read the file: {error}; check the path and its permissions"));
    let text = String::from_utf8(small_file::read(path).map_err(unreadable)?)
        .map_err(|error| failed(format!("the file is not UTF-8: {error}; save it as UTF-8")))?;
    // The parser's message spans several lines; ours is one line.
    let one_line = |text: String| {
        let hint = if text.contains("mapping values") {
            "; put a value that ends in a colon in quotes, as in source: \"sim:\""
        } else {
            ""
        };
        text.lines().collect::<Vec<_>>().join(" ") + hint
    };
    let file: File =
        serde_saphyr::from_str(&text).map_err(|error| failed(one_line(error.without_snippet().to_string())))?;
    if file.engines.is_empty() {
        return Err(failed("engines is empty; remove --config.file to serve GPU metrics only".to_owned()));
    }
    let place = |index, line| format!("{} line {line}, engines[{index}]", path.display());
    let entries = file.engines.into_iter().enumerate();
    let entries = entries.map(|(index, entry)| (place(index, entry.defined.line()), entry.value));
    engines(entries, "keys model and version", can_be_opened)
}

/// The engines of `--source`, with the labels of `--model` and `--model-version`: one value for all engines, or one per engine
/// in the same order. All have the same objectives.
///
/// # Errors
/// When a source is invalid or two engines have the same labels.
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
            return Err(ConfigError::Flag { flag, value: names.join(", "), why });
        }
    }
    let value = |names: &[String], index: usize| names.get(index).or(names.first()).cloned();
    let entries = sources.iter().enumerate().map(|(index, source)| {
        let (model, version) = (value(models, index), value(versions, index));
        let entry = Entry { source: source.clone(), model, version, ..Entry::default() };
        ("--source".to_owned(), entry)
    });
    // The sources are opened right after this anyway.
    let mut engines = engines(entries, "one --model per --source, or --config.file", |_| Ok(()))?;
    for engine in &mut engines {
        engine.name.objectives = objectives;
    }
    Ok(engines)
}

/// Checks each entry, named by its place, and that no two share a name, a socket or a server. `check` is the last check of
/// each source, once all of them are valid.
fn engines(
    entries: impl Iterator<Item = (String, Entry)>,
    remedy: &str,
    check: fn(&SourceSpec) -> Result<(), String>,
) -> Result<Vec<EngineConfig>, ConfigError> {
    let (mut names, mut sockets, mut servers) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut engines, mut has_auto, mut taken) = (Vec::new(), false, gpus::Taken::new());
    let mut places = Vec::new();
    for (place, entry) in entries {
        let at = format!("{place} {:?}", hide_user_info(&entry.source));
        let invalid = |why| ConfigError::Engine { at: at.clone(), why };
        let engine = engine(entry).map_err(invalid)?;
        let EngineName { model, version, .. } = &engine.name;
        if !engine.names_its_engines && !names.insert((model.clone(), version.clone())) {
            return Err(invalid(format!(
                "duplicate engine with model {model:?} and version {version:?}; \
                 give each engine its own model or version ({remedy})"
            )));
        }
        if let SourceSpec::Socket(path) = &engine.source
            && !sockets.insert(path.clone())
        {
            return Err(invalid(
                "this ingest socket is used by another engine; give each engine its own path".to_owned(),
            ));
        }
        if let SourceSpec::TrtllmServe { access, .. } | SourceSpec::Orchestrator(access) = &engine.source
            && !servers.insert(access.target.clone())
        {
            let why = match engine.source {
                SourceSpec::Orchestrator(_) => "an address is that of one server",
                _ => "two readers would take each other's records",
            };
            return Err(invalid(format!("this server is read by another engine; {why}. Remove one of them")));
        }
        if matches!(engine.source, SourceSpec::Auto { .. }) && std::mem::replace(&mut has_auto, true) {
            return Err(invalid("auto is given twice; remove one of them".to_owned()));
        }
        gpus::take(&engine.gpus, &engine.name, &mut taken).map_err(invalid)?;
        engines.push(engine);
        places.push(at);
    }
    for (engine, at) in engines.iter().zip(places) {
        check(&engine.source).map_err(|why| ConfigError::Engine { at, why })?;
    }
    Ok(engines)
}

/// Checks what opening the source would find out without a server, a model or a GPU.
fn can_be_opened(source: &SourceSpec) -> Result<(), String> {
    let checked = match source {
        #[cfg(feature = "executor")]
        SourceSpec::Simulated(engine) => executor::check(&Hosting::plain(engine.clone())),
        #[cfg(feature = "executor")]
        SourceSpec::Executor(hosting) => executor::check(hosting),
        #[cfg(not(feature = "executor"))]
        SourceSpec::Simulated(engine) => Err(OpenError::no_executor(engine.clone())),
        SourceSpec::TrtllmServe { access, extras } => {
            access.check().and_then(|()| extras.lines.as_ref().map_or(Ok(()), LinesDir::check))
        }
        SourceSpec::Orchestrator(access) => access.check(),
        SourceSpec::PerfMetrics(dir) => dir.check(),
        SourceSpec::Socket(path) => socket::check(path),
        SourceSpec::Replay { path, engine, pace } => Replay::check(path, engine.as_deref(), *pace),
        SourceSpec::Auto { .. } => Ok(()),
    };
    checked.map_err(|error| match error {
        // The place names the engine.
        OpenError::Engine { cause, .. } => cause,
        error => error.to_string(),
    })
}

fn engine(entry: Entry) -> Result<EngineConfig, String> {
    let Entry { source, model, version, labels, objectives, gpus, bench_report } = entry;
    let source: SourceSpec = source.parse()?;
    let or_default = |value: Option<String>, key, default: &str| match value {
        Some(value) if value.is_empty() => Err(format!("{key} must not be empty; remove it to use the default")),
        value => Ok(value.unwrap_or_else(|| default.to_owned())),
    };
    for name in labels.keys() {
        check_label(name)?;
    }
    let has_name = model.is_some() || version.is_some();
    let names_its_engines = match source {
        SourceSpec::Auto { .. } if has_name => {
            return Err("auto finds the models and their names itself; remove model and version".to_owned());
        }
        SourceSpec::Auto { .. } => true,
        SourceSpec::Socket(_) => !has_name,
        _ => false,
    };
    let name = EngineName {
        model: or_default(model, "model", DEFAULT_MODEL)?,
        version: or_default(version, "version", DEFAULT_VERSION)?,
        labels: labels.into_iter().collect(),
        source: source.kind(),
        objectives: Objectives::from_times(&objectives)?,
    };
    let gpus = gpus.map(|gpus| gpus::parse(&gpus, names_its_engines)).transpose()?.unwrap_or_default();
    let named = |path: &PathBuf, why| format!("bench_report {}: {why}", path.display());
    let report = |path: PathBuf| read_bench_report(&path).map_err(|why| named(&path, why));
    let bench_report = bench_report.map(report).transpose()?;
    Ok(EngineConfig { name, source, names_its_engines, is_default: false, gpus, bench_report })
}

/// The report of a benchmark. The error has the reason and the remedy.
///
/// # Errors
/// If the file cannot be read or is not a report.
pub fn read_bench_report(path: &Path) -> Result<Arc<BenchReport>, String> {
    let report = bench_report::read(path);
    report.map(Arc::new).map_err(|error| format!("{error}; name the file that trtllm-bench wrote for --report_json"))
}

fn check_label(name: &str) -> Result<(), String> {
    let valid =
        |(index, byte): (usize, u8)| byte == b'_' || byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit());
    if name.is_empty() || !name.bytes().enumerate().all(valid) {
        return Err(format!("label {name:?} is not a valid label name; use letters, digits and _"));
    }
    // Labels of GPU series are free: an engine may have the labels pod and namespace.
    let of_gpus = |metric: &&Metric| metric.labels.contains(&"gpu_uuid") || metric.labels.contains(&"UUID");
    let ours = CATALOG
        .iter()
        .filter(|metric| !of_gpus(metric))
        .any(|metric| metric.labels.contains(&name) || metric.variant.is_some_and(|variant| variant.label == name));
    if ours || name.starts_with("__") || ["le", "quantile", "gpu", "gpu_uuid", "UUID"].contains(&name) {
        return Err(format!("label {name:?} is reserved; choose another name"));
    }
    Ok(())
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

    #[test]
    fn a_reserved_label_cannot_be_a_static_label() {
        for name in ["model", "le", "request_type", "gpu_uuid", "gpu", "__x", "a-b", "1a", ""] {
            assert!(check_label(name).is_err(), "{name}");
        }
        for name in ["team", "pod", "namespace"] {
            check_label(name).unwrap();
        }
    }
}
