//! `catalog`: every metric, from the table the page is made of.

use std::fmt::Write as _;

use crate::cli::CatalogFormat;
use crate::metrics::catalog::{CATALOG, Group, Kind, Metric};

/// Prints the catalog.
pub fn run(format: CatalogFormat) {
    match format {
        CatalogFormat::Markdown => print!("{}", markdown()),
        CatalogFormat::Json => println!("{}", json()),
    }
}

/// A table per group.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from("# Metrics\n");
    for group in Group::ALL {
        let families: Vec<&Metric> = CATALOG.iter().filter(|metric| metric.group == group).collect();
        if families.is_empty() {
            continue;
        }
        let _ = write!(
            out,
            "\n## `collect[]={}`\n\n| name | type | labels | meaning | from |\n| --- | --- | --- | --- | --- |\n",
            group.name()
        );
        for metric in families {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} |",
                metric.name,
                kind(metric),
                cell(&labels(metric)),
                cell(metric.help),
                cell(metric.origin)
            );
        }
    }
    out
}

/// An array of objects.
#[must_use]
pub fn json() -> String {
    let families: Vec<serde_json::Value> = CATALOG
        .iter()
        .map(|metric| {
            serde_json::json!({
                "name": metric.name,
                "type": metric.kind.name(),
                "unit": metric.unit,
                "labels": metric.labels,
                "variant": metric.variant.map(|variant| serde_json::json!({"label": variant.label, "values": variant.values})),
                "group": metric.group.name(),
                "help": metric.help,
                "origin": metric.origin,
                "legacy_name": metric.kind == Kind::LegacyCounter,
            })
        })
        .collect();
    serde_json::Value::Array(families).to_string()
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::LegacyCounter => "counter (Triton's name, without `_total`)",
        kind => kind.name(),
    }
}

fn labels(metric: &Metric) -> String {
    let mut labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    if let Some(variant) = metric.variant {
        labels.push(format!("`{}`: {}", variant.label, variant.values.join(", ")));
    }
    labels.join(", ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
