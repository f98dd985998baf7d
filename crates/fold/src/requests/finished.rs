//! What each source tells of finished requests.

use trtllm_records::server_metrics::RequestHistogram;

use super::choices::{Quantity, Source};
use crate::finished_request::FinishedRequest;
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
            Quantity::Lengths => request.prompt_tokens.or(request.output_tokens).is_some() || request.disaggregated,
            Quantity::Reasons => request.reason.is_some(),
            Quantity::Transfers => request.transfer_seconds.is_some() || request.transfer_bytes.is_some(),
            Quantity::Blocks => request.kv_cache.is_some(),
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
            Quantity::Lengths | Quantity::Transfers | Quantity::Blocks => false,
        }
    }
}
