//! The exporters as `top` knows them: the last reading of each, and the numbers of the last minutes. Pure: the time is a
//! parameter, in seconds since `top` began.

use std::collections::VecDeque;

use trtllm_service::printable::printable;

use super::numbers::{Numbers, Totals};
use super::reading::{EngineName, EngineReading, Gpu, Rank, Reading};
use super::sides::Orchestrator;

/// Seconds of numbers kept for the charts.
pub const HISTORY: f64 = 300.0;
/// Quantiles of requests and the hit ratio are of this time.
pub const RECENT: f64 = 30.0;
/// Numbers kept of one engine, whatever the interval.
const MAX_POINTS: usize = 1500;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exporter {
    pub url: String,
    /// Why the last read failed, and since when reads fail.
    pub failure: Option<(String, f64)>,
    pub was_read: bool,
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
    pub no_gpus: &'static str,
    started: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Engine {
    pub name: EngineName,
    pub id: String,
    pub state: String,
    pub why: String,
    pub simulated: bool,
    pub about: String,
    pub numbers: Numbers,
    pub ranks: Vec<Rank>,
    /// Of an orchestrator of disaggregated serving. `None` for an engine.
    pub orchestrator: Option<Orchestrator>,
    /// Time and numbers, oldest first.
    pub history: VecDeque<(f64, Numbers)>,
    totals: VecDeque<(f64, Totals)>,
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
        let reading = match read {
            Ok(reading) => reading,
            Err(error) => return self.fail(time, &error),
        };
        let restarted = reading.started != self.started;
        let mut before = std::mem::take(&mut self.engines);
        self.engines = reading
            .engines
            .into_iter()
            .map(|engine| {
                let known = before.iter().position(|known| known.name == engine.name);
                let mut known = known.map(|at| before.swap_remove(at)).unwrap_or_default();
                if restarted {
                    known.totals.clear();
                }
                known.absorb(time, engine);
                known
            })
            .collect();
        self.failure = None;
        self.was_read = true;
        self.started = reading.started;
        self.gpus = reading.gpus;
        self.no_gpus = reading.no_gpus;
    }

    fn fail(&mut self, time: f64, error: &str) {
        let since = self.failure.take().map_or(time, |(_, since)| since);
        for engine in &mut self.engines {
            "unknown".clone_into(&mut engine.state);
            "the exporter does not answer".clone_into(&mut engine.why);
            engine.numbers = Numbers::default();
            engine.ranks.clear();
            engine.orchestrator = None;
        }
        self.gpus.clear();
        self.no_gpus = "the exporter does not answer";
        self.failure = Some((printable(error), since));
    }
}

impl Engine {
    fn absorb(&mut self, time: f64, reading: EngineReading) {
        let mut numbers = reading.numbers;
        if let Some((last, totals)) = self.totals.back() {
            numbers.add_interval(time - last, totals, &reading.totals);
        }
        let recent = self.totals.iter().find(|(then, _)| time - then <= RECENT).or(self.totals.back());
        if let Some((_, totals)) = recent {
            numbers.add_recent(totals, &reading.totals);
        }
        let recent = recent.map(|(then, totals)| (time - then, &totals.orchestrator));
        self.orchestrator = reading.totals.orchestrator.since(recent);
        self.totals.push_back((time, reading.totals));
        self.history.push_back((time, numbers.clone()));
        // One read before the window stays, so that an interval longer than the window has a beginning.
        while self.totals.len() > 2 && self.totals.front().is_some_and(|(then, _)| time - then > RECENT) {
            self.totals.pop_front();
        }
        while self.history.len() > MAX_POINTS || self.history.front().is_some_and(|(then, _)| time - then > HISTORY) {
            self.history.pop_front();
        }
        self.numbers = numbers;
        self.name = reading.name;
        self.id = reading.id;
        self.state = reading.state;
        self.why = reading.why;
        self.simulated = reading.simulated;
        self.about = reading.about;
        self.ranks = reading.ranks;
    }
}
