//! The table of engines, and the cause of the selected engine's state.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use trtllm_verdict::verdict::Severity;

use super::super::app::{App, Focus};
use super::super::columns::{Column, fitting};
use super::super::exporter::Row;
use super::super::reading::Engine;
use super::super::theme::{Theme, Tone};
use super::super::units::{cut, left, right};

/// Two lines of titles, the engines that have room, an empty line, the cause, an empty line.
pub(super) fn lines(app: &App, rows: &[Row<'_>], columns: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    let chosen = fitting(columns, rows, app.exporters.len() > 1, app.sort);
    let mut lines = vec![groups(&chosen, theme), titles(app, &chosen, theme)];
    let selected = app.selected_row();
    let room = height.saturating_sub(5).max(1);
    let offset = (selected + 1).saturating_sub(room);
    for (at, row) in rows.iter().enumerate().skip(offset).take(room) {
        lines.push(line(row, &chosen, at == selected && app.focus == Focus::Engines, theme));
    }
    if rows.is_empty() {
        lines.push(Line::styled(nothing(app), theme.style(Tone::Minor)));
    }
    lines.push(Line::default());
    if let Some(row) = rows.get(selected) {
        let exporter = if app.exporters.len() > 1 { format!(" at {}", row.exporter.short()) } else { String::new() };
        let more = rows.len().saturating_sub(room);
        let position = if more > 0 { format!(" ({} of {})", selected + 1, rows.len()) } else { String::new() };
        let name = row.engine.name.text();
        let text = format!("{name}{exporter}{position}: {}: {}", row.engine.state, row.engine.why);
        lines.push(Line::styled(cut(&text, columns), theme.style(state(row.engine))));
    } else {
        lines.push(Line::default());
    }
    lines.push(Line::default());
    lines
}

fn nothing(app: &App) -> &'static str {
    if app.exporters.iter().any(|exporter| exporter.was_read && exporter.failure.is_none()) {
        "No engine yet."
    } else if app.exporters.iter().all(|exporter| exporter.failure.is_some()) {
        "No exporter answers."
    } else {
        "Reading…"
    }
}

/// The titles above several columns.
fn groups(chosen: &[(Column, usize)], theme: Theme) -> Line<'static> {
    let mut text = String::new();
    for group in chosen.chunk_by(|(one, _), (other, _)| one.group() == other.group()) {
        let width = group.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
        let words = match group {
            [(column, _)] => right(column.group_short(), width),
            _ => over(group[0].0.group(), width),
        };
        text.push_str(&left(&words, width));
        text.push(' ');
    }
    Line::styled(text.trim_end().to_owned(), theme.style(Tone::Minor))
}

/// A rule shows where the group ends.
fn over(group: &str, width: usize) -> String {
    if group.is_empty() {
        return String::new();
    }
    format!(" {group} {}", "─".repeat(width.saturating_sub(group.len() + 2)))
}

fn titles(app: &App, chosen: &[(Column, usize)], theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in chosen {
        let arrow = match (*column == app.sort, app.descending) {
            (false, _) => "",
            (true, false) => "▲",
            (true, true) => "▼",
        };
        let title = format!("{arrow}{}", column.title());
        let (separator, text) = match column {
            // The arrow takes the space before a title as wide as its column.
            Column::Number(_) if title.chars().count() > *width => (arrow, column.title().to_owned()),
            Column::Number(_) => (" ", right(&title, *width)),
            _ => (" ", left(&format!("{}{arrow}", column.title()), *width)),
        };
        if !spans.is_empty() {
            spans.push(Span::raw(separator));
        }
        let style = theme.style(Tone::Title);
        let style = if arrow.is_empty() { style } else { style.add_modifier(Modifier::UNDERLINED) };
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

fn line(row: &Row<'_>, chosen: &[(Column, usize)], is_selected: bool, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in chosen {
        let text = column.text(row);
        let known = text.is_some();
        let text = text.unwrap_or_else(|| "-".to_owned());
        let text = if matches!(column, Column::Number(_)) { right(&text, *width) } else { left(&text, *width) };
        let style = theme.style(if known { tone(*column, row) } else { Tone::Minor });
        // The colours of a selected row would be inverted, too.
        spans.push(Span::styled(text, if is_selected { Style::new() } else { style }));
        spans.push(Span::raw(" "));
    }
    let line = Line::from(spans);
    if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

/// Of the state of an engine, and of what limits it.
#[must_use]
pub fn state(engine: &Engine) -> Tone {
    match (engine.severity, engine.state.as_str()) {
        (Severity::Critical, _) => Tone::Bad,
        (Severity::Warning, _) => Tone::Warning,
        (Severity::Info, _) | (_, "starting") => Tone::Info,
        (_, "busy") => Tone::Good,
        (_, "idle") => Tone::Minor,
        _ => Tone::Bad,
    }
}

fn tone(column: Column, row: &Row<'_>) -> Tone {
    match column {
        Column::State => state(row.engine),
        Column::Why if row.engine.severity > Severity::None => state(row.engine),
        Column::Why | Column::Exporter => Tone::Minor,
        _ => Tone::Plain,
    }
}
