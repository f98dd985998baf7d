//! The Prometheus text format 0.0.4 and OpenMetrics 1.0.0: two formats of one writer, without an allocation per
//! sample.
//!
//! Written by hand, because Triton's readers match the bytes of 0.0.4, which prometheus-client does not write. Besides,
//! prometheus-client writes exemplars in OpenMetrics only for its own histograms. Tests compare the two writers.

use std::io::Write as _;

use super::negotiate::Format;
use crate::metrics::family::{Metric, MetricKind};
use crate::metrics::page::{Page, Sample, Value};
use trtllm_fold::histogram::{Exemplar, Histogram};

/// The label of an exemplar. With an id of at most 20 digits it stays below the 128 characters that OpenMetrics allows.
pub(super) const EXEMPLAR_LABEL: &str = "request_id";

/// Appends the page to `out`, in one of the two text formats. They differ in types, family names, units, exemplars and
/// the spelling of numbers. Text 0.0.4 is byte for byte as Triton writes its families: labels sorted, `le` last, whole
/// numbers without a point.
pub fn render(page: &Page, format: Format, out: &mut Vec<u8>) {
    let is_openmetrics = format == Format::OpenMetrics;
    let mut writer = TextWriter { is_openmetrics, out, digits: itoa::Buffer::new() };
    for (metric, samples) in page.families() {
        writer.header(metric, page.help(metric));
        for sample in samples {
            writer.sample(metric.name, sample);
        }
    }
    if is_openmetrics {
        out.extend_from_slice(b"# EOF\n");
    }
}

struct TextWriter<'a> {
    is_openmetrics: bool,
    out: &'a mut Vec<u8>,
    digits: itoa::Buffer,
}

/// One bucket of a histogram: of our type, or of prometheus-client's.
pub(super) struct Bucket {
    pub(super) upper_bound: f64,
    /// The bound as 0.0.4 spells it, if it is known: formatting a float costs more than copying it.
    text: Option<&'static str>,
    pub(super) cumulative_count: u64,
    pub(super) exemplar: Option<Exemplar>,
}

/// The buckets of a histogram, the last of them without a bound.
pub(super) fn buckets(histogram: &Histogram) -> impl Iterator<Item = Bucket> {
    let bounds = histogram.cumulative().map(|(bound, count)| (bound.value, bound.text, count));
    let bounds = bounds.chain([(f64::INFINITY, "+Inf", histogram.count())]);
    bounds.zip(histogram.exemplars()).map(|((upper_bound, text, cumulative_count), exemplar)| Bucket {
        upper_bound,
        text: Some(text),
        cumulative_count,
        exemplar,
    })
}

impl TextWriter<'_> {
    fn header(&mut self, metric: &Metric, help: &str) {
        let (name, kind) = match (self.is_openmetrics, metric.kind) {
            // OpenMetrics names a counter's family without `_total`.
            (true, MetricKind::Counter) => (metric.name.strip_suffix("_total").unwrap_or(metric.name), "counter"),
            // `unknown` is the only type whose samples may have any name.
            (true, MetricKind::LegacyCounter) => (metric.name, "unknown"),
            (_, kind) => (metric.name, kind.name()),
        };
        // HELP needs no escaping: a test of the catalog forbids backslashes and newlines in it.
        self.push(["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"]);
        // Parsers reject the whole page if the family's name does not end in the unit.
        let ends_in = |unit: &&str| name.strip_suffix(*unit).is_some_and(|stem| stem.ends_with('_'));
        if let Some(unit) = metric.unit.filter(|unit| self.is_openmetrics && ends_in(unit)) {
            self.push(["# UNIT ", name, " ", unit, "\n"]);
        }
    }

    fn sample(&mut self, name: &str, sample: &Sample) {
        match &sample.value {
            Value::Histogram(histogram) => {
                self.histogram(name, sample, buckets(histogram), histogram.sum(), histogram.count());
            }
            Value::ClientHistogram(histogram) => {
                let buckets = histogram.bucket.iter().map(|bucket| Bucket {
                    upper_bound: bucket.upper_bound,
                    text: None,
                    cumulative_count: bucket.cumulative_count,
                    exemplar: None,
                });
                self.histogram(name, sample, buckets, histogram.sample_sum, histogram.sample_count);
            }
            Value::Integer(value) => self.number(name, sample, |writer| writer.integer(*value)),
            Value::Count(value) => self.number(name, sample, |writer| writer.integer(*value)),
            Value::Float(value) => self.number(name, sample, |writer| writer.float(*value)),
        }
    }

    fn number(&mut self, name: &str, sample: &Sample, value: impl FnOnce(&mut Self)) {
        self.push([name, sample.labels.series()]);
        value(self);
        self.out.push(b'\n');
    }

    fn histogram(&mut self, name: &str, sample: &Sample, buckets: impl Iterator<Item = Bucket>, sum: f64, count: u64) {
        let [labels, le] = sample.labels.bucket();
        for bucket in buckets {
            self.push([name, "_bucket", labels, le]);
            self.bound(bucket.upper_bound, bucket.text);
            self.push(["\"} "]);
            self.integer(bucket.cumulative_count);
            if let Some(Exemplar { request, value }) = bucket.exemplar.filter(|_| self.is_openmetrics) {
                self.push([" # {", EXEMPLAR_LABEL, "=\""]);
                self.integer(request);
                self.push(["\"} "]);
                self.float(value);
            }
            self.out.push(b'\n');
        }
        self.push([name, "_sum", sample.labels.series()]);
        self.float(sum);
        self.push(["\n", name, "_count", sample.labels.series()]);
        self.integer(count);
        self.out.push(b'\n');
    }

    /// Writes a bound. OpenMetrics spells bounds as Go does. Prometheus spells the bounds of our protobuf format in the
    /// same way, so another spelling here would make another series of each bucket.
    fn bound(&mut self, value: f64, text: Option<&str>) {
        let plain = !self.is_openmetrics || value == 0.0 || (1e-4..1e6).contains(&value);
        match text {
            _ if value == f64::INFINITY => self.push(["+Inf"]),
            Some(text) if plain => {
                self.push([text]);
                self.point_if_whole(value);
            }
            None if plain => self.float(value),
            _ => self.exponent(value),
        }
    }

    /// Writes a number as Go's `%g` does, with a sign and at least two digits in the exponent.
    fn exponent(&mut self, value: f64) {
        let start = self.out.len();
        // Writing to a Vec cannot fail, here and below.
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

    /// Writes the shortest decimal that parses to the same value, without an exponent: Triton's readers match
    /// `\d+(\.\d+)?`.
    fn float(&mut self, value: f64) {
        let _ = write!(self.out, "{value}");
        self.point_if_whole(value);
    }

    /// In OpenMetrics, adds `.0` to a whole number.
    fn point_if_whole(&mut self, value: f64) {
        if self.is_openmetrics && value.fract() == 0.0 {
            self.push([".0"]);
        }
    }

    fn integer(&mut self, value: impl itoa::Integer) {
        let digits = self.digits.format(value);
        self.out.extend_from_slice(digits.as_bytes());
    }

    fn push<const N: usize>(&mut self, parts: [&str; N]) {
        for part in parts {
            self.out.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
