//! Parses files of trtllm-bench: a report in JSON or text, and each line of the file also as a line of an iteration log.

use trtllm_sources::bench_report::{is_of_bench, parse};
use trtllm_sources::python_text::to_json;

/// Longest error message in characters. A message quotes a part of the file.
const MAX_ERROR: usize = 400;

pub fn run(data: &[u8]) {
    let _ = is_of_bench(data);
    let text = String::from_utf8_lossy(data);
    match parse(&text) {
        // A recording stores the report, so reading it back must give the same report.
        Ok(report) => {
            let json = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<trtllm_records::BenchReport>(&json).unwrap(), report);
        }
        Err(error) => assert!(error.to_string().chars().count() < MAX_ERROR, "{error}"),
    }
    for line in text.lines() {
        // A line that is JSON already must keep its value.
        if let (Ok(value), Some(json)) = (serde_json::from_str::<serde_json::Value>(line), to_json(line)) {
            assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
        }
    }
}
