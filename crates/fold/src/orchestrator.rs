//! Folds the readings of an orchestrator of disaggregated serving. Its counters started before the exporter, so only
//! their increases count. `baseline` decides what a counter that falls means.

use std::collections::HashMap;

use trtllm_records::OrchestratorReading;
use trtllm_records::orchestrator::{OrchestratorCounter, OrchestratorTime, Side, WorkerCounts};

use super::baseline::{Baseline, CountName};
use super::defaults::with_defaults;
use super::histogram::{COMPLETE_SECONDS, FIRST_TOKEN_SECONDS, Histogram};
use super::saturating::add;
use super::server_metrics::HistogramIncrease;

with_defaults! {
    /// What is known of an orchestrator. Counts that it does not report are absent.
    pub struct OrchestratorTotals {
        pub streamed: Option<u64>,
        pub whole: Option<u64>,
        pub responses: Option<u64>,
        pub invalid: Option<u64>,
        pub http_errors: Option<u64>,
        pub internal_errors: Option<u64>,
        pub queue_time: Histogram = Histogram::new(FIRST_TOKEN_SECONDS),
        /// In the order of [`Side::ALL`]. Absent for a side that the orchestrator does not have.
        pub sides: [Option<SideTotals>; Side::ALL.len()],
        pub ready: Option<bool>,
        pub workers: WorkerCounts,
        pub minimal_workers: WorkerCounts,
    }
}

with_defaults! {
    /// The requests of an orchestrator to the workers of one side (kind of worker).
    pub struct SideTotals {
        pub sent: u64,
        pub retried: u64,
        pub failed: u64,
        pub ended: u64,
        /// Streams with first bytes, and whole answers: those in the next histograms, and those whose times are unknown.
        pub streams_begun: u64,
        pub answers: u64,
        pub first_bytes: Histogram = Histogram::new(FIRST_TOKEN_SECONDS),
        pub between_reads: Histogram = Histogram::new(FIRST_TOKEN_SECONDS),
        pub complete: Histogram = Histogram::new(COMPLETE_SECONDS),
    }
}

impl OrchestratorTotals {
    fn side(&mut self, side: Side) -> &mut SideTotals {
        self.sides[side as usize].get_or_insert_default()
    }

    fn count(&mut self, counter: &OrchestratorCounter, increase: u64) {
        let total = match counter {
            OrchestratorCounter::Streamed => self.streamed.get_or_insert(0),
            OrchestratorCounter::Whole => self.whole.get_or_insert(0),
            OrchestratorCounter::Responses => self.responses.get_or_insert(0),
            OrchestratorCounter::Invalid => self.invalid.get_or_insert(0),
            OrchestratorCounter::HttpErrors => self.http_errors.get_or_insert(0),
            OrchestratorCounter::InternalErrors => self.internal_errors.get_or_insert(0),
            OrchestratorCounter::Sent(side) => &mut self.side(*side).sent,
            OrchestratorCounter::Retried(side) => &mut self.side(*side).retried,
            OrchestratorCounter::Failed(side) => &mut self.side(*side).failed,
            OrchestratorCounter::Ended(side) => &mut self.side(*side).ended,
            OrchestratorCounter::Time(..) | OrchestratorCounter::TimeNanos(_) => return,
        };
        add(total, increase);
    }

    fn histogram(&mut self, time: OrchestratorTime) -> &mut Histogram {
        match time {
            OrchestratorTime::Queue => &mut self.queue_time,
            OrchestratorTime::FirstBytes(side) => &mut self.side(side).first_bytes,
            OrchestratorTime::BetweenReads(side) => &mut self.side(side).between_reads,
            OrchestratorTime::Complete(side) => &mut self.side(side).complete,
        }
    }

    fn requests(&self) -> u64 {
        self.streamed.unwrap_or(0).saturating_add(self.whole.unwrap_or(0))
    }
}

#[derive(Debug, Clone, Default)]
pub struct OrchestratorFold {
    pub totals: OrchestratorTotals,
    pub(crate) counts: Baseline<OrchestratorCounter>,
    /// Whether a histogram had no sum in the last reading.
    lacks_sum: HashMap<OrchestratorTime, bool>,
}

impl CountName for OrchestratorCounter {
    fn is_sum(&self) -> bool {
        matches!(self, Self::TimeNanos(_))
    }
}

impl OrchestratorFold {
    /// Returns whether there were new requests.
    pub fn absorb(&mut self, reading: &OrchestratorReading) -> bool {
        (self.totals.ready, self.totals.workers, self.totals.minimal_workers) =
            (reading.ready, reading.workers, reading.minimal_workers);
        if reading.several_processes {
            // Earlier increases may be those from the counts of one process to the counts of another, so they are
            // dropped.
            let OrchestratorTotals { ready, workers, minimal_workers, .. } = self.totals;
            self.totals = OrchestratorTotals { ready, workers, minimal_workers, ..OrchestratorTotals::default() };
            self.counts = Baseline::default();
            return false;
        }
        let totals = &mut self.totals;
        let before = totals.requests();
        let mut times: HashMap<OrchestratorTime, HistogramIncrease> = HashMap::new();
        let counts: Vec<_> = reading.counts.iter().map(|count| (count.counter.clone(), count.value)).collect();
        for ((counter, _), increase) in counts.iter().zip(self.counts.increases(&counts)) {
            match counter {
                OrchestratorCounter::Time(time, bound) => {
                    times.entry(*time).or_default().add_bucket(bound, increase);
                }
                OrchestratorCounter::TimeNanos(time) => times.entry(*time).or_default().add_sum(increase, 1e9),
                counter => totals.count(counter, increase.unwrap_or(0)),
            }
        }
        for (time, mut increase) in times {
            increase.end_reading(self.lacks_sum.entry(time).or_default());
            match time {
                OrchestratorTime::FirstBytes(side) => add(&mut totals.side(side).streams_begun, increase.count()),
                OrchestratorTime::Complete(side) => add(&mut totals.side(side).answers, increase.count()),
                OrchestratorTime::Queue | OrchestratorTime::BetweenReads(_) => {}
            }
            totals.histogram(time).add_increase(&increase);
        }
        totals.requests() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_sources::orchestrator_page::parse_orchestrator_page;

    /// A page after `requests` requests, each of 0.4 s. `failed` of them failed on the generation side.
    fn page(requests: u64, failed: u64) -> OrchestratorReading {
        let served = requests - failed;
        let text = format!(
            "stream_requests_total {requests}\nnonstream_requests_total 0.0\ntotal_responses_total {served}\n\
             http_exceptions_total {failed}\ngen_total_requests_total {requests}\ngen_error_requests_total {failed}\n\
             gen_completed_requests_total {requests}\ngen_complete_latency_seconds_bucket{{le=\"0.3\"}} 0.0\n\
             gen_complete_latency_seconds_bucket{{le=\"0.5\"}} {served}\n\
             gen_complete_latency_seconds_bucket{{le=\"+Inf\"}} {served}\n\
             gen_complete_latency_seconds_sum {}\n",
            served as f64 * 0.4
        );
        OrchestratorReading { counts: parse_orchestrator_page(text.as_bytes()).unwrap(), ..Default::default() }
    }

    /// Requests, HTTP errors, requests to generation workers, failed requests, and the number and sum of request times.
    fn totals(fold: &OrchestratorFold) -> (u64, u64, u64, u64, u64, f64) {
        let totals = &fold.totals;
        let side = totals.sides[Side::Generation as usize].as_ref().unwrap();
        let sum = (side.complete.sum() * 1e6).round() / 1e6;
        (totals.requests(), totals.http_errors.unwrap(), side.sent, side.failed, side.complete.count(), sum)
    }

    #[test]
    fn a_new_orchestrator_counts_from_0_even_where_its_counters_are_higher() {
        let mut fold = OrchestratorFold::default();
        for (requests, failed) in [(100, 5), (110, 6)] {
            fold.absorb(&page(requests, failed));
        }
        // Fewer requests than before, and more failures. Three more pages show that the page is not of another process.
        for _ in 0..3 {
            assert!(!fold.absorb(&page(50, 20)));
        }
        assert_eq!(totals(&fold), (10, 1, 10, 1, 9, 3.6));
        assert!(fold.absorb(&page(50, 20)));
        assert_eq!(totals(&fold), (60, 21, 60, 21, 9 + 30, 15.6));
        fold.absorb(&page(51, 20));
        assert_eq!(totals(&fold), (61, 21, 61, 21, 40, 16.0));
    }

    #[test]
    fn after_a_pause_the_next_page_is_a_baseline() {
        let mut fold = OrchestratorFold::default();
        fold.absorb(&page(100, 5));
        fold.counts = Baseline::default();
        fold.absorb(&page(200, 5));
        fold.absorb(&page(201, 5));
        assert_eq!(totals(&fold).0, 1);
    }

    #[test]
    fn times_without_a_known_sum_are_not_counted() {
        let with_sum = |requests: u64, sum: &str| {
            let page = page(requests, 0);
            let is_sum = |counter: &OrchestratorCounter| matches!(counter, OrchestratorCounter::TimeNanos(_));
            let mut counts: Vec<_> = page.counts.into_iter().filter(|count| !is_sum(&count.counter)).collect();
            let sum = format!("gen_complete_latency_seconds_sum {sum}\n");
            counts.extend(parse_orchestrator_page(sum.as_bytes()).unwrap_or_default());
            OrchestratorReading { counts, ..Default::default() }
        };
        let counted = |sums: [&str; 3]| {
            let mut fold = OrchestratorFold::default();
            for (requests, sum) in (1..).zip(sums) {
                fold.absorb(&with_sum(requests * 10, sum));
            }
            assert_eq!(fold.totals.side(Side::Generation).answers, 20, "they are counted, whatever their sum is");
            let totals = totals(&fold);
            (totals.0, totals.4, totals.5)
        };
        assert_eq!(counted(["4", "8", "12"]), (20, 20, 8.0), "the control");
        assert_eq!(counted(["4", "8", "NaN"]), (20, 10, 4.0));
        assert_eq!(counted(["4", "3", "2"]), (20, 0, 0.0));
    }
}
