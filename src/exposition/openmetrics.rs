//! OpenMetrics text 1.0.0, with exemplars. Ours because prometheus-client writes no exemplar that it has not observed itself,
//! and appends a point to each help text.

use std::fmt::Write as _;

use crate::engine::histogram::{Bound, Exemplar, Histogram};
use crate::metrics::catalog::{Kind, Metric};
use crate::metrics::page::{Page, Sample, Value, write_float};

/// The label of an exemplar; with a number of at most 20 digits far below the 128 characters that are allowed.
pub(super) const EXEMPLAR_LABEL: &str = "request_id";

/// What the last family is followed by.
pub const END: &str = "# EOF\n";

/// Appends the page to `out`, to its end.
pub fn render(page: &Page, out: &mut String) {
    families(page, out);
    out.push_str(END);
}

/// Appends the page to `out`, but for its end.
pub fn families(page: &Page, out: &mut String) {
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
                Value::Float(value) => canonical(out, value),
                Value::Histogram(_) => {}
            }
            out.push('\n');
        }
    }
}

/// A counter's family is called without `_total`. A legacy counter is `unknown`, the one type that strict parsers let keep
/// a bare name.
fn header(metric: &Metric, out: &mut String) {
    let (kind, name) = match metric.kind {
        Kind::Gauge => ("gauge", metric.name),
        Kind::Counter => ("counter", metric.name.strip_suffix("_total").unwrap_or(metric.name)),
        Kind::LegacyCounter => ("unknown", metric.name),
        Kind::Histogram => ("histogram", metric.name),
    };
    for part in ["# HELP ", name, " ", metric.help, "\n# TYPE ", name, " ", kind, "\n"] {
        out.push_str(part);
    }
    // Announced only where the name ends in it: anything else fails the whole page.
    if let Some(unit) = metric.unit.filter(|unit| name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_'))) {
        for part in ["# UNIT ", name, " ", unit, "\n"] {
            out.push_str(part);
        }
    }
}

fn write_histogram(name: &str, sample: &Sample, histogram: &Histogram, digits: &mut itoa::Buffer, out: &mut String) {
    let mut examples = histogram.exemplars();
    for (bound, count) in histogram.cumulative() {
        begin_bucket(name, sample, out);
        write_bound(bound, out);
        end_bucket(count, examples.next().flatten(), digits, out);
    }
    begin_bucket(name, sample, out);
    out.push_str("+Inf");
    end_bucket(histogram.count(), examples.next().flatten(), digits, out);
    for (suffix, sum) in [("_sum", true), ("_count", false)] {
        for part in [name, suffix, sample.labels.series()] {
            out.push_str(part);
        }
        if sum {
            canonical(out, histogram.sum());
        } else {
            out.push_str(digits.format(histogram.count()));
        }
        out.push('\n');
    }
}

/// As the specification spells bounds: as Go does, or a reader that takes protobuf from us, and spells them itself, would
/// have another series for each bucket.
fn write_bound(bound: Bound, out: &mut String) {
    if (1e-4..1e6).contains(&bound.value) {
        out.push_str(bound.text);
        if !bound.text.contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let begin = out.len();
    // A String has room for it.
    let _ = write!(out, "{:e}", bound.value);
    let Some(exponent) = out[begin..].find('e').map(|at| begin + at + 1) else { return };
    let negative = out[exponent..].starts_with('-');
    if !negative {
        out.insert(exponent, '+');
    }
    if out.len() == exponent + 2 {
        out.insert(exponent + 1, '0');
    }
}

fn begin_bucket(name: &str, sample: &Sample, out: &mut String) {
    for part in [name, "_bucket", sample.labels.bucket()] {
        out.push_str(part);
    }
}

fn end_bucket(count: u64, exemplar: Option<Exemplar>, digits: &mut itoa::Buffer, out: &mut String) {
    out.push_str("\"} ");
    out.push_str(digits.format(count));
    if let Some(Exemplar { request, value }) = exemplar {
        for part in [" # {", EXEMPLAR_LABEL, "=\"", digits.format(request), "\"} "] {
            out.push_str(part);
        }
        canonical(out, value);
    }
    out.push('\n');
}

/// As the specification spells numbers that may have a fraction: whole ones with `.0`.
fn canonical(out: &mut String, value: f64) {
    write_float(out, value);
    if value.fract() == 0.0 {
        out.push_str(".0");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::histogram::TOKEN_LENGTH;
    use crate::metrics::catalog::Id;
    use crate::metrics::page::Labels;

    fn rendered(metric: Id, value: impl Into<Value>) -> String {
        let mut page = Page::default();
        page.push(metric, &Arc::new(Labels::new([("model", "a\"b"), ("version", "1")])), value);
        let mut out = String::new();
        render(&page, &mut out);
        out
    }

    #[test]
    fn a_legacy_counter_keeps_its_bare_name_as_unknown() {
        let text = rendered(Id::EnergyConsumption, 12.5);
        assert!(text.contains("# TYPE nv_energy_consumption unknown\n"), "{text}");
        assert!(text.contains("nv_energy_consumption{model=\"a\\\"b\",version=\"1\"} 12.5\n"), "{text}");
        assert!(!text.contains("_total"), "{text}");
    }

    #[test]
    fn a_counter_has_one_total_and_no_created_series() {
        let text = rendered(Id::Iterations, 7_u64);
        assert!(text.contains("# TYPE nv_trt_llm_iterations counter\n"), "{text}");
        assert!(text.contains("nv_trt_llm_iterations_total{model=\"a\\\"b\",version=\"1\"} 7\n"), "{text}");
        assert!(!text.contains("_total_total") && !text.contains("_created"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_unit_is_announced_once_and_only_where_the_name_ends_in_it() {
        let text = rendered(Id::ProcessCpu, 1.5);
        assert!(text.contains("# UNIT process_cpu_seconds seconds\n"), "{text}");
        assert!(text.contains("process_cpu_seconds_total{"), "{text}");
        let text = rendered(Id::GpuPowerUsage, 2.0);
        assert!(!text.contains("# UNIT") && text.contains("} 2.0\n"), "{text}");
    }

    #[test]
    fn bounds_are_spelled_as_go_spells_them() {
        let spelled = |value| {
            let mut out = String::from("e");
            write_bound(Bound { value, text: if value == 0.0001 { "0.0001" } else { "500000" } }, &mut out);
            out.split_off(1)
        };
        let bounds = [1e-5, 2.5e-5, 1e-4, 5e5, 1e6, 1048576.0, 17179869184.0, 1e100];
        let wanted = ["1e-05", "2.5e-05", "0.0001", "500000.0", "1e+06", "1.048576e+06", "1.7179869184e+10", "1e+100"];
        assert_eq!(bounds.map(spelled), wanted);
    }

    #[test]
    fn a_bucket_shows_its_last_request_and_bounds_have_a_point() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe_request(3.0, Some(u64::MAX));
        histogram.observe_request(70.0, None);
        histogram.observe_request(1e4, Some(5));
        let text = rendered(Id::InputTokenLen, &histogram);
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
