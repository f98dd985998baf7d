//! One engine: its cause, its numbers, charts of the last minutes, its ranks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType};

use trtllm_http::views::numbers::RankLoad;

use super::super::exporter::{HISTORY, Row};
use super::super::numbers::Number;
use super::super::reading::Engine;
use super::super::theme::{Theme, Tone};
use super::super::units::{Unit, cut, right};
use super::sides;
use super::table::state;

/// A chart: its title, and its lines with their names.
type Plot = (&'static str, &'static [(&'static str, Number)]);

const PLOTS: [Plot; 6] = [
    ("Requests", &[("in the batch", Number::Scheduled), ("waiting", Number::Waiting)]),
    ("Tokens/s", &[("generated", Number::Generated), ("context", Number::Context)]),
    ("KV cache", &[("used", Number::KvUsed), ("hits", Number::Hits)]),
    ("Iteration", &[("mean", Number::LatencyMean), ("p99", Number::LatencyP99)]),
    ("TTFT", &[("p50", Number::FirstP50), ("p95", Number::FirstP95)]),
    ("TPOT", &[("p50", Number::OutputP50), ("p95", Number::OutputP95)]),
];
/// The shortest time that a chart shows.
const LEAST_SPAN: f64 = 60.0;
/// Lines of a chart with the time below it.
const LABELLED: u16 = 7;
/// Ranks that are listed.
const MAX_RANKS: usize = 8;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, row: &Row<'_>, theme: Theme) {
    let engine = row.engine;
    let columns = usize::from(area.width);
    if let Some(orchestrator) = &engine.orchestrator {
        let [head, rest] = Layout::vertical([Constraint::Length(3), Constraint::Min(0)]).areas(area);
        let lines = head_lines(row, columns, theme).into_iter().take(2);
        for (line, area) in lines.zip(head.rows()) {
            frame.render_widget(line, area);
        }
        return sides::draw(frame, rest, orchestrator, theme);
    }
    let ranks = rank_lines(&engine.ranks, columns, theme);
    let [head, plots, list] =
        Layout::vertical([Constraint::Length(4), Constraint::Min(0), Constraint::Length(ranks.len() as u16)])
            .areas(area);
    for (line, area) in head_lines(row, columns, theme).into_iter().zip(head.rows()) {
        frame.render_widget(line, area);
    }
    draw_plots(frame, plots, engine, theme);
    for (line, area) in ranks.into_iter().zip(list.rows()) {
        frame.render_widget(line, area);
    }
}

/// All charts, in two or three columns.
pub(super) fn draw_plots(frame: &mut Frame<'_>, area: Rect, engine: &Engine, theme: Theme) {
    let per_row = if area.width >= 110 { 3 } else { 2 };
    let rows = Layout::vertical(vec![Constraint::Fill(1); PLOTS.len() / per_row]).split(area);
    for (plots, area) in PLOTS.chunks(per_row).zip(rows.iter()) {
        let cells = Layout::horizontal(vec![Constraint::Fill(1); per_row]).spacing(2).split(*area);
        for (plot, area) in plots.iter().zip(cells.iter()) {
            draw_plot(frame, *area, *plot, engine, theme);
        }
    }
}

fn head_lines(row: &Row<'_>, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let engine = row.engine;
    let simulated = if engine.simulated { "  [simulated]" } else { "" };
    let text = |number| engine.numbers.text(number).unwrap_or_else(|| "-".to_owned());
    let numbers = [
        format!("active {} of {}", text(Number::Active), text(Number::Max)),
        format!("paused {}", text(Number::Paused)),
        format!("iterations/s {}", text(Number::Iterations)),
        format!("completed {}", text(Number::Completed)),
        format!("lost iterations {}", text(Number::Lost)),
        format!("restarts {}", text(Number::Restarts)),
    ];
    let drafts = engine.numbers.text(Number::Acceptance).map(|share| format!("accepted drafts {share}"));
    let numbers: Vec<String> = numbers.into_iter().chain(drafts).collect();
    let (first, second) = numbers.split_at(if columns >= 110 { numbers.len() } else { 4 });
    let about = format!("{simulated}  {}  at {}", engine.about, row.exporter.short());
    let name = engine.name.text();
    vec![
        Line::from(vec![
            Span::styled(name, theme.style(Tone::Title).add_modifier(Modifier::UNDERLINED)),
            Span::styled(about, theme.style(Tone::Minor)),
        ]),
        Line::styled(cut(&format!("{}: {}", engine.state, engine.why), columns), theme.style(state(engine))),
        Line::raw(cut(&first.join("  "), columns)),
        Line::raw(cut(&second.join("  "), columns)),
    ]
}

fn draw_plot(frame: &mut Frame<'_>, area: Rect, (title, lines): Plot, engine: &Engine, theme: Theme) {
    let span = engine.history.first().map_or(0.0, |(ago, _)| *ago).clamp(LEAST_SPAN, HISTORY);
    let points = |number| -> Vec<(f64, f64)> {
        engine.history.iter().filter_map(|(ago, numbers)| Some((-ago, numbers.get(number)?))).collect()
    };
    let series: Vec<Vec<(f64, f64)>> = lines.iter().map(|(_, number)| points(*number)).collect();
    let highest = series.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let unit = lines[0].1.unit();
    let top = top(highest, unit);
    // Not in the colour of the border.
    let mut words = vec![Span::styled(title, theme.style(Tone::Title).fg(Color::Reset))];
    for (at, (name, number)) in lines.iter().enumerate() {
        let value = engine.numbers.text(*number).unwrap_or_else(|| "-".to_owned());
        words.push(Span::styled(format!(" {name} {value}"), theme.style(Tone::Line(at))));
    }
    // Half a number would be a wrong one.
    while words.len() > 1 && words.iter().map(Span::width).sum::<usize>() > usize::from(area.width) {
        words.pop();
    }
    words.push(Span::raw(" "));
    let block = Block::new().borders(Borders::TOP).border_style(theme.style(Tone::Minor)).title(Line::from(words));
    // Without colours, dots tell the second line from the first.
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
    // A low chart needs its lines for the curve.
    let labels = [format!("-{span:.0}s"), "now".to_owned()];
    let x = if area.height >= LABELLED { x.labels(labels) } else { x };
    frame.render_widget(Chart::new(datasets.collect()).block(block).x_axis(x).y_axis(y), area);
}

/// The upper end of a chart: a round number, so that it seldom moves.
fn top(highest: f64, unit: Unit) -> f64 {
    if unit == Unit::Share {
        return 1.0;
    }
    if highest <= 0.0 {
        return if unit == Unit::Seconds { 0.001 } else { 1.0 };
    }
    let power = 10_f64.powf(highest.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    steps.iter().map(|step| step * power).find(|top| *top >= highest).unwrap_or(power * 10.0)
}

fn rank_lines(ranks: &[RankLoad], columns: usize, theme: Theme) -> Vec<Line<'static>> {
    if ranks.is_empty() {
        return Vec::new();
    }
    let title =
        "  RANK  ACTIVE  SCHEDULED  CTX TOKENS  GEN REQUESTS  KV USED   (attention data parallelism, last iteration)";
    let mut lines = vec![Line::styled(cut(title, columns), theme.style(Tone::Title))];
    for rank in ranks.iter().take(MAX_RANKS) {
        let text = |value: Option<f64>, unit: Unit, width| {
            right(&value.map_or("-".to_owned(), |value| unit.text(value)), width)
        };
        let count = |value: Option<i64>, width| text(value.map(|value| value as f64), Unit::Count, width);
        let line = format!(
            "{:>6}  {}  {}  {}  {}  {}",
            rank.rank,
            count(rank.active, 6),
            count(rank.scheduled, 9),
            count(rank.context_tokens, 10),
            count(rank.generation_requests, 12),
            text(rank.kv_cache_used_ratio, Unit::Share, 7)
        );
        lines.push(Line::raw(cut(&line, columns)));
    }
    if ranks.len() > MAX_RANKS {
        lines.push(Line::raw(format!("  and {} more ranks", ranks.len() - MAX_RANKS)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_ends_at_a_round_number() {
        for (highest, end) in [(0.0, 1.0), (7.0, 8.0), (9.0, 10.0), (101.0, 150.0), (1.0, 1.0)] {
            assert!((top(highest, Unit::Count) - end).abs() < 1e-9, "{highest}");
        }
        assert_eq!((top(0.3, Unit::Share), top(0.0, Unit::Seconds)), (1.0, 0.001));
    }
}
