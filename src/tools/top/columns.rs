//! The columns of the table of engines: their titles, their texts, and which of them have room. Pure.

use super::exporter::Row;
use super::numbers::Number;
use super::units::width;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Engine,
    Exporter,
    State,
    Number(Number),
    Why,
}

/// Least and largest width of the name of an engine.
const NAME: (usize, usize) = (16, 40);
/// From this width on, names are cut only if they are longer than `NAME_WIDE`.
const WIDE: usize = 100;
const NAME_WIDE: usize = 26;
/// Width of a state.
const STATE: usize = 11;
/// Width of an exporter.
const EXPORTER: usize = 21;
/// Least width of a cause.
const WHY: usize = 24;

/// The numbers, the most useful first. A narrow terminal shows the first ones.
const BY_USE: [Number; 14] = [
    Number::Active,
    Number::Queued,
    Number::Generated,
    Number::KvUsed,
    Number::LatencyP99,
    Number::FirstP95,
    Number::OutputP50,
    Number::Context,
    Number::LatencyMean,
    Number::Hits,
    Number::Waiting,
    Number::Paused,
    Number::FirstP50,
    Number::OutputP95,
];

impl Column {
    /// In the order of the table.
    #[must_use]
    pub fn sortable(several_exporters: bool) -> Vec<Self> {
        let first = [Self::Engine, Self::Exporter, Self::State].into_iter();
        let first = first.filter(|column| several_exporters || *column != Self::Exporter);
        first.chain(Number::TABLE.map(Self::Number)).collect()
    }

    /// What several neighbours have in common.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Number(Number::Active | Number::Queued | Number::Waiting | Number::Paused) => "REQUESTS",
            Self::Number(Number::Generated | Number::Context) => "TOKENS/S",
            Self::Number(Number::LatencyMean | Number::LatencyP99) => "ITERATION",
            Self::Number(Number::FirstP50 | Number::FirstP95) => "TTFT",
            Self::Number(Number::OutputP50 | Number::OutputP95) => "TPOT",
            Self::Number(Number::KvUsed | Number::Hits) => "KV CACHE",
            _ => "",
        }
    }

    /// Where only one column of the group has room.
    #[must_use]
    pub fn group_short(self) -> &'static str {
        match self.group() {
            "TOKENS/S" => "TOK/S",
            "ITERATION" => "ITER",
            "KV CACHE" => "KV",
            "REQUESTS" => "",
            group => group,
        }
    }

    /// Below its group.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Engine => "ENGINE",
            Self::Exporter => "EXPORTER",
            Self::State => "STATE",
            Self::Why => "WHY",
            Self::Number(number) => match number {
                Number::Active => "ACTIVE",
                Number::Queued => "QUEUED",
                Number::Waiting => "WAITING",
                Number::Paused => "PAUSED",
                Number::Generated => "GEN",
                Number::Context => "CTX",
                Number::LatencyMean => "MEAN",
                Number::LatencyP99 => "P99",
                Number::FirstP50 | Number::OutputP50 => "P50",
                Number::FirstP95 | Number::OutputP95 => "P95",
                Number::KvUsed => "USED",
                Number::Hits => "HIT",
                _ => "",
            },
        }
    }

    /// Where there is one line of titles.
    #[must_use]
    pub const fn full_title(self) -> &'static str {
        match self {
            Self::Number(number) => match number {
                Number::Generated => "GEN/S",
                Number::Context => "CTX/S",
                Number::LatencyMean => "ITER-MEAN",
                Number::LatencyP99 => "ITER-P99",
                Number::FirstP50 => "TTFT-P50",
                Number::FirstP95 => "TTFT-P95",
                Number::OutputP50 => "TPOT-P50",
                Number::OutputP95 => "TPOT-P95",
                Number::KvUsed => "KV-USED",
                Number::Hits => "KV-HIT",
                _ => self.title(),
            },
            _ => self.title(),
        }
    }

    /// `None` if it is not known.
    #[must_use]
    pub fn text(self, row: &Row<'_>) -> Option<String> {
        match self {
            Self::Engine => Some(name(row)),
            Self::Exporter => Some(row.exporter.short().to_owned()),
            Self::State => Some(row.engine.state.clone()),
            Self::Why => Some(row.engine.why.clone()),
            Self::Number(number) => row.engine.numbers.text(number),
        }
    }
}

/// The mark of a simulated engine is first, because a long name is cut.
fn name(row: &Row<'_>) -> String {
    let mark = if row.engine.simulated { "[sim] " } else { "" };
    format!("{mark}{}", row.engine.name.text())
}

/// The columns that fit into `available`, with their widths, in the order of the table. The column of the order is always
/// among them. A space separates two columns.
#[must_use]
pub fn fitting(available: usize, rows: &[Row<'_>], several_exporters: bool, sort: Column) -> Vec<(Column, usize)> {
    let longest = rows.iter().map(|row| width(&name(row))).max().unwrap_or(0).clamp(NAME.0, NAME.1);
    // Where most columns have room, a whole name is worth more than the rarest number.
    let least = if available < WIDE { NAME.0 } else { longest.min(NAME_WIDE) };
    let mut left = available.saturating_sub(least + 1 + STATE);
    let mut chosen = vec![Column::Engine, Column::State];
    let numbers = BY_USE.map(Column::Number);
    // With several exporters, their names are worth more than the rarer numbers.
    let (often, rarely) = numbers.split_at(7);
    let exporter = several_exporters.then_some(Column::Exporter);
    let by_use = [sort].into_iter().chain(often.iter().copied()).chain(exporter).chain(rarely.iter().copied());
    for column in by_use {
        let needed = 1 + column_width(column);
        if !chosen.contains(&column) && needed <= left {
            left -= needed;
            chosen.push(column);
        }
    }
    let more = left.min(longest - least);
    left -= more;
    if left > WHY {
        chosen.push(Column::Why);
    }
    let mut order = Column::sortable(several_exporters);
    order.push(Column::Why);
    order.retain(|column| chosen.contains(column));
    let width = |column| match column {
        Column::Engine => least + more,
        Column::Why => left - 1,
        column => column_width(column),
    };
    order.into_iter().map(|column| (column, width(column))).collect()
}

fn column_width(column: Column) -> usize {
    match column {
        Column::Engine => NAME.0,
        Column::Exporter => EXPORTER,
        Column::State => STATE,
        Column::Why => WHY,
        Column::Number(_) => column.title().len().max(6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(available: usize, sort: Column) -> String {
        let columns = fitting(available, &[], false, sort);
        let used: usize = columns.iter().map(|(_, width)| width + 1).sum();
        assert!(used <= available + 1, "{columns:?}");
        columns.iter().map(|(column, _)| column.full_title()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_narrow_terminal_has_the_most_useful_columns() {
        let narrow = "ENGINE STATE ACTIVE QUEUED GEN/S ITER-P99 TTFT-P95 TPOT-P50 KV-USED";
        assert_eq!(titles(80, Column::Engine), narrow);
        assert_eq!(titles(30, Column::Engine), "ENGINE STATE");
        let all = "ENGINE STATE ACTIVE QUEUED WAITING PAUSED GEN/S CTX/S ITER-MEAN ITER-P99 TTFT-P50 TTFT-P95 TPOT-P50 \
                   TPOT-P95 KV-USED KV-HIT";
        assert_eq!(titles(132, Column::Engine), all);
        assert_eq!(titles(200, Column::Engine), format!("{all} WHY"));
    }

    #[test]
    fn the_column_of_the_order_is_always_there() {
        assert!(titles(60, Column::Number(Number::Hits)).ends_with("KV-HIT"));
        assert!(titles(80, Column::Number(Number::Waiting)).contains("WAITING"));
    }

    #[test]
    fn every_number_of_the_table_has_its_place_by_use() {
        assert!(Number::TABLE.iter().all(|number| BY_USE.contains(number)));
    }
}
