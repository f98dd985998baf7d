//! What a bug report needs, without secrets, names and addresses. Labels keep their values only where the catalog lists
//! these; every other value becomes a number: the same value, the same number.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::metrics::catalog::CATALOG;
use crate::model::IterationStats;

use super::super::exporters::page::Page;
use super::finding::{Fact, Finding, Severity, Unit};
use super::observation::{Exporter, Observation, Reached};
use super::report;
use super::watch::Watched;

/// Records of each engine in a bundle.
const RECORDS: usize = 256;
/// Labels with values from a small fixed set, or numbers, that the catalog does not list.
const PLAIN_LABELS: &[&str] = &[
    "le",
    "index",
    "fan",
    "link",
    "call",
    "error",
    "xid",
    "http_code",
    "mode",
    "source",
    "simulated",
    "backend",
    "architecture",
    "mig_profile",
    "task",
    "gpu_instance_id",
    "compute_instance_id",
];

/// Prefixes of the families on an exporter's page and on that of trtllm-serve.
const KNOWN_FAMILIES: &[&str] = &["nv_", "trtllm_", "vllm:", "DCGM_FI_", "process_"];

/// Numbers for names: `model-1`.
#[derive(Default)]
struct Names(BTreeMap<(String, String), usize>);

impl Names {
    fn of(&mut self, kind: &str, value: &str) -> String {
        if value.is_empty() {
            return String::new();
        }
        let next = self.0.keys().filter(|(other, _)| other == kind).count() + 1;
        let number = *self.0.entry((kind.to_owned(), value.to_owned())).or_insert(next);
        format!("{kind}-{number}")
    }
}

/// The bundle as JSON.
pub(super) fn bundle(observation: &Observation, watched: &[Watched], findings: &[Finding]) -> String {
    let mut names = Names::default();
    let exporters: Value = observation
        .exporters
        .iter()
        .zip(watched)
        .map(|(exporter, watched)| exporter_json(&mut names, exporter, watched))
        .collect();
    let sources: Value = observation
        .sources
        .iter()
        .map(|source| {
            let reached = match &source.reached {
                Reached::Yes => "yes",
                Reached::No(_) => "no",
                Reached::Refused(_) => "refused",
                Reached::Other => "not trtllm-serve",
                Reached::NoSocket => "no socket",
            };
            json!({
                "source": names.of("source", &source.target),
                "model": source.model.as_deref().map(|model| names.of("model", model)),
                "reached": reached,
                "version": source.version.as_deref().map(release),
                "health": source.health,
                "page": source.page.as_ref().map(|page| match page {
                    Ok(page) => page_json(&mut names, page),
                    Err(status) => json!(status),
                }),
            })
        })
        .collect();
    let found: Value = findings
        .iter()
        .map(|finding| {
            // A text may quote an address.
            let number = |fact: &Fact| match fact.unit {
                Unit::Text => json!({"name": fact.name}),
                _ => json!(fact),
            };
            json!({
                "rule": finding.rule.name,
                "subject": names.of(finding.rule.check.subject(), &finding.subject),
                "facts": finding.facts.iter().map(number).collect::<Value>(),
            })
        })
        .collect();
    let all = json!({
        "bundle": "trtllm-exporter doctor",
        "version": env!("CARGO_PKG_VERSION"),
        "target": {"os": std::env::consts::OS, "arch": std::env::consts::ARCH},
        "worst": report::worst(findings).map_or("none", Severity::name),
        "findings": found,
        "exporters": exporters,
        "sources": sources,
    });
    format!("{all}\n")
}

fn exporter_json(names: &mut Names, exporter: &Exporter, watched: &Watched) -> Value {
    let engines: Value = exporter
        .engines
        .iter()
        .map(|engine| {
            let key = (engine.about.model.clone(), engine.about.version.clone());
            let records = watched.records.get(&key);
            let last = records.into_iter().flatten().rev().take(RECORDS).collect::<Vec<_>>().into_iter().rev();
            json!({
                "model": names.of("model", &engine.about.model),
                "version": names.of("version", &engine.about.version),
                "source": kind(&engine.about.source),
                "state": engine.state(),
                "backend": engine.about.backend.as_deref().map(kind),
                "engineVersion": engine.about.engine_version.as_deref().map(release),
                "simulated": engine.about.simulated,
                "notice": engine.about.notice.is_some(),
                "lastPollFailed": engine.about.last_poll.error.is_some(),
                "records": last.map(record_json).collect::<Value>(),
            })
        })
        .collect();
    json!({
        "exporter": names.of("exporter", &exporter.url),
        "read": exporter.error.is_none(),
        "windowSeconds": exporter.window.as_secs_f64(),
        "uptimeSeconds": exporter.uptime,
        "engines": engines,
        "pageBefore": page_json(names, &exporter.page.before),
        "pageAfter": page_json(names, &exporter.page.after),
    })
}

/// A record without its texts. Their tiers are free texts of the engine.
fn record_json(record: &IterationStats) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    keep_numbers(&mut value);
    value
}

fn keep_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, field| !field.is_null() && (!field.is_string() || key == "schedulerMode"));
            fields.values_mut().for_each(keep_numbers);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_string());
            items.iter_mut().for_each(keep_numbers);
        }
        _ => {}
    }
}

/// The series of a page, one line each. A server may have other families, whose names nobody has reviewed.
fn page_json(names: &mut Names, page: &Page) -> Value {
    let is_known = |name: &str| KNOWN_FAMILIES.iter().any(|prefix| name.starts_with(prefix));
    let lines = page.0.iter().filter(|series| is_known(&series.name)).map(|series| {
        let labels: Vec<String> = series
            .labels
            .iter()
            .map(|(label, value)| format!("{label}={}", label_value(names, label, value)))
            .collect();
        format!("{}{{{}}} {}", series.name, labels.join(","), series.value)
    });
    lines.collect()
}

fn label_value(names: &mut Names, label: &str, value: &str) -> String {
    let is_listed = CATALOG
        .iter()
        .filter_map(|metric| metric.variant)
        .any(|variant| variant.label == label && variant.values.contains(&value));
    let is_plain = PLAIN_LABELS.contains(&label) && kind(value) == value;
    match label {
        _ if is_listed || is_plain => value.to_owned(),
        "engine_version" | "driver_version" | "cuda_version" | "nvml_version" | "rustversion" => release(value),
        _ => names.of(label, value),
    }
}

/// A word such as `trtllm-serve` or a number; anything else is left out.
fn kind(text: &str) -> String {
    let is_word = text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+.".contains(&byte));
    // A name with several dots may be a host.
    if is_word && text.matches('.').count() <= 1 { text.to_owned() } else { "removed".to_owned() }
}

/// A release such as `1.2.0rc4`; anything else is left out.
fn release(text: &str) -> String {
    // `0`, `4dev2`: what begins a part may be followed by one of these and a number.
    let is_number = |text: &str| text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_part = |part: &str| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let suffix = ["rc", "dev", "post", "a", "b"].into_iter().find_map(|word| rest.strip_prefix(word));
        digits > 0 && is_number(number) && (rest.is_empty() || suffix.is_some_and(is_number))
    };
    let numbers = text.strip_suffix("+simulated").unwrap_or(text);
    // Four numbers may be an address.
    let is_release = numbers.split('.').count() <= 3 && numbers.split('.').all(is_part);
    if is_release { text.to_owned() } else { "removed".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_and_releases_are_kept() {
        for text in ["trtllm-serve", "sim", "pytorch", "0.5", "+Inf"] {
            assert_eq!(kind(text), text);
        }
        for text in ["node-7.gpu.example.com", "10.0.0.7", "a b", "/models/secret", "fd00::7"] {
            assert_eq!(kind(text), "removed");
        }
        for text in ["1.2.0rc4", "1.1.0+simulated", "580.159.03", "13.0", "1.3.0dev2"] {
            assert_eq!(release(text), text);
        }
        for text in ["10.0.0.7", "node7.example.com", "secret", "1.2.0+host", "1.2.0host7", "7node"] {
            assert_eq!(release(text), "removed");
        }
    }

    #[test]
    fn the_same_name_gets_the_same_number() {
        let mut names = Names::default();
        assert_eq!(["a", "b", "a"].map(|value| names.of("model", value)), ["model-1", "model-2", "model-1"]);
        assert_eq!(names.of("pod", "a"), "pod-1");
    }
}
