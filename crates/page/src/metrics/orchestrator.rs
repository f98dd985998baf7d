//! The samples of an orchestrator of disaggregated serving. It has families of its own for requests, so that a sum over
//! engines does not count the same requests again.

use trtllm_fold::orchestrator::SideTotals;
use trtllm_records::orchestrator::WorkerCounts;

use super::catalog::Id;
use super::catalog::table::VALUES_OF_ORCHESTRATORS;
use super::engine_readings::EngineReadings;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    /// Adds nothing before the orchestrator has answered.
    pub(super) fn orchestrator(&mut self, engine: &EngineReadings<'_>) {
        let Some(totals) = engine.orchestrator() else { return };
        self.put_all(VALUES_OF_ORCHESTRATORS, engine);
        self.in_order(Id::DisaggRequests, [totals.streamed, totals.whole]);
        self.in_order(Id::DisaggRequestErrors, [totals.invalid, totals.http_errors, totals.internal_errors]);
        let sides = || totals.sides.iter().map(Option::as_ref);
        let count = |count: fn(&SideTotals) -> u64| sides().map(move |side| side.map(count));
        self.in_order(Id::DisaggWorkerRequests, count(|side| side.sent));
        self.in_order(Id::DisaggWorkerRetries, count(|side| side.retried));
        self.in_order(Id::DisaggWorkerErrors, count(|side| side.failed));
        self.in_order(Id::DisaggWorkerEnded, count(|side| side.ended));
        self.in_order(Id::DisaggWorkerFirstBytes, sides().map(|side| side.map(|side| &side.first_bytes)));
        self.in_order(Id::DisaggWorkerReadInterval, sides().map(|side| side.map(|side| &side.between_reads)));
        self.in_order(Id::DisaggWorkerRequestTime, sides().map(|side| side.map(|side| &side.complete)));
        if let Some(totals) = engine.answering_orchestrator() {
            let by_side = |WorkerCounts { context, generation }| [context, generation];
            self.in_order(Id::DisaggWorkers, by_side(totals.workers));
            self.in_order(Id::DisaggMinimalWorkers, by_side(totals.minimal_workers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_records::orchestrator::Side;

    #[test]
    fn the_sides_are_the_label_values_of_the_catalog() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::DisaggWorkerRequests), Side::ALL.map(Side::name));
        assert_eq!(values(Id::DisaggWorkers), [Side::Context.name(), Side::Generation.name()]);
    }
}
