//! The rules, in order: what is broken, what makes each iteration slow, what is outside the iterations, why requests wait, and
//! what the work is. A cause explains the causes of later rules. So the first rule that applies gives the cause, and the
//! causes of later rules that apply are its consequences.

mod around;
mod broken;
mod slow;
mod waiting;
mod work;

use super::cause::Cause;
use super::input::VerdictInput;
use super::verdict::Found;

pub(super) use around::before_batch;
pub(super) use broken::{incomplete, silent};
pub(super) use waiting::{standing, unseen_limit};
pub(super) use work::alone;

/// A cause, and the function that returns a result if the cause applies.
pub(super) type CauseRule = (Cause, fn(&VerdictInput) -> Option<Found>);

/// All rules, the first with precedence.
pub(super) const RULES: [CauseRule; 26] = [
    (Cause::Unavailable, broken::unavailable),
    (Cause::Memory, broken::memory),
    (Cause::Errors, broken::errors),
    (Cause::Clocks, slow::clocks),
    (Cause::Gpu, slow::gpu),
    (Cause::Slowdown, slow::slowdown),
    (Cause::Spikes, slow::spikes),
    (Cause::Tuner, waiting::tuner),
    (Cause::Ranks, slow::ranks),
    (Cause::StaticBatching, waiting::static_batching),
    (Cause::Adapters, around::adapters),
    (Cause::Host, slow::host),
    (Cause::Speculation, work::speculation),
    (Cause::Transfer, around::transfer),
    (Cause::GenerationQueue, around::generation_queue),
    (Cause::Frontend, around::frontend),
    (Cause::KvThrash, work::kv_thrash),
    (Cause::ContextWork, work::context_work),
    (Cause::KvCapacity, waiting::kv_capacity),
    (Cause::TokenLimit, waiting::token_limit),
    (Cause::BatchLimit, waiting::batch_limit),
    (Cause::KvReservation, waiting::kv_reservation),
    (Cause::GenerationWork, work::generation_work),
    (Cause::Load, waiting::load),
    (Cause::ContextBlocking, work::context_blocking),
    (Cause::Statistics, broken::statistics),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_each_cause_in_the_order_of_the_judgement() {
        let document = include_str!("../../../../docs/verdict.md");
        let section = document.split("\n## ").find(|section| section.starts_with("Causes")).unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<(&str, &str)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                let ["", cause, meaning, condition, remedy, ""] = cells[..] else { panic!("{row}") };
                assert_eq!((condition.is_empty(), remedy.is_empty()), (cause == "`none`", cause == "`none`"), "{row}");
                (cause.trim_matches('`'), meaning)
            })
            .collect();
        let causes = RULES.map(|(cause, _)| cause).into_iter().chain([Cause::None]);
        let wanted: Vec<_> = causes.map(|cause| (cause.name(), cause.meaning())).collect();
        assert_eq!(rows, wanted);
        assert_eq!(wanted.len(), Cause::ALL.len(), "each cause has a rule");
    }

    #[test]
    fn each_remedy_of_a_rule_has_a_text_and_each_text_has_a_rule() {
        let rules = [
            include_str!("around.rs"),
            include_str!("broken.rs"),
            include_str!("slow.rs"),
            include_str!("waiting.rs"),
            include_str!("work.rs"),
        ]
        .concat();
        for cause in Cause::ALL {
            let of_cause = |call: &str| rules.contains(&format!("Cause::{cause:?}.{call}"));
            assert!(!of_cause("remedy()") || !cause.remedy().is_empty(), "{cause:?}");
            let backends = ["PyTorch", "TensorRT"].map(|backend| cause.remedy_for(backend).is_empty());
            assert!(!of_cause("remedy_for(input.backend())") || backends == [false; 2], "{cause:?}");
            // A case that a rule chooses before is checked by `Found::remedy`.
            let call = format!("Cause::{cause:?}.remedy_for(\"");
            for case in rules.split(&call).skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(!cause.remedy_for(case).is_empty(), "{cause:?}: {case}");
            }
        }
        // A case is a literal in its rule.
        let cases = include_str!("../cause.md").lines().filter_map(|line| line.strip_prefix("- **Remedy for "));
        for case in cases.filter_map(|line| line.split(":**").next()) {
            let is_named = rules.contains(&format!("\"{case}\"")) || ["PyTorch", "TensorRT"].contains(&case);
            assert!(is_named, "{case}");
        }
    }
}
