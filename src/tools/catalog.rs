//! The subcommand `catalog`: the reference of every metric, made from the same table as the page. Its markdown is
//! `docs/METRICS.md`; `metrics.md` beside this file is its template. `catalog --scenarios` prints the scenarios of the
//! simulated engine instead.

use serde_json::{Value, json};

use crate::cli::CatalogFormat;
use trtllm_page::metrics::catalog::feeds::{families_of, origin_of, statistics_of};
use trtllm_page::metrics::catalog::not_read::FAMILIES_NOT_SERVED;
use trtllm_page::metrics::catalog::{CATALOG, Group, Metric, MetricKind, Profile};
use trtllm_records::fields;
use trtllm_records::schema::When;
use trtllm_records::statistics::NOT_READ;
use trtllm_sim::scenario::{self, Scenario, UNSOLVED};
use trtllm_verdict::cause::Cause;

use trtllm_config::command_line::{print, print_json};

/// Prints the catalog.
pub fn run(format: CatalogFormat) {
    match format {
        CatalogFormat::Markdown => print(&markdown()),
        CatalogFormat::Json => print_json(&format!("{}\n", metrics_json())),
    }
}

/// With this `--source`, the exporter prints the scenarios and exits.
pub const LIST_SCENARIOS: &str = "sim:?scenario=list";

/// Prints the scenarios of the simulated engine and the drills. Only with `answers`, each drill has the cause, scenario and cure.
pub fn print_scenarios(format: CatalogFormat, answers: bool) {
    let row = |name: &str, description: &str, Scenario { backend, cause, cure, .. }: &Scenario| json!({"name": name, "backend": backend, "cause": cause, "description": description, "cure": cure});
    let mut rows: Vec<_> = scenario::all().iter().map(|one| row(&one.name, one.description, one)).collect();
    rows.extend(scenario::drills().map(|(drill, one)| match answers {
        true => row(&drill, &format!("{}: {}", one.name, one.description), &one),
        false => json!({"name": drill, "backend": one.backend, "description": UNSOLVED}),
    }));
    match format {
        CatalogFormat::Markdown => {
            let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let cells = |row: &Value| {
                let cause = row["cause"].as_str().map(code).unwrap_or_default();
                vec![code(text(row, "name")), text(row, "backend"), cause, text(row, "description")]
            };
            let rows = self::rows(rows.iter().map(cells));
            print(&format!("| name | backend | cause | description |\n| --- | --- | --- | --- |\n{rows}\n"));
        }
        CatalogFormat::Json => print_json(&format!("{}\n", Value::from(rows))),
    }
}

/// The metric reference.
fn markdown() -> String {
    let mut reference = include_str!("metrics.md").to_owned();
    let mut fill = |name: &str, text: &str| reference = reference.replace(&format!("{{{{{name}}}}}"), text);
    let table = |kept: fn(&Metric) -> bool| rows(CATALOG.iter().filter(|metric| kept(metric)).map(family));
    fill("default", &table(|metric| metric.group != Group::Compat && metric.is_in(Profile::Default)));
    fill("full", &table(|metric| !metric.is_in(Profile::Default)));
    fill("compat", &table(|metric| metric.group == Group::Compat));
    let cause = |cause: Cause| vec![code(cause.name()), cause.meaning().to_owned()];
    fill("causes", &rows(Cause::ALL.into_iter().map(cause)));
    fill("fields", &rows(rows_of_fields()));
    fill("not_served", &rows(FAMILIES_NOT_SERVED.iter().map(|(name, why)| vec![code(name), (*why).to_owned()])));
    reference
}

fn family(metric: &Metric) -> Vec<String> {
    let kind = match (metric.kind, metric.unit) {
        (MetricKind::LegacyCounter, _) => "counter (Triton's name, without `_total`)".to_owned(),
        (kind, Some(unit)) => format!("{}, {unit}", kind.name()),
        (kind, None) => kind.name().to_owned(),
    };
    let mut labels: Vec<String> = metric.labels.iter().map(code).collect();
    if let Some(variant) = metric.variant {
        labels.push(format!("`{}`: {}", variant.label, variant.values.join(", ")));
    }
    let needs = match metric.group {
        Group::Gpu => "gpu".to_owned(),
        Group::Exporter => When::Any.name().to_owned(),
        _ => join(statistics_of(metric).into_iter().map(|statistics| statistics.name().to_owned())),
    };
    let mut cells = vec![code(metric.name), kind, metric.stability.name().to_owned(), labels.join(", ")];
    cells.extend([metric.help.to_owned(), origin_of(metric), needs]);
    if metric.group != Group::Compat {
        cells.push(metric.group.name().to_owned());
    }
    cells
}

fn rows_of_fields() -> impl Iterator<Item = Vec<String>> {
    let read = fields().map(|field| {
        let families = match field.none {
            Some(why) => format!("not exported: {why}"),
            None => join(families_of(field).map(|metric| code(metric.name))),
        };
        vec![format!("{}.`{}`", field.structure, field.key), families]
    });
    read.chain(NOT_READ.iter().map(|(key, why)| vec![code(key), format!("not read: {why}")]))
}

/// The rows of a markdown table.
fn rows(rows: impl Iterator<Item = Vec<String>>) -> String {
    let row = |cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|text| text.replace('|', "\\|")).collect();
        format!("| {} |", cells.join(" | "))
    };
    rows.map(row).collect::<Vec<_>>().join("\n")
}

fn code(name: impl std::fmt::Display) -> String {
    format!("`{name}`")
}

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

/// All metrics as an array of objects.
fn metrics_json() -> Value {
    let object = |metric: &Metric| {
        let profiles = Profile::ALL.into_iter().filter(|profile| metric.is_in(*profile));
        json!({
            "name": metric.name,
            "type": metric.kind.name(),
            "unit": metric.unit,
            "labels": metric.labels,
            "variant": metric.variant.map(|variant| json!({"label": variant.label, "values": variant.values})),
            "group": metric.group.name(),
            "help": metric.help,
            "origin": origin_of(metric),
            "stability": metric.stability.name(),
            "legacy_name": metric.kind == MetricKind::LegacyCounter,
            "profiles": profiles.map(Profile::name).collect::<Vec<_>>(),
        })
    };
    CATALOG.iter().map(object).collect()
}
