//! The data of the exporter's own metrics. Those that count are prometheus-client types, owned by the code that
//! increments them.

pub(super) mod process;
pub(super) mod writer;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};

use trtllm_engines::SourceStatus;
use trtllm_fold::native;
use trtllm_records::gpu::{GpuInventory, NvmlState};
use trtllm_records::named_variants::named_variants;
use trtllm_records::{RecorderCounts, RefusedPublishers};

use super::family::Profile;
use super::labels::Labels;

use process::ProcessReadings;

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

/// The data of all own families at one moment.
#[derive(Debug)]
pub(super) struct OwnMetrics {
    /// The engines on the page, each with the labels of its source's series.
    pub(super) sources: Vec<(Arc<Labels>, SourceStatus)>,
    pub(super) gpus: Arc<GpuInventory>,
    pub(super) http: HttpMetrics,
    /// Absent without a recorder.
    pub(super) recorder: Option<RecorderCounts>,
    pub(super) refused_publishers: RefusedPublishers,
    /// Whether the last reload of the configuration succeeded, if there is a file.
    pub(super) config_reload: Option<bool>,
    pub(super) process: ProcessReadings,
    pub(super) profile: Profile,
}

impl OwnMetrics {
    /// A value of each source that has it, with the labels of the source.
    pub(super) fn by_source<V>(&self, read: impl Fn(&SourceStatus) -> Option<V>) -> impl Iterator<Item = (&Labels, V)> {
        self.sources.iter().filter_map(move |(labels, source)| Some((&**labels, read(source)?)))
    }

    /// The inventory, unless NVML is off.
    pub(super) fn nvml(&self) -> Option<&GpuInventory> {
        (self.gpus.nvml != NvmlState::Off).then_some(&*self.gpus)
    }
}
