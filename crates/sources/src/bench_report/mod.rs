//! Reports of trtllm-bench: the JSON of `--report_json`, the JSON of the first report format, and the text that the program
//! prints. For another file of trtllm-bench, the error names the option that writes it: the options are easily confused.

mod console;
mod json;

use std::path::Path;

use serde_json::{Map, Value};

use trtllm_records::BenchReport;
use trtllm_service::small_file;

use super::python_text;

/// Why a file is not a report.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchReportError {
    #[error("cannot read the file: {0}")]
    Io(String),
    #[error("this is {0}, not a report of trtllm-bench")]
    Other(&'static str),
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

/// Whether a file that begins with `start` is a report, or another file of trtllm-bench that has no records.
#[must_use]
pub fn is_of_bench(start: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(start, text.as_bytes()).is_some();
    let has_key = |key: &str| has(&format!("\"{key}\""));
    let text = start.trim_ascii_start();
    match text.first() {
        Some(b'{') if is_line_of_json(text) => false,
        // The log above the heading may begin with a bracket.
        _ if console::HEADINGS.iter().any(|heading| has(heading)) => true,
        Some(b'{') if is_text_of_requests(text) => true,
        Some(b'{') => has_key("performance") && KEYS.iter().any(|key| has_key(key)),
        Some(b'[') => PER_REQUEST.iter().all(|key| has_key(key)),
        _ => false,
    }
}

/// Parses a report. Fails if the text is something else, or a value of the report is invalid.
pub fn parse(text: &str) -> Result<BenchReport, BenchReportError> {
    if let Some(report) = console::parse(text) {
        return Ok(report);
    }
    let text = text.trim_start();
    if !text.starts_with(['{', '[']) {
        return Err(BenchReportError::Unknown);
    }
    // Python writes NaN and Infinity, which are not JSON.
    let parsed = serde_json::from_str(text)
        .or_else(|error| python_text::to_json(text).map_or(Err(error), |json| serde_json::from_str(&json)));
    match parsed {
        Ok(Value::Object(report)) => from_object(&report),
        Ok(Value::Array(items)) => Err(from_array(&items)),
        _ => Err(from_lines(text)),
    }
}

/// Keys that only reports have, besides `performance`.
const KEYS: [&str; 3] = ["latency_stats", "world_info", "request_info"];
/// Keys of each entry of `--request_json`.
const PER_REQUEST: [&str; 2] = ["num_input_tokens", "time_to_first_token"];

fn from_object(report: &Map<String, Value>) -> Result<BenchReport, BenchReportError> {
    if report.contains_key("performance") && report.contains_key("latency_stats") {
        return json::parse_first_format(report);
    }
    if report.contains_key("performance") && KEYS.iter().any(|key| report.contains_key(*key)) {
        return json::parse(report);
    }
    let is_text = |(id, text): (&String, &Value)| id.bytes().all(|byte| byte.is_ascii_digit()) && text.is_string();
    Err(match report.contains_key("iter") {
        true => BenchReportError::Other("a record of the engine (--iteration_log)"),
        false if !report.is_empty() && report.iter().all(is_text) => TEXTS,
        false => BenchReportError::Unknown,
    })
}

const TEXTS: BenchReportError = BenchReportError::Other("the text of each request (--output_json)");

fn from_array(items: &[Value]) -> BenchReportError {
    let has = |key: &str| items.first().is_some_and(|item| item.get(key).is_some());
    if PER_REQUEST.iter().all(|key| has(key)) {
        BenchReportError::Other("the list of requests (--request_json)")
    } else if has("iter") {
        BenchReportError::Other("a list of records of the engine")
    } else {
        BenchReportError::Unknown
    }
}

/// The error for a text that is not a single JSON value.
fn from_lines(text: &str) -> BenchReportError {
    let first = text.lines().next().unwrap_or_default();
    let record = serde_json::from_str(first).ok().is_some_and(|record: Value| record.get("iter").is_some());
    if text.starts_with("{'") {
        BenchReportError::Other("an iteration log as Python text (--iteration_log)")
    } else if record {
        BenchReportError::Other("an iteration log (--iteration_log)")
    } else {
        match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Err(error) if text.contains("\"performance\"") => BenchReportError::Invalid(error.to_string()),
            _ => BenchReportError::Unknown,
        }
    }
}

/// Whether the first of several lines is JSON, as in a file of records.
fn is_line_of_json(text: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    !rest.trim_ascii().is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok()
}

/// Whether the text begins like a file of `--output_json`: `{"0": "…`.
fn is_text_of_requests(text: &[u8]) -> bool {
    let Some(id) = text[1..].trim_ascii_start().strip_prefix(b"\"") else { return false };
    let digits = id.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = id[digits..].strip_prefix(b"\"").map(<[u8]>::trim_ascii_start);
    let value = rest.and_then(|rest| rest.strip_prefix(b":")).map(<[u8]>::trim_ascii_start);
    digits > 0 && value.is_some_and(|value| value.starts_with(b"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(text: &str) -> String {
        assert!(is_of_bench(text.as_bytes()), "{text}");
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn other_files_of_trtllm_bench_are_named() {
        assert!(other("{\"0\": \"Once upon\",\n \"1\": \"a time\"}").contains("--output_json"));
        let requests = r#"[{"id": 0, "num_input_tokens": 5, "output_tokens": 1, "time_to_first_token": 9}]"#;
        assert!(other(requests).contains("--request_json"));
        assert!(other("{\"performance\": {}, \"world_info\": {").contains("invalid"));
    }

    #[test]
    fn numbers_that_python_writes_and_json_lacks_are_absent() {
        let text = r#"{"world_info": {"tp_size": 2}, "performance": {"total_latency_ms": 5.5, "request_throughput_req_s": NaN},
            "energy": {"total_energy_j": Infinity}}"#;
        let report = parse(text).unwrap();
        assert_eq!((report.configuration.tp_size, report.performance.total_latency_ms), (Some(2.0), Some(5.5)));
        assert_eq!((report.performance.request_throughput_per_sec, report.energy.joules), (None, None));
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
    fn records_are_neither_a_report_nor_another_file_of_trtllm_bench() {
        let records = "{\"iter\": 1, \"x\": \"performance\", \"world_info\": 1}\n{\"iter\": 2}\n";
        let python = "{'iter': 1, 'maxBatchSizeStatic': None}\n{'iter': 2}\n";
        for text in [records, "[{\"iter\": 1}]", "{\"iter\": 1}", python, "{'iter': 1}"] {
            assert!(!is_of_bench(text.as_bytes()), "{text}");
            assert!(
                parse(text).unwrap_err().to_string().contains("record")
                    || parse(text).unwrap_err().to_string().contains("log")
            );
        }
        for text in ["", "hello", "{}", "[]", "{\"a\": 1}"] {
            assert!(!is_of_bench(text.as_bytes()), "{text}");
            assert_eq!(parse(text), Err(BenchReportError::Unknown), "{text}");
        }
    }
}
