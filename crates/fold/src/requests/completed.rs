//! How many requests have completed, and how many of them ended well.
//!
//! Records count each answer of a request that asks for several (`n` above 1). trtllm-serve gives each request the next id, one that
//! is lost or cancelled included, so no more requests have completed than there are ids from the lowest to the highest of the entries.
//! No fewer have completed than there are entries: some sources have no records.
//!
//! If finish reasons are known, only requests with a good one (stop or length) have ended well. If no reasons come, all have. Those of
//! entries or spans without ids are then only counted by these, because the records may count answers.

use trtllm_records::perf_metrics::{FIRST_ORCHESTRATOR_ID, FinishReason};

use crate::server_metrics::ReasonCounts;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CompletedRequests {
    /// The total in the records.
    pub(super) in_records: u64,
    /// The lowest and the highest id of the server's entries.
    ids: Option<(u64, u64)>,
    /// The total in the records before the first of these ids, and the requests of this total.
    before: (u64, u64),
    /// Requests before the last restart, and those of them that ended well if no reasons come.
    before_restart: (u64, u64),
    /// Entries and spans with times since the last restart.
    by_entries: u64,
    /// Each frontend has ids of its own, or an orchestrator gives some of them.
    pub(super) several_series: bool,
    /// Requests that were counted as ended well before the first finish reason came.
    without_reason: u64,
}

impl CompletedRequests {
    /// Notes an entry or a span.
    pub(super) fn note(&mut self, id: Option<u64>, has_times: bool) {
        self.by_entries += u64::from(has_times);
        match (id, &mut self.ids) {
            (None, _) => {}
            (Some(FIRST_ORCHESTRATOR_ID..), _) => self.several_series = true,
            (Some(id), Some((first, last))) => (*first, *last) = (id.min(*first), id.max(*last)),
            (Some(id), None) => {
                self.before = (self.in_records, self.by_records());
                self.ids = Some((id, id));
            }
        }
    }

    /// The next server begins with other ids.
    pub(super) fn restart(&mut self, have_entries: bool) {
        self.before_restart = (self.requests(), self.all_ended_well(have_entries));
        self.before = (self.in_records, self.before_restart.0);
        (self.ids, self.by_entries, self.several_series) = (None, 0, false);
    }

    pub(super) fn requests(&self) -> u64 {
        self.by_records().max(self.before_restart.0.saturating_add(self.by_entries))
    }

    fn ids(&self) -> Option<(u64, u64)> {
        self.ids.filter(|_| !self.several_series)
    }

    fn by_records(&self) -> u64 {
        let more = self.in_records.saturating_sub(self.before.0);
        self.before
            .1
            .saturating_add(self.ids().map_or(more, |(first, last)| more.min((last - first).saturating_add(1))))
    }

    /// The requests that ended well if no reasons come.
    fn all_ended_well(&self, have_entries: bool) -> u64 {
        let since = match have_entries && self.ids().is_none() {
            true => self.by_entries,
            false => self.requests() - self.before_restart.0,
        };
        self.before_restart.1.saturating_add(since)
    }

    /// The requests that ended well. `reasons`: of all requests, absent until the first one is known. Requests count without a reason
    /// once `is_decided`: no source will tell the reasons of the first ones. `have_entries`: entries or spans tell the times.
    pub(super) fn ended_well(&mut self, reasons: Option<&ReasonCounts>, is_decided: bool, have_entries: bool) -> u64 {
        let Some(reasons) = reasons else {
            if is_decided {
                self.without_reason = self.all_ended_well(have_entries);
            }
            return self.without_reason;
        };
        let good = reasons[FinishReason::Stop as usize].saturating_add(reasons[FinishReason::Length as usize]);
        let all = reasons.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        if self.without_reason == 0 {
            return good;
        }
        // A request that was counted without a reason may get its reason afterwards. It must not count twice.
        let most = self.requests().saturating_sub(all.saturating_sub(good));
        self.without_reason.saturating_add(good).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(stop: u64, cancelled: u64) -> ReasonCounts {
        let mut finished = ReasonCounts::default();
        finished[FinishReason::Stop as usize] = stop;
        finished[FinishReason::Cancelled as usize] = cancelled;
        finished
    }

    /// The requests that ended well when records have counted so many.
    fn ended_well(requests: &mut CompletedRequests, in_records: u64, reasons: Option<ReasonCounts>) -> u64 {
        requests.in_records = in_records;
        requests.ended_well(reasons.as_ref(), true, requests.ids.is_some())
    }

    #[test]
    fn cancelled_requests_have_not_ended_well_and_without_reasons_all_have_once_none_will_come() {
        let mut requests = CompletedRequests { in_records: 5, ..CompletedRequests::default() };
        // The records report five completed requests before their entries come.
        assert_eq!(requests.ended_well(None, false, false), 0);
        assert_eq!(ended_well(&mut requests.clone(), 5, Some(reasons(3, 2))), 3);
        assert_eq!((ended_well(&mut requests, 5, None), ended_well(&mut requests, 7, None)), (5, 7));
    }

    #[test]
    fn reasons_that_come_late_neither_lower_the_count_nor_count_a_request_twice() {
        let mut requests = CompletedRequests::default();
        ended_well(&mut requests, 10, None);
        let mut counted = |in_records, reasons| ended_well(&mut requests, in_records, Some(reasons));
        // First the reason of a request that is counted already. Then one entry arrives before its record, and one after it.
        assert_eq!([counted(10, reasons(1, 0)), counted(10, reasons(2, 0)), counted(11, reasons(2, 0))], [10, 10, 11]);
        assert_eq!((counted(12, reasons(2, 1)), counted(13, reasons(3, 1))), (11, 12));
    }

    #[test]
    fn each_entry_is_a_request_however_many_answers_the_records_count() {
        let mut requests = CompletedRequests::default();
        // Requests with three answers. Without entries each answer counts.
        let totals = [(6, None), (9, Some(1)), (15, Some(3))].map(|(in_records, id)| {
            requests.note(id, id.is_some());
            ended_well(&mut requests, in_records, None)
        });
        assert_eq!(totals, [6, 7, 9]);
        // Spans have no ids.
        let mut spans = CompletedRequests { in_records: 15, by_entries: 5, ..CompletedRequests::default() };
        assert_eq!(spans.ended_well(None, true, true), 5);
        spans.restart(true);
        (spans.in_records, spans.by_entries) = (21, 2);
        assert_eq!((spans.ended_well(None, true, true), spans.requests()), (7, 21));
        let mut without_records = CompletedRequests::default();
        (0..3).for_each(|_| without_records.note(None, true));
        assert_eq!(ended_well(&mut without_records, 0, None), 3);
    }
}
