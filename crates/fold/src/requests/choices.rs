//! Which source gives which numbers of finished requests. Several sources may tell of one request, and each number must count once.
//! So one source is taken for each quantity, and its numbers alone count:
//!
//! | quantity | best source | second | third | fourth |
//! | --- | --- | --- | --- | --- |
//! | times | entries | spans | server | rows |
//! | time per output token | spans | server | entries | rows |
//! | outcomes of objectives | entries | spans | rows | server |
//! | lengths | rows | entries | spans | – |
//! | finish reasons | entries | server | spans | – |
//! | transfers | entries | spans | rows | – |
//! | Triton's counts of transfers | rows | entries | spans | – |
//! | blocks | entries | rows | – | – |
//!
//! *Entries* are RequestPerfMetrics, *spans* come from OTLP, *rows* are those of requests in records, and *server* means the histograms and
//! counters of trtllm-serve itself.
//!
//! Spans are as exact as entries, but an engine may send a sample of them. If an entry came first, spans do not tell the time per output
//! token: the first requests would be judged by it a second time.
//!
//! The choice has one of two states. It is *open* at first, and after a restart of the engine.
//!
//! | state | a source tells a quantity | 15 s after the first finished request, or earlier if no other source may come or the queue is full |
//! | --- | --- | --- |
//! | open | all waits in one queue | each quantity is taken from the best source that has told it. What waited counts. *Decided* |
//! | decided | counts if the quantity is taken from this source. The first that tells a quantity which nobody told is taken | – |
//!
//! Entries may come until the server is known to have none, or its spans came first. Rows and the server's metrics may come after the
//! first ones, also of an engine before a restart, and spans if the exporter receives those of the server.
//!
//! A source that tells less than another one is taken after it:
//!
//! - Entries and spans, if the server had counted more requests than came of these some seconds later, where one entry may be lost. Then
//!   many requests have none, or a request has several answers (`n` above 1), each with its own times at the server. Times, outcomes and
//!   finish reasons must count the same.
//! - Rows, if they come of a sample of the requests. For outcomes also if no row has told a time.
//!
//! One change comes later: if several frontends answer, the server's metrics are left, and their quantities are open again.

use std::time::{Duration, Instant};

use trtllm_records::ServerMetrics;
use trtllm_records::server_metrics::RequestHistogram;

pub(crate) use crate::request_totals::RequestSource as Source;

impl Source {
    pub(crate) fn is_per_request(self) -> bool {
        matches!(self, Self::Entries | Self::Spans)
    }

    /// The source tells of a request within this time of the record that counts it.
    const fn tells_within(self) -> Duration {
        match self {
            Self::Entries | Self::Rows => TOLD_WITHIN,
            Self::Spans => SPANS_WITHIN,
            Self::Server => DECIDED_WITHIN,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Times,
    TimePerToken,
    Outcomes,
    Lengths,
    Reasons,
    Transfers,
    TransferCounts,
    Blocks,
}

use Quantity::{Blocks, Lengths, Outcomes, Reasons, TimePerToken, Times, TransferCounts, Transfers};

impl Quantity {
    pub(crate) const ALL: [Self; 8] =
        [Times, TimePerToken, Outcomes, Lengths, Reasons, Transfers, TransferCounts, Blocks];

    /// The sources that can tell it, the best one first.
    const fn sources(self) -> &'static [Source] {
        match self {
            Times => &[Source::Entries, Source::Spans, Source::Server, Source::Rows],
            TimePerToken => &[Source::Spans, Source::Server, Source::Entries, Source::Rows],
            Outcomes => &[Source::Entries, Source::Spans, Source::Rows, Source::Server],
            Lengths | TransferCounts => &[Source::Rows, Source::Entries, Source::Spans],
            Reasons => &[Source::Entries, Source::Server, Source::Spans],
            Transfers => &[Source::Entries, Source::Spans, Source::Rows],
            Blocks => &[Source::Entries, Source::Rows],
        }
    }

    /// The quantity of one of the server's histograms. Absent if no other source tells it.
    pub(crate) fn of(histogram: RequestHistogram) -> Option<Self> {
        match histogram {
            RequestHistogram::PerOutputToken => Some(TimePerToken),
            _ => (!histogram.is_only_in_server_metrics()).then_some(Times),
        }
    }
}

/// A better source has this time to tell of the first finished request. trtllm-serve's metrics are read every 5 s, in at most 4 s.
pub(crate) const DECIDED_WITHIN: Duration = Duration::from_secs(15);
/// Entries and rows come with a poll at most this long after the record that counts their request.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// The entry of a request that the server has counted comes within this time. Entries are read every second.
const ENTRIES_WITHIN: Duration = Duration::from_secs(3);
/// So does its span. Spans are sent every 5 s, and wait for the spans before them.
const SPANS_WITHIN: Duration = Duration::from_secs(8);
/// This many entries may be lost, because an answer did not arrive. Spans are sent again.
const LOST_ENTRIES: u64 = 1;

#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    taken: [Option<Source>; Quantity::ALL.len()],
    /// The sources that have told each quantity.
    told: [[bool; Source::ALL.len()]; Quantity::ALL.len()],
    /// When the first request finished.
    since: Option<Instant>,
    pub(crate) is_decided: bool,
    without_entries: bool,
    /// Which of entries and spans was the first to tell times.
    first: Option<Source>,
    has_spans: bool,
    /// The engine sends rows of its requests.
    pub(crate) has_rows: bool,
    rows_are_sampled: bool,
    rows_have_times: bool,
    has_server_metrics: bool,
    /// Entries and spans with times since the first reading of the server's metrics, and the requests in its histograms.
    entries: u64,
    server_requests: u64,
    /// When the histograms had so many requests. Their entries come soon.
    expected: Option<(Instant, u64)>,
    /// The histograms had more requests than entries came for them.
    server_has_more: bool,
}

impl Choices {
    /// The choices after a restart of the engine. Spans of the process before came while the next one loaded its model.
    pub(crate) fn next(&self) -> Self {
        Self { has_rows: self.has_rows, has_server_metrics: self.has_server_metrics, ..Self::default() }
    }

    pub(crate) fn taken(&self, quantity: Quantity) -> Option<Source> {
        self.taken[quantity as usize]
    }

    /// Whether entries or spans tell the times.
    pub(crate) fn have_entries(&self) -> bool {
        self.taken(Times).is_some_and(Source::is_per_request)
    }

    /// Notes that a request has finished.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Notes an entry or a span. Returns whether the source is the first of both to tell times, or tells something before that.
    pub(crate) fn note_request(&mut self, source: Source, has_times: bool) -> bool {
        self.has_spans |= source == Source::Spans;
        if has_times {
            self.first.get_or_insert(source);
        }
        let is_first = self.first.is_none_or(|first| first == source);
        self.entries += u64::from(is_first && has_times && self.has_server_metrics);
        is_first
    }

    /// Notes the row of a finished request. `is_sampled`: not all requests have rows.
    pub(crate) fn note_row(&mut self, has_times: bool, is_sampled: bool) {
        self.has_rows = true;
        self.rows_have_times |= has_times;
        self.rows_are_sampled = is_sampled;
    }

    /// Notes that the server's metrics were read. `requests`: in its histograms since the reading before.
    pub(crate) fn note_server_metrics(&mut self, metrics: &ServerMetrics, requests: u64, now: Instant) {
        self.has_server_metrics = true;
        self.server_requests = self.server_requests.saturating_add(requests);
        if requests > 0 {
            self.expected.get_or_insert((now, self.server_requests));
        }
        self.without_entries |= metrics.without_entries;
        self.has_spans |= metrics.with_spans;
    }

    /// Ends a poll. Compares a reading of the server's metrics with the entries or spans once those of its requests have come.
    pub(crate) fn compare(&mut self, now: Instant) {
        let (within, lost) =
            if self.first == Some(Source::Entries) { (ENTRIES_WITHIN, LOST_ENTRIES) } else { (SPANS_WITHIN, 0) };
        if let Some((_, requests)) = self.expected.take_if(|(at, _)| now.saturating_duration_since(*at) >= within) {
            self.server_has_more |= requests > self.entries.saturating_add(lost);
        }
    }

    /// Notes which quantities the source tells.
    pub(crate) fn note_told(&mut self, source: Source, tells: impl Fn(Quantity) -> bool) {
        let is_second = source == Source::Spans && self.first == Some(Source::Entries);
        for quantity in Quantity::ALL {
            self.told[quantity as usize][source as usize] |=
                tells(quantity) && !(is_second && quantity == TimePerToken);
        }
        if self.is_decided {
            self.take();
        }
    }

    /// Takes the best source that has told each quantity that is not taken yet.
    fn take(&mut self) {
        for quantity in Quantity::ALL {
            let told = || quantity.sources().iter().copied().filter(|source| self.has_told(*source, quantity));
            let best = told().find(|source| !self.tells_less(*source, quantity)).or_else(|| told().next());
            self.taken[quantity as usize] = self.taken(quantity).or(best);
        }
    }

    fn has_told(&self, source: Source, quantity: Quantity) -> bool {
        self.told[quantity as usize][source as usize]
    }

    /// Whether another source that has told the quantity is taken before this one.
    fn tells_less(&self, source: Source, quantity: Quantity) -> bool {
        match source {
            Source::Entries | Source::Spans => self.server_has_more && self.has_told(Source::Server, quantity),
            Source::Rows => self.rows_are_sampled || quantity == Outcomes && !self.rows_have_times,
            Source::Server => false,
        }
    }

    /// A completed request has its outcome within this time.
    pub(crate) fn judged_within(&self) -> Duration {
        if !self.is_decided {
            return DECIDED_WITHIN;
        }
        let sources = [Outcomes, TimePerToken].into_iter().filter_map(|quantity| self.taken(quantity));
        sources.map(Source::tells_within).max().unwrap_or(TOLD_WITHIN)
    }

    fn may_come(&self, source: Source) -> bool {
        match source {
            Source::Entries => !self.without_entries && self.first != Some(Source::Spans),
            Source::Spans => self.has_spans && self.first != Some(Source::Entries),
            Source::Rows => self.has_rows,
            Source::Server => self.has_server_metrics,
        }
    }

    /// Whether no source but this one may come. Entries and spans are only known by their first times.
    pub(crate) fn is_alone(&self, source: Source) -> bool {
        let is_known = !source.is_per_request() || self.first == Some(source);
        is_known && Source::ALL.into_iter().all(|other| other == source || !self.may_come(other))
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let is_over = |since| now.saturating_duration_since(since) >= DECIDED_WITHIN;
        !self.is_decided && self.since.is_some_and(is_over)
    }

    pub(crate) fn decide(&mut self) {
        self.is_decided = true;
        self.take();
    }

    /// Takes nothing from the server any more. Its quantities are open again, because entries may come after all.
    pub(crate) fn leave_server_metrics(&mut self) {
        (self.without_entries, self.has_server_metrics) = (false, false);
        (self.entries, self.server_requests) = (0, 0);
        (self.expected, self.server_has_more) = (None, false);
        if self.is_decided {
            (self.since, self.is_decided) = (None, false);
        }
        for (taken, told) in self.taken.iter_mut().zip(&mut self.told) {
            *taken = taken.filter(|source| *source != Source::Server);
            told[Source::Server as usize] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Choices {
        fn offer(&mut self, quantity: Quantity, source: Source) {
            if source == Source::Rows {
                self.note_row(true, false);
            }
            self.note_told(source, |told| told == quantity);
        }
    }

    #[test]
    fn the_best_of_two_sources_that_tell_a_quantity_in_time_is_taken_for_good_in_either_order() {
        for quantity in Quantity::ALL {
            for pair in quantity.sources().windows(2) {
                for order in [[pair[0], pair[1]], [pair[1], pair[0]]] {
                    let mut choices = Choices::default();
                    order.into_iter().for_each(|source| choices.offer(quantity, source));
                    assert_eq!(choices.taken(quantity), None, "{quantity:?} is open");
                    choices.decide();
                    assert_eq!(choices.taken(quantity), Some(pair[0]), "{quantity:?}");
                }
                // The best one comes too late.
                let mut choices = Choices::default();
                choices.offer(quantity, pair[1]);
                choices.decide();
                choices.offer(quantity, pair[0]);
                assert_eq!(choices.taken(quantity), Some(pair[1]), "{quantity:?}");
            }
        }
    }

    #[test]
    fn what_nobody_told_in_time_is_taken_from_the_first_that_does() {
        for (quantity, source) in Quantity::ALL.into_iter().flat_map(|of| of.sources().iter().map(move |s| (of, *s))) {
            let (mut choices, now) = (Choices::default(), Instant::now());
            choices.begin(now);
            assert_eq!((choices.is_due(now), choices.is_due(now + DECIDED_WITHIN)), (false, true));
            choices.decide();
            assert_eq!(choices.taken(quantity), None);
            choices.offer(quantity, source);
            assert_eq!(choices.taken(quantity), Some(source));
        }
    }

    #[test]
    fn a_source_is_alone_until_another_one_may_come() {
        let alone = |first: Source, metrics: Option<ServerMetrics>, has_rows: bool| {
            let mut choices = Choices { has_rows, ..Choices::default() };
            metrics.iter().for_each(|metrics| choices.note_server_metrics(metrics, 0, Instant::now()));
            choices.note_request(first, true);
            Source::ALL.into_iter().filter(|source| choices.is_alone(*source)).collect::<Vec<_>>()
        };
        let metrics = |without_entries, with_spans| {
            Some(ServerMetrics { without_entries, with_spans, ..ServerMetrics::default() })
        };
        assert_eq!(alone(Source::Entries, None, false), [Source::Entries]);
        assert_eq!(alone(Source::Spans, None, false), [Source::Spans]);
        assert_eq!(alone(Source::Entries, None, true), []);
        assert_eq!(alone(Source::Entries, metrics(false, false), false), []);
        let of_server = |with_spans| {
            let mut choices = Choices::default();
            metrics(true, with_spans)
                .iter()
                .for_each(|metrics| choices.note_server_metrics(metrics, 0, Instant::now()));
            choices.is_alone(Source::Server)
        };
        assert_eq!((of_server(false), of_server(true)), (true, false), "the exporter receives spans");
    }

    #[test]
    fn the_server_is_taken_where_it_counts_more_requests_than_come_one_by_one() {
        // Each second, one request with this many answers ends. Its entry or span comes `late` seconds later. The
        // server is read every 5 s.
        let taken = |source: Source, answers: u64, late: u64, first_reading: u64| {
            let (mut choices, start) = (Choices::default(), Instant::now());
            choices.note_server_metrics(&ServerMetrics::default(), 0, start);
            let mut read = 0;
            for second in 0..=15 {
                let now = start + Duration::from_secs(second);
                if second >= late {
                    choices.note_request(source, true);
                }
                if second % 5 == first_reading {
                    let ended = (second + 1) * answers;
                    choices.note_server_metrics(&ServerMetrics::default(), ended - read, now);
                    read = ended;
                }
                choices.compare(now);
            }
            for quantity in [Times, TimePerToken, Outcomes] {
                choices.offer(quantity, source);
                choices.offer(quantity, Source::Server);
            }
            choices.decide();
            [Times, Outcomes].map(|quantity| choices.taken(quantity))
        };
        for first_reading in 0..5 {
            for (source, answers, late, expected) in [
                (Source::Entries, 1, 3, Source::Entries),
                (Source::Entries, 2, 0, Source::Server),
                (Source::Spans, 1, 8, Source::Spans),
                (Source::Spans, 10, 0, Source::Server),
            ] {
                assert_eq!(
                    taken(source, answers, late, first_reading),
                    [Some(expected); 2],
                    "{answers} {first_reading}"
                );
            }
        }
    }

    #[test]
    fn one_lost_entry_leaves_the_entries_their_place() {
        for (lost, expected) in [(1, Source::Entries), (2, Source::Server)] {
            let (mut choices, now) = (Choices::default(), Instant::now());
            choices.note_server_metrics(&ServerMetrics::default(), 1 + lost, now);
            choices.note_request(Source::Entries, true);
            choices.compare(now + ENTRIES_WITHIN);
            choices.offer(Times, Source::Entries);
            choices.offer(Times, Source::Server);
            choices.decide();
            assert_eq!(choices.taken(Times), Some(expected), "{lost} lost");
        }
    }

    #[test]
    fn rows_that_tell_less_than_another_source_are_taken_after_it() {
        let taken = |quantity: Quantity, other: Option<Source>, has_times: bool, is_sampled: bool| {
            let mut choices = Choices::default();
            choices.note_row(has_times, is_sampled);
            choices.note_told(Source::Rows, |told| told == quantity);
            other.into_iter().for_each(|other| choices.offer(quantity, other));
            choices.decide();
            choices.taken(quantity).unwrap()
        };
        for (quantity, other) in [(Outcomes, Source::Server), (Lengths, Source::Entries), (Lengths, Source::Spans)] {
            assert_eq!(taken(quantity, Some(other), true, false), Source::Rows, "{quantity:?}");
            assert_eq!(taken(quantity, Some(other), true, true), other, "{quantity:?} of a sample");
            assert_eq!(taken(quantity, None, false, true), Source::Rows, "no other source");
        }
        assert_eq!(taken(Outcomes, Some(Source::Server), false, false), Source::Server);
        assert_eq!(taken(Lengths, Some(Source::Entries), false, false), Source::Rows);
    }

    #[test]
    fn a_request_is_unknown_only_after_the_time_that_its_source_takes() {
        for (source, seconds) in [(Source::Entries, 5), (Source::Rows, 5), (Source::Spans, 8), (Source::Server, 15)] {
            let mut choices = Choices::default();
            assert_eq!(choices.judged_within(), DECIDED_WITHIN, "any source may come");
            choices.offer(Outcomes, source);
            choices.decide();
            assert_eq!(choices.judged_within(), Duration::from_secs(seconds), "{source:?}");
        }
    }

    #[test]
    fn quantities_of_a_server_that_is_left_are_open_again() {
        let mut choices = Choices::default();
        let metrics = ServerMetrics { without_entries: true, ..ServerMetrics::default() };
        choices.note_server_metrics(&metrics, 0, Instant::now());
        choices.offer(Times, Source::Server);
        choices.decide();
        assert_eq!(choices.taken(Times), Some(Source::Server));
        // The metrics of a server with several frontends say nothing, so entries may come after all.
        choices.leave_server_metrics();
        choices.offer(Times, Source::Entries);
        choices.decide();
        assert_eq!(choices.taken(Times), Some(Source::Entries));
    }
}
