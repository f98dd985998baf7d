//! What feeds a family, and which families a field feeds.

use trtllm_records::fields;
use trtllm_records::schema::{Field, When};

use super::CATALOG;
use crate::metrics::family::{Group, Metric};

/// The families that the field feeds. Those of other exporters are left out.
pub fn families_of(field: &Field) -> impl Iterator<Item = &'static Metric> {
    CATALOG.iter().filter(|metric| metric.group != Group::Compat && feeds(field, metric))
}

fn feeds(field: &Field, metric: &Metric) -> bool {
    metric.feeds.split(' ').any(|name| is(field, name))
        || metric.like.is_some_and(|family| feeds(field, family.metric()))
}

/// The statistics that feed the family; one of them is enough. Empty for families of GPUs and of the exporter.
#[must_use]
pub fn statistics_of(metric: &Metric) -> Vec<When> {
    let of_fields = metric.feeds.split(' ').flat_map(|name| fields().filter(move |field| is(field, name)));
    let of_like = metric.like.into_iter().flat_map(|family| statistics_of(family.metric()));
    let of_fields = of_fields.map(|field| field.when);
    let mut found: Vec<When> = of_fields.chain(metric.when.iter().copied()).chain(of_like).collect();
    found.sort();
    found.dedup();
    // Every engine sends iteration records, so other statistics are not needed for this family.
    if found.contains(&When::Iterations) { vec![When::Iterations] } else { found }
}

/// Whether `name` in a family's `feeds` means this field. A field that no family shows is meant only by its full name.
#[must_use]
pub fn is(field: &Field, name: &str) -> bool {
    match name.split_once('.') {
        Some(name) => name == (field.structure, field.key),
        None => name == field.key && field.none.is_none(),
    }
}

/// Where the value of a family comes from, in the source's own names.
#[must_use]
pub fn origin_of(metric: &Metric) -> String {
    let line = origins().find(|(group, name, _)| (*group, *name) == (metric.group.name(), metric.name));
    let text = match (line, metric.like) {
        (Some((_, _, text)), _) => text.to_owned(),
        (None, Some(family)) => format!("as {}", family.metric().name),
        (None, None) => metric.feeds.replace(' ', ", "),
    };
    if metric.set.is_empty() { text } else { format!("{}: {text}", metric.set) }
}

/// The lines of `origins.md`: group, name and text.
pub(super) fn origins() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let groups = include_str!("origins.md").split("\n## ").skip(1).filter_map(|part| part.split_once('\n'));
    groups.flat_map(|(group, lines)| {
        let named = lines.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: "));
        named.map(move |(name, text)| (group, name, text))
    })
}
