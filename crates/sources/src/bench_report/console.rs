//! Parses what trtllm-bench prints at its end: lines of `Name: value` below headings. Releases up to 0.16 write no
//! other report. Later releases print the percentiles, too.

use serde_json::{Map, Value};

use super::values::Values;

/// The first heading, by backend. The text above it is the log of the engine.
pub(super) const HEADINGS: [&str; 2] = ["= ENGINE DETAILS", "= PYTORCH BACKEND"];

/// The names whose values are text, even if one looks like a number.
const TEXTS: [&str; 7] = [
    "Model",
    "TensorRT LLM Version",
    "TensorRT-LLM Version",
    "Dtype",
    "Quantization",
    "KV Cache Dtype",
    "Scheduling Policy",
];

/// `None` if the text contains no complete result.
pub(super) fn parse(text: &str) -> Option<Values> {
    // A file may have several runs: the last one counts.
    let begin = HEADINGS.iter().filter_map(|heading| text.rfind(heading)).max()?;
    let text = &text[begin..];
    let mut values = Map::new();
    for (name, printed) in text.lines().filter_map(|line| line.split_once(':')) {
        let (name, printed) = (name.trim(), printed.trim());
        let value = match printed {
            "" | "None" => Value::Null,
            text if TEXTS.contains(&name) => text.into(),
            number => number.trim_end_matches('%').parse::<f64>().map_or(Value::Null, Value::from),
        };
        // `[TTFT] P50    : 12.5`
        match name.split_once("] ").filter(|_| name.starts_with('[')) {
            Some((of, statistic)) => {
                let of = values.entry(format!("{of}]")).or_insert_with(|| Map::new().into());
                of.as_object_mut().map(|of| of.insert(statistic.trim().to_lowercase(), value));
            }
            None => _ = values.insert(name.to_owned(), value),
        }
    }
    // A run that was aborted has headings and no result.
    values.get("Total Latency (ms)")?.as_f64()?;
    let backend = if text.starts_with(HEADINGS[1]) { "Pytorch" } else { "TRT" };
    values.insert("engine".to_owned(), serde_json::json!({"backend": backend}));
    Some(Values(values))
}

#[cfg(test)]
mod tests {
    use trtllm_records::bench_report::BenchLatencies;

    use super::*;

    #[test]
    fn the_text_of_a_real_run_of_release_0_16_is_read() {
        let text = include_str!("../../../../tests/fixtures/trtllm_bench_console_0.16.0_llama70b_tp8.txt");
        let report = parse(text).unwrap().report().unwrap();
        assert_eq!(report.metadata.model.as_deref(), Some("meta-llama/Llama-3.1-70B-Instruct"));
        assert_eq!(
            (report.metadata.version.as_deref(), report.metadata.backend.as_deref()),
            (Some("0.16.0"), Some("TRT"))
        );
        // The token throughput of this text counts output tokens.
        assert_eq!(report.performance.token_throughput_per_sec, Some(3575.3588));
        assert_eq!(report.performance.total_token_throughput_per_sec, None);
        assert_eq!(report.input_output_stats.output_tokens.avg, Some(128.0));
        assert_eq!((report.configuration.tp_size, report.configuration.kv_memory_percentage), (Some(8.0), Some(0.9)));
        assert_eq!(report.configuration.max_sequence_length, Some(25_000.0));
        assert_eq!((report.requests.count, report.requests.concurrent), (Some(7500.0), None));
        assert_eq!(report.latency_stats, BenchLatencies::default());
    }
}
