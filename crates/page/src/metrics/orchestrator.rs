//! The samples of an orchestrator of disaggregated serving. It has none of the families of engines, because it is not one: a sum over
//! engines must not count its requests again.

use trtllm_engine::orchestrator::{OrchestratorTotals, SideTotals};
use trtllm_model::orchestrator::WorkerCounts;

use super::catalog::Id;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    /// `stale`: the orchestrator does not answer, so nothing is known of its present.
    pub(super) fn orchestrator(&mut self, totals: &OrchestratorTotals, stale: bool) {
        self.in_order(Id::DisaggRequests, [totals.streamed, totals.whole]);
        self.put(Id::DisaggResponses, totals.responses);
        self.in_order(Id::DisaggRequestErrors, [totals.invalid, totals.http_errors, totals.internal_errors]);
        self.put(Id::DisaggQueueTime, &totals.queue_time);
        let sides = || totals.sides.iter().map(Option::as_ref);
        let count = |count: fn(&SideTotals) -> u64| sides().map(move |side| side.map(count));
        self.in_order(Id::DisaggWorkerRequests, count(|side| side.sent));
        self.in_order(Id::DisaggWorkerRetries, count(|side| side.retried));
        self.in_order(Id::DisaggWorkerErrors, count(|side| side.failed));
        self.in_order(Id::DisaggWorkerEnded, count(|side| side.ended));
        self.in_order(Id::DisaggWorkerFirstBytes, sides().map(|side| side.map(|side| &side.first_bytes)));
        self.in_order(Id::DisaggWorkerReadInterval, sides().map(|side| side.map(|side| &side.between_reads)));
        self.in_order(Id::DisaggWorkerRequestTime, sides().map(|side| side.map(|side| &side.complete)));
        if !stale {
            self.put(Id::DisaggReady, totals.ready);
            let by_side = |WorkerCounts { context, generation }| [context, generation];
            self.in_order(Id::DisaggWorkers, by_side(totals.workers));
            self.in_order(Id::DisaggMinimalWorkers, by_side(totals.minimal_workers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_model::orchestrator::Side;

    #[test]
    fn the_sides_are_the_label_values_of_the_catalog() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::DisaggWorkerRequests), Side::ALL.map(Side::name));
        assert_eq!(values(Id::DisaggWorkers), [Side::Context.name(), Side::Generation.name()]);
    }
}
