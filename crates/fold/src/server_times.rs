//! The times of requests as trtllm-serve's own histograms count them, kept while they come from entries. A histogram has one
//! observation for each answer, and an entry is one request. So histograms that count more than there are entries have requests
//! without an entry, or requests with several answers (`n` above 1).

use std::time::{Duration, Instant};

use trtllm_records::server_metrics::RequestHistogram;

use super::histogram::Histogram;
use super::request_times::RequestTimes;
use super::saturating::add;
use super::server_metrics::Increase;

/// The entry of a request in the histograms comes within a poll or two.
const ENTRIES_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTimes {
    /// The times since the first reading, and those that entries had before, in the order of [`RequestHistogram::ALL`]. Empty until
    /// the first reading.
    pub histograms: Vec<Histogram>,
    /// Requests in the histograms since the first reading.
    requests: u64,
    /// Entries with times since the first reading.
    pub entries: u64,
    /// When the histograms had so many requests. Their entries come soon.
    expected: Option<(Instant, u64)>,
    /// The histograms have more requests than there are entries.
    pub has_more: bool,
}

impl ServerTimes {
    pub(crate) fn add(&mut self, more: &Increase, times: &RequestTimes) {
        if self.histograms.is_empty() {
            let mut times = times.clone();
            self.histograms = RequestHistogram::ALL.map(|histogram| times.of_server(histogram).clone()).into();
            self.entries = 0;
        }
        add(&mut self.requests, more.of(RequestHistogram::EndToEnd).count());
        for (histogram, increase) in self.histograms.iter_mut().zip(&more.histograms) {
            histogram.add_increase(increase);
        }
    }

    /// Whether the histograms had more requests than there are entries now, some time later. Entries without histograms say nothing.
    pub(crate) fn has_more_than_entries(&mut self, now: Instant) -> bool {
        let (since, requests) = *self.expected.get_or_insert((now, self.requests));
        if self.has_more || self.entries == 0 || now.saturating_duration_since(since) < ENTRIES_WITHIN {
            return false;
        }
        self.expected = None;
        self.has_more = requests > self.entries;
        self.has_more
    }
}
