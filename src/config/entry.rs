//! One engine as configured, and the checks that turn it into an [`EngineConfig`]. Collects every mistake of the entry.

use std::path::PathBuf;

use trtllm_page::metrics::catalog::{CATALOG, Metric};
use trtllm_records::{EngineName, Objectives};

use super::mistakes::Mistakes;
use super::value::ConfigValue;
use super::{
    ConfigError, DEFAULT_MODEL, DEFAULT_VERSION, EngineConfig, SourceSpec, gpu_hour_cost, gpus, hide_secrets_of_url,
    read_bench_report,
};

/// Where an entry was given.
#[derive(Debug, Clone, Default)]
pub(super) enum Origin {
    #[default]
    Flag,
    File {
        path: String,
        index: usize,
        line: usize,
    },
}

impl Origin {
    /// The line of the entry; 0 for a flag.
    pub(super) fn line(&self) -> usize {
        if let Self::File { line, .. } = self { *line } else { 0 }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) origin: Origin,
    /// `None` if the source is missing or cannot be read. Then a mistake was added.
    pub(super) source: Option<ConfigValue>,
    pub(super) model: Option<ConfigValue>,
    pub(super) version: Option<ConfigValue>,
    pub(super) labels: Vec<(String, ConfigValue)>,
    pub(super) objectives: Vec<(String, ConfigValue)>,
    pub(super) gpus: Option<(usize, Vec<ConfigValue>)>,
    pub(super) bench_report: Option<ConfigValue>,
    pub(super) gpu_hour_cost: Option<ConfigValue>,
    /// True if a part of the entry was left out because of a mistake in it.
    pub(super) is_incomplete: bool,
}

impl Entry {
    /// Describes this entry in an error. `line` is the line of the mistake.
    pub(super) fn at(&self, line: usize) -> String {
        let source =
            self.source.as_ref().map(|source| format!(" {:?}", hide_secrets_of_url(&source.text))).unwrap_or_default();
        match &self.origin {
            Origin::Flag => format!("--source{source}"),
            Origin::File { path, index, .. } => format!("{path} line {line}, engines[{index}]{source}"),
        }
    }

    /// The source if it is valid, and the engine if the whole entry is valid.
    pub(super) fn check(self, mistakes: &mut Mistakes) -> (Option<SourceSpec>, Option<EngineConfig>) {
        let before = mistakes.count();
        let mut wrong =
            |line: usize, why: String| mistakes.add_at(line, ConfigError::Engine { at: self.at(line), why });
        let source = self.source.as_ref().and_then(|given| {
            SourceSpec::read(&given.text).map_err(|whys| whys.into_iter().for_each(|why| wrong(given.line, why))).ok()
        });
        let has_name = self.model.is_some() || self.version.is_some();
        let names_its_engines = match source {
            Some(SourceSpec::Auto { .. }) => {
                if has_name {
                    let line = self.model.as_ref().or(self.version.as_ref()).map_or(0, |given| given.line);
                    wrong(line, "auto finds the models and their names itself; remove model and version".to_owned());
                }
                true
            }
            Some(SourceSpec::Socket(_)) => !has_name,
            _ => false,
        };
        let mut name = |key: &str, given: &Option<ConfigValue>, default: &str| {
            let Some(ConfigValue { text, line }) = given else { return default.to_owned() };
            if text.is_empty() {
                wrong(*line, format!("{key} must not be empty; remove it to use the default"));
            } else if let Some(why) = unrendered(text) {
                wrong(*line, format!("{key} {text:?} {why}"));
            }
            text.clone()
        };
        let (model, version) =
            (name("model", &self.model, DEFAULT_MODEL), name("version", &self.version, DEFAULT_VERSION));
        for (label, value) in &self.labels {
            if let Err(why) = check_label(label) {
                wrong(value.line, why);
            }
        }
        let mut objectives = Objectives::default();
        for (objective, time) in &self.objectives {
            if let Err(why) = objectives.set(objective, &time.text) {
                wrong(time.line, why);
            }
        }
        let gpus = match &self.gpus {
            Some((line, list)) => gpus::parse(*line, list, names_its_engines && !self.is_incomplete, &mut wrong),
            None => Vec::new(),
        };
        let report = self.bench_report.as_ref().map(|report| (report.line, PathBuf::from(&report.text)));
        let bench_report = report.and_then(|(line, path)| {
            let read = read_bench_report(&path);
            read.map_err(|why| wrong(line, format!("bench_report {}: {why}", path.display()))).ok()
        });
        let gpu_hour_cost = self.gpu_hour_cost.as_ref().and_then(|given| {
            gpu_hour_cost(&given.text).map_err(|why| wrong(given.line, format!("gpu_hour_cost {why}"))).ok()
        });
        let is_valid = !self.is_incomplete && mistakes.count() == before;
        let labels = self.labels.into_iter().map(|(name, value)| (name, value.text)).collect();
        let engine = source.clone().filter(|_| is_valid).map(|source| {
            let name = EngineName { model, version, labels, source: source.kind(), objectives };
            EngineConfig { name, source, names_its_engines, is_default: false, gpus, bench_report, gpu_hour_cost }
        });
        (source, engine)
    }
}

/// The error for a text that a template engine should have replaced, such as `{{ .Values.model }}`.
pub(super) fn unrendered(text: &str) -> Option<&'static str> {
    let is_template = (text.contains("{{") && text.contains("}}")) || text.contains("${") || text.contains("$(");
    is_template.then_some("is a template that was not rendered; render it, or write the value itself")
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
        for name in ["model", "le", "request_type", "gpu_uuid", "gpu", "__x", "job", "instance", "a-b", "1a", ""] {
            assert!(check_label(name).is_err(), "{name}");
        }
        for name in ["team", "pod", "namespace"] {
            check_label(name).unwrap();
        }
    }
}
