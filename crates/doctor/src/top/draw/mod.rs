//! Draws the state on a frame. The frame depends only on the state and the size of the terminal.

mod detail;
mod engines;
mod help;

pub use engines::tone_of_state;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::app::{App, Focus};
use super::exporter::Exporter;
use super::table;
use super::theme::{Theme, Tone};
use super::units::{cut, left};

/// Most lines for exporters that do not answer.
const MAX_FAILURES: usize = 4;

/// The charts are shown below the lists only if at least this number of lines is free there.
const CHARTS: u16 = 12;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme, interval: Duration) {
    let rows = app.rows();
    let columns = usize::from(frame.area().width);
    let failures = failures(app, columns, theme);
    let [head, failed, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(failures.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(app, columns, theme, interval), head);
    for (line, area) in failures.into_iter().zip(failed.rows()) {
        frame.render_widget(line, area);
    }
    frame.render_widget(keys(app, theme), foot);
    match rows.get(app.selected_row()) {
        Some(row) if app.detail => detail::draw(frame, body, row, theme),
        selected => {
            let gpus = gpus(app, columns, theme);
            let (engines_height, gpus_height) = shares(usize::from(body.height), rows.len(), gpus.len(), app.focus);
            let lines = engines::lines(app, &rows, columns, engines_height, theme);
            let gpus = window(gpus, app.gpu_offset, gpus_height);
            let used = (lines.len() + gpus.len() + 1) as u16;
            for (line, area) in lines.into_iter().chain(gpus).zip(body.rows()) {
                frame.render_widget(line, area);
            }
            // Show the charts of the selected engine below the lists, if they fit.
            let rest = Rect { y: body.y.saturating_add(used), height: body.height.saturating_sub(used), ..body };
            if let Some(row) = selected.filter(|_| rest.height >= CHARTS) {
                let [name, charts] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(rest);
                frame.render_widget(Line::styled(row.name(), theme.style(Tone::Title)), name);
                detail::draw_numbers(frame, charts, row, theme);
            }
        }
    }
    if app.help {
        help::draw(frame, theme);
    }
}

/// The state as text for a pipe, a log or a bug report: exporters, engines, sides of orchestrators (context, generation), GPUs.
#[must_use]
pub fn text(app: &App) -> String {
    let mut out = String::new();
    for exporter in &app.exporters {
        let (engines, gpus) = (exporter.reading.engines.len(), exporter.reading.gpus.len());
        out += &match &exporter.failure {
            Some((error, _)) => format!("{}: not read: {error}\n", exporter.url),
            None if gpus == 0 => {
                format!("{}: engines: {engines}, GPUs: 0 ({})\n", exporter.url, exporter.reading.no_gpus)
            }
            None => format!("{}: engines: {engines}, GPUs: {gpus}\n", exporter.url),
        };
    }
    let rows = app.rows();
    let orchestrators = rows.iter().filter_map(|row| Some((row.name(), row.engine.orchestrator.as_ref()?)));
    let tables =
        [table::engines(&rows, app.exporters.len() > 1), table::sides(orchestrators), table::gpus(&app.exporters)];
    for table in tables.iter().filter(|table| !table.is_empty()) {
        out += "\n";
        out += &table.text();
    }
    out
}

/// A title and a line for each GPU, and a line for each exporter without GPUs that says why it has none.
fn gpus(app: &App, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let table = table::gpus(&app.exporters);
    let mut lines = if table.is_empty() { Vec::new() } else { table.lines(columns, theme) };
    if let Some(title) = lines.first_mut().filter(|_| app.focus == Focus::Gpus) {
        title.style = title.style.add_modifier(Modifier::REVERSED);
    }
    for exporter in app.exporters.iter().filter(|exporter| exporter.was_read && exporter.reading.gpus.is_empty()) {
        let of = if app.exporters.len() > 1 { format!(" of {}", exporter.short()) } else { String::new() };
        let text = format!("GPUs{of}: none: {}", exporter.reading.no_gpus);
        lines.push(Line::styled(cut(&text, columns), theme.style(Tone::Minor)));
    }
    lines
}

/// Keeps the title and the lines that fit, beginning at `offset`.
fn window(mut lines: Vec<Line<'static>>, offset: usize, height: usize) -> Vec<Line<'static>> {
    if lines.len() > height && lines.len() > 1 {
        let last = lines.len().saturating_sub(height);
        lines.drain(1..1 + offset.min(last));
    }
    lines.truncate(height);
    lines
}

/// How many lines the table of engines and the list of GPUs get. The table includes its titles and the cause of the selected engine.
/// The list includes its title.
fn shares(height: usize, engines: usize, gpus: usize, focus: Focus) -> (usize, usize) {
    let (table, list) = (engines.max(1) + engines::AROUND, gpus);
    if table + list <= height {
        return (table, list);
    }
    let third = height / 3;
    match focus {
        Focus::Engines => {
            let list = list.min(third.max(height.saturating_sub(table)));
            (height - list, list)
        }
        Focus::Gpus => {
            let table = table.min(third.max(height.saturating_sub(list)));
            (table, height - table)
        }
    }
}

fn title(app: &App, columns: usize, theme: Theme, interval: Duration) -> Line<'static> {
    let failed = app.exporters.iter().filter(|exporter| exporter.failure.is_some()).count();
    let engines: usize = app.exporters.iter().map(|exporter| exporter.reading.engines.len()).sum();
    let gpus: usize = app.exporters.iter().map(|exporter| exporter.reading.gpus.len()).sum();
    let number = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let exporters = match app.exporters.as_slice() {
        [exporter] => exporter.short().to_owned(),
        several => number(several.len(), "exporter"),
    };
    let failed = if failed > 0 { format!(" ({failed} down)") } else { String::new() };
    let paused = if app.paused { "PAUSED" } else { "" };
    let every = if app.paused { String::new() } else { format!("every {}", humantime::format_duration(interval)) };
    let (engines, gpus) = (number(engines, "engine"), number(gpus, "GPU"));
    let text = format!(" trtllm-doctor top  {exporters}{failed}  {engines}  {gpus}  {every}{paused}");
    Line::styled(left(&text, columns), theme.style(Tone::Title).add_modifier(Modifier::REVERSED))
}

fn failures(app: &App, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let failed = app.exporters.iter().filter_map(|exporter| Some((exporter, exporter.failure.as_ref()?)));
    let text = |(exporter, (error, since)): (&Exporter, &(String, f64))| {
        let seconds = Duration::from_secs((app.time - since).max(0.0) as u64);
        format!("{}: {error} (for {})", exporter.url, humantime::format_duration(seconds))
    };
    let mut texts: Vec<String> = failed.map(text).collect();
    if texts.len() > MAX_FAILURES {
        let more = texts.len() - MAX_FAILURES + 1;
        texts.truncate(MAX_FAILURES - 1);
        texts.push(format!("{more} more exporters do not answer"));
    }
    texts.into_iter().map(|text| Line::styled(cut(&text, columns), theme.style(Tone::Bad))).collect()
}

/// The most used keys.
fn keys(app: &App, theme: Theme) -> Line<'static> {
    let keys: &[(&str, &str)] = if app.detail {
        &[("Esc", "back"), ("↑↓", "engine"), ("p", "pause"), ("?", "help"), ("q", "quit")]
    } else {
        &[
            ("↑↓", "select"),
            ("Enter", "detail"),
            ("←→", "sort"),
            ("r", "reverse"),
            ("Tab", "GPUs"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ]
    };
    let mut spans = Vec::new();
    for (key, meaning) in keys {
        spans.push(Span::styled(format!(" {key}"), theme.style(Tone::Title)));
        spans.push(Span::styled(format!(" {meaning} "), theme.style(Tone::Minor)));
    }
    Line::from(spans)
}
