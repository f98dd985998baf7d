//! Recorded arrivals, from a file.

use super::number;
use crate::load::{Arrival, prefix_name};

/// Reads a file with one request per line: seconds, prompt tokens, output tokens and, optionally, the number of the shared prefix with
/// which the prompt begins. Blanks or commas separate the fields, and `#` starts a comment.
pub(super) fn read(file: &str) -> Result<Vec<Arrival>, String> {
    let text =
        std::fs::read_to_string(file).map_err(|_| format!("sim: cannot read trace={file}; name a readable file"))?;
    let mut trace = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let fields: Vec<_> = line.split([' ', '\t', ',', '\r']).filter(|field| !field.is_empty()).collect();
        if fields.is_empty() {
            continue;
        }
        let arrival = arrival(&fields).ok_or_else(|| {
            format!("sim: option trace={file}: line {number} is invalid; write seconds, prompt tokens, output tokens")
        })?;
        trace.push(arrival);
    }
    trace.sort_by(|a: &Arrival, b| a.at.total_cmp(&b.at));
    Ok(trace)
}

fn arrival(fields: &[&str]) -> Option<Arrival> {
    let tokens = |at: usize| number::<u32>(fields.get(at)?, 1, i32::MAX as u32);
    let at = number(fields.first()?, 0.0, f64::MAX)?;
    let family = fields.get(3).and_then(|field| number::<u64>(field, 1, u64::MAX));
    let prefix = family.map(|family| (prefix_name(family), 384));
    let output = tokens(2)?;
    Some(Arrival { at, prompt: tokens(1)?, output, max_new_tokens: output, prefix, ..Arrival::default() })
}
