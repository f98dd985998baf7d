//! The sides of an orchestrator of disaggregated serving: its requests to the workers of each side. Pure.

use trtllm_http::views::numbers::{Orchestrator, OrchestratorSide, SideNumbers, Times};

use super::units::Unit;

pub const TITLES: [&str; 8] = ["SIDE", "WORKERS", "REQ/S", "ERRORS", "RETRIES/S", "TIME-P50", "TIME-P95", "FIRST-P95"];

/// The order of the table.
const SIDES: [&str; 3] = ["context", "generation", "encoder"];

/// One side in the order of [`TITLES`], and whether it has fewer workers than it needs.
#[must_use]
pub fn rows(orchestrator: &Orchestrator) -> Vec<([String; 8], bool)> {
    let window = |side: &str| orchestrator.window.as_ref().and_then(|window| window.sides.get(side)).copied();
    let known = SIDES.into_iter().filter_map(|side| Some((side, orchestrator.sides.get(side)?)));
    known.map(|(side, counted)| row(side, counted, window(side))).collect()
}

fn row(side: &str, counted: &OrchestratorSide, window: Option<SideNumbers>) -> ([String; 8], bool) {
    let text = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.text(value));
    let count = |value: u64| Unit::Count.text(value as f64);
    let workers = counted.ready_workers;
    let needed = counted.minimal_workers.filter(|needed| workers.is_some_and(|workers| workers < *needed));
    let times = |of: fn(&SideNumbers) -> Option<Times>, part: fn(Times) -> Option<f64>| {
        text(window.as_ref().and_then(of).and_then(part), Unit::Seconds)
    };
    let texts = [
        side.to_owned(),
        workers.map_or_else(|| "-".to_owned(), count)
            + &needed.map(|needed| format!(" of {}", count(needed))).unwrap_or_default(),
        text(window.map(|window| window.requests_per_second), Unit::PerSecond),
        text(window.and_then(|window| window.error_ratio), Unit::Share),
        text(window.map(|window| window.retries_per_second), Unit::PerSecond),
        times(|window| window.seconds, |times| times.p50),
        times(|window| window.seconds, |times| times.p95),
        times(|window| window.first_byte_seconds, |times| times.p95),
    ];
    (texts, needed.is_some())
}
