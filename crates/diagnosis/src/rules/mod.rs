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
