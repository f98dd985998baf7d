//! The exporter's own metrics. Each is a prometheus-client type, owned by the code that increments it; one
//! [`Collector`] encodes all of them, and the encoded messages become samples of the page.
//!
//! [`Collector`]: prometheus_client::collector::Collector

mod collector;
pub(super) mod process;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::prometheus_protobuf::{self, prometheus_data_model as proto};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};
use prometheus_client::registry::Registry;

use trtllm_fold::native;
use trtllm_records::named_variants::named_variants;

use super::catalog::{Id, Table};
use super::page::{Labels, Page, Value};

pub(super) use collector::{OwnMetrics, OwnWriter};

/// Upper bounds in seconds. A page of one engine takes about a tenth of a millisecond.
const SCRAPE_SECONDS: [f64; 10] = [0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.01, 0.1];

named_variants! {
    /// Why a request or a connection was refused.
    pub enum HttpRefusal {
        /// The TLS handshake failed, or the client certificate was missing or invalid.
        TlsHandshake = "tls_handshake",
        /// The user or the password was missing or wrong.
        Unauthorized = "unauthorized",
        RateLimited = "rate_limited",
        /// The limit of connections or of concurrent requests was reached.
        Overloaded = "overloaded",
        /// The peer sent or read too slowly.
        Timeout = "timeout",
        /// The request was not valid HTTP or exceeded a limit.
        BadRequest = "bad_request",
        /// The web configuration is invalid.
        WebConfig = "web_config",
    }
}

/// What the HTTP server counts. A clone shares the counters.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    pub(super) scrapes: Counter,
    /// Indexed by [`HttpRefusal`].
    pub(super) refused: [Counter; HttpRefusal::ALL.len()],
    pub(super) scrape_duration: Histogram,
}

impl HttpMetrics {
    #[must_use]
    pub fn new() -> Self {
        let native = NativeHistogramConfig::default().max_buckets(native::SLOTS);
        Self {
            scrapes: Counter::default(),
            refused: std::array::from_fn(|_| Counter::default()),
            scrape_duration: Histogram::new_classic_and_native(SCRAPE_SECONDS, native),
        }
    }

    /// Counts one answered scrape.
    pub fn scraped(&self, duration: Duration) {
        self.scrapes.inc();
        self.scrape_duration.observe(duration.as_secs_f64());
    }

    /// Counts one refused request or connection.
    pub fn refused(&self, reason: HttpRefusal) {
        self.refused[reason as usize].inc();
    }
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds the exporter's own metrics, in the order of the catalog.
pub(super) fn own_page(metrics: OwnMetrics, page: &mut Page) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    // Fails only if the collector fails, and ours never does.
    let families = prometheus_protobuf::encode(&registry).unwrap_or_default();
    let unlabelled = Arc::new(Labels::default());
    // The collector encodes the families in this order, so each search goes on behind the family before.
    let mut ids = Id::all(Table::Exporter);
    for proto::MetricFamily { name, metric: series, .. } in families {
        let Some(id) = ids.find(|id| id.metric().name == name) else { continue };
        for proto::Metric { label, counter, gauge, histogram, .. } in series {
            let labels = match label.is_empty() {
                true => Arc::clone(&unlabelled),
                false => Arc::new(Labels::extend(&unlabelled, label.into_iter().map(|pair| (pair.name, pair.value)))),
            };
            if let Some(histogram) = histogram {
                // The start time is removed, because no other family has one.
                page.push(id, &labels, proto::Histogram { start_timestamp: None, ..histogram });
            } else if let Some(value) = counter.map(|counter| counter.value).or(gauge.map(|gauge| gauge.value)) {
                page.push(id, &labels, number(value));
            }
        }
    }
}

/// The messages contain only floats. Whole numbers become integers again, so that OpenMetrics writes them without a
/// point.
fn number(value: f64) -> Value {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) { Value::Count(value as u64) } else { Value::Float(value) }
}

#[cfg(test)]
mod tests;
