//! The engines to watch, from flags or a file, parsed and checked. The only I/O is reading the file.

#[cfg(feature = "executor")]
mod hosted;
mod options;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::metrics::catalog::{CATALOG, Metric};
use crate::small_file;
use crate::state::EngineName;

pub use source::SourceSpec;

/// Labels of an engine without configured ones.
pub const DEFAULT_MODEL: &str = "tensorrt_llm";
pub const DEFAULT_VERSION: &str = "1";

/// One engine on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    pub name: EngineName,
    pub source: SourceSpec,
}

/// An invalid configuration; the text names the flag or key and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{at}: {why}")]
    Engine { at: String, why: String },
    #[error("--config.file {path}: {cause}")]
    File { path: PathBuf, cause: String },
    #[error("{flag} {value}: {why}")]
    Flag { flag: &'static str, value: String, why: String },
}

/// `--config.file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    engines: Vec<Entry>,
}

/// One engine as configured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    source: String,
    model: Option<String>,
    version: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads `--config.file`.
///
/// # Errors
/// When the file cannot be read, is malformed, or an engine in it is invalid.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    let failed = |cause| ConfigError::File { path: path.to_owned(), cause };
    let unreadable = |error| failed(format!("cannot read the file: {error}"));
    let text = String::from_utf8(small_file::read(path).map_err(unreadable)?)
        .map_err(|error| failed(format!("the file is not UTF-8: {error}")))?;
    // The parser's message spans several lines; ours is one line.
    let one_line = |text: String| text.lines().collect::<Vec<_>>().join(" ");
    let file: File =
        serde_saphyr::from_str(&text).map_err(|error| failed(one_line(error.without_snippet().to_string())))?;
    if file.engines.is_empty() {
        return Err(failed("engines is empty; remove --config.file to serve GPU metrics only".to_owned()));
    }
    let place = |index| format!("{} engines[{index}]", path.display());
    let entries = file.engines.into_iter().enumerate().map(|(index, entry)| (place(index), entry));
    engines(entries, "keys model and version")
}

/// The engines of `--source`, with the labels of `--model` and `--model-version`: one value for all engines, or one per engine
/// in the same order.
///
/// # Errors
/// When a source is invalid or two engines have the same labels.
pub fn from_flags(
    sources: &[String],
    models: &[String],
    versions: &[String],
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
        ("--source".to_owned(), Entry { source: source.clone(), model, version, labels: BTreeMap::new() })
    });
    engines(entries, "one --model per --source, or --config.file")
}

/// Checks each entry, named by its place, and that no two share a name or a socket.
fn engines(entries: impl Iterator<Item = (String, Entry)>, remedy: &str) -> Result<Vec<EngineConfig>, ConfigError> {
    let (mut names, mut sockets) = (HashSet::new(), HashSet::new());
    let mut engines = Vec::new();
    for (place, entry) in entries {
        let at = format!("{place} {:?}", entry.source);
        let invalid = |why| ConfigError::Engine { at: at.clone(), why };
        let engine = engine(entry).map_err(invalid)?;
        let EngineName { model, version, .. } = &engine.name;
        if !names.insert((model.clone(), version.clone())) {
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
        engines.push(engine);
    }
    Ok(engines)
}

fn engine(Entry { source, model, version, labels }: Entry) -> Result<EngineConfig, String> {
    let source: SourceSpec = source.parse()?;
    let or_default = |value: Option<String>, key, default: &str| match value {
        Some(value) if value.is_empty() => Err(format!("{key} must not be empty; remove it to use the default")),
        value => Ok(value.unwrap_or_else(|| default.to_owned())),
    };
    for name in labels.keys() {
        check_label(name)?;
    }
    let name = EngineName {
        model: or_default(model, "model", DEFAULT_MODEL)?,
        version: or_default(version, "version", DEFAULT_VERSION)?,
        labels: labels.into_iter().collect(),
        source: source.kind(),
        implicit: false,
    };
    Ok(EngineConfig { name, source })
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
    fn a_reserved_label_cannot_be_a_static_label() {
        for name in ["model", "le", "request_type", "gpu_uuid", "gpu", "__x", "a-b", "1a", ""] {
            assert!(check_label(name).is_err(), "{name}");
        }
        for name in ["team", "pod", "namespace"] {
            check_label(name).unwrap();
        }
    }
}
