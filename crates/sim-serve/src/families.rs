//! Families of a page in the text format, as the Python client writes them.

use std::fmt::Write as _;

const LONG: [f64; 20] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0,
];
const SHORT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const TOKEN: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

/// Upstream's sets of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buckets {
    /// Of requests: to 7680 s.
    Long,
    /// Of first tokens.
    Short,
    /// Of the time per token.
    Token,
    /// Of calls of the orchestrator: from 0.1 s to 1920 s.
    Calls,
}

impl Buckets {
    fn bounds(self) -> Vec<f64> {
        match self {
            Self::Long => LONG.iter().copied().chain([7680.0]).collect(),
            Self::Short => SHORT.to_vec(),
            Self::Token => TOKEN.to_vec(),
            Self::Calls => [0.1].into_iter().chain(LONG).collect(),
        }
    }
}

/// Observed seconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Buckets,
    /// Of each bucket alone, and of what is above.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(buckets: Buckets) -> Self {
        Self { buckets, counts: vec![0; buckets.bounds().len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, seconds: f64, times: u64) {
        let bounds = self.buckets.bounds();
        let index = bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len());
        self.counts[index] += times;
        self.sum += seconds * times as f64;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

/// A page that is being written. All its series have the labels.
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

    /// A series for each label and value.
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
        let bounds = histogram.buckets.bounds().into_iter().map(|bound| format!("{bound:?}"));
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            through += count;
            self.series(&format!("{name}_bucket"), &format!("le=\"{bound}\""), through as f64);
        }
        self.series(&format!("{name}_count"), "", through as f64);
    }
}
