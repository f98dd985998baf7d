//! The Prometheus text format 0.0.4 and OpenMetrics 1.0.0: two dialects of one writer, without an allocation per sample.
//!
//! Written by hand, because Triton's readers match the bytes of 0.0.4, which prometheus-client does not write. Its
//! OpenMetrics encoder cannot write the exemplars of another histogram type, and judges this writer in the tests.

use std::io::Write as _;

use crate::engine::histogram::Exemplar;
use crate::metrics::catalog::{Kind, Metric};
use crate::metrics::page::{Page, Sample, Value};

use super::EXEMPLAR_LABEL;

/// The last line of an OpenMetrics page.
pub const END: &str = "# EOF\n";

/// The two formats differ in types, family names, units, exemplars and the spelling of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 0.0.4, byte for byte as Triton writes its families: labels sorted, `le` last, whole numbers without a point.
    Prometheus,
    OpenMetrics,
}

/// Appends the families of the page to `out`. [`END`] is the caller's: a page may be written in several parts.
pub fn render(page: &Page, dialect: Dialect, out: &mut Vec<u8>) {
    let mut writer = Writer { dialect, out, digits: itoa::Buffer::new() };
    for (metric, samples) in page.families() {
        writer.header(metric);
        for sample in samples {
            writer.sample(metric.name, sample);
        }
    }
}

struct Writer<'a> {
    dialect: Dialect,
    out: &'a mut Vec<u8>,
    digits: itoa::Buffer,
}

/// One bucket of a histogram, whichever type holds it.
struct Bucket {
    upper_bound: f64,
    /// The bound as 0.0.4 spells it, where it is known: formatting a float costs more than copying it.
    text: Option<&'static str>,
    cumulative_count: u64,
    exemplar: Option<Exemplar>,
}

impl Writer<'_> {
    fn header(&mut self, metric: &Metric) {
        let (name, kind) = match (self.dialect, metric.kind) {
            (Dialect::Prometheus, kind) => (metric.name, kind.name()),
            // OpenMetrics names a counter's family without `_total`.
            (_, Kind::Counter) => (metric.name.strip_suffix("_total").unwrap_or(metric.name), "counter"),
            // `unknown` is the only type whose samples may have any name.
            (_, Kind::LegacyCounter) => (metric.name, "unknown"),
            (_, kind) => (metric.name, kind.name()),
        };
        // HELP needs no escaping: a test of the catalog forbids backslashes and newlines in it.
        self.push(&["# HELP ", name, " ", metric.help, "\n# TYPE ", name, " ", kind, "\n"]);
        // Parsers reject the whole page if the family's name does not end in the unit.
        let ends_in = |unit: &&str| name.strip_suffix(*unit).is_some_and(|stem| stem.ends_with('_'));
        if let (Dialect::OpenMetrics, Some(unit)) = (self.dialect, metric.unit.filter(ends_in)) {
            self.push(&["# UNIT ", name, " ", unit, "\n"]);
        }
    }

    fn sample(&mut self, name: &str, sample: &Sample) {
        match &sample.value {
            Value::Histogram(histogram) => {
                let bounds = histogram.cumulative().map(|(bound, count)| (bound.value, bound.text, count));
                let buckets = bounds.chain([(f64::INFINITY, "+Inf", histogram.count())]).zip(histogram.exemplars());
                let bucket = |((upper_bound, text, cumulative_count), exemplar)| Bucket {
                    upper_bound,
                    text: Some(text),
                    cumulative_count,
                    exemplar,
                };
                self.histogram(name, sample, buckets.map(bucket), histogram.sum(), histogram.count());
            }
            value => {
                self.push(&[name, sample.labels.series()]);
                match value {
                    Value::Integer(value) => self.integer(*value),
                    Value::Count(value) => self.integer(*value),
                    Value::Float(value) => self.float(*value),
                    Value::Histogram(_) => {}
                }
                self.out.push(b'\n');
            }
        }
    }

    fn histogram(&mut self, name: &str, sample: &Sample, buckets: impl Iterator<Item = Bucket>, sum: f64, count: u64) {
        for bucket in buckets {
            self.push(&[name, "_bucket", sample.labels.bucket()]);
            self.bound(bucket.upper_bound, bucket.text);
            self.push(&["\"} "]);
            self.integer(bucket.cumulative_count);
            if let (Dialect::OpenMetrics, Some(Exemplar { request, value })) = (self.dialect, bucket.exemplar) {
                self.push(&[" # {", EXEMPLAR_LABEL, "=\""]);
                self.integer(request);
                self.push(&["\"} "]);
                self.float(value);
            }
            self.out.push(b'\n');
        }
        self.push(&[name, "_sum", sample.labels.series()]);
        self.float(sum);
        self.push(&["\n", name, "_count", sample.labels.series()]);
        self.integer(count);
        self.out.push(b'\n');
    }

    /// OpenMetrics spells bounds as Go does. A server that reads protobuf from us spells them like that itself; another
    /// spelling here would be another series for each bucket.
    fn bound(&mut self, value: f64, text: Option<&str>) {
        let plain = self.dialect == Dialect::Prometheus || value == 0.0 || (1e-4..1e6).contains(&value);
        match text {
            _ if value == f64::INFINITY => self.push(&["+Inf"]),
            Some(text) if plain => {
                self.push(&[text]);
                self.point_if_whole(value);
            }
            None if plain => self.float(value),
            _ => self.exponent(value),
        }
    }

    /// As Go's `%g`: a sign and at least two digits in the exponent.
    fn exponent(&mut self, value: f64) {
        let start = self.out.len();
        // A Vec does not fail to grow; the same holds below.
        let _ = write!(self.out, "{value:e}");
        let Some(e) = self.out[start..].iter().position(|byte| *byte == b'e') else { return };
        let digits = start + e + 1 + usize::from(self.out.get(start + e + 1) == Some(&b'-'));
        if self.out.len() == digits + 1 {
            self.out.insert(digits, b'0');
        }
        if digits == start + e + 1 {
            self.out.insert(digits, b'+');
        }
    }

    /// The shortest decimal that parses to the same value. Never an exponent: Triton's readers match `\d+(\.\d+)?`.
    fn float(&mut self, value: f64) {
        let _ = write!(self.out, "{value}");
        self.point_if_whole(value);
    }

    /// OpenMetrics writes whole floats with `.0`.
    fn point_if_whole(&mut self, value: f64) {
        if self.dialect == Dialect::OpenMetrics && value.fract() == 0.0 {
            self.push(&[".0"]);
        }
    }

    fn integer(&mut self, value: impl itoa::Integer) {
        let digits = self.digits.format(value);
        self.out.extend_from_slice(digits.as_bytes());
    }

    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::histogram::{Histogram, TOKEN_LENGTH};
    use crate::metrics::catalog::Id;
    use crate::metrics::page::Labels;

    fn text(page: &Page, dialect: Dialect) -> String {
        let mut out = Vec::new();
        render(page, dialect, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn openmetrics(metric: Id, value: impl Into<Value>) -> String {
        let mut page = Page::default();
        page.push(metric, &Arc::new(Labels::new([("model", "a\"b"), ("version", "1")])), value);
        text(&page, Dialect::OpenMetrics)
    }

    #[test]
    fn a_gauge_is_written_as_triton_writes_it() {
        let mut page = Page::default();
        let labels = Labels::new([("model", "tensorrt_llm"), ("version", "1")]);
        page.push(Id::KvCacheBlockMetrics, &Arc::new(labels.with("kv_cache_block_type", "fraction")), 0.4875);
        page.push(Id::KvCacheBlockMetrics, &Arc::new(labels.with("kv_cache_block_type", "max")), 6239_i64);
        assert_eq!(
            text(&page, Dialect::Prometheus),
            "# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block metrics\n\
             # TYPE nv_trt_llm_kv_cache_block_metrics gauge\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\",version=\"1\"} 0.4875\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"tensorrt_llm\",version=\"1\"} 6239\n"
        );
    }

    #[test]
    fn le_comes_last_and_buckets_are_cumulative() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe(7.0);
        histogram.observe(5000.0);
        let mut page = Page::default();
        page.push(Id::InputTokenLen, &Arc::new(Labels::new([("zone", "a")])), &histogram);
        let text = text(&page, Dialect::Prometheus);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "nv_llm_input_token_len_bucket{zone=\"a\",le=\"10\"} 1");
        assert_eq!(lines[5], "nv_llm_input_token_len_bucket{zone=\"a\",le=\"+Inf\"} 2");
        assert_eq!(lines[6], "nv_llm_input_token_len_sum{zone=\"a\"} 5007");
        assert_eq!(lines[7], "nv_llm_input_token_len_count{zone=\"a\"} 2");
    }

    #[test]
    fn an_empty_page_has_no_bytes() {
        assert_eq!(text(&Page::default(), Dialect::Prometheus), "");
        assert_eq!(text(&Page::default(), Dialect::OpenMetrics), "");
    }

    #[test]
    fn floats_have_no_exponent_and_no_needless_point() {
        let spelled = [0.4875, 1e-7, 1e21, 3.0, 0.1 + 0.2].map(|value| {
            let mut out = Vec::new();
            Writer { dialect: Dialect::Prometheus, out: &mut out, digits: itoa::Buffer::new() }.float(value);
            String::from_utf8(out).unwrap()
        });
        assert_eq!(spelled, ["0.4875", "0.0000001", "1000000000000000000000", "3", "0.30000000000000004"]);
    }

    #[test]
    fn a_legacy_counter_keeps_its_bare_name_as_unknown() {
        let text = openmetrics(Id::EnergyConsumption, 12.5);
        assert!(text.contains("# TYPE nv_energy_consumption unknown\n"), "{text}");
        assert!(text.contains("nv_energy_consumption{model=\"a\\\"b\",version=\"1\"} 12.5\n"), "{text}");
        assert!(!text.contains("_total"), "{text}");
    }

    #[test]
    fn a_counter_has_one_total_and_no_created_series() {
        let text = openmetrics(Id::Iterations, 7_u64);
        assert!(text.contains("# TYPE nv_trt_llm_iterations counter\n"), "{text}");
        assert!(text.contains("nv_trt_llm_iterations_total{model=\"a\\\"b\",version=\"1\"} 7\n"), "{text}");
        assert!(!text.contains("_total_total") && !text.contains("_created"), "{text}");
    }

    #[test]
    fn a_unit_is_written_once_and_only_if_the_name_ends_in_it() {
        let text = openmetrics(Id::ProcessCpu, 1.5);
        assert!(text.contains("# UNIT process_cpu_seconds seconds\n"), "{text}");
        assert!(text.contains("process_cpu_seconds_total{"), "{text}");
        let text = openmetrics(Id::GpuPowerUsage, 2.0);
        assert!(!text.contains("# UNIT") && text.contains("} 2.0\n"), "{text}");
    }

    #[test]
    fn openmetrics_spells_bounds_as_go_does_with_and_without_a_known_text() {
        let spelled = |value: f64| {
            [Some(value.to_string()), None].map(|text| {
                let mut out = Vec::new();
                let mut writer = Writer { dialect: Dialect::OpenMetrics, out: &mut out, digits: itoa::Buffer::new() };
                writer.bound(value, text.as_deref());
                String::from_utf8(out).unwrap()
            })
        };
        for (value, wanted) in [
            (0.0, "0.0"),
            (1e-5, "1e-05"),
            (2.5e-5, "2.5e-05"),
            (1e-4, "0.0001"),
            (5e5, "500000.0"),
            (1e6, "1e+06"),
            (1048576.0, "1.048576e+06"),
            (17179869184.0, "1.7179869184e+10"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(spelled(value), [wanted, wanted]);
        }
    }

    #[test]
    fn an_openmetrics_bucket_has_its_last_request_as_exemplar() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe_request(3.0, Some(u64::MAX));
        histogram.observe_request(70.0, None);
        histogram.observe_request(1e4, Some(5));
        let text = openmetrics(Id::InputTokenLen, &histogram);
        let buckets: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("nv_llm_input_token_len_bucket{model=\"a\\\"b\",version=\"1\",le=\""))
            .collect();
        assert_eq!(
            buckets,
            [
                "10.0\"} 1 # {request_id=\"18446744073709551615\"} 3.0",
                "50.0\"} 1",
                "100.0\"} 2",
                "500.0\"} 2",
                "1000.0\"} 2",
                "+Inf\"} 3 # {request_id=\"5\"} 10000.0",
            ]
        );
        assert!(text.contains("nv_llm_input_token_len_sum{model=\"a\\\"b\",version=\"1\"} 10073.0\n"), "{text}");
        assert!(text.contains("nv_llm_input_token_len_count{model=\"a\\\"b\",version=\"1\"} 3\n"), "{text}");
    }
}
