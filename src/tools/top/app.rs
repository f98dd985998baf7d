//! The state of the screen: what keys and readings make of it. Pure; knows no terminal, no clock and no connection.

use std::cmp::Ordering;

use super::columns::Column;
use super::exporter::{Exporter, Row};
use super::reading::{EngineName, Reading};

/// A key with a meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Tab,
    Char(char),
}

/// What one read of one exporter brought.
#[derive(Debug)]
pub struct Update {
    /// Index of the exporter.
    pub exporter: usize,
    /// Seconds since the start.
    pub time: f64,
    pub read: Result<Reading, String>,
}

/// The list whose rows the arrows move through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Engines,
    Gpus,
}

/// An engine of an exporter. The selection follows it when the order changes.
pub type EngineKey = (usize, EngineName);

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
    /// Before the first movement, the first row is selected, whichever it is.
    selected: Option<EngineKey>,
    /// Row of the selection, for when its engine is gone.
    cursor: usize,
}

/// Rows of a page.
const PAGE: usize = 10;

impl App {
    #[must_use]
    pub fn new(urls: &[String]) -> Self {
        Self {
            exporters: urls.iter().map(|url| Exporter::new(url)).collect(),
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

    /// A read that was under way when the screen was paused is dropped.
    pub fn absorb(&mut self, update: Update) {
        if self.paused {
            return;
        }
        self.time = self.time.max(update.time);
        if let Some(exporter) = self.exporters.get_mut(update.exporter) {
            exporter.absorb(update.time, update.read);
        }
        // Its engine may be gone.
        if self.selected.is_some() {
            self.select(self.selected_row());
        }
    }

    /// The engines of all exporters in the order of the table. Unknown values are last in both directions.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let exporters = self.exporters.iter().enumerate();
        let mut rows: Vec<Row<'_>> = exporters
            .flat_map(|(at, exporter)| exporter.engines.iter().map(move |engine| Row { at, exporter, engine }))
            .collect();
        rows.sort_by(|one, other| self.compare(one, other));
        rows
    }

    fn compare(&self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        let direction = |order: Ordering| if self.descending { order.reverse() } else { order };
        match self.sort {
            Column::Number(number) => match (one.engine.numbers.get(number), other.engine.numbers.get(number)) {
                (Some(one), Some(other)) => direction(one.total_cmp(&other)),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
            Column::State => direction(one.engine.severity.cmp(&other.engine.severity))
                .then_with(|| one.engine.state.cmp(&other.engine.state))
                .then_with(|| one.engine.name.cmp(&other.engine.name)),
            Column::Exporter => direction(one.at.cmp(&other.at)),
            Column::Engine | Column::Why => direction(one.engine.name.cmp(&other.engine.name)),
        }
    }

    /// Index in [`App::rows`].
    #[must_use]
    pub fn selected_row(&self) -> usize {
        let rows = self.rows();
        let is_selected =
            |row: &Row<'_>| self.selected.as_ref().is_some_and(|(at, name)| *at == row.at && *name == row.engine.name);
        rows.iter().position(is_selected).unwrap_or(self.cursor.min(rows.len().saturating_sub(1)))
    }

    /// The engine whose charts are shown: its exporter and its name in the API.
    #[must_use]
    pub fn charts_of(&self) -> Option<(usize, String)> {
        self.rows().get(self.selected_row()).map(|row| (row.at, row.engine.id.clone()))
    }

    fn select(&mut self, at: usize) {
        let rows = self.rows();
        let at = at.min(rows.len().saturating_sub(1));
        let selected = rows.get(at).map(|row| (row.at, row.engine.name.clone()));
        self.cursor = at;
        self.selected = selected;
    }

    fn gpus(&self) -> usize {
        self.exporters.iter().map(|exporter| exporter.gpus.len()).sum()
    }

    pub fn key(&mut self, key: Key) {
        match key {
            Key::Char('q') => self.quit = true,
            Key::Char('?') => self.help = !self.help,
            Key::Char(' ' | 'p') => self.paused = !self.paused,
            Key::Escape | Key::Enter if self.help => self.help = false,
            _ if self.help => {}
            Key::Enter => {
                self.select(self.selected_row());
                self.detail = !self.detail && self.selected.is_some();
            }
            Key::Escape => self.detail = false,
            Key::Tab => {
                self.focus = if self.focus == Focus::Engines { Focus::Gpus } else { Focus::Engines };
            }
            Key::Left | Key::Char('h' | '<') => self.sort_by(-1),
            Key::Right | Key::Char('l' | '>') => self.sort_by(1),
            Key::Char('r') => self.descending = !self.descending,
            Key::Up | Key::Char('k') => self.go(|at| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|at| at.saturating_add(1)),
            Key::PageUp => self.go(|at| at.saturating_sub(PAGE)),
            Key::PageDown => self.go(|at| at.saturating_add(PAGE)),
            Key::Home | Key::Char('g') => self.go(|_| 0),
            Key::End | Key::Char('G') => self.go(|_| usize::MAX),
            Key::Char(_) => {}
        }
    }

    fn go(&mut self, to: fn(usize) -> usize) {
        if self.focus == Focus::Gpus && !self.detail {
            self.gpu_offset = to(self.gpu_offset).min(self.gpus().saturating_sub(1));
        } else {
            self.select(to(self.selected_row()));
        }
    }

    /// Names begin with the smallest, numbers with the largest, states with the worst.
    fn sort_by(&mut self, step: isize) {
        let columns = Column::sortable(self.exporters.len() > 1);
        let now = columns.iter().position(|column| *column == self.sort).unwrap_or(0);
        let next = now.saturating_add_signed(step).min(columns.len() - 1);
        if next != now {
            self.sort = columns[next];
            self.descending = matches!(self.sort, Column::Number(_) | Column::State);
        }
    }
}
