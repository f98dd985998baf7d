//! The table of all rules, in the order in which a report and the reference show them.

mod benchmark;
mod exporter;
mod gpu;
mod load;
mod memory;
mod orchestrator;
mod source;
mod speculation;
mod statistics;
mod waiting;

use super::finding::Rule;

/// Rules about what an engine works on and waits for. The verdict of its exporter says that, too, and knows more.
const OF_VERDICT: [&[Rule]; 4] = [load::RULES, waiting::RULES, memory::RULES, speculation::RULES];

/// Whether the verdict on an engine replaces this rule.
pub fn is_of_verdict(rule: &Rule) -> bool {
    OF_VERDICT.into_iter().flatten().any(|other| other.name == rule.name)
}

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        statistics::RULES,
        load::RULES,
        waiting::RULES,
        memory::RULES,
        speculation::RULES,
        benchmark::RULES,
        orchestrator::RULES,
        gpu::RULES,
        exporter::RULES,
        source::RULES,
    ]
    .into_iter()
    .flatten()
}
