//! The findings as text and as JSON, and the reference of all rules.

use std::fmt::Write as _;

use serde_json::{Value, json};

use trtllm_service::printable::one_line;

use super::about::{About, Verdict};
use super::finding::{Finding, Severity};
use super::observation::{Engine, Exporter, Observation};
use super::rules;

/// The worst severity of all verdicts and findings.
#[must_use]
pub fn worst(observation: &Observation, findings: &[Finding]) -> Option<Severity> {
    let verdicts = verdicts(observation).filter_map(|(_, _, verdict)| verdict.severity());
    findings.iter().map(|finding| finding.rule.severity).chain(verdicts).max()
}

/// The verdicts of all exporters.
fn verdicts(observation: &Observation) -> impl Iterator<Item = (&Exporter, &Engine, &Verdict)> {
    let engines =
        observation.exporters.iter().flat_map(|exporter| exporter.engines.iter().map(move |engine| (exporter, engine)));
    engines.filter_map(|(exporter, engine)| Some((exporter, engine, engine.about.verdict.as_ref()?)))
}

/// For people. A name that an engine chose cannot begin a line of its own.
#[must_use]
pub fn text(observation: &Observation, findings: &[Finding]) -> String {
    let mut out = String::new();
    for exporter in &observation.exporters {
        let (engines, gpus) = (exporter.engines.len(), exporter.gpus.len());
        let seconds = exporter.window.as_secs_f64();
        let _ = match &exporter.error {
            None => writeln!(out, "{}: watched for {seconds:.1} s; engines: {engines}, GPUs: {gpus}", exporter.url),
            Some(_) => writeln!(out, "{}: not read", exporter.url),
        };
    }
    let mut engines: Vec<_> = verdicts(observation)
        .filter_map(|(exporter, engine, verdict)| Some((verdict.severity()?, exporter, engine, verdict)))
        .collect();
    engines.sort_by_key(|(severity, ..)| std::cmp::Reverse(*severity));
    for (severity, exporter, engine, verdict) in engines {
        let at = if observation.exporters.len() > 1 { format!(" at {}", exporter.url) } else { String::new() };
        let title = format!("{} {}: engine {}{at}", severity.name().to_uppercase(), verdict.cause, engine.name());
        let _ = writeln!(out, "\n{}", one_line(&title));
        verdict_text(&mut out, verdict);
    }
    for finding in findings {
        let rule = finding.rule;
        let severity = rule.severity.name().to_uppercase();
        let subject = one_line(&finding.subject);
        let _ = write!(out, "\n{severity} {}: {} {subject}", rule.name, rule.check.subject());
        // With one exporter, its name says nothing.
        if observation.exporters.len() > 1 && !finding.exporter.is_empty() && finding.exporter != finding.subject {
            let _ = write!(out, " at {}", finding.exporter);
        }
        let _ = writeln!(out, "\n  {}", rule.says);
        for fact in &finding.facts {
            let _ = writeln!(out, "    {}", one_line(&fact.to_string()));
        }
        for (title, words) in [("Rule", rule.when), ("Guideline", rule.guideline), ("Change", rule.change)] {
            wrap(&mut out, title, words);
        }
    }
    let _ = writeln!(out);
    for exporter in &observation.exporters {
        for engine in &exporter.engines {
            let name = engine.name();
            let is_limited = engine.about.verdict.as_ref().is_some_and(|verdict| verdict.severity().is_some());
            let has_finding = |finding: &Finding| finding.exporter == exporter.url && finding.subject == name;
            if !is_limited && !findings.iter().any(has_finding) {
                let why = if engine.state() == "starting" { format!(" ({})", engine.about.why) } else { String::new() };
                let (name, state) = (one_line(&name), one_line(engine.state()));
                let _ = writeln!(out, "engine {name}: {state}{}, nothing found", one_line(&why));
            }
        }
    }
    if worst(observation, findings).is_none() {
        let _ = writeln!(out, "No problem found.");
    }
    out
}

fn verdict_text(out: &mut String, verdict: &Verdict) {
    let _ = writeln!(out, "  {}", one_line(&verdict.says));
    for fact in &verdict.evidence {
        let limit = fact.threshold.map(|limit| format!(" (limit {})", number(limit, &fact.unit))).unwrap_or_default();
        let _ = writeln!(out, "    {}", one_line(&format!("{}: {}{limit}", fact.name, number(fact.value, &fact.unit))));
    }
    if verdict.confidence == "low" {
        let _ = writeln!(
            out,
            "  Not certain: another cause would look similar, or a number that would prove it is missing."
        );
    }
    let follows = verdict.consequences.join(", ");
    for (title, words) in [
        ("Users", verdict.cost.as_deref().unwrap_or_default()),
        ("Change", &verdict.remedy),
        ("Follows from it", &follows),
    ] {
        if !words.is_empty() {
            wrap(out, title, &one_line(words));
        }
    }
}

/// A number of the evidence, for people.
fn number(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{:.0} %", value * 100.0),
        "seconds" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "seconds" => format!("{value:.1} s"),
        "bytes" => format!("{:.1} GB", value / 1e9),
        "watts" => format!("{value:.0} W"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ if value < 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

/// Columns of a paragraph.
const WIDTH: usize = 110;

/// Writes a paragraph, indented, with lines of at most [`WIDTH`] columns.
fn wrap(out: &mut String, title: &str, words: &str) {
    let mut line = format!("  {title}:");
    for word in words.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            "   ".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// For programs.
#[must_use]
pub fn json(observation: &Observation, findings: &[Finding]) -> Value {
    let exporters = observation.exporters.iter().map(|exporter| {
        let engine = |engine: &Engine| {
            let About { model, version, start_phase, why, verdict, .. } = &engine.about;
            json!({"model": model, "version": version, "state": engine.state(), "startPhase": start_phase, "why": why, "verdict": verdict})
        };
        json!({
            "url": exporter.url,
            "windowSeconds": exporter.window.as_secs_f64(),
            "engines": exporter.engines.iter().map(engine).collect::<Value>(),
            "gpus": exporter.gpus.iter().map(|gpu| gpu.uuid.clone()).collect::<Value>(),
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "worst": worst(observation, findings).map_or("none", Severity::name),
        "exporters": exporters.collect::<Value>(),
        "sources": observation.sources.iter().map(|source| source.target.clone()).collect::<Value>(),
        "findings": findings.iter().map(finding_json).collect::<Value>(),
    })
}

/// One finding, for programs.
#[must_use]
pub fn finding_json(finding: &Finding) -> Value {
    let rule = finding.rule;
    json!({
        "rule": rule.name,
        "severity": rule.severity,
        "exporter": finding.exporter,
        "kind": rule.check.subject(),
        "subject": finding.subject,
        "says": finding.says(),
        "facts": finding.facts,
        "when": rule.when,
        "guideline": rule.guideline,
        "change": rule.change,
        "alerts": rule.alerts,
    })
}

/// All rules as markdown: the second half of docs/doctor.md.
#[must_use]
pub fn reference() -> String {
    let mut out = String::new();
    for rule in rules::all() {
        let alerts = match rule.alerts {
            [] => String::new(),
            alerts => format!(
                "- **Alert:** {}\n",
                alerts.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        };
        let _ = write!(
            out,
            "### {}\n\n{} ({}, {})\n\n- **When:** {}\n- **Guideline:** {}\n- **Change:** {}\n{alerts}\n",
            rule.name,
            rule.says,
            rule.check.subject(),
            rule.severity.name(),
            rule.when,
            rule.guideline,
            rule.change
        );
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}
