//! The sides of an orchestrator of disaggregated serving: its requests, and its requests to the workers of each side. Pure.

use super::super::exporters::page::Page;
use super::histogram::Histogram;
use super::numbers::{growth, histogram};
use super::units::Unit;

/// As the label `side` names them.
const SIDES: [&str; 3] = ["context", "generation", "encoder"];

pub const TITLES: [&str; 8] = ["SIDE", "WORKERS", "REQ/S", "ERRORS", "RETRIES/S", "TIME-P50", "TIME-P95", "FIRST-P95"];

/// What an orchestrator has counted until one read, and its workers then. Empty for an engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrchestratorTotals {
    requests: Option<f64>,
    errors: Option<f64>,
    sides: Vec<SideTotals>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct SideTotals {
    side: &'static str,
    workers: Option<f64>,
    needed: Option<f64>,
    requests: Option<f64>,
    errors: Option<f64>,
    retries: Option<f64>,
    time: Histogram,
    first_bytes: Histogram,
}

/// What is known of an orchestrator. Rates and times are of the time between two reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orchestrator {
    /// Requests per second.
    pub requests: Option<f64>,
    /// Share of the requests that ended with an error status, those that were not accepted included.
    pub errors: Option<f64>,
    pub sides: Vec<Side>,
}

/// One side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    pub side: &'static str,
    pub workers: Option<f64>,
    /// Workers that it needs, if it has fewer.
    pub needed: Option<f64>,
    /// Requests per second.
    pub requests: Option<f64>,
    /// Share of the requests.
    pub errors: Option<f64>,
    pub retries: Option<f64>,
    pub time_p50: Option<f64>,
    pub time_p95: Option<f64>,
    pub first_p95: Option<f64>,
}

impl OrchestratorTotals {
    /// Of a page with one engine or orchestrator only.
    #[must_use]
    pub fn of(page: &Page) -> Self {
        let sides = SIDES.into_iter().filter_map(|side| {
            let page = page.of(&[("side", side)]);
            let value = |name: &str| page.get(name, &[]);
            (!page.0.is_empty()).then(|| SideTotals {
                side,
                workers: value("nv_trt_llm_disagg_ready_workers"),
                needed: value("nv_trt_llm_disagg_minimal_workers"),
                requests: value("nv_trt_llm_disagg_worker_requests_total"),
                errors: value("nv_trt_llm_disagg_worker_errors_total"),
                retries: value("nv_trt_llm_disagg_worker_retries_total"),
                time: histogram(&page, "nv_trt_llm_disagg_worker_request_time_seconds"),
                first_bytes: histogram(&page, "nv_trt_llm_disagg_worker_time_to_first_byte_seconds"),
            })
        });
        Self {
            requests: page.sum("nv_trt_llm_disagg_requests_total", &[]),
            errors: page.sum("nv_trt_llm_disagg_request_errors_total", &[]),
            sides: sides.collect(),
        }
    }

    /// `before`: an older read, if there is one, `seconds` ago. `None` for an engine.
    #[must_use]
    pub fn since(&self, before: Option<(f64, &Self)>) -> Option<Orchestrator> {
        let known = self.requests.is_some() || !self.sides.is_empty();
        let seconds = before.map(|(seconds, _)| seconds).filter(|seconds| *seconds > 0.0);
        let rate = |growth: Option<f64>| Some(growth? / seconds?);
        let grew = |of: fn(&Self) -> Option<f64>| growth(of(before?.1), of(self));
        let (requests, errors) = (grew(|totals| totals.requests), grew(|totals| totals.errors));
        let all = requests.zip(errors).map(|(requests, errors)| f64::max(requests, errors)).filter(|all| *all > 0.0);
        known.then(|| Orchestrator {
            requests: rate(requests),
            errors: errors.zip(all).map(|(errors, all)| errors / all),
            sides: self
                .sides
                .iter()
                .map(|now| now.since(before.and_then(|(_, old)| old.side(now.side)), seconds))
                .collect(),
        })
    }

    fn side(&self, side: &str) -> Option<&SideTotals> {
        self.sides.iter().find(|totals| totals.side == side)
    }
}

impl SideTotals {
    fn since(&self, before: Option<&Self>, seconds: Option<f64>) -> Side {
        let grew = |of: fn(&Self) -> Option<f64>| growth(of(before?), of(self));
        let rate = |growth: Option<f64>| Some(growth? / seconds?);
        let quantile = |of: fn(&Self) -> &Histogram, quantile| of(self).since(of(before?))?.quantile(quantile);
        let requests = grew(|totals| totals.requests);
        let errors = grew(|totals| totals.errors).zip(requests).filter(|(_, requests)| *requests > 0.0);
        Side {
            side: self.side,
            workers: self.workers,
            needed: self.needed.filter(|needed| self.workers.is_some_and(|workers| workers < *needed)),
            requests: rate(requests),
            errors: errors.map(|(errors, requests)| errors / requests),
            retries: rate(grew(|totals| totals.retries)),
            time_p50: quantile(|totals| &totals.time, 0.5),
            time_p95: quantile(|totals| &totals.time, 0.95),
            first_p95: quantile(|totals| &totals.first_bytes, 0.95),
        }
    }
}

impl Side {
    /// In the order of [`TITLES`].
    #[must_use]
    pub fn texts(&self) -> [String; 8] {
        let text = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.text(value));
        let needed = self.needed.map(|needed| format!(" of {}", Unit::Count.text(needed))).unwrap_or_default();
        [
            self.side.to_owned(),
            text(self.workers, Unit::Count) + &needed,
            text(self.requests, Unit::PerSecond),
            text(self.errors, Unit::Share),
            text(self.retries, Unit::PerSecond),
            text(self.time_p50, Unit::Seconds),
            text(self.time_p95, Unit::Seconds),
            text(self.first_p95, Unit::Seconds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u32, failed: u32, workers: u32) -> OrchestratorTotals {
        let served = requests - failed;
        let page = format!(
            "nv_trt_llm_disagg_requests_total{{mode=\"stream\"}} {requests}\n\
             nv_trt_llm_disagg_requests_total{{mode=\"nonstream\"}} 7\n\
             nv_trt_llm_disagg_request_errors_total{{kind=\"http\"}} {failed}\n\
             nv_trt_llm_disagg_ready_workers{{side=\"generation\"}} {workers}\n\
             nv_trt_llm_disagg_minimal_workers{{side=\"generation\"}} 2\n\
             nv_trt_llm_disagg_worker_requests_total{{side=\"generation\"}} {requests}\n\
             nv_trt_llm_disagg_worker_errors_total{{side=\"generation\"}} {failed}\n\
             nv_trt_llm_disagg_worker_retries_total{{side=\"generation\"}} 0\n\
             nv_trt_llm_disagg_worker_request_time_seconds_bucket{{side=\"generation\",le=\"1\"}} {served}\n\
             nv_trt_llm_disagg_worker_request_time_seconds_bucket{{side=\"generation\",le=\"+Inf\"}} {served}\n"
        );
        OrchestratorTotals::of(&Page::parse(page.as_bytes()))
    }

    #[test]
    fn rates_and_shares_are_of_what_happened_between_two_reads() {
        let (before, now) = (totals(100, 50, 2), totals(120, 55, 1));
        let seen = now.since(Some((10.0, &before))).unwrap();
        assert_eq!((seen.requests, seen.errors), (Some(2.0), Some(0.25)));
        let texts = ["generation", "1 of 2", "2", "25.0%", "0", "500ms", "950ms", "-"];
        assert_eq!(seen.sides.iter().map(Side::texts).collect::<Vec<_>>(), [texts]);
        let texts = ["generation", "2", "-", "-", "-", "-", "-", "-"];
        assert_eq!(before.since(None).unwrap().sides[0].texts(), texts, "the first read");
        let restarted = before.since(Some((1.0, &now))).unwrap();
        assert_eq!((restarted.requests, restarted.sides[0].requests, restarted.sides[0].time_p50), (None, None, None));
        assert_eq!(OrchestratorTotals::of(&Page::parse(b"nv_trt_llm_iterations_total 1\n")).since(None), None);
    }
}
