//! The state of the screen, and how keys and readings change it. It uses no terminal, no clock and no connection.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ratatui::crossterm::event::KeyCode;
use trtllm_http::views::engine::Engine;
use trtllm_http::views::history::Slot;
use trtllm_http::views::numbers::Gpu;
use trtllm_service::printable::one_line;
use trtllm_verdict::verdict::{Severity, Verdict};

use super::columns::Column;

/// Seconds for which an exporter keeps the numbers of the charts.
pub const HISTORY: f64 = 300.0;
/// Seconds over which rates and quantiles are computed.
pub const RECENT: f64 = 30.0;

/// What one read of an exporter returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub engines: Vec<Engine>,
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU.
    pub no_gpus: String,
    /// The last minutes of the engine that was selected at the time of the read, if this exporter has it.
    pub history: Option<(EngineId, Vec<Slot>)>,
}

/// `model:version`, as the API names an engine.
pub type EngineId = String;

/// The result of one read of an exporter.
#[derive(Debug)]
pub struct Update {
    /// Index of the exporter.
    pub exporter: usize,
    /// Seconds since the start of `top`.
    pub time: f64,
    pub read: Result<Reading, String>,
}

/// The list whose rows the arrows move through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Engines,
    Gpus,
}

/// An exporter, and its last reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exporter {
    pub url: String,
    /// Why the last read failed, and since when reads fail.
    pub failure: Option<(String, f64)>,
    /// True after the first read that succeeds.
    pub was_read: bool,
    pub reading: Reading,
}

impl Exporter {
    /// The URL without the scheme.
    #[must_use]
    pub fn short(&self) -> &str {
        self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest)
    }

    /// Stores the result of a read. After a failed read, removes all numbers, because old ones would mislead. The names of the
    /// engines stay, to show which engines cannot be seen.
    fn absorb(&mut self, time: f64, read: Result<Reading, String>) {
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
                self.reading = Reading { engines, no_gpus: NO_ANSWER.to_owned(), ..Reading::default() };
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
        let limit = self.limit().map(|limit| format!("{}: {}", limit.cause.name(), limit.says));
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

    fn id(&self) -> EngineId {
        format!("{}:{}", self.engine.model, self.engine.version)
    }

    /// The last minutes of the engine; empty if they were not read.
    #[must_use]
    pub fn history(&self) -> &[Slot] {
        let known = self.exporter.reading.history.as_ref().filter(|(of, _)| *of == self.id());
        known.map(|(_, slots)| slots.as_slice()).unwrap_or_default()
    }

    fn key(&self) -> EngineKey {
        let Engine { model, version, labels, .. } = self.engine;
        (self.at, model.clone(), version.clone(), labels.clone())
    }
}

/// Index of the exporter, model, version and labels of an engine. They keep the selection on it when the order changes.
type EngineKey = (usize, String, String, BTreeMap<String, String>);

#[derive(Debug)]
pub struct App {
    pub exporters: Vec<Exporter>,
    pub sort: Column,
    pub descending: bool,
    pub focus: Focus,
    /// First GPU that is shown.
    pub gpu_offset: usize,
    pub detail: bool,
    pub help: bool,
    pub paused: bool,
    pub quit: bool,
    /// Time of the last update.
    pub time: f64,
    /// The selected engine. `None` until a key moves the selection: until then the first row is selected, whatever it shows.
    selected: Option<EngineKey>,
    /// Index of the selected row; used when the selected engine has disappeared.
    cursor: usize,
}

/// Number of rows by which Page Up and Page Down move.
const PAGE: usize = 10;

impl App {
    #[must_use]
    pub fn new(urls: &[String]) -> Self {
        Self {
            exporters: urls.iter().map(|url| Exporter { url: url.clone(), ..Exporter::default() }).collect(),
            sort: Column::State,
            descending: true,
            focus: Focus::Engines,
            gpu_offset: 0,
            detail: false,
            help: false,
            paused: false,
            quit: false,
            time: 0.0,
            selected: None,
            cursor: 0,
        }
    }

    /// Applies one read. While the display is paused, the read is dropped, because it began before the pause.
    pub fn absorb(&mut self, update: Update) {
        if self.paused {
            return;
        }
        self.time = self.time.max(update.time);
        if let Some(exporter) = self.exporters.get_mut(update.exporter) {
            exporter.absorb(update.time, update.read);
        }
        // The selected engine may have disappeared. Then select the engine that is now in its row.
        if self.selected.is_some() {
            self.select(self.selected_row());
        }
    }

    /// The engines of all exporters in the order of the table. Unknown values are last in both directions.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let exporters = self.exporters.iter().enumerate();
        let mut rows: Vec<Row<'_>> = exporters
            .flat_map(|(at, exporter)| exporter.reading.engines.iter().map(move |engine| Row { at, exporter, engine }))
            .collect();
        rows.sort_by(|one, other| self.compare(one, other));
        rows
    }

    fn compare(&self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        let direction = |order: Ordering| if self.descending { order.reverse() } else { order };
        match self.sort {
            Column::Number(number) => match (number.of(one.engine), number.of(other.engine)) {
                (Some(one), Some(other)) => direction(one.total_cmp(&other)),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
            Column::State => direction(one.severity().cmp(&other.severity()))
                .then_with(|| one.engine.state.cmp(&other.engine.state))
                .then_with(|| one.key().cmp(&other.key())),
            Column::Exporter => direction(one.at.cmp(&other.at)),
            Column::Engine | Column::Why => direction(one.key().1.cmp(&other.key().1)),
        }
    }

    /// Index of the selected row in [`App::rows`].
    #[must_use]
    pub fn selected_row(&self) -> usize {
        let rows = self.rows();
        let is_selected = |row: &Row<'_>| self.selected.as_ref() == Some(&row.key());
        rows.iter().position(is_selected).unwrap_or(self.cursor.min(rows.len().saturating_sub(1)))
    }

    /// The engine whose charts are shown: its exporter and its name in the API.
    #[must_use]
    pub fn charts_of(&self) -> Option<(usize, EngineId)> {
        self.rows().get(self.selected_row()).map(|row| (row.at, row.id()))
    }

    fn select(&mut self, at: usize) {
        let rows = self.rows();
        let at = at.min(rows.len().saturating_sub(1));
        (self.selected, self.cursor) = (rows.get(at).map(Row::key), at);
    }

    fn gpus(&self) -> usize {
        self.exporters.iter().map(|exporter| exporter.reading.gpus.len()).sum()
    }

    pub fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.quit = true,
            KeyCode::Char('?') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Enter if self.help => self.help = false,
            _ if self.help => {}
            KeyCode::Enter => {
                self.select(self.selected_row());
                self.detail = !self.detail && self.selected.is_some();
            }
            KeyCode::Esc | KeyCode::Backspace => self.detail = false,
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Engines { Focus::Gpus } else { Focus::Engines };
            }
            KeyCode::Left | KeyCode::Char('h' | '<') => self.sort_by(-1),
            KeyCode::Right | KeyCode::Char('l' | '>') => self.sort_by(1),
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Up | KeyCode::Char('k') => self.go(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at| at.saturating_add(1)),
            KeyCode::PageUp => self.go(|at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.go(|at| at.saturating_add(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_| usize::MAX),
            _ => {}
        }
    }

    fn go(&mut self, to: fn(usize) -> usize) {
        if self.focus == Focus::Gpus && !self.detail {
            self.gpu_offset = to(self.gpu_offset).min(self.gpus().saturating_sub(1));
        } else {
            self.select(to(self.selected_row()));
        }
    }

    /// Sorts by the column that is `step` columns to the right. Numbers begin with the largest, states with the worst, names with the
    /// first in alphabetical order.
    fn sort_by(&mut self, step: isize) {
        let mut columns = Column::all(self.exporters.len() > 1);
        columns.retain(|column| *column != Column::Why);
        let now = columns.iter().position(|column| *column == self.sort).unwrap_or(0);
        let next = now.saturating_add_signed(step).min(columns.len() - 1);
        if next != now {
            self.sort = columns[next];
            self.descending = matches!(self.sort, Column::Number(_) | Column::State);
        }
    }
}
