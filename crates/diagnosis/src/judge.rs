//! Applies all rules to an observation. Pure.

use super::finding::{Check, Fact, Facts, Finding, Rule};
use super::observation::{Engine, Observation};
use super::rules;

/// All findings, the worst first; equal ones in the order of the table.
#[must_use]
pub fn judge(observation: &Observation) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in rules::all() {
        let mut add = |exporter: &str, subject: String, facts: Facts| {
            findings.extend(facts.map(|facts| finding(rule, exporter, subject, facts)));
        };
        match rule.check {
            Check::Engine(check) => {
                for (exporter, engine) in engines(observation) {
                    // Two answers to one question would contradict each other.
                    if engine.about.verdict.is_some() && rules::is_of_verdict(rule) {
                        continue;
                    }
                    add(exporter, engine.name(), check(engine));
                }
            }
            Check::Gpu(check) => {
                for exporter in &observation.exporters {
                    for gpu in &exporter.gpus {
                        add(&exporter.url, gpu.name(), check(gpu));
                    }
                }
            }
            Check::Exporter(check) => {
                for exporter in &observation.exporters {
                    add(&exporter.url, exporter.url.clone(), check(exporter));
                }
            }
            Check::Source(check) => {
                for source in &observation.sources {
                    let model = source.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
                    add("", format!("{}{model}", source.target), check(source));
                }
            }
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
    findings
}

fn engines(observation: &Observation) -> impl Iterator<Item = (&str, &Engine)> {
    observation
        .exporters
        .iter()
        .flat_map(|exporter| exporter.engines.iter().map(|engine| (exporter.url.as_str(), engine)))
}

fn finding(rule: &'static Rule, exporter: &str, subject: String, facts: Vec<Fact>) -> Finding {
    Finding { rule, exporter: exporter.to_owned(), subject, facts }
}
