//! Writes what a bug report needs, without secrets, names and addresses. A label keeps its name only if the catalog or
//! [`SERVER_LABELS`] lists it, and its value only if the value is from a small set. Every other name or value is replaced by
//! a number. Equal values get equal numbers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use trtllm_page::metrics::catalog::{CATALOG, Metric, MetricKind, Variant};
use trtllm_records::IterationStats;
use trtllm_sources::prometheus_text::ParsedSample;

use super::read::Exporter;
use super::report::Report;
use super::source_rules::Reached;

/// Labels of our families whose values are from a small set of words or numbers. The catalog does not list these values.
const PLAIN_LABELS: &str = "index fan link rank call error xid mode source simulated backend architecture mig_profile task \
                            gpu_instance_id compute_instance_id";

/// Labels of trtllm-serve's own page, besides those of the catalog. Their values become numbers.
const SERVER_LABELS: &str = "cache_level cache_tier dtype enable_block_reuse engine_type gpu_count gpu_type max_model_len \
                             model model_name page_size pid pipeline_parallel_size quantization rank served_model_name \
                             tensor_parallel_size token_position";

/// Prefixes of the families on an exporter's page and on trtllm-serve's own page.
const KNOWN_FAMILIES: &[&str] = &["nv_", "trtllm_", "vllm:", "DCGM_FI_", "process_"];

/// For each kind of name, such as `model`, the number of each name. A name is replaced by its kind and number: `model-1`.
#[derive(Default)]
struct Names(BTreeMap<String, BTreeMap<String, usize>>);

impl Names {
    fn of(&mut self, kind: &str, value: &str) -> String {
        if value.is_empty() {
            return String::new();
        }
        let known = self.0.entry(kind.to_owned()).or_default();
        let next = known.len() + 1;
        let number = known.entry(value.to_owned()).or_insert(next);
        format!("{kind}-{number}")
    }
}

/// The bundle as JSON.
pub(super) fn bundle(report: &Report) -> String {
    let mut names = Names::default();
    let exporters: Value = report.exporters.iter().map(|exporter| exporter_json(&mut names, exporter)).collect();
    let sources: Value = report
        .sources
        .iter()
        .map(|source| {
            let reached = match &source.reached {
                Reached::Yes => "yes",
                Reached::No(_) => "no",
                Reached::Refused(_) => "refused",
                Reached::Other => "not trtllm-serve",
                Reached::NoSocket => "no socket",
                Reached::NotAsked(_) => "not asked",
            };
            json!({
                "source": names.of("source", &source.target),
                "model": source.model.as_deref().map(|model| names.of("model", model)),
                "reached": reached,
                "version": source.version.as_deref().map(kept_release),
                "health": source.health,
                "page": source.server_page.as_ref().map(|answer| match answer {
                    Ok(text) => series_json(&mut names, text),
                    Err(status) => json!(status),
                }),
            })
        })
        .collect();
    // Leave out the sentences of a finding, because they may quote an address.
    let findings = report.findings().into_iter().map(|(_, finding)| {
        json!({
            "rule": finding.rule,
            "subject": names.of(finding.kind.name(), &finding.subject),
            "evidence": finding.evidence,
        })
    });
    let findings = findings.collect::<Value>();
    let all = json!({
        "bundle": "trtllm-doctor diagnose",
        "version": env!("CARGO_PKG_VERSION"),
        "target": {"os": std::env::consts::OS, "arch": std::env::consts::ARCH},
        "worst": report.worst(),
        "findings": findings,
        "exporters": exporters,
        "sources": sources,
    });
    format!("{all}\n")
}

fn exporter_json(names: &mut Names, exporter: &Exporter) -> Value {
    let details = &exporter.details;
    let engines = exporter.engines.iter().enumerate().map(|(at, engine)| {
        let records = details.records.get(at).into_iter().flatten().map(|record| record_json(names, record));
        let records = records.collect::<Value>();
        // The history was read later, when the list may have changed.
        let is_same = |of: &&Value| {
            let labels = of.get("labels").cloned().unwrap_or_else(|| json!({}));
            of["model"] == engine.model && of["version"] == engine.version && labels == json!(engine.labels)
        };
        let slots = details.history["engines"].as_array().into_iter().flatten().find(is_same).map(|of| &of["slots"]);
        let verdict = engine.verdict.as_ref().map(|verdict| {
            json!({"cause": verdict.cause, "severity": verdict.severity, "confidence": verdict.confidence, "evidence": verdict.evidence})
        });
        json!({
            "model": names.of("model", &engine.model),
            "version": names.of("version", &engine.version),
            "source": kept_word(&engine.source),
            "state": kept_word(&engine.state),
            "backend": engine.backend.as_deref().map(kept_word),
            "engineVersion": engine.engine_version.as_deref().map(kept_release),
            "simulated": engine.simulated,
            "verdict": verdict,
            "slots": slots,
            "records": records,
        })
    });
    let engines = engines.collect::<Value>();
    json!({
        "exporter": names.of("exporter", &exporter.url),
        "read": exporter.is_read,
        "engines": engines,
        "page": series_json(names, &String::from_utf8_lossy(&details.page)),
    })
}

/// A record without texts. Ids of KV cache windows, pools and life cycles stay only if they are numbers: the engine chooses
/// them, so others could be names.
fn record_json(names: &mut Names, record: &IterationStats) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    let fields = value.as_object_mut().into_iter().flatten();
    for (_, rows) in fields.filter(|(field, _)| field.starts_with("kvCacheIterationStats")) {
        let Value::Object(rows) = rows else { continue };
        let is_number = |id: &String| id.len() <= 10 && id.bytes().all(|byte| byte.is_ascii_digit());
        let known = std::mem::take(rows).into_iter();
        rows.extend(known.map(|(id, row)| (if is_number(&id) { id } else { names.of("id", &id) }, row)));
    }
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

/// The series of a page, one line each. Families of other programs are left out, because nobody has reviewed their names.
fn series_json(names: &mut Names, text: &str) -> Value {
    let families: BTreeMap<&str, &Metric> = CATALOG.iter().map(|metric| (metric.name, metric)).collect();
    let is_known = |name: &str| KNOWN_FAMILIES.iter().any(|prefix| name.starts_with(prefix));
    let samples =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| ParsedSample::parse(line.trim_ascii()));
    let lines = samples.filter(|series| is_known(series.name)).map(|series| {
        let parts = ["_bucket", "_sum", "_count"].into_iter().filter_map(|part| series.name.strip_suffix(part));
        let histogram = parts.filter_map(|name| families.get(name)).find(|metric| metric.kind == MetricKind::Histogram);
        let family = families.get(series.name).or(histogram).copied();
        let labels: Vec<String> =
            series.labels.iter().map(|(label, value)| label_text(names, family, label, value)).collect();
        format!("{}{{{}}} {}", series.name, labels.join(","), series.value)
    });
    lines.collect()
}

/// Writes a label. If the catalog does not list it for this family, a user added it, even if another family has its name.
fn label_text(names: &mut Names, family: Option<&Metric>, label: &str, value: &str) -> String {
    let has = |family: &Metric| {
        family.labels.contains(&label) || family.variant.is_some_and(|variant| variant.label == label)
    };
    let is_ours = family.is_some_and(has);
    let lists = |variant: Variant| variant.label == label && variant.values.contains(&value);
    let is_listed = is_ours && CATALOG.iter().filter_map(|metric| metric.variant).any(lists);
    let is_bound = label == "le" && value.parse::<f64>().is_ok();
    let is_plain = is_ours && PLAIN_LABELS.split(' ').any(|plain| plain == label) && kept_word(value) == value;
    let value = match label {
        _ if is_listed || is_bound || is_plain => value.to_owned(),
        "engine_version" | "driver_version" | "cuda_version" | "nvml_version" | "rustversion" if is_ours => {
            kept_release(value)
        }
        _ if is_ours || SERVER_LABELS.split(' ').any(|known| known == label) => names.of(label, value),
        _ => return format!("{}={}", names.of("label", label), names.of("value", value)),
    };
    format!("{label}={value}")
}

/// Keeps a word such as `trtllm-serve` or a number. Any other text becomes `removed`.
fn kept_word(text: &str) -> String {
    let is_word = text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+.".contains(&byte));
    // A name with several dots may be a host name.
    if is_word && text.matches('.').count() <= 1 { text.to_owned() } else { "removed".to_owned() }
}

/// Keeps a release such as `1.2.0rc4`. Any other text becomes `removed`.
fn kept_release(text: &str) -> String {
    // A part is a number, such as `0`, or a number with a suffix and another number, such as `4dev2`.
    let is_number = |text: &str| text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_part = |part: &str| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let suffix = ["rc", "dev", "post", "a", "b"].into_iter().find_map(|word| rest.strip_prefix(word));
        digits > 0 && is_number(number) && (rest.is_empty() || suffix.is_some_and(is_number))
    };
    let numbers = text.strip_suffix("+simulated").unwrap_or(text);
    // Four numbers may be an IP address. An IP address has no last part such as `post2` or `dev2024100800`.
    let is_build = |part: &str| {
        let digits = part.strip_prefix("post").or_else(|| part.strip_prefix("dev"));
        digits.is_some_and(|digits| digits.len() <= 10 && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let numbers = numbers.rsplit_once('.').filter(|(_, last)| is_build(last)).map_or(numbers, |(before, _)| before);
    let is_release = numbers.split('.').count() <= 3 && numbers.split('.').all(is_part);
    if is_release { text.to_owned() } else { "removed".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_and_releases_are_kept() {
        for text in ["trtllm-serve", "sim", "pytorch", "0.5", "+Inf"] {
            assert_eq!(kept_word(text), text);
        }
        for text in ["node-7.gpu.example.com", "10.0.0.7", "a b", "/models/secret", "fd00::7"] {
            assert_eq!(kept_word(text), "removed");
        }
        for text in
            ["1.2.0rc4", "1.1.0+simulated", "580.159.03", "13.0", "1.3.0dev2", "1.0.0rc6.post2", "0.14.0.dev2024100800"]
        {
            assert_eq!(kept_release(text), text);
        }
        for text in [
            "10.0.0.7",
            "node7.example.com",
            "secret",
            "1.2.0+host",
            "1.2.0host7",
            "7node",
            "10.0.0.7.dev1",
            "1.2.post12345678901",
        ] {
            assert_eq!(kept_release(text), "removed");
        }
    }

    #[test]
    fn a_label_of_a_user_has_neither_name_nor_value() {
        let text = |page: &str| series_json(&mut Names::default(), page).to_string();
        for label in ["team", "link", "architecture", "index", "fan", "xid", "mig_profile", "pod", "driver_version"] {
            let page = format!("nv_trt_llm_iterations_total{{model=\"m\",version=\"1\",{label}=\"acme7\"}} 1\n");
            let bundled = text(&page);
            assert!(!bundled.contains("acme7") && !bundled.contains(label), "{label}: {bundled}");
            assert!(bundled.contains("model=model-1,version=version-1,label-1=value-1"), "{bundled}");
        }
        let ours = text(
            "nv_gpu_info{index=\"0\",architecture=\"hopper\",name=\"A\",driver_version=\"580.1\"} 1\n\
             nv_trt_llm_e2e_request_latency_seconds_bucket{le=\"0.5\",acme=\"x\"} 1\n\
             trtllm_kv_cache_config_info{enable_block_reuse=\"False\",acme=\"x\"} 1\n",
        );
        for words in [
            "index=0,architecture=hopper,name=name-1,driver_version=580.1",
            "le=0.5,label-1=value-1",
            "enable_block_reuse=enable_block_reuse-1,label-1=value-1",
        ] {
            assert!(ours.contains(words), "{words}: {ours}");
        }
    }

    #[test]
    fn ids_of_the_engine_are_kept_only_if_they_are_numbers() {
        let record = r#"{"kvCacheIterationStats":{"4096":{"iterReusedBlocks":1},"acme":{"iterReusedBlocks":2}}}"#;
        let text = record_json(&mut Names::default(), &serde_json::from_str(record).unwrap()).to_string();
        assert!(text.contains("\"4096\"") && text.contains("\"id-1\"") && !text.contains("acme"), "{text}");
    }

    #[test]
    fn the_same_name_gets_the_same_number() {
        let mut names = Names::default();
        assert_eq!(["a", "b", "a"].map(|value| names.of("model", value)), ["model-1", "model-2", "model-1"]);
        assert_eq!(names.of("pod", "a"), "pod-1");
    }
}
