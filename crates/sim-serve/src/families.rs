//! Metric families in the text format, as the Python client writes them.

use std::fmt::Write as _;

/// Upstream's bucket bounds for the times of requests, in seconds.
pub(crate) const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
/// Bucket bounds for calls of the orchestrator.
pub(crate) const CALL: &[f64] = &[
    0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0,
];
/// Bucket bounds for the time to the first token.
pub(crate) const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
/// Bucket bounds for the time per token.
pub(crate) const PER_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

/// A histogram of times in seconds.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// The number of observations in each bucket, not cumulative. The last bucket has the values above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, seconds: f64, times: u64) {
        let index = self.bounds.iter().position(|bound| seconds <= *bound).unwrap_or(self.bounds.len());
        self.counts[index] += times;
        self.sum += seconds * times as f64;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

/// The text of families, while it is written. All series have the same labels.
#[derive(Debug)]
pub(crate) struct Text {
    labels: String,
    text: String,
}

impl Text {
    /// `labels`: `name="value",name="value"`, or nothing.
    pub(crate) fn new(labels: String) -> Self {
        Self { labels, text: String::new() }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn series(&mut self, name: &str, label: &str, value: f64) {
        let comma = if label.is_empty() || self.labels.is_empty() { "" } else { "," };
        let labels = format!("{label}{comma}{}", self.labels);
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{name}{labels} {value:?}");
    }

    fn head(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {name} Multiprocess metric\n# TYPE {name} {kind}");
    }

    /// Writes a series for each label and its value.
    pub(crate) fn counter(&mut self, name: &str, values: &[(&str, u64)]) {
        let name = format!("{name}_total");
        self.head(&name, "counter");
        for (label, value) in values {
            self.series(&name, label, *value as f64);
        }
    }

    pub(crate) fn gauge(&mut self, name: &str, label: &str, value: f64) {
        self.head(name, "gauge");
        self.series(name, label, value);
    }

    pub(crate) fn histogram(&mut self, name: &str, histogram: &Histogram) {
        self.head(name, "histogram");
        self.series(&format!("{name}_sum"), "", histogram.sum);
        let mut through = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            through += count;
            self.series(&format!("{name}_bucket"), &format!("le=\"{bound}\""), through as f64);
        }
        self.series(&format!("{name}_count"), "", through as f64);
    }
}
