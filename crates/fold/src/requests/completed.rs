//! How many requests have completed. Records count each answer of a request that asks for several (`n` above 1). trtllm-serve gives
//! each request the next id, one that is lost or cancelled included, so no more requests have completed than there are ids from the
//! lowest to the highest of the entries.

use trtllm_records::perf_metrics::FIRST_ORCHESTRATOR_ID;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CompletedRequests {
    /// The lowest and the highest id of the server's entries.
    ids: Option<(u64, u64)>,
    /// The total in the records before the first of these ids, and the requests of this total.
    before: (u64, u64),
    /// Each frontend has ids of its own, or an orchestrator gives some of them.
    pub(super) several_series: bool,
}

impl CompletedRequests {
    /// Notes the id of an entry. `completed`: the total in the records.
    pub(super) fn note(&mut self, id: u64, completed: u64) {
        if id >= FIRST_ORCHESTRATOR_ID {
            self.several_series = true;
            return;
        }
        match &mut self.ids {
            Some((first, last)) => (*first, *last) = (id.min(*first), id.max(*last)),
            None => {
                self.before = (completed, self.requests(completed));
                self.ids = Some((id, id));
            }
        }
    }

    /// The next server begins with other ids.
    pub(super) fn restart(&mut self, completed: u64) {
        self.before = (completed, self.requests(completed));
        (self.ids, self.several_series) = (None, false);
    }

    /// The completed requests. `completed`: the total in the records.
    pub(super) fn requests(&self, completed: u64) -> u64 {
        let more = completed.saturating_sub(self.before.0);
        let ids = self.ids.filter(|_| !self.several_series);
        self.before.1.saturating_add(ids.map_or(more, |(first, last)| more.min((last - first).saturating_add(1))))
    }
}
