//! Reports of trtllm-bench: the JSON of `--report_json`, the JSON of the first report format, and the text that the program
//! prints.

mod console;
mod values;

use std::path::Path;

use serde_json::{Map, Value};

use trtllm_records::BenchReport;
use trtllm_service::small_file;

use self::values::Values;
use super::error::shortened;
use super::python_text;

/// Limit of the characters of an error in the first format, which may quote a value.
const MAX_ERROR: usize = 120;

/// Why a file is not a report.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchReportError {
    #[error("cannot read the file: {0}")]
    Io(String),
    #[error("this is not a report of trtllm-bench")]
    Unknown,
    #[error("a value of the report is invalid: {0}")]
    Invalid(String),
}

/// Reads a file that must be a report. Fails if it cannot be read or is something else.
pub fn read(path: &Path) -> Result<BenchReport, BenchReportError> {
    let text = small_file::read(path).map_err(|error| BenchReportError::Io(error.to_string()))?;
    parse(&String::from_utf8_lossy(&text))
}

/// Whether a file that begins with `start` is a report.
pub fn is_of_bench(start: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(start, text.as_bytes()).is_some();
    let has_key = |key: &str| has(&format!("\"{key}\""));
    let text = start.trim_ascii_start();
    match text.first() {
        Some(b'{') if is_line_of_json(text) => false,
        // The log above the heading may begin with a bracket.
        _ if console::HEADINGS.iter().any(|heading| has(heading)) => true,
        Some(b'{') => has_key("performance") && KEYS.iter().any(|key| has_key(key)),
        _ => false,
    }
}

/// Parses a report. Fails if the text is something else, or a value of the report is invalid.
pub fn parse(text: &str) -> Result<BenchReport, BenchReportError> {
    if let Some(values) = console::parse(text) {
        return values.report();
    }
    let text = text.trim_start();
    if !text.starts_with(['{', '[']) {
        return Err(BenchReportError::Unknown);
    }
    // Python writes NaN and Infinity, which are not JSON.
    let parsed = serde_json::from_str(text)
        .or_else(|error| python_text::to_json(text).map_or(Err(error), |json| serde_json::from_str(&json)));
    let is_report = |report: &Map<String, Value>| {
        report.contains_key("performance") && KEYS.iter().any(|key| report.contains_key(*key))
    };
    match parsed {
        // The format of the metrics specification, which no release writes, has the names of our own struct.
        Ok(Value::Object(report)) if is_report(&report) && report.contains_key(KEYS[0]) => {
            let report = serde_json::from_value(Value::Object(report));
            report.map_err(|error| BenchReportError::Invalid(shortened(&error.to_string(), MAX_ERROR)))
        }
        Ok(Value::Object(report)) if is_report(&report) => Values(report).report(),
        Err(error) if text.contains("\"performance\"") => Err(BenchReportError::Invalid(error.to_string())),
        _ => Err(BenchReportError::Unknown),
    }
}

/// Keys that only reports have, besides `performance`. The first one is that of the first format.
const KEYS: [&str; 3] = ["latency_stats", "world_info", "request_info"];

/// Whether the first of several lines is JSON, as in a file of records.
fn is_line_of_json(text: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    !rest.trim_ascii().is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_python_writes_and_json_lacks_are_absent() {
        let text = r#"{"world_info": {"tp_size": 2}, "performance": {"total_latency_ms": 5.5, "request_throughput_req_s": NaN},
            "energy": {"total_energy_j": Infinity}}"#;
        let report = parse(text).unwrap();
        assert_eq!((report.configuration.tp_size, report.performance.total_latency_ms), (Some(2.0), Some(5.5)));
        assert_eq!((report.performance.request_throughput_per_sec, report.energy.joules), (None, None));
    }

    #[test]
    fn the_example_of_the_specification_is_read_and_sections_may_be_missing() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_report.json");
        let mut report: Map<String, Value> = serde_json::from_str(text).unwrap();
        let read = parse(text).unwrap();
        assert_eq!(read.performance.token_throughput_per_sec, Some(28390.4265));
        assert_eq!((read.latency_stats.ttft_ms.p99, read.configuration.tp_size), (Some(512.34), Some(2.0)));
        report.remove("configuration");
        assert_eq!(parse(&Value::from(report).to_string()).unwrap().configuration.tp_size, None);
        let wrong = format!("{{\"performance\":{{}},\"latency_stats\":\"{}\"}}", "x".repeat(500));
        assert!(parse(&wrong).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn a_report_that_is_cut_is_an_error() {
        let text =
            include_str!("../../../../tests/fixtures/trtllm_bench_report_1.3.0rc12_gb10_REDUCED.json").trim_end();
        assert!(parse(text).is_ok());
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(parse(&text[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn records_and_other_files_are_no_report() {
        let records = "{\"iter\": 1, \"x\": \"performance\", \"world_info\": 1}\n{\"iter\": 2}\n";
        let python = "{'iter': 1, 'maxBatchSizeStatic': None}\n{'iter': 2}\n";
        for text in [records, "[{\"iter\": 1}]", "{\"iter\": 1}", python, "{'iter': 1}"] {
            assert!(!is_of_bench(text.as_bytes()) && parse(text).is_err(), "{text}");
        }
        for text in ["", "hello", "{}", "[]", "{\"a\": 1}", "{\"0\": \"Once upon\",\n \"1\": \"a time\"}"] {
            assert!(!is_of_bench(text.as_bytes()), "{text}");
            assert_eq!(parse(text), Err(BenchReportError::Unknown), "{text}");
        }
    }
}
