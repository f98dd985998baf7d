//! The columns of the table of engines, and the choice of the columns that fit into the terminal.

use unicode_width::UnicodeWidthStr as _;

use super::exporter::Row;
use super::numbers::Number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Engine,
    Exporter,
    State,
    Number(Number),
    Why,
}

/// Minimum and maximum width of the name of an engine.
const NAME: (usize, usize) = (14, 40);
/// In a terminal of at least this width, names are cut only if they are longer than `NAME_WIDE`.
const WIDE: usize = 100;
const NAME_WIDE: usize = 26;
/// Minimum width of a cause.
const WHY: usize = 24;

/// The numbers in the order of the table, with the titles of their columns, and a rank for how useful each number is: 0 is
/// the most useful. A narrow terminal shows only the most useful numbers.
const NUMBERS: [(Number, &str, usize); 14] = [
    (Number::Active, "ACTIVE", 0),
    (Number::Queued, "QUEUED", 1),
    (Number::Waiting, "WAITING", 10),
    (Number::Paused, "PAUSED", 11),
    (Number::Generated, "GEN/S", 2),
    (Number::Context, "CTX/S", 7),
    (Number::LatencyMean, "ITER", 8),
    (Number::LatencyP99, "ITER99", 4),
    (Number::FirstP50, "TTFT50", 12),
    (Number::FirstP95, "TTFT95", 5),
    (Number::OutputP50, "TPOT50", 6),
    (Number::OutputP95, "TPOT95", 13),
    (Number::KvUsed, "KV", 3),
    (Number::Hits, "KV-HIT", 9),
];
/// With several exporters, the column EXPORTER is chosen before the numbers from this rank on.
const EXPORTER_RANK: usize = 7;

impl Column {
    /// All columns, in the order of the table.
    #[must_use]
    pub fn all(several_exporters: bool) -> Vec<Self> {
        let numbers = NUMBERS.map(|(number, ..)| Self::Number(number));
        let all = [Self::Engine, Self::Exporter, Self::State].into_iter().chain(numbers).chain([Self::Why]);
        all.filter(|column| several_exporters || *column != Self::Exporter).collect()
    }

    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Engine => "ENGINE",
            Self::Exporter => "EXPORTER",
            Self::State => "STATE",
            Self::Why => "WHY",
            Self::Number(number) => {
                NUMBERS.iter().find(|(known, ..)| *known == number).map_or("", |(_, title, _)| title)
            }
        }
    }

    #[must_use]
    pub fn text(self, row: &Row<'_>) -> String {
        match self {
            Self::Engine => row.name(),
            Self::Exporter => row.exporter.short().to_owned(),
            Self::State => row.limit().map_or(row.engine.state.as_str(), |limit| limit.cause.name()).to_owned(),
            Self::Why => row.why(),
            Self::Number(number) => number.text(row.engine),
        }
    }

    fn least_width(self) -> usize {
        match self {
            Self::Engine => NAME.0,
            Self::Exporter => 21,
            Self::State => 16,
            Self::Why => WHY,
            Self::Number(_) => self.title().len().max(6),
        }
    }
}

/// The columns that fit into `available`, with their widths, in the order of the table. `sort`, the column by which the rows are
/// sorted, is chosen before all other numbers. It is missing only if it does not fit. A space separates two columns.
#[must_use]
pub fn fitting(available: usize, rows: &[Row<'_>], several_exporters: bool, sort: Column) -> Vec<(Column, usize)> {
    let longest = rows.iter().map(|row| row.name().width()).max().unwrap_or(0).clamp(NAME.0, NAME.1);
    // In a wide terminal, a complete name is more useful than the least useful number.
    let least = if available < WIDE { NAME.0 } else { longest.min(NAME_WIDE) };
    let mut left = available.saturating_sub(least + 1 + Column::State.least_width());
    let mut by_use = NUMBERS;
    by_use.sort_by_key(|(.., rank)| *rank);
    let mut by_use = by_use.map(|(number, ..)| Column::Number(number)).to_vec();
    if several_exporters {
        by_use.insert(EXPORTER_RANK, Column::Exporter);
    }
    let mut chosen = vec![Column::Engine, Column::State];
    for column in [sort].into_iter().chain(by_use) {
        let needed = 1 + column.least_width();
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
    let width = |column| match column {
        Column::Engine => least + more,
        Column::Why => left - 1,
        column => column.least_width(),
    };
    let shown = Column::all(several_exporters).into_iter().filter(|column| chosen.contains(column));
    shown.map(|column| (column, width(column))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(available: usize, sort: Column) -> String {
        let columns = fitting(available, &[], false, sort);
        let used: usize = columns.iter().map(|(_, width)| width + 1).sum();
        assert!(used <= available + 1, "{columns:?}");
        columns.iter().map(|(column, _)| column.title()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_narrow_terminal_has_the_most_useful_columns() {
        let narrow = "ENGINE STATE ACTIVE QUEUED GEN/S ITER99 TTFT95 TPOT50 KV";
        assert_eq!(titles(80, Column::Engine), narrow);
        assert_eq!(titles(31, Column::Engine), "ENGINE STATE");
        let all =
            "ENGINE STATE ACTIVE QUEUED WAITING PAUSED GEN/S CTX/S ITER ITER99 TTFT50 TTFT95 TPOT50 TPOT95 KV KV-HIT";
        assert_eq!(titles(132, Column::Engine), all);
        assert_eq!(titles(200, Column::Engine), format!("{all} WHY"));
    }

    #[test]
    fn the_column_of_the_order_is_always_there() {
        assert!(titles(60, Column::Number(Number::Hits)).ends_with("KV-HIT"));
        assert!(titles(80, Column::Number(Number::Waiting)).contains("WAITING"));
    }
}
