//! The findings as text and as JSON, and the reference of all rules.

use std::fmt::Write as _;

use serde_json::{Value, json};

use trtllm_service::printable::one_line;

use super::about::About;
use super::finding::{Finding, Severity};
use super::observation::{Engine, Observation};
use super::rules;

/// The worst severity of all findings.
#[must_use]
pub fn worst(findings: &[Finding]) -> Option<Severity> {
    findings.iter().map(|finding| finding.rule.severity).max()
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
            if !findings.iter().any(|finding| finding.exporter == exporter.url && finding.subject == name) {
                let why = if engine.state() == "starting" { format!(" ({})", engine.about.why) } else { String::new() };
                let (name, state) = (one_line(&name), one_line(engine.state()));
                let _ = writeln!(out, "engine {name}: {state}{}, nothing found", one_line(&why));
            }
        }
    }
    if findings.is_empty() {
        let _ = writeln!(out, "No problem found.");
    }
    out
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
            let About { model, version, start_phase, why, .. } = &engine.about;
            json!({"model": model, "version": version, "state": engine.state(), "startPhase": start_phase, "why": why})
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
        "worst": worst(findings).map_or("none", Severity::name),
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
