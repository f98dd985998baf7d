//! Incidents whose name does not contain the answer: the scenarios behind `drill-1` to `drill-10`.

use super::Scenario;

/// The description of a drill where its answer must not be visible.
pub const UNSOLVED: &str = "An incident: find out what it is.";

/// The scenarios by the number of their drill. Their order is not that of the list, and some are healthy.
const SCENARIOS: [&str; 10] = [
    "context-blocking-unchunked",
    "kv-thrash-conversations",
    "healthy-full-cache-of-reusable-blocks",
    "statistics-lost",
    "batch-limit-bursts",
    "wedge",
    "token-limit-long-prompts",
    "healthy-cancellations",
    "kv-reservation-by-clients-v1",
    "speculation-big-batch",
];

/// Each drill and its scenario.
pub fn drills() -> impl Iterator<Item = (String, Scenario)> {
    (1..).zip(SCENARIOS).filter_map(|(number, name)| Some((format!("drill-{number}"), super::named(name)?)))
}
