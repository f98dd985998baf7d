//! dcgm-exporter's names: the queries of docs/migration.md, evaluated over the golden page of our GPU families, give
//! the values on dcgm-exporter's golden page. `tests/judges/migration.py` does the same with a real Prometheus.

use std::path::Path;

use trtllm_page::metrics::catalog::CATALOG;

use super::{same, series};
use crate::support;
use crate::support::page::{Page, name_of};

/// Names without a query over one of our families, and the reason.
const NO_QUERY: [(&str, &str); 2] = [
    ("DCGM_FI_DEV_XID_ERRORS", "0 before the first error, where ours is absent"),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "the bits of all reasons in one number"),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(&support::root()).join(path)).unwrap()
}

/// The names `DCGM_FI_…` and their queries.
fn queries(document: &str) -> Vec<(&str, &str)> {
    document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(name, _)| name.starts_with("DCGM_FI_"))
        .map(|(name, rest)| (name, rest.strip_prefix('`').and_then(|query| query.split('`').next()).unwrap_or("")))
        .collect()
}

/// Evaluates `floor(NAME{label="value"} * FACTOR <= MOST)` and its parts for one GPU. A sum adds the series that the
/// selector finds.
fn evaluate(page: &Page, query: &str, gpu: &str) -> Option<f64> {
    let start = query.find("nv_").unwrap_or_else(|| panic!("no family of ours in {query}"));
    let rest = &query[start..];
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, mut rest) = rest.split_at(end);
    let mut labels = vec![format!("gpu_uuid={gpu}")];
    if let Some((inside, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        labels.extend(inside.split(',').map(|label| label.replace('"', "")));
        rest = after;
    }
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let (operation, number) = rest.trim().trim_end_matches(')').split_once(' ').unwrap_or(("*", "1"));
    let number: f64 = number.split(' ').next().unwrap().parse().unwrap();
    let scaled = |value: f64| if operation == "/" { value / number } else { value * number };
    let most = query.split_once(" <= ").map_or(f64::INFINITY, |(_, most)| most.parse().unwrap());
    let found = series(page, name, &labels).into_iter().map(|(_, value)| scaled(*value)).filter(|value| *value <= most);
    let found: Vec<f64> = found.collect();
    assert!(found.len() <= 1 || query.starts_with("sum "), "{query} has {} series", found.len());
    let value = found.into_iter().reduce(|a, b| a + b)?;
    Some(if query.starts_with("floor(") { value.floor() } else { value })
}

#[test]
fn every_alias_of_dcgm_exporter_has_the_value_of_its_original() {
    let (ours, theirs) = (
        Page::parse(&read("tests/golden/gpu.txt").replace(" TIME", " 0")),
        Page::parse(&read("tests/golden/dcgm.txt")),
    );
    let document = read("docs/migration.md");
    let queries = queries(&document);
    let uuid = |series: &str| series.split_once("UUID=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let mut wrong = Vec::new();
    for metric in CATALOG.iter().filter(|metric| metric.name.starts_with("DCGM_FI_")) {
        let query = queries.iter().find(|(name, _)| *name == metric.name).map(|(_, query)| *query);
        let query = query.unwrap_or_else(|| panic!("docs/migration.md has no row for {}", metric.name));
        if NO_QUERY.iter().any(|(name, _)| *name == metric.name) {
            assert!(!query.contains('*'), "{} has a query after all", metric.name);
            continue;
        }
        let shown: Vec<_> = theirs.series.iter().filter(|(series, _)| name_of(series) == metric.name).collect();
        assert!(!shown.is_empty(), "{} is not on the golden page", metric.name);
        for (series, value) in shown {
            // The original of a series of a MIG instance is one of our families of MIG instances, which this test does
            // not evaluate.
            if series.contains("GPU_I_ID") {
                continue;
            }
            let original = evaluate(&ours, query, &uuid(series));
            if !original.is_some_and(|original| same(*value, original) || (value - original).abs() <= 0.5) {
                wrong.push(format!("{series} is {value}, {query} is {original:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
