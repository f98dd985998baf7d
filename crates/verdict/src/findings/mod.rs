//! Findings: problems with statistics, GPUs, orchestrators or the exporter itself, reported in addition to the verdict. A finding
//! never says what limits an engine, so it cannot contradict the verdict.

pub mod engine;
pub mod exporter;
mod finding;
pub mod gpu;
pub mod orchestrator;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

pub use finding::{Finding, Kind, Rule};

/// Defines rules, and lists them in the order in which `trtllm-doctor diagnose --rules` prints them. `$texts`: the
/// document that has a section for each.
#[macro_export]
macro_rules! finding_rules {
    ($texts:expr; $($id:ident = $name:literal, $kind:ident, $severity:ident;)*) => {
        $(pub(crate) static $id: $crate::findings::Rule = $crate::findings::Rule {
            name: $name,
            kind: $crate::findings::Kind::$kind,
            severity: $crate::verdict::Severity::$severity,
            texts: $texts,
        };)*
        /// All rules of this module.
        pub static RULES: &[&$crate::findings::Rule] = &[$(&$id),*];
    };
}

/// All rules of the exporter, in the order in which `trtllm-doctor diagnose --rules` prints them.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [engine::RULES, orchestrator::RULES, gpu::RULES, exporter::RULES].into_iter().flatten().copied()
}

/// The rules as markdown, for `trtllm-doctor diagnose --rules`.
pub fn reference(rules: impl Iterator<Item = &'static Rule>) -> String {
    let mut out = String::new();
    for rule in rules {
        let Rule { name, kind, severity, .. } = rule;
        let about = format!("{}, {}", kind.name(), severity.name());
        let (says, when, remedy) = (rule.says(), rule.when(), rule.remedy());
        let _ = write!(out, "### {name}\n\n{says} ({about})\n\n- **When:** {when}\n- **Change:** {remedy}\n\n");
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}
