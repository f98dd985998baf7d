//! Folds trtllm-serve's own metrics. Its counters began before the exporter met the server, so only their increases count. A
//! counter that falls was reset and counts from 0. Memory is bounded.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::model::ServerMetrics;
use crate::model::server_metrics::{Configuration, ServerCount, ServerCounter};

use super::cumulative::Cumulative;
use super::saved;
use super::successes::Finished;

/// Series remembered. Processes that were replaced leave old series.
const MAX_SERIES: usize = 16_384;
/// Values of one label.
const MAX_VALUES: usize = 64;
/// The value for all further ones.
const OTHER: &str = "other";

/// Totals by the value of a label.
pub type ByLabel = BTreeMap<String, u64>;

/// What only trtllm-serve's own metrics have. Absent until the server has sent it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

/// The increase of what request entries and rows may have, too.
#[derive(Debug, Default, PartialEq)]
pub struct Increase {
    pub finished: Finished,
    /// Upper bound and number of each bucket.
    pub time_per_output_token: Vec<(f64, u64)>,
    pub output_token_seconds: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ServerFold {
    /// The counts of the series of all processes. `None` until the first reading.
    #[serde(with = "saved::optional_pairs")]
    series: Option<HashMap<(ServerCounter, u64), Cumulative>>,
    known: bool,
    finished: u64,
}

impl ServerFold {
    /// Whether the server has metrics of finished requests.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Requests that finished or failed since the first reading.
    #[must_use]
    pub fn finished(&self) -> Option<u64> {
        self.known.then_some(self.finished)
    }

    pub fn absorb(&mut self, page: &ServerMetrics, totals: &mut ServerTotals) -> Increase {
        self.known |= !page.is_empty();
        if !page.config.is_empty() {
            totals.config.clone_from(&page.config);
        }
        let mut more = Increase::default();
        // By upper bound. Like on the page, a bucket includes the ones below.
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        for (counter, increase) in self.increases(page) {
            match counter {
                ServerCounter::Finished(reason) => {
                    let finished = &mut more.finished[*reason as usize];
                    *finished = finished.saturating_add(increase);
                    self.finished = self.finished.saturating_add(increase);
                }
                ServerCounter::Errors(code) => {
                    add_labelled(&mut totals.errors, code, increase);
                    self.finished = self.finished.saturating_add(increase);
                }
                ServerCounter::PromptTokens => add(&mut totals.prompt_tokens, increase),
                ServerCounter::GenerationTokens => add(&mut totals.generation_tokens, increase),
                ServerCounter::CachedTokens => add(&mut totals.cached_tokens, increase),
                ServerCounter::DraftedTokens(position) => add_labelled(&mut totals.drafted_tokens, position, increase),
                ServerCounter::AcceptedTokens(position) => {
                    add_labelled(&mut totals.accepted_tokens, position, increase);
                }
                ServerCounter::TimePerOutputToken(bound) => buckets.extend(bound.parse().ok().zip(Some(increase))),
                ServerCounter::TimePerOutputTokenNanos => more.output_token_seconds += increase as f64 / 1e9,
            }
        }
        more.time_per_output_token = apart(buckets);
        more
    }

    /// The increase of each series since it was last read. A series that appears later began at 0.
    fn increases<'p>(&mut self, page: &'p ServerMetrics) -> Vec<(&'p ServerCounter, u64)> {
        let new = if self.series.is_some() { Cumulative::from_zero() } else { Cumulative::unknown() };
        let series = self.series.get_or_insert_default();
        if series.len() > MAX_SERIES {
            // Keep those of the page.
            let key = |count: &ServerCount| (count.counter.clone(), count.series);
            *series = page.counts.iter().filter_map(|count| series.remove_entry(&key(count))).collect();
        }
        let mut increase = |count: &'p ServerCount| {
            let last = series.entry((count.counter.clone(), count.series)).or_insert(new);
            (&count.counter, last.increase(i64::try_from(count.value).ok()))
        };
        page.counts.iter().map(&mut increase).collect()
    }
}

/// The same buckets, each without the ones below. Several processes have a bucket each with the same bound.
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

fn add(total: &mut Option<u64>, more: u64) {
    *total = Some(total.unwrap_or(0).saturating_add(more));
}

fn add_labelled(totals: &mut ByLabel, value: &str, more: u64) {
    let known = totals.contains_key(value) || totals.len() < MAX_VALUES;
    let total = totals.entry(if known { value } else { OTHER }.to_owned()).or_default();
    *total = total.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::super::requests::RequestFold;
    use std::time::Instant;

    use super::*;
    use crate::model::perf_metrics::{FinishReason, PerfMetricsEntry};
    use crate::sources::prometheus_text::parse_server_metrics;

    /// Folds pages one after the other.
    fn fold(pages: &[&str]) -> RequestFold {
        let mut fold = RequestFold::default();
        for page in pages {
            fold.absorb_server_metrics(&parse_server_metrics(page.as_bytes()).unwrap());
        }
        fold
    }

    #[test]
    fn only_increases_since_the_first_reading_count() {
        let page = |stop: u64, tokens: u64, errors: u64| {
            format!(
                "trtllm_request_success_total{{finished_reason=\"stop\"}} {stop}\n\
                 trtllm_prompt_tokens_total {tokens}\ntrtllm_request_error_total{{http_code=\"400\"}} {errors}\n"
            )
        };
        let first = fold(&[&page(50, 5000, 3)]);
        assert_eq!((first.totals.finished, first.totals.prompt_tokens()), (Some(Finished::default()), Some(0)));
        assert_eq!((first.totals.server.errors["400"], first.server.finished()), (0, Some(0)));
        let second = fold(&[&page(50, 5000, 3), &page(54, 5400, 4)]);
        assert_eq!((second.totals.finished.unwrap()[0], second.totals.prompt_tokens()), (4, Some(400)));
        assert_eq!((second.totals.server.errors["400"], second.server.finished()), (1, Some(5)));
        // The server was replaced: its counters began at 0.
        let replaced = fold(&[&page(50, 5000, 3), &page(54, 5400, 4), &page(1, 90, 0)]);
        assert_eq!((replaced.totals.finished.unwrap()[0], replaced.totals.prompt_tokens()), (5, Some(490)));
        assert_eq!((replaced.totals.server.errors["400"], replaced.server.finished()), (1, Some(6)));
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
        folded.absorb_perf_metrics(&serde_json::from_str::<PerfMetricsEntry>(entry).unwrap(), Instant::now());
        assert_eq!(folded.totals.times.time_per_output_token.count(), 5);
        assert_eq!(folded.totals.times.decode_time.count(), 1);
    }

    #[test]
    fn finish_reasons_of_entries_replace_those_of_the_server() {
        let mut folded = fold(&["trtllm_prompt_cached_tokens_total 0"]);
        let entry = PerfMetricsEntry { finish_reason: Some(FinishReason::Length), ..PerfMetricsEntry::default() };
        folded.absorb_perf_metrics(&entry, Instant::now());
        let page = "trtllm_request_success_total{finished_reason=\"length\"} 1";
        folded.absorb_server_metrics(&parse_server_metrics(page.as_bytes()).unwrap());
        assert_eq!(folded.totals.finished.unwrap()[FinishReason::Length as usize], 1);
        assert_eq!(folded.server.finished(), Some(1));
    }

    #[test]
    fn label_values_and_series_are_bounded() {
        let page = |from: u64| -> String {
            (from..from + 4000).map(|code| format!("trtllm_request_error_total{{http_code=\"{code}\"}} 1\n")).collect()
        };
        let pages: Vec<String> = std::iter::once(String::new()).chain((0..10).map(|n| page(n * 4000))).collect();
        let mut folded = fold(&pages.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(folded.totals.server.errors.len(), MAX_VALUES + 1);
        assert_eq!(folded.totals.server.errors[OTHER], 40_000 - MAX_VALUES as u64);
        assert!(folded.server.series.as_ref().unwrap().len() <= MAX_SERIES + 4000);
        // The series of the last page are remembered.
        folded.absorb_server_metrics(&parse_server_metrics(pages[10].as_bytes()).unwrap());
        assert_eq!(folded.server.finished(), Some(40_000));
    }
}
