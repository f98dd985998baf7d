//! Counts the requests that ended well. If finish reasons are known, only requests with a good reason (stop or length)
//! count. If no reasons come, every entry counts, or else every completed request: records count each answer of a request that
//! asks for several (`n` above 1), and times are those of whole requests. The count never falls, even if the first reasons come
//! late.

use trtllm_records::perf_metrics::FinishReason;

/// Requests by finish reason, in the order of [`FinishReason::ALL`].
pub(crate) type ReasonCounts = [u64; FinishReason::ALL.len()];

#[derive(Debug, Clone, Default)]
pub(crate) struct Successes {
    pub total: u64,
    /// Requests that were counted as completed, before the first finish reason came.
    without_reason: u64,
    /// The totals of which these are counted.
    counted: Ends,
}

/// Totals of requests that ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// As the records count them.
    pub completed: u64,
    pub entries: u64,
}

impl Successes {
    /// `ends` and `finished` are totals. `have_entries`: each request has an entry. Requests count without a reason once
    /// `is_decided`: no source will tell the reasons of the first ones.
    pub(crate) fn settle(&mut self, ends: Ends, have_entries: bool, finished: Option<&ReasonCounts>, is_decided: bool) {
        let Some(finished) = finished else {
            if is_decided {
                self.without_reason += match have_entries {
                    true => ends.entries - self.counted.entries,
                    false => ends.completed - self.counted.completed,
                };
                self.counted = ends;
            }
            self.total = self.total.max(self.without_reason);
            return;
        };
        let known = self.without_reason.saturating_add(succeeded(finished));
        // A request that counts as completed may get its reason afterwards. It must not count twice.
        let most = if self.without_reason == 0 { known } else { ends.completed.saturating_sub(failed(finished)) };
        self.total = self.total.max(known.min(most));
    }
}

fn succeeded(finished: &ReasonCounts) -> u64 {
    finished[FinishReason::Stop as usize].saturating_add(finished[FinishReason::Length as usize])
}

fn failed(finished: &ReasonCounts) -> u64 {
    finished.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)).saturating_sub(succeeded(finished))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(completed: u64) -> Ends {
        Ends { completed, entries: 0 }
    }

    fn reasons(stop: u64, cancelled: u64) -> ReasonCounts {
        let mut finished = ReasonCounts::default();
        finished[FinishReason::Stop as usize] = stop;
        finished[FinishReason::Cancelled as usize] = cancelled;
        finished
    }

    #[test]
    fn cancelled_requests_are_not_successes() {
        let mut successes = Successes::default();
        // The records report five completed requests before their entries come.
        successes.settle(records(5), false, None, false);
        assert_eq!(successes.total, 0);
        successes.settle(records(5), false, Some(&reasons(1, 2)), false);
        assert_eq!(successes.total, 1);
        successes.settle(records(5), false, Some(&reasons(3, 2)), true);
        assert_eq!(successes.total, 3);
    }

    #[test]
    fn without_reasons_every_completed_request_is_a_success_once_no_reasons_will_come() {
        let mut successes = Successes::default();
        let totals = [(false, 0), (false, 10), (false, 12), (true, 12), (true, 14)].map(|(is_decided, completed)| {
            successes.settle(records(completed), false, None, is_decided);
            successes.total
        });
        assert_eq!(totals, [0, 0, 0, 12, 14]);
    }

    #[test]
    fn reasons_that_come_late_neither_lower_the_count_nor_count_a_request_twice() {
        let mut successes = Successes::default();
        successes.settle(records(10), false, None, true);
        let mut settle = |completed, finished| {
            successes.settle(records(completed), false, Some(&finished), true);
            successes.total
        };
        // First the reason of a request that is counted already. Then one entry arrives before its record, and one after it.
        assert_eq!(settle(10, reasons(1, 0)), 10);
        assert_eq!(settle(10, reasons(2, 0)), 10);
        assert_eq!(settle(11, reasons(2, 0)), 11);
        assert_eq!((settle(12, reasons(2, 1)), settle(13, reasons(3, 1))), (11, 12));
    }

    #[test]
    fn each_entry_is_a_request_however_many_answers_the_records_count() {
        let mut successes = Successes::default();
        // Requests with three answers. Without entries each answer counts.
        let totals =
            [(6, 0, false), (9, 1, true), (15, 3, true), (18, 3, false)].map(|(completed, entries, have_entries)| {
                successes.settle(Ends { completed, entries }, have_entries, None, true);
                successes.total
            });
        assert_eq!(totals, [6, 7, 9, 12]);
    }
}
