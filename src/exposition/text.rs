//! Prometheus text 0.0.4, byte for byte as Triton writes its own families: labels sorted, `le` last, integers plain.
//! Ours because no client library writes it; one pass, one buffer, no allocation per sample.

use crate::engine::histogram::Histogram;
use crate::metrics::catalog::Metric;
use crate::metrics::page::{Page, Sample, Value, write_float};

/// `Content-Type` of this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Appends the page to `out`.
pub fn render(page: &Page, out: &mut String) {
    for (metric, samples) in page.families() {
        header(metric, out);
        for sample in samples {
            match &sample.value {
                Value::Histogram(histogram) => write_histogram(metric.name, sample, histogram, out),
                value => {
                    series(metric.name, "", sample.labels.text(), None, out);
                    write_value(value, out);
                }
            }
        }
    }
}

fn header(metric: &Metric, out: &mut String) {
    out.push_str("# HELP ");
    out.push_str(metric.name);
    out.push(' ');
    // The catalog's help has neither backslash nor newline (asserted there), so there is nothing to escape.
    out.push_str(metric.help);
    out.push_str("\n# TYPE ");
    out.push_str(metric.name);
    out.push(' ');
    out.push_str(metric.kind.name());
    out.push('\n');
}

fn series(name: &str, suffix: &str, labels: &str, le: Option<&str>, out: &mut String) {
    out.push_str(name);
    out.push_str(suffix);
    if !labels.is_empty() || le.is_some() {
        out.push('{');
        out.push_str(labels);
        if let Some(le) = le {
            out.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
            out.push_str(le);
            out.push('"');
        }
        out.push('}');
    }
    out.push(' ');
}

fn write_value(value: &Value, out: &mut String) {
    let mut buffer = itoa::Buffer::new();
    match value {
        Value::Integer(value) => out.push_str(buffer.format(*value)),
        Value::Count(value) => out.push_str(buffer.format(*value)),
        Value::Float(value) => write_float(out, *value),
        // Written by its own function; a histogram has no one value.
        Value::Histogram(_) => {}
    }
    out.push('\n');
}

fn write_histogram(name: &str, sample: &Sample, histogram: &Histogram, out: &mut String) {
    let labels = sample.labels.text();
    for (bound, count) in histogram.cumulative() {
        series(name, "_bucket", labels, Some(bound.text), out);
        write_value(&Value::Count(count), out);
    }
    series(name, "_bucket", labels, Some("+Inf"), out);
    write_value(&Value::Count(histogram.count()), out);
    series(name, "_sum", labels, None, out);
    write_value(&Value::Float(histogram.sum()), out);
    series(name, "_count", labels, None, out);
    write_value(&Value::Count(histogram.count()), out);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::histogram::TOKEN_LENGTH;
    use crate::metrics::catalog::Id;
    use crate::metrics::page::Labels;

    #[test]
    fn a_gauge_is_written_as_triton_writes_it() {
        let mut page = Page::default();
        let labels = Labels::new([("model", "tensorrt_llm"), ("version", "1")]);
        page.push(Id::KvCacheBlockMetrics, &Arc::new(labels.with("kv_cache_block_type", "fraction")), 0.4875);
        page.push(Id::KvCacheBlockMetrics, &Arc::new(labels.with("kv_cache_block_type", "max")), 6239_i64);
        let mut out = String::new();
        render(&page, &mut out);
        assert_eq!(
            out,
            "# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block metrics\n\
             # TYPE nv_trt_llm_kv_cache_block_metrics gauge\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\",version=\"1\"} 0.4875\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"tensorrt_llm\",version=\"1\"} 6239\n"
        );
    }

    #[test]
    fn le_comes_last_and_buckets_accumulate() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe(7.0);
        histogram.observe(5000.0);
        let mut page = Page::default();
        page.push(Id::InputTokenLen, &Arc::new(Labels::new([("zone", "a")])), &histogram);
        let mut out = String::new();
        render(&page, &mut out);
        let lines: Vec<&str> = out.lines().skip(2).collect();
        assert_eq!(lines[0], "nv_llm_input_token_len_bucket{zone=\"a\",le=\"10\"} 1");
        assert_eq!(lines[5], "nv_llm_input_token_len_bucket{zone=\"a\",le=\"+Inf\"} 2");
        assert_eq!(lines[6], "nv_llm_input_token_len_sum{zone=\"a\"} 5007");
        assert_eq!(lines[7], "nv_llm_input_token_len_count{zone=\"a\"} 2");
    }

    #[test]
    fn an_empty_page_is_no_bytes() {
        let mut out = String::new();
        render(&Page::default(), &mut out);
        assert!(out.is_empty());
    }
}
