//! The report as text and as JSON, and the reference of all rules.

use std::fmt::Write as _;

use serde_json::{Value, json};

use trtllm_http::views::engine::Engine;
use trtllm_verdict::blind::BlindSpot;
use trtllm_verdict::findings::{self, Finding};
use trtllm_verdict::verdict::{Confidence, Evidence, Severity, Unit, Verdict};

use super::fleet;
use super::read::Exporter;
use super::source_rules::{self, SourceAnswer};

/// All that was read.
#[derive(Debug, Default)]
pub struct Report {
    pub exporters: Vec<Exporter>,
    pub sources: Vec<SourceAnswer>,
}

impl Report {
    /// The worst severity of all verdicts and findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        let verdicts = self.verdicts().map(|(_, _, verdict)| verdict.severity);
        let findings = self.findings().into_iter().map(|(_, finding)| finding.severity);
        verdicts.chain(findings).max().unwrap_or(Severity::None)
    }

    fn engines(&self) -> impl Iterator<Item = (&Exporter, &Engine)> {
        self.exporters.iter().flat_map(|exporter| exporter.engines.iter().map(move |engine| (exporter, engine)))
    }

    fn verdicts(&self) -> impl Iterator<Item = (&Exporter, &Engine, &Verdict)> {
        self.engines().filter_map(|(exporter, engine)| Some((exporter, engine, engine.verdict.as_ref()?)))
    }

    /// All findings, the worst first, each with the URL of its exporter. The URL is empty for findings about sources.
    pub(super) fn findings(&self) -> Vec<(&str, Finding)> {
        let of_exporters = self
            .exporters
            .iter()
            .flat_map(|exporter| exporter.findings.iter().map(move |finding| (exporter.url.as_str(), finding.clone())));
        let of_sources = self.sources.iter().flat_map(source_rules::judge).map(|finding| ("", finding));
        let mut all: Vec<_> = of_exporters.chain(of_sources).collect();
        all.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
        all
    }

    /// The report as text for people. No line begins with a name that an engine chose.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for exporter in &self.exporters {
            let (engines, gpus) = (exporter.engines.len(), exporter.gpus.len());
            let _ = match exporter.is_read {
                true => writeln!(out, "{}: engines: {engines}, GPUs: {gpus}", exporter.url),
                false => writeln!(out, "{}: not read", exporter.url),
            };
        }
        // Of a recording, this "URL" begins with the name of the engine. Do not repeat it.
        let at = |url: &str, subject: &str| match self.exporters.len() > 1 && !url.starts_with(subject) {
            true => format!(" at {url}"),
            false => String::new(),
        };
        let mut limited: Vec<_> = self.verdicts().filter(|(.., verdict)| verdict.severity > Severity::None).collect();
        limited.sort_by_key(|(.., verdict)| std::cmp::Reverse(verdict.severity));
        for (exporter, engine, verdict) in limited {
            let (severity, name) = (verdict.severity.name().to_uppercase(), engine.name(" "));
            let _ = writeln!(out, "\n{severity} {}: engine {name}{}", verdict.cause.name(), at(&exporter.url, &name));
            verdict_text(&mut out, verdict);
        }
        let findings = self.findings();
        for (exporter, finding) in &findings {
            let severity = finding.severity.name().to_uppercase();
            let at = if exporter.is_empty() { String::new() } else { at(exporter, &finding.subject) };
            let title = format!("{severity} {}: {} {}{at}", finding.rule, finding.kind.name(), finding.subject);
            let _ = writeln!(out, "\n{title}\n  {}", finding.says);
            evidence_text(&mut out, &finding.evidence);
            wrap(&mut out, "Rule", &finding.when);
            wrap(&mut out, "Change", &finding.remedy);
        }
        let _ = writeln!(out);
        for (exporter, engine) in self.engines() {
            let is_limited = engine.verdict.as_ref().is_some_and(|verdict| verdict.severity > Severity::None);
            let has_finding =
                |(url, finding): &(&str, Finding)| *url == exporter.url && finding.subject == engine.name(" ");
            if !is_limited && !findings.iter().any(has_finding) {
                let why = match (&engine.verdict, &engine.orchestrator) {
                    _ if engine.state == "starting" => format!(" ({})", engine.why),
                    (None, None) => ", not judged yet: that takes 15 s of work".to_owned(),
                    _ => ", nothing found".to_owned(),
                };
                let _ = writeln!(out, "engine {}: {}{why}", engine.name(" "), engine.state);
            }
        }
        for (_, engine) in self.engines().filter(|(_, engine)| engine.source == "log") {
            log_text(&mut out, engine);
        }
        let fleet = fleet::of_exporters(&self.exporters);
        if !fleet.is_empty() {
            let _ = write!(out, "\n{}", fleet::text(&fleet));
        }
        if self.worst() == Severity::None {
            let is_judged = |engine: &Engine| engine.verdict.is_some() || engine.orchestrator.is_some();
            let is_early = |engine: &Engine| engine.state == "starting" || !is_judged(engine);
            out += match self.engines().any(|(_, engine)| is_early(engine)) {
                true => "No problem found so far. Ask again when all engines have answered and are judged.\n",
                false => "No problem found.\n",
            };
        }
        out
    }

    /// The report as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let exporters = self.exporters.iter().map(|exporter| {
            let engine = |engine: &Engine| {
                let Engine { model, version, labels, state, start_phase, why, verdict, .. } = engine;
                json!({"model": model, "version": version, "labels": labels, "state": state, "startPhase": start_phase, "why": why,
                    "verdict": verdict})
            };
            json!({
                "url": exporter.url,
                "engines": exporter.engines.iter().map(engine).collect::<Value>(),
                "gpus": exporter.gpus,
            })
        });
        let findings = self.findings().into_iter().map(|(exporter, finding)| {
            let mut json = json!(finding);
            json["exporter"] = json!(exporter);
            json
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "worst": self.worst(),
            "exporters": exporters.collect::<Value>(),
            "fleet": fleet::json(&fleet::of_exporters(&self.exporters)),
            "sources": self.sources.iter().map(|source| source.target.clone()).collect::<Value>(),
            "findings": findings.collect::<Value>(),
        })
    }
}

fn verdict_text(out: &mut String, verdict: &Verdict) {
    let _ = writeln!(out, "  {}", verdict.says);
    evidence_text(out, &verdict.evidence);
    if verdict.confidence == Confidence::Low {
        *out += "  Not certain: another cause would look similar, or a number that would prove it is missing.\n";
    }
    if verdict.confidence == Confidence::Low && !verdict.blind.is_empty() {
        let names: Vec<&str> = verdict.blind.iter().map(|spot| &*spot.what).collect();
        let _ = writeln!(
            out,
            "  Cannot be seen here: {} (docs/verdict.md tells what shows them).",
            names.join(", ").replace('_', " ")
        );
    }
    let follows: Vec<&str> = verdict.consequences.iter().map(|cause| cause.name()).collect();
    for (title, words) in [
        ("Users", verdict.cost.as_deref().unwrap_or_default()),
        ("Change", &verdict.remedy),
        ("Trade-off", &verdict.trade_off),
        ("Helped if", &verdict.helped_if),
        ("Follows from it", &follows.join(", ")),
    ] {
        if !words.is_empty() {
            wrap(out, title, words);
        }
    }
}

/// What the log of an engine cannot tell, and what tells it.
fn log_text(out: &mut String, engine: &Engine) {
    let _ = writeln!(out, "\nRead from an iteration log, which does not tell everything.");
    engine.notice.iter().for_each(|notice| wrap(out, "notice", notice));
    for BlindSpot { what, why, switch_on } in engine.verdict.iter().flat_map(|verdict| &verdict.blind) {
        wrap(out, &what.replace('_', " "), &format!("{why} {switch_on}"));
    }
}

fn evidence_text(out: &mut String, evidence: &[Evidence]) {
    for Evidence { name, value, unit, threshold } in evidence {
        let limit = threshold.map(|limit| format!(" (limit {})", number(limit, *unit))).unwrap_or_default();
        let _ = writeln!(out, "    {name}: {}{limit}", number(*value, *unit));
    }
}

/// Formats a number of the evidence for people.
fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => format!("{:.0} %", value * 100.0),
        Unit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
        Unit::Seconds => format!("{value:.1} s"),
        Unit::Bytes => format!("{:.1} GB", value / 1e9),
        Unit::Watts => format!("{value:.0} W"),
        Unit::Count | Unit::Ratio => match value {
            value if value.fract() == 0.0 => format!("{value:.0}"),
            value if value < 0.1 => format!("{value:.3}"),
            value => format!("{value:.2}"),
        },
    }
}

/// The longest line of a paragraph.
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

/// All rules as markdown, for `diagnose --rules`.
#[must_use]
pub fn reference() -> String {
    findings::reference(findings::rules().chain(source_rules::RULES.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_judged_yet_may_have_a_problem() {
        let text = |state: &str| {
            let engines = vec![Engine { state: state.to_owned(), ..Engine::default() }];
            let exporters = vec![Exporter { is_read: true, engines, ..Exporter::default() }];
            Report { exporters, ..Report::default() }.text()
        };
        for state in ["starting", "busy"] {
            assert!(text(state).contains("No problem found so far."), "{}", text(state));
        }
    }
}
