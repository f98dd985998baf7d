//! The columns of the list of GPUs. Pure.

use trtllm_http::views::numbers::Gpu;

use super::exporter::Exporter;
use super::units::{Unit, gib, left, right, width};

pub const TITLES: [&str; 8] =
    ["GPU", "EXPORTER", "STATE", "USE", "MEMORY GiB", "POWER W", "TEMP °C", "CLOCKS LIMITED BY"];
/// The numbers.
const RIGHT: std::ops::RangeInclusive<usize> = 3..=6;

/// The texts of all GPUs, in the order of [`TITLES`]. With one exporter, its name says nothing.
#[must_use]
pub fn rows(exporters: &[Exporter]) -> Vec<[String; 8]> {
    let name = |exporter: &Exporter| if exporters.len() > 1 { exporter.short().to_owned() } else { String::new() };
    exporters.iter().flat_map(|exporter| exporter.gpus.iter().map(move |gpu| row(gpu, name(exporter)))).collect()
}

fn row(gpu: &Gpu, exporter: String) -> [String; 8] {
    let unknown = || "-".to_owned();
    let whole = |value: f64| format!("{value:.0}");
    let of = |now: Option<String>, limit: Option<String>| match (now, limit) {
        (Some(now), Some(limit)) => format!("{now} of {limit}"),
        (now, _) => now.unwrap_or_else(unknown),
    };
    [
        format!("{} {}", gpu.index, gpu.name.as_deref().unwrap_or(&gpu.uuid)),
        exporter,
        if gpu.state.is_empty() { unknown() } else { gpu.state.clone() },
        gpu.utilization_ratio.map_or_else(unknown, |share| Unit::Share.text(share)),
        of(gpu.memory_used_bytes.map(|used| gib(used as f64)), gpu.memory_total_bytes.map(|total| gib(total as f64))),
        of(gpu.power_watts.map(whole), gpu.power_limit_watts.map(whole)),
        gpu.celsius.map_or_else(unknown, whole),
        match &gpu.clocks_limited_by {
            Some(reasons) if !reasons.is_empty() => reasons.join(", "),
            _ => "nothing".to_owned(),
        },
    ]
}

/// Numbers are on the right of their column.
#[must_use]
pub fn is_number(column: usize) -> bool {
    RIGHT.contains(&column)
}

/// The width of each column: that of its longest text or its title, 0 without any text.
#[must_use]
pub fn widths(rows: &[[String; 8]]) -> [usize; 8] {
    std::array::from_fn(|at| match rows.iter().map(|row| width(&row[at])).max() {
        None | Some(0) => 0,
        Some(longest) => longest.max(width(TITLES[at])),
    })
}

/// A text in its column, with the space to the next one.
#[must_use]
pub fn pad(column: usize, text: &str, width: usize) -> String {
    match width {
        0 => String::new(),
        _ if is_number(column) => right(text, width) + "  ",
        _ => left(text, width) + "  ",
    }
}
