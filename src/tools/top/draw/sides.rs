//! An orchestrator of disaggregated serving: its requests, and a line for each side.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::sides::{Orchestrator, Side, TITLES};
use super::super::theme::{Theme, Tone};
use super::super::units::{Unit, cut, left, right, width};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, orchestrator: &Orchestrator, theme: Theme) {
    for (line, area) in lines(orchestrator, usize::from(area.width), theme).into_iter().zip(area.rows()) {
        frame.render_widget(line, area);
    }
}

fn lines(orchestrator: &Orchestrator, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let text = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.text(value));
    let (requests, errors) = (text(orchestrator.requests, Unit::PerSecond), text(orchestrator.errors, Unit::Share));
    let titles = TITLES.map(str::to_owned);
    let sides: Vec<[String; 8]> = orchestrator.sides.iter().map(Side::texts).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|at| sides.iter().map(|side| width(&side[at])).max().unwrap_or(0).max(width(&titles[at])));
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
    for (side, texts) in orchestrator.sides.iter().zip(&sides) {
        // A side with too few workers serves nothing.
        lines.push(match side.needed {
            Some(_) => Line::styled(line(texts), theme.style(Tone::Bad)),
            None => Line::raw(line(texts)),
        });
    }
    lines
}
