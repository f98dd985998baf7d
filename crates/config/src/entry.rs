//! One engine as configured, and the checks that turn it into an [`EngineConfig`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use trtllm_page::metrics::catalog::{CATALOG, Metric};
use trtllm_records::{EngineName, Objectives};

use super::engine_config::{DEFAULT_MODEL, DEFAULT_VERSION, EngineConfig, gpu_hour_cost, read_bench_report};
use super::error::ConfigError;
use super::gpus;
use super::secrets::hide_secrets_of_url;
use super::source::{SourceSpec, unrendered};

/// Where an entry was given.
#[derive(Debug)]
pub(super) struct Origin {
    /// Path of the file, and index of the entry. `None` for flags.
    file: Option<(String, usize)>,
    /// The line of the entry; 0 for a flag.
    pub(super) line: u64,
    source: String,
}

impl Origin {
    pub(super) fn file(path: String, index: usize, line: u64, entry: &Entry) -> Self {
        Self { file: Some((path, index)), line, source: entry.source.value.clone().unwrap_or_default() }
    }

    pub(super) fn flag(source: &str) -> Self {
        Self { file: None, line: 0, source: source.to_owned() }
    }

    /// A mistake in a line of this entry.
    pub(super) fn wrong(&self, line: u64, why: impl Into<String>) -> ConfigError {
        let source = hide_secrets_of_url(&self.source);
        let at = match &self.file {
            None => format!("--source {source:?}"),
            Some((path, index)) => format!("{path} line {line}, engines[{index}] {source:?}"),
        };
        ConfigError::Engine { at, why: why.into() }
    }
}

/// The labels that `kubernetes:` gives to each engine.
const POD_LABELS: [&str; 4] = ["namespace", "node", "pod", "replica"];

/// A text that was given, with its place in the file.
type Given = Spanned<String>;
/// Names and texts. A name without a text counts as not given.
type Pairs = Option<BTreeMap<String, Spanned<Option<String>>>>;

/// The keys of an entry. A key without a value counts as not given, except `source`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) source: Spanned<Option<String>>,
    model: Option<Given>,
    version: Option<Given>,
    labels: Pairs,
    objectives: Pairs,
    gpus: Option<Spanned<Vec<Given>>>,
    bench_report: Option<Given>,
    gpu_hour_cost: Option<Given>,
    otlp_endpoint: Option<Given>,
}

impl Entry {
    /// The entry of a --source with its --model and --model-version.
    pub(super) fn of_flags(source: String, model: Option<String>, version: Option<String>) -> Self {
        let given = |text| Spanned::new(text, Location::UNKNOWN, Location::UNKNOWN);
        Self {
            source: Spanned::new(Some(source), Location::UNKNOWN, Location::UNKNOWN),
            model: model.map(given),
            version: version.map(given),
            labels: None,
            objectives: None,
            gpus: None,
            bench_report: None,
            gpu_hour_cost: None,
            otlp_endpoint: None,
        }
    }

    /// The engine, or the first mistake of the entry.
    pub(super) fn check(self, origin: &Origin) -> Result<EngineConfig, ConfigError> {
        let mut source: SourceSpec =
            origin.source.parse().map_err(|why: String| origin.wrong(self.source.referenced.line(), why))?;
        let named = self.model.as_ref().or(self.version.as_ref());
        let names_its_engines = match (&source, named) {
            (SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_), Some(named)) => {
                let why = "auto and kubernetes: find the models and their names themselves; remove model and version";
                return Err(origin.wrong(named.referenced.line(), why));
            }
            (SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_) | SourceSpec::Socket(_), None) => true,
            _ => false,
        };
        let name = |key: &str, given: Option<Given>, default: &str| match given {
            None => Ok(default.to_owned()),
            Some(Spanned { value: text, referenced, .. }) if text.is_empty() => {
                let why = format!("{key} must not be empty; remove it to use the default");
                Err(origin.wrong(referenced.line(), why))
            }
            Some(Spanned { value: text, referenced, .. }) => match unrendered(&text) {
                Some(why) => Err(origin.wrong(referenced.line(), format!("{key} {text:?} {why}"))),
                None => Ok(text),
            },
        };
        let model = name("model", self.model, DEFAULT_MODEL)?;
        let version = name("version", self.version, DEFAULT_VERSION)?;
        let mut labels = Vec::new();
        for (label, value) in self.labels.unwrap_or_default() {
            let Some(text) = value.value else { continue };
            check_label(&label).map_err(|why| origin.wrong(value.referenced.line(), why))?;
            if matches!(source, SourceSpec::Kubernetes(_)) && POD_LABELS.contains(&label.as_str()) {
                let why = format!("label {label:?} is that of the engine's pod; choose another name");
                return Err(origin.wrong(value.referenced.line(), why));
            }
            labels.push((label, text));
        }
        let mut objectives = Objectives::default();
        for (objective, time) in self.objectives.unwrap_or_default() {
            let Some(text) = time.value else { continue };
            objectives.set(&objective, &text).map_err(|why| origin.wrong(time.referenced.line(), why))?;
        }
        let gpus = self.gpus.map(|list| gpus::parse(&list, names_its_engines));
        let gpus = gpus.transpose().map_err(|(line, why)| origin.wrong(line, why))?.unwrap_or_default();
        let report = self.bench_report.map(|path| {
            let wrong = |why| origin.wrong(path.referenced.line(), format!("bench_report {}: {why}", path.value));
            read_bench_report(Path::new(&path.value)).map_err(wrong)
        });
        let cost = self.gpu_hour_cost.map(|cost| {
            let wrong = |why| origin.wrong(cost.referenced.line(), format!("gpu_hour_cost {why}"));
            gpu_hour_cost(&cost.value).map_err(wrong)
        });
        if let Some(url) = self.otlp_endpoint {
            let wrong = |why| origin.wrong(url.referenced.line(), format!("otlp_endpoint {:?}: {why}", url.value));
            source.forward_spans(&url.value).map_err(wrong)?;
        }
        Ok(EngineConfig {
            name: EngineName { model, version, labels, source: source.kind(), objectives },
            source,
            url: origin.source.clone(),
            names_its_engines,
            is_default: false,
            gpus,
            bench_report: report.transpose()?,
            gpu_hour_cost: cost.transpose()?,
        })
    }
}

fn check_label(name: &str) -> Result<(), String> {
    let valid =
        |(index, byte): (usize, u8)| byte == b'_' || byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit());
    if name.is_empty() || !name.bytes().enumerate().all(valid) {
        return Err(format!(
            "label {name:?} is not a valid label name; use letters, digits and _, and no digit at the beginning"
        ));
    }
    if ["job", "instance"].contains(&name) {
        return Err(format!(
            "label {name:?} is set by Prometheus, which would rename this one to exported_{name}; choose another name"
        ));
    }
    // Labels that only GPU series have are not reserved, so an engine may have the labels pod and namespace.
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
        for (names, why) in [
            (&["model", "le", "request_type", "gpu_uuid", "gpu", "__x"][..], "is reserved; choose another name"),
            (&["job", "instance"], "is set by Prometheus, which would rename this one to exported_"),
            (&["a-b", "1a", ""], "is not a valid label name; use letters, digits and _"),
        ] {
            for name in names {
                let error = check_label(name).unwrap_err();
                assert!(error.starts_with(&format!("label {name:?} {why}")), "{error}");
            }
        }
        for name in ["team", "pod", "namespace"] {
            check_label(name).unwrap();
        }
    }
}
