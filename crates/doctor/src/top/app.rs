//! The state of the screen, and how keys and readings change it. It uses no terminal, no clock and no connection.

use std::cmp::Ordering;

use ratatui::crossterm::event::KeyCode;

use super::columns::Column;
use super::exporter::{EngineKey, Exporter, ExporterReading, Row};

/// Seconds for which an exporter keeps the numbers of the charts.
pub const HISTORY: f64 = 300.0;
/// Seconds over which rates and quantiles are computed.
pub const RECENT: f64 = 30.0;

/// The result of one read of an exporter.
#[derive(Debug)]
pub struct Update {
    /// Index of the exporter.
    pub exporter: usize,
    /// Seconds since the start of `top`.
    pub time: f64,
    pub read: Result<ExporterReading, String>,
}

/// The list whose rows the arrows move through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Engines,
    Gpus,
}

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
    /// The selected engine. `None` until a key moves the selection. Until then, the first row of the table is selected.
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
            Column::Engine | Column::Why => direction(one.engine.model.cmp(&other.engine.model)),
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
    pub fn charts_of(&self) -> Option<EngineKey> {
        self.rows().get(self.selected_row()).map(Row::key)
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
