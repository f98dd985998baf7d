//! Prometheus text 0.0.4, byte for byte as Triton writes its own families: labels sorted, `le` last, integers plain.
//! Ours because no client library writes it; one pass, one buffer, no allocation per sample.

use crate::engine::histogram::Histogram;
use crate::metrics::catalog::Metric;
use crate::metrics::page::{Page, Sample, Value, write_float};

/// Appends the page to `out`.
pub fn render(page: &Page, out: &mut String) {
    let mut digits = itoa::Buffer::new();
    for (metric, samples) in page.families() {
        header(metric, out);
        for sample in samples {
            if let Value::Histogram(histogram) = &sample.value {
                write_histogram(metric.name, sample, histogram, &mut digits, out);
                continue;
            }
            out.push_str(metric.name);
            out.push_str(sample.labels.series());
            match sample.value {
                Value::Integer(value) => out.push_str(digits.format(value)),
                Value::Count(value) => out.push_str(digits.format(value)),
                Value::Float(value) => write_float(out, value),
                Value::Histogram(_) => {}
            }
            out.push('\n');
        }
    }
}

fn header(metric: &Metric, out: &mut String) {
    // The catalog's help has neither backslash nor newline (asserted there), so there is nothing to escape.
    for part in ["# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " ", metric.kind.name(), "\n"] {
        out.push_str(part);
    }
}

fn write_histogram(name: &str, sample: &Sample, histogram: &Histogram, digits: &mut itoa::Buffer, out: &mut String) {
    let mut bucket = |bound: &str, count: u64| {
        out.push_str(name);
        out.push_str("_bucket");
        out.push_str(sample.labels.bucket());
        out.push_str(bound);
        out.push_str("\"} ");
        out.push_str(digits.format(count));
        out.push('\n');
    };
    for (bound, count) in histogram.cumulative() {
        bucket(bound.text, count);
    }
    bucket("+Inf", histogram.count());
    for (suffix, sum) in [("_sum", true), ("_count", false)] {
        out.push_str(name);
        out.push_str(suffix);
        out.push_str(sample.labels.series());
        if sum {
            write_float(out, histogram.sum());
        } else {
            out.push_str(digits.format(histogram.count()));
        }
        out.push('\n');
    }
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
