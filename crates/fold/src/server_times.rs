//! The times of requests as trtllm-serve's own histograms count them, kept while they come from entries. A histogram has one
//! observation for each answer, and an entry is one request. So histograms that count more than there are entries have requests
//! without an entry, or requests with several answers (`n` above 1).

use std::time::{Duration, Instant};

use trtllm_records::server_metrics::RequestHistogram;

use super::request_times::RequestTimes;
use super::saturating::add;
use super::server_metrics::Increase;

/// The entry of a request in the histograms comes within a poll or two.
const ENTRIES_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTimes {
    /// The times since the first reading, and those that entries had before. Absent until the first reading.
    times: Option<Box<RequestTimes>>,
    /// Requests in the histograms since the first reading.
    requests: u64,
    /// Entries with times since the first reading.
    pub entries: u64,
    /// When the histograms had so many requests. Their entries come soon.
    expected: Option<(Instant, u64)>,
}

impl ServerTimes {
    pub(crate) fn add(&mut self, more: &Increase, times: &RequestTimes) {
        let (own, entries) = (&mut self.times, &mut self.entries);
        let times = own.get_or_insert_with(|| {
            *entries = 0;
            Box::new(times.clone())
        });
        add(&mut self.requests, more.of(RequestHistogram::EndToEnd).count());
        for histogram in RequestHistogram::ALL {
            times.of_server(histogram).add_increase(more.of(histogram));
        }
    }

    /// Whether the histograms had more requests than there are entries now, some time later. Entries without histograms say nothing.
    pub(crate) fn has_more_than_entries(&mut self, now: Instant) -> bool {
        let (since, requests) = *self.expected.get_or_insert((now, self.requests));
        if self.entries == 0 || now.saturating_duration_since(since) < ENTRIES_WITHIN {
            return false;
        }
        self.expected = None;
        requests > self.entries
    }

    /// Replaces the times of entries by those of the server that are `taken` now, so that all requests count the same.
    pub(crate) fn replace(&mut self, times: &mut RequestTimes, taken: impl Fn(RequestHistogram) -> bool) {
        let Some(of_server) = &mut self.times else { return };
        for histogram in RequestHistogram::ALL.into_iter().filter(|histogram| taken(*histogram)) {
            let (new, old) = (of_server.of_server(histogram), times.of_server(histogram));
            if new.has_all_of(old) {
                old.clone_from(new);
            }
        }
    }
}
