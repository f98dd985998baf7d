//! The view of one engine: the cause of its state, its numbers, charts of the last minutes, and its ranks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType};

use super::super::app::HISTORY;
use super::super::exporter::Row;
use super::super::numbers::Number;
use super::super::table;
use super::super::theme::{Theme, Tone};
use super::super::units::{DisplayUnit, cut, right};
use super::engines::tone_of_state;

/// A chart: its title, and for each line its name and its number.
type Plot = (&'static str, &'static [(&'static str, Number)]);

const PLOTS: [Plot; 6] = [
    ("Requests", &[("in the batch", Number::Scheduled), ("waiting", Number::Waiting)]),
    ("Tokens/s", &[("generated", Number::Generated), ("context", Number::Context)]),
    ("KV cache", &[("used", Number::KvUsed), ("hits", Number::Hits)]),
    ("Iteration", &[("mean", Number::LatencyMean), ("p99", Number::LatencyP99)]),
    ("TTFT", &[("p50", Number::FirstP50), ("p95", Number::FirstP95)]),
    ("TPOT", &[("p50", Number::OutputP50), ("p95", Number::OutputP95)]),
];
/// Shortest time that a chart shows, in seconds.
const LEAST_SPAN: f64 = 60.0;
/// Minimum height of a chart with labels of the time below it, in lines.
const LABELLED: u16 = 7;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, row: &Row<'_>, theme: Theme) {
    let columns = usize::from(area.width);
    let ranks = row.engine.load.as_ref().map(|load| load.ranks.as_slice()).unwrap_or_default();
    let ranks = if ranks.is_empty() { Vec::new() } else { table::ranks(ranks).lines(columns, theme) };
    let head = head_lines(row, columns, theme);
    let [above, numbers, below] = Layout::vertical([
        Constraint::Length(head.len() as u16),
        Constraint::Min(0),
        Constraint::Length(ranks.len() as u16),
    ])
    .areas(area);
    for (line, area) in head.into_iter().zip(above.rows()).chain(ranks.into_iter().zip(below.rows())) {
        frame.render_widget(line, area);
    }
    draw_numbers(frame, numbers, row, theme);
}

/// Draws all charts, in two or three columns. For an orchestrator, draws its requests and a line for each side (context,
/// generation) instead, because it has no charts.
pub(super) fn draw_numbers(frame: &mut Frame<'_>, area: Rect, row: &Row<'_>, theme: Theme) {
    if let Some(orchestrator) = &row.engine.orchestrator {
        let window = orchestrator.window.as_ref();
        let requests = DisplayUnit::Count.text(window.and_then(|window| window.requests_per_second));
        let errors = DisplayUnit::Share.text(window.and_then(|window| window.error_ratio));
        let mut lines = vec![Line::raw(format!("requests/s {requests}  errors {errors}")), Line::default()];
        lines
            .extend(table::sides(std::iter::once((String::new(), orchestrator))).lines(usize::from(area.width), theme));
        for (line, area) in lines.into_iter().zip(area.rows()) {
            frame.render_widget(line, area);
        }
        return;
    }
    let per_row = if area.width >= 110 { 3 } else { 2 };
    let rows = Layout::vertical(vec![Constraint::Fill(1); PLOTS.len() / per_row]).split(area);
    for (plots, area) in PLOTS.chunks(per_row).zip(rows.iter()) {
        let cells = Layout::horizontal(vec![Constraint::Fill(1); per_row]).spacing(2).split(*area);
        for (plot, area) in plots.iter().zip(cells.iter()) {
            draw_plot(frame, *area, *plot, row, theme);
        }
    }
}

fn head_lines(row: &Row<'_>, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let engine = row.engine;
    let release = engine.engine_version.as_ref().map(|release| format!("TensorRT-LLM {release}"));
    let facts = [Some(engine.source.clone()), engine.backend.clone(), release].into_iter().flatten();
    let about = format!("  {}  at {}", facts.collect::<Vec<_>>().join(", "), row.exporter.short());
    let title = theme.style(Tone::Title).add_modifier(Modifier::UNDERLINED);
    let cause = cut(&format!("{}: {}", engine.state, row.why()), columns);
    let mut lines = vec![
        Line::from(vec![Span::styled(row.name(), title), Span::styled(about, theme.style(Tone::Minor))]),
        Line::styled(cause, theme.style(tone_of_state(row))),
    ];
    if engine.orchestrator.is_none() {
        let text = |number: Number| number.text(engine);
        let mut numbers = vec![
            format!("active {} of {}", text(Number::Active), text(Number::Max)),
            format!("paused {}", text(Number::Paused)),
            format!("iterations/s {}", text(Number::Iterations)),
            format!("completed {}", text(Number::Completed)),
            format!("lost iterations {}", text(Number::Lost)),
            format!("restarts {}", text(Number::Restarts)),
        ];
        if Number::Acceptance.of(engine).is_some() {
            numbers.push(format!("accepted drafts {}", text(Number::Acceptance)));
        }
        let (first, second) = numbers.split_at(if columns >= 110 { numbers.len() } else { 4 });
        lines.extend([first, second].map(|numbers| Line::raw(cut(&numbers.join("  "), columns))));
    }
    lines
}

fn draw_plot(frame: &mut Frame<'_>, area: Rect, (title, lines): Plot, row: &Row<'_>, theme: Theme) {
    let history = row.history();
    let span = history.first().map_or(0.0, |slot| slot.ago).clamp(LEAST_SPAN, HISTORY);
    let points = |number: Number| -> Vec<(f64, f64)> {
        history.iter().filter_map(|slot| Some((-slot.ago, number.of_span(&slot.numbers)?))).collect()
    };
    let series: Vec<Vec<(f64, f64)>> = lines.iter().map(|(_, number)| points(*number)).collect();
    let highest = series.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let unit = lines[0].1.unit();
    let top = top(highest, unit);
    // Without a colour of its own, the title would have the colour of the border.
    let mut words = vec![Span::styled(title, theme.style(Tone::Title).fg(Color::Reset))];
    for (at, (name, number)) in lines.iter().enumerate() {
        let value = number.text(row.engine);
        words.push(Span::styled(format!(" {name} {value}"), theme.style(Tone::Line(at))));
    }
    // Leave out a number that does not fit: a number that is cut off looks like a different number.
    while words.len() > 1 && words.iter().map(Span::width).sum::<usize>() > usize::from(area.width) {
        words.pop();
    }
    words.push(Span::raw(" "));
    let block = Block::new().borders(Borders::TOP).border_style(theme.style(Tone::Minor)).title(Line::from(words));
    // Without colours, draw the second line with dots to distinguish it from the first.
    let is_line = |at: usize| theme.colors || at == 0;
    let datasets = series.iter().enumerate().rev().map(|(at, points)| {
        let dataset = Dataset::default().data(points).style(theme.style(Tone::Line(at)));
        match is_line(at) {
            true => dataset.marker(Marker::Braille).graph_type(GraphType::Line),
            false => dataset.marker(Marker::Dot).graph_type(GraphType::Scatter),
        }
    });
    let minor = theme.style(Tone::Minor);
    let y = Axis::default().bounds([0.0, top]).style(minor).labels([right("0", 6), right(&unit.text(top), 6)]);
    let x = Axis::default().bounds([-span, 0.0]).style(minor);
    // A chart of few lines has no room for these labels.
    let labels = [format!("-{span:.0}s"), "now".to_owned()];
    let x = if area.height >= LABELLED { x.labels(labels) } else { x };
    frame.render_widget(Chart::new(datasets.collect()).block(block).x_axis(x).y_axis(y), area);
}

/// The upper end of a chart: a round number, so that it seldom moves.
fn top(highest: f64, unit: DisplayUnit) -> f64 {
    if unit == DisplayUnit::Share {
        return 1.0;
    }
    if highest <= 0.0 {
        return if unit == DisplayUnit::Seconds { 0.001 } else { 1.0 };
    }
    let power = 10_f64.powf(highest.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    steps.iter().map(|step| step * power).find(|top| *top >= highest).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_ends_at_a_round_number() {
        for (highest, end) in [(0.0, 1.0), (7.0, 8.0), (9.0, 10.0), (101.0, 150.0), (1.0, 1.0)] {
            assert!((top(highest, DisplayUnit::Count) - end).abs() < 1e-9, "{highest}");
        }
        assert_eq!((top(0.3, DisplayUnit::Share), top(0.0, DisplayUnit::Seconds)), (1.0, 0.001));
    }
}
