//! An exporter with its last reading, and its engines as rows of the table.

use trtllm_http::views::answers::Slot;
use trtllm_http::views::engine::Engine;
use trtllm_records::gpu::Gpu;
use trtllm_service::printable::one_line;
use trtllm_verdict::verdict::{Confidence, Severity, Verdict};

/// What one read of an exporter returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExporterReading {
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU.
    pub no_gpus: String,
    /// The last minutes of the engine that was selected at the time of the read, if this exporter has it.
    pub history: Option<(EngineId, Vec<Slot>)>,
}

/// The full name of an engine in the API.
pub type EngineId = String;

/// An exporter, and its last reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exporter {
    pub url: String,
    /// Why the last read failed, and since when reads fail.
    pub failure: Option<(String, f64)>,
    /// True after the first read that succeeds.
    pub was_read: bool,
    pub reading: ExporterReading,
}

impl Exporter {
    /// The URL without the scheme.
    #[must_use]
    pub fn short(&self) -> &str {
        self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest)
    }

    /// Stores the result of a read. After a failed read, removes all numbers, because old ones would mislead. The names of the
    /// engines stay, to show which engines cannot be seen.
    pub(super) fn absorb(&mut self, time: f64, read: Result<ExporterReading, String>) {
        match read {
            Ok(reading) => (self.reading, self.failure, self.was_read) = (reading, None, true),
            Err(error) => {
                let since = self.failure.as_ref().map_or(time, |(_, since)| *since);
                self.failure = Some((one_line(&error), since));
                let unseen = |engine: &Engine| Engine {
                    model: engine.model.clone(),
                    version: engine.version.clone(),
                    labels: engine.labels.clone(),
                    simulated: engine.simulated,
                    state: UNSEEN.to_owned(),
                    why: NO_ANSWER.to_owned(),
                    ..Engine::default()
                };
                let engines = self.reading.engines.iter().map(unseen).collect();
                self.reading = ExporterReading { engines, no_gpus: NO_ANSWER.to_owned(), ..ExporterReading::default() };
            }
        }
    }
}

/// The state of an engine whose exporter does not answer.
const UNSEEN: &str = "unknown";
const NO_ANSWER: &str = "the exporter does not answer";

/// One engine of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Index of the exporter.
    pub at: usize,
    pub exporter: &'a Exporter,
    pub engine: &'a Engine,
}

impl Row<'_> {
    /// The name to display. `[sim]`, for a simulated engine, is at its beginning, because the end of a long name is cut.
    #[must_use]
    pub fn name(&self) -> String {
        let Engine { model, version, labels, simulated, .. } = self.engine;
        let mark = if *simulated { "[sim] " } else { "" };
        let labels: String = labels.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{mark}{model} {version}{labels}").trim_end().to_owned()
    }

    /// What limits the engine, or the cause of its state.
    #[must_use]
    pub fn why(&self) -> String {
        let limit = self.limit().map(|limit| {
            let is_unsure = limit.confidence == Confidence::Low;
            format!("{}{}: {}", limit.cause.name(), if is_unsure { " (not certain)" } else { "" }, limit.says)
        });
        limit.unwrap_or_else(|| self.engine.why.clone())
    }

    /// What limits the engine, if its severity is above none.
    #[must_use]
    pub fn limit(&self) -> Option<&Verdict> {
        self.engine.verdict.as_ref().filter(|verdict| verdict.severity > Severity::None)
    }

    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.engine.state == UNSEEN {
            true => Severity::Critical,
            false => self.limit().map_or(Severity::None, |limit| limit.severity),
        }
    }

    pub(super) fn id(&self) -> EngineId {
        self.engine.name(":")
    }

    /// The last minutes of the engine; empty if they were not read.
    #[must_use]
    pub fn history(&self) -> &[Slot] {
        let known = self.exporter.reading.history.as_ref().filter(|(of, _)| *of == self.id());
        known.map(|(_, slots)| slots.as_slice()).unwrap_or_default()
    }

    pub(super) fn key(&self) -> EngineKey {
        (self.at, self.id())
    }
}

/// Index of the exporter, and name of an engine. They keep the selection on it when the order changes.
pub type EngineKey = (usize, EngineId);
