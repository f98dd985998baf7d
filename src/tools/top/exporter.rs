//! The exporters as `top` knows them: the last reading of each. Pure: the time is a parameter, in seconds since `top` began.

use trtllm_http::views::numbers::Gpu;
use trtllm_service::printable::printable;
use trtllm_verdict::verdict::Severity;

use super::numbers::Numbers;
use super::reading::{Engine, Reading};

/// Seconds of numbers that an exporter keeps for the charts.
pub const HISTORY: f64 = 300.0;
/// Rates and quantiles are of this time.
pub const RECENT: f64 = 30.0;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exporter {
    pub url: String,
    /// Why the last read failed, and since when reads fail.
    pub failure: Option<(String, f64)>,
    pub was_read: bool,
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
    pub no_gpus: String,
}

/// One engine of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Index of the exporter.
    pub at: usize,
    pub exporter: &'a Exporter,
    pub engine: &'a Engine,
}

impl Exporter {
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Without the scheme.
    #[must_use]
    pub fn short(&self) -> &str {
        self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest)
    }

    /// A failed read withdraws all numbers: old ones would mislead. The engines stay, so that it is clear what is not seen.
    pub fn absorb(&mut self, time: f64, read: Result<Reading, String>) {
        match read {
            Ok(Reading { engines, gpus, no_gpus }) => {
                (self.engines, self.gpus, self.no_gpus) = (engines, gpus, no_gpus);
                (self.failure, self.was_read) = (None, true);
            }
            Err(error) => self.fail(time, &error),
        }
    }

    fn fail(&mut self, time: f64, error: &str) {
        let since = self.failure.take().map_or(time, |(_, since)| since);
        for engine in &mut self.engines {
            "unknown".clone_into(&mut engine.state);
            "the exporter does not answer".clone_into(&mut engine.why);
            engine.severity = Severity::Critical;
            engine.numbers = Numbers::default();
            engine.ranks.clear();
            engine.history.clear();
            engine.orchestrator = None;
        }
        self.gpus.clear();
        "the exporter does not answer".clone_into(&mut self.no_gpus);
        self.failure = Some((printable(error), since));
    }
}
