//! The table of engines, and the cause of the selected engine's state.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use trtllm_verdict::verdict::Severity;

use super::super::app::{App, Focus};
use super::super::columns::{Column, fitting};
use super::super::exporter::Row;
use super::super::theme::{Theme, Tone};
use super::super::units::{cut, left, right};

/// Lines besides the lines of the engines: the titles, an empty line, the cause, an empty line.
pub(super) const AROUND: usize = 4;

/// The titles, the engines that fit, and the cause of the selected engine's state.
pub(super) fn lines(app: &App, rows: &[Row<'_>], columns: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    let chosen = fitting(columns, rows, app.exporters.len() > 1, app.sort);
    let mut lines = vec![titles(app, &chosen, theme)];
    let selected = app.selected_row();
    let room = height.saturating_sub(AROUND).max(1);
    let offset = (selected + 1).saturating_sub(room);
    for (at, row) in rows.iter().enumerate().skip(offset).take(room) {
        lines.push(line(row, &chosen, at == selected && app.focus == Focus::Engines, theme));
    }
    if rows.is_empty() {
        lines.push(Line::styled(nothing(app), theme.style(Tone::Minor)));
    }
    let cause = rows.get(selected).map(|row| {
        let exporter = if app.exporters.len() > 1 { format!(" at {}", row.exporter.short()) } else { String::new() };
        let position = if rows.len() > room { format!(" ({} of {})", selected + 1, rows.len()) } else { String::new() };
        let text = format!("{}{exporter}{position}: {}: {}", row.name(), row.engine.state, row.why());
        Line::styled(cut(&text, columns), theme.style(tone_of_state(row)))
    });
    lines.extend([Line::default(), cause.unwrap_or_default(), Line::default()]);
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

fn titles(app: &App, chosen: &[(Column, usize)], theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in chosen {
        let arrow = match (*column == app.sort, app.descending) {
            (false, _) => "",
            (true, false) => "▲",
            (true, true) => "▼",
        };
        let is_number = matches!(column, Column::Number(_));
        let (separator, text) = match column.title() {
            // A title that fills its column has no room for the arrow, so the arrow replaces the space before it.
            title if is_number && title.len() == *width && !arrow.is_empty() => (arrow, title.to_owned()),
            title if is_number => (" ", right(&format!("{arrow}{title}"), *width)),
            title => (" ", left(&format!("{title}{arrow}"), *width)),
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
        let style = theme.style(tone(*column, &text, row));
        let text = if matches!(column, Column::Number(_)) { right(&text, *width) } else { left(&text, *width) };
        // Draw a selected row without colours, because it is shown inverted.
        spans.push(Span::styled(text, if is_selected { Style::new() } else { style }));
        spans.push(Span::raw(" "));
    }
    let line = Line::from(spans);
    if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

/// The tone for the state of an engine. A cause that limits the engine takes precedence.
#[must_use]
pub fn tone_of_state(row: &Row<'_>) -> Tone {
    match (row.severity(), row.engine.state.as_str()) {
        (Severity::Critical, _) => Tone::Bad,
        (Severity::Warning, _) => Tone::Warning,
        (Severity::Info, _) | (_, "starting") => Tone::Info,
        (_, "busy") => Tone::Good,
        (_, "idle") => Tone::Minor,
        _ => Tone::Bad,
    }
}

fn tone(column: Column, text: &str, row: &Row<'_>) -> Tone {
    match column {
        Column::State => tone_of_state(row),
        Column::Why if row.severity() > Severity::None => tone_of_state(row),
        Column::Why | Column::Exporter => Tone::Minor,
        _ if text == "-" => Tone::Minor,
        _ => Tone::Plain,
    }
}
