//! Which source gives which numbers of finished requests. Several sources may tell of one request, and each number must count once.
//! So one source is taken for each quantity, and its numbers alone count:
//!
//! | quantity | best source | second | third | fourth |
//! | --- | --- | --- | --- | --- |
//! | times | entries | spans | server | rows |
//! | time per output token | spans | server | entries | rows |
//! | outcomes of objectives | entries | spans | rows | server |
//! | lengths, and Triton's counts of transfers | rows | entries | spans | – |
//! | finish reasons | entries | server | spans | – |
//! | transfers | entries | spans | rows | – |
//! | blocks | entries | rows | – | – |
//!
//! *Entries* are RequestPerfMetrics, *spans* come from OTLP, *rows* are those of requests in records, and *server* means the histograms and
//! counters of trtllm-serve itself.
//!
//! Spans are as exact as entries, but an engine may send a sample of them. If an entry came first, spans do not tell the time per output
//! token: the first requests would be judged by it a second time.
//!
//! A quantity has one of three states. It is *open* at first, and after a restart of the engine.
//!
//! | state | the best source tells it | another source tells it | 15 s after the first finished request |
//! | --- | --- | --- | --- |
//! | open | taken, and counts | waits | the best that has told it is taken and counts, else *nothing* |
//! | nothing | taken, and counts | taken, and counts | – |
//! | taken | counts if it is this source | counts if it is this source | – |
//!
//! What waits is in one queue. The best source is among those that may come: not entries of a server that has none or whose spans
//! came first, not rows or the server's metrics before the first one, and spans only if the exporter receives those of the server.
//!
//! Beside the server's metrics, times and outcomes of entries and spans wait in any case. If the server has counted more requests by
//! then, some have no entry, or a request has several answers (`n` above 1), each with its own times at the server. Then the server is
//! taken, so that times, outcomes and finish reasons count the same.
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Times,
    TimePerToken,
    Outcomes,
    Lengths,
    Reasons,
    Transfers,
    Blocks,
}

use Quantity::{Blocks, Lengths, Outcomes, Reasons, TimePerToken, Times, Transfers};

impl Quantity {
    pub(crate) const ALL: [Self; 7] = [Times, TimePerToken, Outcomes, Lengths, Reasons, Transfers, Blocks];

    /// The sources that can tell it, the best one first.
    const fn sources(self) -> &'static [Source] {
        match self {
            Times => &[Source::Entries, Source::Spans, Source::Server, Source::Rows],
            TimePerToken => &[Source::Spans, Source::Server, Source::Entries, Source::Rows],
            Outcomes => &[Source::Entries, Source::Spans, Source::Rows, Source::Server],
            Lengths => &[Source::Rows, Source::Entries, Source::Spans],
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

    /// Whether the server may count more than there are entries or spans.
    const fn is_of_each_answer(self) -> bool {
        matches!(self, Times | TimePerToken | Outcomes)
    }
}

/// A better source has this time to tell of the first finished request. trtllm-serve's metrics are read every 5 s, in at most 4 s.
pub(crate) const DECIDED_WITHIN: Duration = Duration::from_secs(15);
/// Entries and rows come with a poll at most this long after the record that counts their request.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    taken: [Option<Source>; Quantity::ALL.len()],
    /// The sources that have told each quantity.
    told: [[bool; Source::ALL.len()]; Quantity::ALL.len()],
    /// When the first request finished.
    since: Option<Instant>,
    /// Nothing is open any more.
    pub(crate) is_decided: bool,
    without_entries: bool,
    /// Which of entries and spans was the first to tell times.
    first: Option<Source>,
    has_spans: bool,
    /// The engine sends rows of its requests.
    pub(crate) has_rows: bool,
    has_server_metrics: bool,
    /// Entries and spans with times since the first reading of the server's metrics, and the requests in its histograms. Those of the
    /// last reading are apart, because their entries may come after it.
    entries: u64,
    server_requests: u64,
    last_read: u64,
}

impl Choices {
    pub(crate) fn taken(&self, quantity: Quantity) -> Option<Source> {
        self.taken[quantity as usize]
    }

    /// Whether a request of `source` counts for the quantity. `None` while that is open.
    pub(crate) fn counts(&self, quantity: Quantity, source: Source) -> Option<bool> {
        match self.taken(quantity) {
            Some(taken) => Some(taken == source),
            None => self.is_decided.then_some(false),
        }
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

    /// Notes that the server's metrics were read. `requests`: in its histograms since the reading before.
    pub(crate) fn note_server_metrics(&mut self, metrics: &ServerMetrics, requests: u64) {
        self.has_server_metrics = true;
        self.server_requests = self.server_requests.saturating_add(std::mem::replace(&mut self.last_read, requests));
        self.without_entries |= metrics.without_entries;
        self.has_spans |= metrics.with_spans;
        self.take();
    }

    /// Notes which quantities the source tells.
    pub(crate) fn note_told(&mut self, source: Source, tells: impl Fn(Quantity) -> bool) {
        let is_second = source == Source::Spans && self.first == Some(Source::Entries);
        for quantity in Quantity::ALL {
            self.told[quantity as usize][source as usize] |=
                tells(quantity) && !(is_second && quantity == TimePerToken);
        }
        self.take();
    }

    /// Takes the best source of each open quantity, if it has told the quantity. It may come later until all is decided.
    fn take(&mut self) {
        for quantity in Quantity::ALL {
            let told = self.told[quantity as usize];
            let may_tell = |source: &Source| told[*source as usize] || !self.is_decided && self.may_come(*source);
            let best = quantity.sources().iter().copied().find(may_tell).filter(|best| told[*best as usize]);
            let waits = self.has_server_metrics && !self.is_decided && quantity.is_of_each_answer();
            let taken = &mut self.taken[quantity as usize];
            *taken = taken.or(best.filter(|best| !(waits && best.is_per_request())));
        }
    }

    fn may_come(&self, source: Source) -> bool {
        match source {
            Source::Entries => !self.without_entries && self.first != Some(Source::Spans),
            Source::Spans => self.has_spans && self.first != Some(Source::Entries),
            Source::Rows => self.has_rows,
            Source::Server => self.has_server_metrics,
        }
    }

    /// Whether no source but this one may come.
    pub(crate) fn has_only(&self, source: Source) -> bool {
        Source::ALL.into_iter().all(|other| other == source || !self.may_come(other))
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let is_over = |since| now.saturating_duration_since(since) >= DECIDED_WITHIN;
        !self.is_decided && self.since.is_some_and(is_over)
    }

    /// Takes the best source that has told each open quantity.
    pub(crate) fn decide(&mut self) {
        self.is_decided = true;
        let server_has_more = self.server_requests > self.entries;
        for quantity in Quantity::ALL.into_iter().filter(|quantity| server_has_more && quantity.is_of_each_answer()) {
            let told = &mut self.told[quantity as usize];
            if told[Source::Server as usize] {
                (told[Source::Entries as usize], told[Source::Spans as usize]) = (false, false);
            }
        }
        self.take();
    }

    /// Takes nothing from the server any more. Its quantities are open again, because entries may come after all.
    pub(crate) fn leave_server_metrics(&mut self) {
        (self.without_entries, self.has_server_metrics) = (false, false);
        (self.entries, self.server_requests, self.last_read) = (0, 0, 0);
        (self.since, self.is_decided) = (None, false);
        for (taken, told) in self.taken.iter_mut().zip(&mut self.told) {
            *taken = taken.filter(|source| *source != Source::Server);
            told[Source::Server as usize] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choices a moment after the first finished request, or after the time to decide.
    fn begun(is_over: bool) -> Choices {
        let seen = Choices { has_spans: true, has_rows: true, has_server_metrics: true, ..Choices::default() };
        let (mut choices, now) = (seen, Instant::now());
        choices.begin(now);
        assert!(!choices.is_due(now));
        if choices.is_due(now + DECIDED_WITHIN) && is_over {
            choices.decide();
        }
        choices
    }

    impl Choices {
        fn offer(&mut self, quantity: Quantity, source: Source) {
            self.note_told(source, |told| told == quantity);
        }
    }

    #[test]
    fn the_best_source_that_tells_a_quantity_in_time_is_taken_for_good() {
        for quantity in Quantity::ALL {
            let [best, rest @ ..] = quantity.sources() else { panic!("{quantity:?} has no source") };
            for other in rest {
                let mut choices = begun(false);
                choices.offer(quantity, *other);
                assert_eq!(choices.counts(quantity, *other), None, "{quantity:?} waits for {best:?}");
                choices.offer(quantity, *best);
                if quantity.is_of_each_answer() {
                    choices.decide();
                }
                assert_eq!(
                    Source::ALL.map(|source| choices.counts(quantity, source)),
                    Source::ALL.map(|s| Some(s == *best))
                );
                // The best one comes too late.
                let mut choices = begun(false);
                choices.offer(quantity, *other);
                choices.decide();
                choices.offer(quantity, *best);
                assert_eq!(choices.taken(quantity), Some(*other), "{quantity:?}");
            }
        }
    }

    #[test]
    fn without_the_best_source_the_better_of_two_wins_in_either_order() {
        for quantity in Quantity::ALL {
            for pair in quantity.sources()[1..].windows(2) {
                for order in [[pair[0], pair[1]], [pair[1], pair[0]]] {
                    let mut choices = begun(false);
                    order.into_iter().for_each(|source| choices.offer(quantity, source));
                    choices.decide();
                    assert_eq!(choices.taken(quantity), Some(pair[0]), "{quantity:?}");
                }
            }
        }
    }

    #[test]
    fn spans_wait_for_entries_only_if_an_entry_came_first() {
        let told_by_span = |first: Option<Source>| {
            let mut choices = Choices::default();
            first.into_iter().for_each(|source| _ = choices.note_request(source, true));
            let is_first = choices.note_request(Source::Spans, true);
            choices.offer(Lengths, Source::Spans);
            (is_first, choices.counts(Lengths, Source::Spans))
        };
        assert_eq!(told_by_span(None), (true, Some(true)));
        assert_eq!(told_by_span(Some(Source::Spans)), (true, Some(true)));
        assert_eq!(told_by_span(Some(Source::Entries)), (false, None));
    }

    #[test]
    fn what_nobody_told_in_time_is_taken_from_the_first_that_does() {
        for (quantity, source) in Quantity::ALL.into_iter().flat_map(|of| of.sources().iter().map(move |s| (of, *s))) {
            let mut choices = begun(true);
            assert_eq!((choices.taken(quantity), choices.counts(quantity, source)), (None, Some(false)));
            choices.offer(quantity, source);
            assert_eq!(choices.counts(quantity, source), Some(true));
        }
    }

    #[test]
    fn nothing_waits_for_rows_and_server_metrics_that_were_never_seen() {
        let mut choices = Choices::default();
        choices.begin(Instant::now());
        for quantity in Quantity::ALL {
            choices.offer(quantity, Source::Entries);
            assert_eq!(choices.taken(quantity), Some(Source::Entries), "{quantity:?}");
        }
    }

    #[test]
    fn the_server_page_waits_for_spans_that_the_exporter_receives() {
        for with_spans in [false, true] {
            let mut choices = Choices::default();
            let metrics = ServerMetrics { without_entries: true, with_spans, ..ServerMetrics::default() };
            choices.note_server_metrics(&metrics, 0);
            for quantity in [Times, TimePerToken, Outcomes] {
                choices.offer(quantity, Source::Server);
                choices.offer(quantity, Source::Spans);
            }
            choices.decide();
            for quantity in [Times, TimePerToken, Outcomes] {
                let expected = if with_spans { Source::Spans } else { Source::Server };
                assert_eq!(choices.taken(quantity), Some(expected), "{quantity:?}");
            }
        }
    }

    #[test]
    fn the_server_is_taken_where_it_counts_more_requests_than_come_one_by_one() {
        for (source, requests, expected) in [
            (Source::Entries, [0, 2, 9], Source::Entries),
            (Source::Entries, [0, 3, 0], Source::Server),
            (Source::Spans, [0, 3, 0], Source::Server),
        ] {
            let mut choices = begun(false);
            for requests in requests {
                choices.note_server_metrics(&ServerMetrics::default(), requests);
            }
            (0..2).for_each(|_| _ = choices.note_request(source, true));
            for quantity in [Times, TimePerToken, Outcomes] {
                choices.offer(quantity, source);
                choices.offer(quantity, Source::Server);
            }
            choices.decide();
            assert_eq!([Times, Outcomes].map(|quantity| choices.taken(quantity)), [Some(expected); 2]);
            assert_eq!(choices.taken(TimePerToken), Some(Source::Server));
        }
    }

    #[test]
    fn nothing_waits_for_entries_of_a_server_that_has_none() {
        let mut choices = Choices { has_spans: false, ..begun(false) };
        choices.offer(Times, Source::Server);
        choices.note_server_metrics(&ServerMetrics { without_entries: true, ..ServerMetrics::default() }, 0);
        choices.offer(Reasons, Source::Server);
        assert_eq!([Times, Reasons].map(|quantity| choices.taken(quantity)), [Some(Source::Server); 2]);
        // The metrics of a server with several frontends say nothing, so entries may come after all.
        choices.leave_server_metrics();
        choices.offer(Times, Source::Entries);
        assert_eq!(choices.taken(Times), Some(Source::Entries));
    }
}
