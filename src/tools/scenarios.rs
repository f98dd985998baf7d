//! `catalog --scenarios` and `--source sim:?scenario=list`: the scenarios of the simulated engine.

use crate::cli::CatalogFormat;
use trtllm_sim::scenario::{self, Scenario};

use super::{print, print_json};

/// The source that prints them.
pub const SOURCE: &str = "sim:?scenario=list";

/// Prints them.
pub fn run(format: CatalogFormat) {
    match format {
        CatalogFormat::Markdown => print(&markdown()),
        CatalogFormat::Json => print_json(&(json() + "\n")),
    }
}

/// A table.
#[must_use]
pub fn markdown() -> String {
    let mut text = "| name | backend | cause | description |\n| --- | --- | --- | --- |\n".to_owned();
    for Scenario { name, backend, cause, description, .. } in scenario::all() {
        text += &format!("| `{name}` | {backend} | `{cause}` | {description} |\n");
    }
    text
}

/// The same as an array of objects.
#[must_use]
pub fn json() -> String {
    let scenarios = scenario::all();
    let scenarios = scenarios.iter().map(|scenario| {
        serde_json::json!({
            "name": scenario.name,
            "backend": scenario.backend,
            "cause": scenario.cause,
            "description": scenario.description,
            "cure": scenario.cure.map(|remedy| remedy.says),
        })
    });
    serde_json::Value::Array(scenarios.collect()).to_string()
}
