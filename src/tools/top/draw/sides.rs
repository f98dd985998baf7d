//! An orchestrator of disaggregated serving: its requests, and a line for each side.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use trtllm_http::views::numbers::Orchestrator;

use super::super::sides::{TITLES, rows};
use super::super::theme::{Theme, Tone};
use super::super::units::{Unit, cut, left, right, width};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, orchestrator: &Orchestrator, theme: Theme) {
    for (line, area) in lines(orchestrator, usize::from(area.width), theme).into_iter().zip(area.rows()) {
        frame.render_widget(line, area);
    }
}

fn lines(orchestrator: &Orchestrator, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let text = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.text(value));
    let window = orchestrator.window.as_ref();
    let requests = text(window.and_then(|window| window.requests_per_second), Unit::PerSecond);
    let errors = text(window.and_then(|window| window.error_ratio), Unit::Share);
    let titles = TITLES.map(str::to_owned);
    let sides = rows(orchestrator);
    let widths: [usize; 8] = std::array::from_fn(|at| {
        sides.iter().map(|(side, _)| width(&side[at])).max().unwrap_or(0).max(width(&titles[at]))
    });
    let line = |texts: &[String; 8]| {
        let cells = texts.iter().zip(widths).enumerate();
        let cells = cells.map(|(at, (text, width))| if at == 0 { left(text, width) } else { right(text, width) });
        cut(&cells.collect::<Vec<_>>().join("  "), columns)
    };
    let mut lines = vec![
        Line::raw(cut(&format!("requests/s {requests}  errors {errors}"), columns)),
        Line::raw(""),
        Line::styled(line(&titles), theme.style(Tone::Title)),
    ];
    for (texts, is_short) in &sides {
        // A side with too few workers serves nothing.
        lines.push(match is_short {
            true => Line::styled(line(texts), theme.style(Tone::Bad)),
            false => Line::raw(line(texts)),
        });
    }
    lines
}
