//! Folds trtllm-serve's own metrics. Its counters started before the exporter, so only their increases count.
//! `baseline` decides what a counter that falls means. Memory is bounded.

use std::collections::BTreeMap;

use trtllm_records::ServerMetrics;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::{Configuration, RequestHistogram, ServerCounter};

use super::baseline::{Baseline, CountName};
use super::saturating::{add, add_known};

/// Number of values of one label that are counted separately.
const MAX_VALUES: usize = 64;
/// The label value under which all further values are counted.
const OTHER: &str = "other";

/// Requests by finish reason, in the order of [`FinishReason::ALL`].
pub(crate) type ReasonCounts = [u64; FinishReason::ALL.len()];

/// Totals by the value of a label.
pub type ByLabel = BTreeMap<String, u64>;

/// Totals that only trtllm-serve's own metrics have. Each is absent until the server has sent it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerTotals {
    pub prompt_tokens: Option<u64>,
    pub generation_tokens: Option<u64>,
    /// Prompt tokens found in the KV cache.
    pub cached_tokens: Option<u64>,
    /// Requests refused, by HTTP status.
    pub errors: ByLabel,
    /// Draft tokens by their position in the draft.
    pub drafted_tokens: ByLabel,
    pub accepted_tokens: ByLabel,
    pub config: Configuration,
}

/// The increase of numbers that entries and rows of requests may have, too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Increase {
    pub finished: ReasonCounts,
    /// In the order of [`RequestHistogram::ALL`].
    pub histograms: [HistogramIncrease; RequestHistogram::ALL.len()],
}

impl Increase {
    #[must_use]
    pub fn of(&self, histogram: RequestHistogram) -> &HistogramIncrease {
        &self.histograms[histogram as usize]
    }
}

/// The increase of one histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramIncrease {
    /// Upper bound and number of each bucket, in ascending order.
    pub buckets: Vec<(f64, u64)>,
    /// Absent if it is unknown, because it has fallen, is missing or was missing in the reading before. The server's sum is NaN after
    /// one value that is NaN, and falls with a negative one. The buckets alone would give a wrong mean.
    pub sum: Option<f64>,
}

impl HistogramIncrease {
    pub(crate) fn add_bucket(&mut self, bound: &str, increase: Option<u64>) {
        self.buckets.extend(bound.parse().ok().zip(increase));
    }

    /// `increase`: see [`Baseline::increases`]. `parts`: divisor that converts it to the unit of the histogram.
    pub(crate) fn add_sum(&mut self, increase: Option<u64>, parts: f64) {
        // One that has fallen makes the sum NaN until the end of the reading.
        *self.sum.get_or_insert(0.0) += increase.map_or(f64::NAN, |increase| increase as f64 / parts);
    }

    /// Ends a reading. `lacks_sum`: the histogram had no sum in the reading before, and then in this one.
    pub(crate) fn end_reading(&mut self, lacks_sum: &mut bool) {
        self.buckets = apart(std::mem::take(&mut self.buckets));
        let lacked_sum = std::mem::replace(lacks_sum, self.sum.is_none() && !self.buckets.is_empty());
        // After a reading without the sum, its increase is of other requests than that of the buckets.
        self.sum = self.sum.filter(|sum| !sum.is_nan() && !lacked_sum);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerFold {
    pub counts: Baseline<(ServerCounter, u64)>,
    /// Histograms without a sum in the last reading, in the order of [`RequestHistogram::ALL`].
    lacks_sum: [bool; RequestHistogram::ALL.len()],
    /// The server has metrics of finished requests.
    pub known: bool,
    finished: u64,
}

impl CountName for (ServerCounter, u64) {
    fn is_sum(&self) -> bool {
        matches!(self.0, ServerCounter::HistogramSum(_))
    }
}

impl ServerFold {
    /// Requests that finished or failed in the engine since the first reading.
    pub(crate) fn finished(&self) -> Option<u64> {
        self.known.then_some(self.finished)
    }

    pub(crate) fn absorb(&mut self, metrics: &ServerMetrics, totals: &mut ServerTotals) -> Increase {
        self.known |= !metrics.is_empty();
        if !metrics.config.is_empty() {
            totals.config.clone_from(&metrics.config);
        }
        let mut more = Increase::default();
        let counts = metrics.counts.iter().map(|count| ((count.counter.clone(), count.series), count.value));
        let counts: Vec<_> = counts.collect();
        for (((counter, _), _), change) in counts.iter().zip(self.counts.increases(&counts)) {
            let increase = change.unwrap_or(0);
            match counter {
                ServerCounter::Finished(reason) => {
                    add(&mut more.finished[*reason as usize], increase);
                    add(&mut self.finished, increase);
                }
                ServerCounter::Errors(code) => {
                    add_labelled(&mut totals.errors, code, increase);
                    // The engine has never had a request that the server refuses.
                    if !code.starts_with('4') {
                        add(&mut self.finished, increase);
                    }
                }
                ServerCounter::PromptTokens => add_known(&mut totals.prompt_tokens, Some(increase)),
                ServerCounter::GenerationTokens => add_known(&mut totals.generation_tokens, Some(increase)),
                ServerCounter::CachedTokens => add_known(&mut totals.cached_tokens, Some(increase)),
                ServerCounter::DraftedTokens(position) => add_labelled(&mut totals.drafted_tokens, position, increase),
                ServerCounter::AcceptedTokens(position) => {
                    add_labelled(&mut totals.accepted_tokens, position, increase);
                }
                ServerCounter::HistogramBucket(histogram, bound) => {
                    more.histograms[*histogram as usize].add_bucket(bound, change);
                }
                ServerCounter::HistogramSum(histogram) => {
                    more.histograms[*histogram as usize].add_sum(change, histogram.parts());
                }
            }
        }
        for (histogram, lacks_sum) in more.histograms.iter_mut().zip(&mut self.lacks_sum) {
            histogram.end_reading(lacks_sum);
        }
        more
    }
}

/// Turns cumulative buckets into separate ones. Buckets of several processes with the same bound become one.
fn apart(mut buckets: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0;
    let bounds = buckets.chunk_by(|a, b| a.0 == b.0);
    bounds
        .map(|bucket| {
            let through = bucket.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
            let alone = through.saturating_sub(below);
            below = below.max(through);
            (bucket[0].0, alone)
        })
        .collect()
}

fn add_labelled(totals: &mut ByLabel, value: &str, more: u64) {
    let known = totals.contains_key(value) || totals.len() < MAX_VALUES;
    add(totals.entry(if known { value } else { OTHER }.to_owned()).or_default(), more);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::histogram::Histogram;
    use super::super::observer::{Observer, Scope};
    use super::super::request_totals::RequestSource;
    use super::super::requests::{DECIDED_WITHIN, RequestFold};
    use super::*;
    use trtllm_records::perf_metrics::{FinishReason, PerfMetricsEntry};
    use trtllm_sources::prometheus_text::parse_server_metrics;

    /// A page of a server without entries.
    fn parse(page: &str) -> ServerMetrics {
        ServerMetrics { without_entries: true, ..parse_server_metrics(page.as_bytes()).unwrap() }
    }

    /// Folds pages one after the other.
    fn fold(pages: &[&str]) -> RequestFold {
        let mut fold = RequestFold::default();
        for page in pages {
            fold.absorb_server_metrics(&parse(page), Instant::now(), &mut ());
        }
        fold
    }

    fn absorb_entry(fold: &mut RequestFold, entry: &str, now: Instant) {
        let entry: PerfMetricsEntry = serde_json::from_str(entry).unwrap();
        fold.absorb_perf_metrics(&entry, RequestSource::Entries, now, &mut ());
    }

    #[test]
    fn a_series_that_appears_later_began_at_0() {
        let folded = fold(&[
            "trtllm_prompt_cached_tokens_total 0",
            "trtllm_prompt_cached_tokens_total 7\ntrtllm_request_success_total{finished_reason=\"eos\"} 3",
        ]);
        assert_eq!(folded.totals.finished.unwrap()[FinishReason::Other as usize], 3);
        assert_eq!((folded.totals.server.cached_tokens, folded.totals.server.prompt_tokens), (Some(7), None));
        // An empty page of a new server is a first reading, too.
        assert_eq!(fold(&["", "trtllm_prompt_tokens_total 9"]).totals.prompt_tokens(), Some(9));
        assert_eq!(fold(&["up 1"]).server.finished(), None);
    }

    #[test]
    fn a_process_that_is_replaced_or_missing_changes_no_other_series() {
        let folded = fold(&[
            "trtllm_prompt_tokens_total{pid=\"1\"} 100\ntrtllm_prompt_tokens_total{pid=\"2\"} 1000",
            "trtllm_prompt_tokens_total{pid=\"1\"} 110\ntrtllm_prompt_tokens_total{pid=\"3\"} 5",
            "trtllm_prompt_tokens_total{pid=\"1\"} oops\ntrtllm_prompt_tokens_total{pid=\"3\"} 6",
            "trtllm_prompt_tokens_total{pid=\"1\"} 120\ntrtllm_prompt_tokens_total{pid=\"2\"} 1001",
        ]);
        assert_eq!(folded.totals.prompt_tokens(), Some(10 + 5 + 1 + 10 + 1));
    }

    /// Counts the requests that the page judges, by their whole times.
    #[derive(Default)]
    struct Judged(u64);

    impl Observer for Judged {
        fn server_requests(&mut self, more: &Increase, _: Scope) {
            self.0 += more.of(RequestHistogram::EndToEnd).count();
        }
    }

    #[test]
    fn the_time_per_output_token_is_taken_bucket_by_bucket() {
        let page = |pid: u64, low: u64, high: u64, all: u64, sum: f64| {
            format!(
                "trtllm_time_per_output_token_seconds_bucket{{le=\"0.01\",pid=\"{pid}\"}} {low}\n\
                 trtllm_time_per_output_token_seconds_bucket{{le=\"0.025\",pid=\"{pid}\"}} {high}\n\
                 trtllm_time_per_output_token_seconds_bucket{{le=\"+Inf\",pid=\"{pid}\"}} {all}\n\
                 trtllm_time_per_output_token_seconds_sum{{pid=\"{pid}\"}} {sum}\n"
            )
        };
        let (first, second) = (page(1, 10, 20, 30, 900.0), page(1, 12, 23, 34, 1000.5));
        let mut folded = fold(&[&first, &(second.clone() + &page(2, 1, 1, 1, 0.25)), &second]);
        let histogram = folded.totals.time_per_output_token().unwrap();
        let counts: Vec<u64> = histogram.cumulative().take(3).map(|(_, count)| count).collect();
        assert_eq!((counts, histogram.count(), histogram.sum()), (vec![3, 4, 4], 5, 100.75));
        // Request entries have the same times: they must not be observed again.
        let entry = r#"{"perf_metrics": {"timing_metrics": {"first_token_time": 1.0, "last_token_time": 2.0}},
            "output_tokens": 11, "finish_reason": "stop"}"#;
        absorb_entry(&mut folded, entry, Instant::now());
        folded.settle(0, Instant::now() + DECIDED_WITHIN, &mut ());
        assert_eq!(folded.totals.times.time_per_output_token.count(), 5);
        assert_eq!(folded.totals.times.decode_time.count(), 1);
    }

    fn of_times() -> impl Iterator<Item = RequestHistogram> {
        RequestHistogram::ALL.into_iter().filter(|histogram| histogram.name().ends_with("_seconds"))
    }

    /// The page of `process`, on a server without entries, after `low` requests of up to 0.1 s and `high` requests of
    /// up to 0.5 s.
    fn times(process: &str, low: u64, high: u64) -> ServerMetrics {
        let mut page = format!("trtllm_request_success_total{{finished_reason=\"stop\"}} {}\n", low + high);
        for family in of_times().map(RequestHistogram::name) {
            let (all, sum) = (low + high, low as f64 * 0.0625 + high as f64 * 0.5);
            for (bound, count) in [("0.1", low), ("0.5", all), ("+Inf", all)] {
                page += &format!("trtllm_{family}_bucket{{le=\"{bound}\",pid=\"{process}\"}} {count}\n");
            }
            page += &format!("trtllm_{family}_sum{{pid=\"{process}\"}} {sum}\n");
            page += &format!("trtllm_{family}_count{{pid=\"{process}\"}} {all}\ntrtllm_{family}_created 1.7e9\n");
        }
        ServerMetrics { without_entries: true, ..parse_server_metrics(page.as_bytes()).unwrap() }
    }

    /// Number and sum of the observations, and number up to 0.5 s, of each histogram of times.
    fn observed(fold: &mut RequestFold) -> Vec<(u64, f64, u64)> {
        of_times()
            .map(|time| {
                let histogram = fold.totals.times.of_server(time);
                let through = histogram.cumulative().take_while(|(bound, _)| bound.value <= 0.5).last().unwrap().1;
                (histogram.count(), histogram.sum(), through)
            })
            .collect()
    }

    /// The fold after 20 polls, one each second. In each, a request ends that has an entry, and `answers` are added to the page.
    fn with_entries_and_server_metrics(answers: u64) -> RequestFold {
        let (mut folded, start) = (RequestFold::default(), Instant::now());
        for second in 0..20 {
            let page = ServerMetrics { without_entries: false, ..times("1", 0, 100 + second * answers) };
            let now = start + Duration::from_secs(second);
            folded.absorb_server_metrics(&page, now, &mut ());
            if second > 0 {
                let entry = r#"{"perf_metrics": {"timing_metrics": {"arrival_time": 1.0, "first_scheduled_time": 1.25,
                    "first_token_time": 1.375, "last_token_time": 1.46875}}}"#;
                absorb_entry(&mut folded, entry, now);
            }
            folded.settle(second * answers, now, &mut ());
        }
        folded
    }

    #[test]
    fn where_the_page_counts_more_than_there_are_entries_all_times_come_from_the_page() {
        let counts = |fold: &RequestFold| {
            let times = &fold.totals.times;
            let of_times = [&times.time_to_first_token, &times.e2e_latency, &times.time_per_output_token];
            (of_times.map(Histogram::count), fold.totals.finished.unwrap()[0])
        };
        let one = with_entries_and_server_metrics(1);
        assert_eq!((counts(&one), one.totals.source), (([19; 3], 19), Some(RequestSource::Entries)));
        assert_eq!(one.totals.times.e2e_latency.sum(), 19.0 * 0.46875, "the exact times of entries");
        let several = with_entries_and_server_metrics(3);
        assert_eq!((counts(&several), several.totals.source), (([57; 3], 57), Some(RequestSource::Server)));
        assert_eq!(several.totals.times.e2e_latency.sum(), 57.0 * 0.5);
    }

    #[test]
    fn sum_and_buckets_of_a_histogram_count_together_or_not_at_all() {
        let page = |requests: u64, sum: &str| {
            let family = "trtllm_e2e_request_latency_seconds";
            let buckets =
                format!("{family}_bucket{{le=\"0.5\"}} {requests}\n{family}_bucket{{le=\"+Inf\"}} {requests}\n");
            let finished = format!("trtllm_request_success_total{{finished_reason=\"stop\"}} {requests}\n");
            format!("{finished}{buckets}{family}_sum {sum}\n")
        };
        // Number and sum of the times, and number of the finished requests.
        let counted = |pages: &[(u64, &str)]| {
            let mut folded = RequestFold::default();
            let mut judged = Judged::default();
            for (requests, sum) in pages {
                folded.absorb_server_metrics(&parse(&page(*requests, sum)), Instant::now(), &mut judged);
            }
            folded.settle(0, Instant::now() + DECIDED_WITHIN, &mut judged);
            let met = judged.0;
            assert_eq!(folded.totals.finished.unwrap()[0], met, "a bucket shows whether a request met its objective");
            (folded.totals.times.e2e_latency.count(), folded.totals.times.e2e_latency.sum(), met)
        };
        assert_eq!(counted(&[(10, "4"), (12, "5"), (13, "5.5")]), (3, 1.5, 3), "the control");
        for unknown in ["NaN", "+Inf", "-1"] {
            assert_eq!(counted(&[(10, unknown), (12, unknown), (13, unknown)]), (0, 0.0, 3), "{unknown}");
            assert_eq!(counted(&[(10, "4"), (12, "5"), (13, unknown), (14, unknown)]), (2, 1.0, 4), "{unknown}");
            // The sum of the third page contains the request of the second one.
            assert_eq!(counted(&[(10, "4"), (12, unknown), (13, "5.5"), (14, "6")]), (1, 0.5, 4), "{unknown}");
        }
        assert_eq!(counted(&[(10, "4"), (12, "3"), (13, "2")]), (0, 0.0, 3));
        assert_eq!(counted(&[(10, "4"), (12, "3"), (13, "3.5")]), (1, 0.5, 3));
    }

    #[test]
    fn cached_tokens_of_requests_come_from_the_page_and_else_from_entries() {
        let page = |none: u64, all: u64, sum: u64| {
            let family = "trtllm_prompt_cached_tokens_per_request";
            let page = format!(
                "{family}_bucket{{le=\"0.0\"}} {none}\n{family}_bucket{{le=\"64.0\"}} {all}\n{family}_bucket{{le=\"+Inf\"}} {all}\n\
                 {family}_sum {sum}.0\n{family}_count {all}\n"
            );
            parse_server_metrics(page.as_bytes()).unwrap()
        };
        let shown = |fold: &RequestFold| {
            let histogram = &fold.totals.times.cached_tokens;
            (
                histogram.cumulative().take(2).map(|(_, count)| count).collect::<Vec<_>>(),
                histogram.count(),
                histogram.sum(),
            )
        };
        let entry =
            PerfMetricsEntry { cached_tokens: Some(64), perf_metrics: Some(Default::default()), ..Default::default() };
        let mut alone = RequestFold::default();
        alone.absorb_perf_metrics(&entry, RequestSource::Entries, Instant::now(), &mut ());
        assert_eq!(shown(&alone), (vec![0, 1], 1, 64.0));
        let mut folded = RequestFold::default();
        // A number of tokens that would be too large for a time in nanoseconds.
        folded.absorb_server_metrics(&page(10, 20, 9_000_000_000_000), Instant::now(), &mut ());
        folded.absorb_server_metrics(&page(12, 25, 9_000_000_000_100), Instant::now(), &mut ());
        folded.absorb_perf_metrics(&entry, RequestSource::Entries, Instant::now(), &mut ());
        assert_eq!(shown(&folded), (vec![2, 5], 5, 100.0));
    }

    #[test]
    fn a_histogram_of_a_restarted_server_counts_from_0_in_all_its_buckets() {
        let mut folded = RequestFold::default();
        // Only some buckets of the new server are lower: it has already had more short requests than the old server.
        let [first, old, new] = [times("1", 0, 0), times("1", 2, 40), times("1", 5, 4)];
        for page in [&first, &old] {
            folded.absorb_server_metrics(page, Instant::now(), &mut ());
        }
        folded.restart(&mut ());
        folded.absorb_server_metrics(&new, Instant::now(), &mut ());
        assert_eq!(observed(&mut folded), [(42 + 9, 2.0 * 0.0625 + 20.0 + 5.0 * 0.0625 + 2.0, 51); 7]);
        let first_bucket = folded.totals.times.e2e_latency.cumulative().next().unwrap();
        assert_eq!((first_bucket.0.value, first_bucket.1), (0.3, 7));
    }

    #[test]
    fn requests_after_a_fall_are_observed_and_judged_once_its_reason_is_known() {
        // The engine continues, so the counts of a process were removed. Or it has restarted.
        for (restarted, requests) in [(false, 4 + 2), (true, 4 + 9)] {
            let mut folded = RequestFold::default();
            let mut judged = Judged::default();
            for high in [40, 44, 7] {
                folded.absorb_server_metrics(&times("1", 0, high), Instant::now(), &mut judged);
            }
            assert_eq!(observed(&mut folded), [(4, 2.0, 4); 7], "nothing counts until the reason is known");
            folded.server.counts.note_record();
            if restarted {
                folded.restart(&mut judged);
            }
            for high in [8, 9, 9] {
                folded.absorb_server_metrics(&times("1", 0, high), Instant::now(), &mut judged);
            }
            folded.settle(0, Instant::now() + DECIDED_WITHIN, &mut judged);
            assert_eq!(observed(&mut folded), [(requests, requests as f64 * 0.5, requests); 7]);
            assert_eq!(folded.server.finished(), Some(requests));
            assert_eq!(judged.0, requests);
        }
    }

    #[test]
    fn label_values_are_bounded() {
        let page = |from: u64| -> String {
            (from..from + 4000).map(|code| format!("trtllm_request_error_total{{http_code=\"5{code}\"}} 1\n")).collect()
        };
        let pages: Vec<String> = std::iter::once(String::new()).chain((0..10).map(|n| page(n * 4000))).collect();
        let mut folded = fold(&pages.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(folded.totals.server.errors.len(), MAX_VALUES + 1);
        assert_eq!(folded.totals.server.errors[OTHER], 40_000 - MAX_VALUES as u64);
        // The series of the last page are remembered.
        folded.absorb_server_metrics(&parse_server_metrics(pages[10].as_bytes()).unwrap(), Instant::now(), &mut ());
        assert_eq!(folded.server.finished(), Some(40_000));
    }
}
