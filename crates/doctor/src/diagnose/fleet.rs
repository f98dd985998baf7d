//! Finds replicas of a model that differ from the other replicas. It reads the engines of several exporters, or of all
//! exporters that a Prometheus scrapes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{ClientOptions, DiagnoseArgs, ReportFormat};
use crate::exporters::client::{Failure, Target, targets};
use trtllm_config::{ConfigError, command_line};
use trtllm_http::views::engine::Engine;
use trtllm_service::printable::one_line;
use trtllm_verdict::verdict::Severity;

use super::read::Exporter;

/// Exit codes: replicas differ or there is none, or the Prometheus cannot be read.
const DIFFERENT: u8 = 3;
const UNREADABLE: u8 = 4;
const QUERY: &str = "nv_trt_llm_limited_by == 1";
const WORST: &str = "max(nv_trt_llm_limited_by_severity)";
const MAX_REPLICAS: usize = 10_000;

/// One engine, where it runs, and the name of the cause that limits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    pub model: String,
    pub place: String,
    pub cause: String,
}

/// All replicas of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReplicas {
    pub model: String,
    pub count: usize,
    /// The cause that limits more than half of the replicas, if there is one.
    pub usual: Option<String>,
    /// The replicas with another cause.
    pub different: Vec<Replica>,
}

/// The models with several replicas, by name, and the replicas of all other models.
#[must_use]
pub fn groups(replicas: Vec<Replica>) -> (Vec<ModelReplicas>, Vec<Replica>) {
    let mut models: BTreeMap<String, Vec<Replica>> = BTreeMap::new();
    for replica in replicas {
        models.entry(replica.model.clone()).or_default().push(replica);
    }
    let (several, single): (Vec<_>, Vec<_>) = models.into_iter().partition(|(_, replicas)| replicas.len() > 1);
    let groups = several.into_iter().map(|(model, replicas)| group(model, replicas)).collect();
    (groups, single.into_iter().flat_map(|(_, replicas)| replicas).collect())
}

fn group(model: String, replicas: Vec<Replica>) -> ModelReplicas {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for replica in &replicas {
        *counts.entry(&replica.cause).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let usual = most.filter(|(_, count)| 2 * count > replicas.len()).map(|(cause, _)| cause.to_owned());
    let count = replicas.len();
    let different = replicas.into_iter().filter(|replica| usual.as_ref() != Some(&replica.cause)).collect();
    ModelReplicas { model, count, usual, different }
}

/// The models with several replicas on the exporters that were read.
pub(super) fn of_exporters(exporters: &[Exporter]) -> Vec<ModelReplicas> {
    let replicas = exporters.iter().flat_map(|exporter| {
        exporter.engines.iter().filter_map(|engine| {
            let cause = engine.verdict.as_ref()?.cause.name().to_owned();
            let pod_of = |engine: &Engine| engine.labels.get("pod").map_or(String::new(), |pod| format!(" {pod}"));
            let pod = pod_of(engine);
            let is_like = |other: &&Engine| other.model == engine.model && pod_of(other) == pod;
            let is_only = exporter.engines.iter().filter(is_like).count() == 1;
            let version = if is_only { String::new() } else { format!(" version {}", engine.version) };
            Some(Replica { model: engine.model.clone(), place: format!("{}{pod}{version}", exporter.url), cause })
        })
    });
    groups(replicas.collect()).0
}

/// The groups as text for people: one line for each model, and one for each replica that differs.
#[must_use]
pub fn text(groups: &[ModelReplicas]) -> String {
    let mut out = String::new();
    for ModelReplicas { model, count, usual, different } in groups {
        let says = match (usual, different.len()) {
            (Some(cause), 0) => format!("all {count} replicas: {cause}"),
            (Some(cause), odd) => format!("{} of {count} replicas: {cause}", count - odd),
            (None, _) => format!("{count} replicas without a common cause"),
        };
        let _ = writeln!(out, "model {model}: {says}");
        for Replica { place, cause, .. } in different {
            let _ = writeln!(out, "  {place}: {cause}");
        }
    }
    out
}

/// The groups as JSON.
#[must_use]
pub fn json(groups: &[ModelReplicas]) -> Value {
    let group = |ModelReplicas { model, count, usual, different }: &ModelReplicas| {
        let different = different.iter().map(|replica| json!({"place": replica.place, "cause": replica.cause}));
        json!({"model": model, "replicas": count, "usual": usual, "different": different.collect::<Value>()})
    };
    groups.iter().map(group).collect()
}

/// Asks a Prometheus, prints the groups, and returns the exit code.
pub(super) async fn of_prometheus(url: &str, arguments: &DiagnoseArgs) -> Result<u8, ConfigError> {
    let connection = ClientOptions { urls: vec![url.to_owned()], ..arguments.connection.clone() };
    let Some(target) = targets(&connection).await?.pop() else { return Ok(UNREADABLE) };
    let (text, mut report, code) = match ask(&target).await {
        Ok((replicas, worst)) => of_replicas(url, replicas, worst),
        Err(failure) => {
            let error = one_line(&failure.to_string());
            (format!("{url}: not read: {error}\n"), json!({"error": error}), UNREADABLE)
        }
    };
    (report["version"], report["prometheus"]) = (json!(env!("CARGO_PKG_VERSION")), json!(url));
    match arguments.format {
        ReportFormat::Text => command_line::print(&text),
        ReportFormat::Json => command_line::print_json(&format!("{report:#}\n")),
    }
    Ok(code)
}

/// The report as text and as JSON, and the exit code.
fn of_replicas(url: &str, replicas: Vec<Replica>, worst: Severity) -> (String, Value, u8) {
    let known = replicas.len();
    let (groups, single) = groups(replicas);
    let mut out = format!("{url}: engines with a verdict: {known}\n\n{}", text(&groups));
    for Replica { model, place, cause } in &single {
        let _ = writeln!(out, "model {model}: one replica: {place}: {cause}");
    }
    match (known, worst) {
        (0, _) => out += "This Prometheus knows no engine; check that it scrapes the exporters.\n",
        (_, Severity::None | Severity::Info) => {}
        (_, worst) => {
            let _ = writeln!(out, "\nworst severity: {}; ask that engine's exporter", worst.name());
        }
    }
    let single = single.iter().map(|one| json!({"model": one.model, "place": one.place, "cause": one.cause}));
    let report = json!({"engines": known, "worst": worst, "fleet": json(&groups), "single": single.collect::<Value>()});
    (out, report, exit_code(&groups, known, worst))
}

/// `known`: number of engines with a verdict.
fn exit_code(groups: &[ModelReplicas], known: usize, worst: Severity) -> u8 {
    let differ = known == 0 || groups.iter().any(|group| !group.different.is_empty());
    super::exit_code(worst).max(if differ { DIFFERENT } else { 0 })
}

/// A series of an instant vector, with its time and value.
#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

async fn query(target: &Target, query: &str) -> Result<Vec<Series>, Failure> {
    #[derive(Deserialize)]
    struct Answer {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        result: Vec<Series>,
    }
    // The URL of a Prometheus may have a path.
    let prefix = if target.page == "/metrics" { "" } else { &target.page };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
    let body = target.client().get(&format!("{prefix}/api/v1/query?{query}")).await?;
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|error| Failure::NoUsableAnswer(format!("/api/v1/query is not that of a Prometheus: {error}")))?;
    Ok(answer.data.result)
}

/// The replicas, and the worst severity of their verdicts.
async fn ask(target: &Target) -> Result<(Vec<Replica>, Severity), Failure> {
    let replica = |Series { metric, .. }: Series| {
        let label = |name: &str| metric.get(name).map(|value| one_line(value)).unwrap_or_default();
        // Without `kubernetes:`, these labels describe the exporter, so all engines of one exporter have the same place.
        let places = ["namespace", "pod", "node", "instance"].map(label);
        let place = places.iter().filter(|value| !value.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ");
        Replica { model: label("model"), place, cause: label("cause") }
    };
    let replicas = query(target, QUERY).await?.into_iter().take(MAX_REPLICAS).map(replica).collect();
    let worst = query(target, WORST).await?.into_iter().filter_map(|series| series.value.1.parse::<f64>().ok());
    let severity = |worst: f64| match worst {
        worst if worst >= 3.0 => Severity::Critical,
        worst if worst >= 2.0 => Severity::Warning,
        worst if worst >= 1.0 => Severity::Info,
        _ => Severity::None,
    };
    Ok((replicas, worst.map(severity).max().unwrap_or(Severity::None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(model: &str, causes: &[&str]) -> Vec<Replica> {
        let replica = |(at, cause): (usize, &&str)| Replica {
            model: model.to_owned(),
            place: format!("node{at}"),
            cause: (*cause).to_owned(),
        };
        causes.iter().enumerate().map(replica).collect()
    }

    #[test]
    fn two_versions_of_a_model_on_one_exporter_have_different_places() {
        let engine = |version: &str, cause: &str| {
            let verdict = json!({"cause": cause, "severity": "info", "confidence": "low", "says": "", "evidence": [], "cost": null,
                "remedy": "", "settings": [], "consequences": [], "since": 0.0, "blind": []});
            serde_json::from_value(json!({"model": "m", "version": version, "verdict": verdict})).unwrap()
        };
        let exporter = Exporter {
            url: "http://h:8002".to_owned(),
            engines: vec![engine("1", "none"), engine("2", "load")],
            ..Exporter::default()
        };
        let text = text(&of_exporters(&[exporter]));
        assert!(text.contains("http://h:8002 version 1: none\n  http://h:8002 version 2: load"), "{text}");
    }

    #[test]
    fn the_exit_code_tells_the_worst_verdict_even_if_all_replicas_have_it() {
        let code = |causes: &[&str], worst| exit_code(&groups(replicas("m", causes)).0, causes.len(), worst);
        assert_eq!(code(&["load", "load"], Severity::Info), 0);
        assert_eq!(code(&["none", "load"], Severity::Info), 3);
        assert_eq!(code(&["load", "load"], Severity::Warning), 3);
        assert_eq!(code(&["unavailable"], Severity::Critical), 4);
        assert_eq!(code(&[], Severity::None), 3);
    }

    #[test]
    fn a_replica_that_differs_from_most_is_named() {
        let all = [
            replicas("alike", &["none", "none"]),
            replicas("alone", &["clocks"]),
            replicas("mixed", &["none", "load"]),
            replicas("odd", &["none", "clocks", "none"]),
        ];
        let (groups, single) = groups(all.concat());
        let expected = "model alike: all 2 replicas: none\n\
                        model mixed: 2 replicas without a common cause\n  node0: none\n  node1: load\n\
                        model odd: 2 of 3 replicas: none\n  node1: clocks\n";
        assert_eq!(text(&groups), expected);
        assert_eq!(json(&groups)[2]["different"], json!([{"place": "node1", "cause": "clocks"}]));
        assert_eq!(single, replicas("alone", &["clocks"]));
    }
}
