//! The list of GPUs.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::super::app::{App, Focus};
use super::super::gpu_columns::{self, TITLES};
use super::super::theme::{Theme, Tone};
use super::super::units::cut;

/// A title and a line per GPU; exporters without GPUs say why.
pub(super) fn lines(app: &App, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let rows = gpu_columns::rows(&app.exporters);
    let widths = gpu_columns::widths(&rows);
    let mut lines = Vec::new();
    if !rows.is_empty() {
        let style = theme.style(Tone::Title);
        let style = if app.focus == Focus::Gpus { style.add_modifier(Modifier::REVERSED) } else { style };
        let title: String = (0..TITLES.len()).map(|at| gpu_columns::pad(at, TITLES[at], widths[at])).collect();
        lines.push(Line::styled(cut(title.trim_end(), columns), style));
    }
    for row in &rows {
        let cells = row.iter().enumerate().map(|(at, text)| {
            let tone = tone(at, text);
            Span::styled(gpu_columns::pad(at, text, widths[at]), theme.style(tone))
        });
        lines.push(Line::from(cells.collect::<Vec<_>>()));
    }
    for exporter in app.exporters.iter().filter(|exporter| exporter.was_read && exporter.gpus.is_empty()) {
        let of = if app.exporters.len() > 1 { format!(" of {}", exporter.short()) } else { String::new() };
        let text = format!("GPUs{of}: none: {}", exporter.no_gpus);
        lines.push(Line::styled(cut(&text, columns), theme.style(Tone::Minor)));
    }
    lines
}

/// The title, and the lines from `offset` that have room.
pub(super) fn window(mut lines: Vec<Line<'static>>, offset: usize, height: usize) -> Vec<Line<'static>> {
    if lines.len() > height && lines.len() > 1 {
        let last = lines.len().saturating_sub(height);
        lines.drain(1..1 + offset.min(last));
    }
    lines.truncate(height);
    lines
}

fn tone(column: usize, text: &str) -> Tone {
    match (TITLES[column], text) {
        (_, "-") => Tone::Minor,
        ("STATE", "ok") => Tone::Good,
        ("STATE", _) => Tone::Bad,
        ("CLOCKS LIMITED BY", "nothing" | "gpu idle") => Tone::Minor,
        ("CLOCKS LIMITED BY", _) => Tone::Warning,
        _ => Tone::Plain,
    }
}
