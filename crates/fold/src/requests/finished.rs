//! What each source tells of finished requests.

use trtllm_records::server_metrics::RequestHistogram;

use super::choices::{Quantity, Source};
use crate::finished_request::FinishedRequest;
use crate::request_totals::RequestTotals;
use crate::saturating::add;
use crate::server_metrics::Increase;

#[derive(Debug, Clone)]
pub(super) enum Finished {
    /// What an entry, a span or the rows tell of a request. `is_sampled`: not all requests have rows, so objectives do not judge this one.
    Request { source: Source, request: FinishedRequest, is_sampled: bool },
    /// The requests by which the server's own histograms and counters have increased.
    Increase(Increase),
}

impl Finished {
    pub(super) fn source(&self) -> Source {
        match self {
            Self::Request { source, .. } => *source,
            Self::Increase(_) => Source::Server,
        }
    }

    /// Whether it tells the quantity.
    pub(super) fn has(&self, quantity: Quantity) -> bool {
        let (source, request) = match self {
            Self::Request { source, request, .. } => (*source, request),
            Self::Increase(more) => return more.has(quantity),
        };
        // A row has times, known or not: without better ones they show which requests have none.
        let has_times = source == Source::Rows || request.latencies.any();
        match quantity {
            Quantity::Times | Quantity::Outcomes => has_times,
            Quantity::TimePerToken => request.latencies.time_per_output_token.is_some(),
            Quantity::Lengths => request.prompt_tokens.or(request.output_tokens).is_some(),
            Quantity::TransferCounts => request.disaggregated,
            Quantity::Reasons => request.reason.is_some(),
            Quantity::Transfers => request.transfer_seconds.is_some() || request.transfer_bytes.is_some(),
            Quantity::Blocks => request.kv_cache.is_some(),
        }
    }

    /// Adds what it tells of the quantity. Outcomes are judged instead.
    pub(super) fn add_to(&self, totals: &mut RequestTotals, quantity: Quantity) {
        let request = match self {
            Self::Request { request, .. } => request,
            Self::Increase(more) => return more.add_to(totals, Some(quantity)),
        };
        let (times, id) = (&mut totals.times, request.request);
        match quantity {
            Quantity::Times => times.observe(&request.latencies, id),
            Quantity::TimePerToken => {
                times.time_per_output_token.observe_request(request.latencies.time_per_output_token, id);
            }
            Quantity::Lengths => totals.observe_lengths(request),
            Quantity::TransferCounts => totals.count_transfer(request),
            Quantity::Reasons => {
                if let Some(reason) = request.reason {
                    totals.finished.get_or_insert_default()[reason as usize] += 1;
                }
            }
            Quantity::Transfers => times.observe_transfer(request.transfer_seconds, request.transfer_bytes, id),
            Quantity::Blocks => request.kv_cache.iter().for_each(|blocks| times.observe_blocks(blocks, id)),
            Quantity::Outcomes => {}
        }
    }
}

impl Increase {
    fn has(&self, quantity: Quantity) -> bool {
        let count = |histogram| self.of(histogram).count();
        match quantity {
            // A histogram without its sum has no mean.
            Quantity::Times => {
                self.of(RequestHistogram::EndToEnd).sum.is_some() && count(RequestHistogram::EndToEnd) > 0
            }
            Quantity::Outcomes => count(RequestHistogram::EndToEnd) > 0 || count(RequestHistogram::FirstToken) > 0,
            Quantity::TimePerToken => count(RequestHistogram::PerOutputToken) > 0,
            Quantity::Reasons => self.finished.iter().any(|count| *count > 0),
            Quantity::Lengths | Quantity::Transfers | Quantity::TransferCounts | Quantity::Blocks => false,
        }
    }

    /// Adds what it tells of the quantity, or what no other source tells.
    pub(super) fn add_to(&self, totals: &mut RequestTotals, quantity: Option<Quantity>) {
        for histogram in RequestHistogram::ALL.into_iter().filter(|histogram| Quantity::of(*histogram) == quantity) {
            totals.times.of_server(histogram).add_increase(self.of(histogram));
        }
        if quantity == Some(Quantity::Reasons) {
            let finished = totals.finished.get_or_insert_default();
            finished.iter_mut().zip(self.finished).for_each(|(total, more)| add(total, more));
        }
    }
}
