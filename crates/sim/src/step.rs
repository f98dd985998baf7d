//! What happened in a step of the engine.

use crate::record::{End, Entry, Record, Row};

/// What happened in a step.
#[derive(Debug, Default)]
pub struct Step {
    pub records: Vec<Record>,
    /// Rows of requests, with their iteration. Empty with PyTorch, which writes the rows into the record.
    pub rows: Vec<(u64, Vec<Row>)>,
    pub entries: Vec<Entry>,
    /// Requests that ended without an answer since the last step.
    pub unanswered: Vec<Unanswered>,
    /// When to call [`Engine::step`](crate::Engine::step) next. Absent if nothing happens before the next submission.
    pub next: Option<f64>,
}

/// A request that ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    pub id: u64,
    pub end: End,
    pub nonstream: bool,
    /// The server refused it with an HTTP error, or did not listen.
    pub is_refused: bool,
}
