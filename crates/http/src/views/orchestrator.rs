//! An orchestrator of disaggregated serving: its workers, and its state in words.

use trtllm_engine::orchestrator::OrchestratorTotals;
use trtllm_model::orchestrator::{Side, WorkerCounts};

/// Workers of each side, and how many it needs.
pub(super) fn workers(totals: &OrchestratorTotals) -> [(Side, Option<u64>, Option<u64>); 2] {
    let OrchestratorTotals { workers, minimal_workers, .. } = totals;
    let of = |side, from: fn(&WorkerCounts) -> Option<u64>| (side, from(workers), from(minimal_workers));
    [of(Side::Context, |counts| counts.context), of(Side::Generation, |counts| counts.generation)]
}

/// Its workers, and whether it can serve. `busy`: requests arrive.
pub(super) fn why(totals: &OrchestratorTotals, busy: bool) -> String {
    let sides: Vec<String> = workers(totals)
        .into_iter()
        .filter_map(|(side, ready, minimal)| {
            let needed = minimal.filter(|minimal| ready < Some(*minimal)).map(|minimal| format!(" of {minimal}"));
            Some(format!("{}{} {}", ready?, needed.unwrap_or_default(), side.name()))
        })
        .collect();
    let state = match (totals.ready, busy) {
        (Some(false), _) => "the orchestrator is not ready",
        (_, true) => "requests are being served",
        (_, false) => "no requests",
    };
    if sides.is_empty() { state.to_owned() } else { format!("{state}; workers: {}", sides.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::Orchestrator;
    use super::*;
    use trtllm_engine::orchestrator::OrchestratorFold;
    use trtllm_model::OrchestratorReading;

    fn totals(ready: Option<bool>, workers: [Option<u64>; 2], minimal: [Option<u64>; 2]) -> OrchestratorTotals {
        let counts = |[context, generation]: [Option<u64>; 2]| WorkerCounts { context, generation };
        let mut fold = OrchestratorFold::default();
        let (workers, minimal_workers) = (counts(workers), counts(minimal));
        fold.absorb(&OrchestratorReading { ready, workers, minimal_workers, ..OrchestratorReading::default() });
        fold.totals
    }

    #[test]
    fn the_cause_names_a_side_with_too_few_workers() {
        let minimal = [Some(1), Some(2)];
        let served = totals(Some(true), [Some(2), Some(2)], minimal);
        assert_eq!(why(&served, true), "requests are being served; workers: 2 context, 2 generation");
        let missing = totals(Some(false), [Some(2), Some(0)], minimal);
        assert_eq!(why(&missing, true), "the orchestrator is not ready; workers: 2 context, 0 of 2 generation");
        assert_eq!(why(&totals(None, [None; 2], [None; 2]), false), "no requests");
    }

    #[test]
    fn what_is_not_known_now_is_absent() {
        let told = totals(Some(true), [Some(2), None], [None, Some(1)]);
        let json = |stale| serde_json::to_value(Orchestrator::of(&told, stale, None)).unwrap();
        assert_eq!(
            (json(false)["ready"].as_bool(), json(false)["sides"]["context"]["readyWorkers"].as_u64()),
            (Some(true), Some(2))
        );
        assert_eq!(json(false)["sides"]["generation"]["minimalWorkers"], 1);
        assert_eq!((json(true)["ready"].is_null(), json(true)["sides"].as_object().unwrap().len()), (true, 0));
    }
}
