//! One reading as plain text, for a pipe, a log or a bug report. Pure.

use super::app::App;
use super::columns::Column;
use super::units::{left, right, width};
use super::{gpu_columns, sides};

/// The exporters, the engines and the GPUs; a column is as wide as its longest text.
#[must_use]
pub fn text(app: &App) -> String {
    let mut out = String::new();
    for exporter in &app.exporters {
        let (engines, gpus) = (exporter.engines.len(), exporter.gpus.len());
        out += &match &exporter.failure {
            Some((error, _)) => format!("{}: not read: {error}\n", exporter.url),
            None if gpus == 0 => format!("{}: engines: {engines}, GPUs: 0 ({})\n", exporter.url, exporter.no_gpus),
            None => format!("{}: engines: {engines}, GPUs: {gpus}\n", exporter.url),
        };
    }
    let rows = app.rows();
    if !rows.is_empty() {
        let mut columns = Column::sortable(app.exporters.len() > 1);
        columns.push(Column::Why);
        let titles = columns.iter().map(|column| column.full_title().to_owned()).collect();
        let texts = rows.iter().map(|row| {
            let texts = columns.iter().map(|column| column.text(row).unwrap_or_else(|| "-".to_owned()));
            texts.collect::<Vec<_>>()
        });
        let is_number = |at: usize| matches!(columns[at], Column::Number(_));
        out += "\n";
        out += &table(titles, texts.collect(), is_number);
    }
    let sides = rows.iter().flat_map(|row| {
        let sides = row.engine.orchestrator.iter().flat_map(sides::rows);
        sides.map(|(side, _)| std::iter::once(row.engine.name.text()).chain(side).collect::<Vec<_>>())
    });
    let sides: Vec<Vec<String>> = sides.collect();
    if !sides.is_empty() {
        let titles = std::iter::once("ORCHESTRATOR").chain(sides::TITLES).map(str::to_owned).collect();
        out += "\n";
        out += &table(titles, sides, |at| at > 1);
    }
    let gpus = gpu_columns::rows(&app.exporters);
    if !gpus.is_empty() {
        let titles = gpu_columns::TITLES.map(str::to_owned).to_vec();
        out += "\n";
        out += &table(titles, gpus.into_iter().map(Vec::from).collect(), gpu_columns::is_number);
    }
    out
}

/// Columns without any text are left out.
fn table(titles: Vec<String>, rows: Vec<Vec<String>>, is_number: impl Fn(usize) -> bool) -> String {
    let columns: Vec<(usize, usize)> = (0..titles.len())
        .filter(|at| rows.iter().any(|row| !row[*at].is_empty()))
        .map(|at| (at, rows.iter().map(|row| width(&row[at])).max().unwrap_or(0).max(width(&titles[at]))))
        .collect();
    let line = |texts: &Vec<String>| {
        let cells = columns.iter().map(|(at, width)| match is_number(*at) {
            true => right(&texts[*at], *width),
            false => left(&texts[*at], *width),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    std::iter::once(&titles).chain(&rows).map(line).collect()
}
