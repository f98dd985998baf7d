//! The tables of engines, GPUs, sides of an orchestrator (context, generation) and ranks, as plain text or as lines in colours.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use trtllm_http::views::numbers::{OrchestratorJson, OrchestratorSide, RankLoadJson, SideNumbers, TimesJson};
use trtllm_records::gpu::{ClockReasons, Gpu};

use super::columns::Column;
use super::exporter::{Exporter, Row};
use super::theme::{Theme, Tone};
use super::units::{DisplayUnit, cut, left, right};

/// Most ranks that are listed.
const MAX_RANKS: usize = 8;

/// A table of texts. A column is as wide as its longest text. Columns without any text are left out.
#[derive(Debug)]
pub struct Table {
    titles: Vec<&'static str>,
    /// The columns of numbers, which are aligned to the right.
    numbers: std::ops::Range<usize>,
    rows: Vec<Vec<(String, Tone)>>,
}

impl Table {
    fn new<const N: usize>(
        titles: [&'static str; N],
        numbers: std::ops::Range<usize>,
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let toned = |text: String| {
            let tone = if text == "-" { Tone::Minor } else { Tone::Plain };
            (text, tone)
        };
        let rows = rows.into_iter().map(|texts| texts.map(toned).to_vec()).collect();
        Self { titles: titles.to_vec(), numbers, rows }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns with a text, and their widths.
    fn columns(&self) -> Vec<(usize, usize)> {
        let longest = |at: usize| self.rows.iter().map(|row| row[at].0.width()).max().unwrap_or(0);
        let columns = (0..self.titles.len()).map(|at| (at, longest(at)));
        columns
            .filter(|(_, longest)| *longest > 0)
            .map(|(at, longest)| (at, longest.max(self.titles[at].width())))
            .collect()
    }

    fn cell(&self, at: usize, text: &str, width: usize) -> String {
        if self.numbers.contains(&at) { right(text, width) } else { left(text, width) }
    }

    fn title(&self) -> String {
        let cells = self.columns().into_iter().map(|(at, width)| self.cell(at, self.titles[at], width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }

    /// The table as plain text, for a pipe, a log or a bug report.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.columns();
        let mut out = self.title() + "\n";
        for row in &self.rows {
            let cells = columns.iter().map(|(at, width)| self.cell(*at, &row[*at].0, *width));
            out += cells.collect::<Vec<_>>().join("  ").trim_end();
            out.push('\n');
        }
        out
    }

    /// The table for the screen: a line with the titles, and a line for each row.
    #[must_use]
    pub fn lines(&self, room: usize, theme: Theme) -> Vec<Line<'static>> {
        let columns = self.columns();
        let line = |row: &Vec<(String, Tone)>| {
            let cells = columns.iter().flat_map(|(at, width)| {
                let (text, tone) = &row[*at];
                [Span::styled(self.cell(*at, text, *width), theme.style(*tone)), Span::raw("  ")]
            });
            Line::from(cells.collect::<Vec<_>>())
        };
        let title = Line::styled(cut(&self.title(), room), theme.style(Tone::Title));
        std::iter::once(title).chain(self.rows.iter().map(line)).collect()
    }
}

/// All engines, in the order of the screen.
#[must_use]
pub fn engines(rows: &[Row<'_>], several_exporters: bool) -> Table {
    let columns = Column::all(several_exporters);
    let cells = |row: &Row<'_>| columns.iter().map(|column| (column.text(row), Tone::Plain)).collect();
    let is_number = |column: &Column| matches!(column, Column::Number(_));
    let first = columns.iter().position(is_number).unwrap_or(0);
    Table {
        titles: columns.iter().map(|column| column.title()).collect(),
        numbers: first..columns.len() - 1,
        rows: rows.iter().map(cells).collect(),
    }
}

/// All GPUs. The column of exporters is empty if there is only one exporter.
#[must_use]
pub fn gpus(exporters: &[Exporter]) -> Table {
    let name = |exporter: &Exporter| if exporters.len() > 1 { exporter.short().to_owned() } else { String::new() };
    let all =
        exporters.iter().flat_map(|exporter| exporter.reading.gpus.iter().map(move |gpu| gpu_row(gpu, name(exporter))));
    let titles = ["GPU", "EXPORTER", "STATE", "USE", "MEMORY GiB", "POWER W", "TEMP °C", "CLOCKS LIMITED BY"];
    let mut table = Table::new(titles, 3..7, all);
    for row in &mut table.rows {
        let tone = |text: &str, fine: &[&str], fine_tone, other| if fine.contains(&text) { fine_tone } else { other };
        row[2].1 = tone(&row[2].0, &["ok"], Tone::Good, Tone::Bad);
        row[7].1 = tone(&row[7].0, &["nothing", "gpu idle"], Tone::Minor, Tone::Warning);
    }
    table
}

fn gpu_row(gpu: &Gpu, exporter: String) -> [String; 8] {
    let unknown = || "-".to_owned();
    let words = |text: &str| text.replace('_', " ");
    let whole = |value: f64| format!("{value:.0}");
    let gib = |bytes: u64| format!("{:.1}", bytes as f64 / (1_u64 << 30) as f64);
    let of = |now: Option<String>, limit: Option<String>| match (now, limit) {
        (Some(now), Some(limit)) => format!("{now} of {limit}"),
        (now, _) => now.unwrap_or_else(unknown),
    };
    let (identity, readings) = (&gpu.identity, &gpu.readings);
    let limits: Vec<&str> = readings.clocks_event_reasons.into_iter().flat_map(ClockReasons::names).collect();
    [
        format!("{} {}", identity.index, identity.name.as_deref().unwrap_or(&identity.uuid)),
        exporter,
        words(gpu.state.name()),
        DisplayUnit::Share.text(readings.utilization_ratio),
        of(readings.memory.used_bytes.map(gib), readings.memory.total_bytes.map(gib)),
        of(readings.power_usage_watts.map(whole), readings.power_limit_watts.map(whole)),
        readings.temperature_celsius.gpu.map_or_else(unknown, whole),
        if limits.is_empty() { "nothing".to_owned() } else { words(&limits.join(", ")) },
    ]
}

/// The requests that orchestrators of disaggregated serving send to the workers of each side.
#[must_use]
pub fn sides<'a>(orchestrators: impl Iterator<Item = (String, &'a OrchestratorJson)>) -> Table {
    const SIDES: [&str; 3] = ["context", "generation", "encoder"];
    let titles =
        ["ORCHESTRATOR", "SIDE", "WORKERS", "REQ/S", "ERRORS", "RETRIES/S", "TIME-P50", "TIME-P95", "FIRST-P95"];
    let mut table = Table::new(titles, 2..9, []);
    for (name, orchestrator) in orchestrators {
        let known = SIDES.into_iter().filter_map(|side| Some((side, orchestrator.sides.get(side)?)));
        for (side, counted) in known {
            let window = orchestrator.window.as_ref().and_then(|window| window.sides.get(side));
            // The number of workers that the side needs, if it has fewer. Then it serves no requests.
            let short =
                counted.minimal_workers.filter(|needed| counted.ready_workers.is_some_and(|ready| ready < *needed));
            let tone = if short.is_some() { Tone::Bad } else { Tone::Plain };
            let texts = side_row(&name, side, counted, short, window);
            table.rows.push(texts.map(|text| (text, tone)).to_vec());
        }
    }
    table
}

fn side_row(
    name: &str,
    side: &str,
    counted: &OrchestratorSide,
    short_of: Option<u64>,
    window: Option<&SideNumbers>,
) -> [String; 9] {
    let count = |value: Option<u64>| DisplayUnit::Count.text(value.map(|value| value as f64));
    let rate = |of: fn(&SideNumbers) -> f64| DisplayUnit::Count.text(window.map(of));
    let time =
        |times: Option<TimesJson>, part: fn(TimesJson) -> Option<f64>| DisplayUnit::Seconds.text(times.and_then(part));
    let whole = window.and_then(|window| window.seconds);
    [
        name.to_owned(),
        side.to_owned(),
        count(counted.ready_workers) + &short_of.map(|needed| format!(" of {needed}")).unwrap_or_default(),
        rate(|window| window.requests_per_second),
        DisplayUnit::Share.text(window.and_then(|window| window.error_ratio)),
        rate(|window| window.retries_per_second),
        time(whole, |times| times.p50),
        time(whole, |times| times.p95),
        time(window.and_then(|window| window.first_byte_seconds), |times| times.p95),
    ]
}

/// The ranks of attention data parallelism, with the numbers of their last iteration.
#[must_use]
pub fn ranks(ranks: &[RankLoadJson]) -> Table {
    let count = |value: Option<i64>| DisplayUnit::Count.text(value.map(|value| value as f64));
    let row = |rank: &RankLoadJson| {
        [
            rank.rank.map_or("other".to_owned(), |rank| rank.to_string()),
            count(rank.active),
            count(rank.scheduled),
            count(Some(rank.context_tokens)),
            count(rank.generation_requests),
            DisplayUnit::Share.text(rank.kv_cache_used_ratio),
        ]
    };
    let more = ranks.len().saturating_sub(MAX_RANKS);
    let more = (more > 0).then(|| {
        [format!("and {more} more"), String::new(), String::new(), String::new(), String::new(), String::new()]
    });
    let titles = ["RANK", "ACTIVE", "SCHEDULED", "CTX TOKENS", "GEN REQUESTS", "KV USED"];
    Table::new(titles, 0..6, ranks.iter().take(MAX_RANKS).map(row).chain(more))
}
