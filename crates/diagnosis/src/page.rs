//! A page of metrics as series that can be looked up. Pure; knows no exporter and no rule.

use std::collections::{BTreeMap, BTreeSet};

use trtllm_sources::prometheus_text::ParsedSample;

/// Series of a page that are kept. An exporter with 64 engines and 16 GPUs has fewer.
pub const MAX_SERIES: usize = 200_000;

/// One series and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Series {
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.name == name && labels.iter().all(|(label, value)| self.label(label) == Some(value))
    }
}

/// The series of a page, or of one engine or GPU on it, in page order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page(pub Vec<Series>);

impl Page {
    /// Lines that are not valid are left out, as are values that are not finite, and series beyond [`MAX_SERIES`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
        let samples = lines.filter_map(|line| ParsedSample::parse(std::str::from_utf8(line).ok()?.trim_ascii()));
        let owned = |sample: ParsedSample<'_>| Series {
            name: sample.name.to_owned(),
            labels: sample.labels.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned())).collect(),
            value: sample.value,
        };
        Self(samples.filter(|sample| sample.value.is_finite()).take(MAX_SERIES).map(owned).collect())
    }

    /// The series with these labels, and maybe others.
    #[must_use]
    pub fn of(&self, labels: &[(&str, &str)]) -> Self {
        let has_all = |series: &&Series| labels.iter().all(|(label, value)| series.label(label) == Some(value));
        Self(self.0.iter().filter(has_all).cloned().collect())
    }

    /// The series by the values of these labels, in one pass. Series without one of the labels are left out, as are those with
    /// values that `wanted` does not contain.
    #[must_use]
    pub fn by<const N: usize>(&self, labels: [&str; N], wanted: &BTreeSet<[String; N]>) -> BTreeMap<[String; N], Self> {
        let mut found: BTreeMap<[String; N], Self> = BTreeMap::new();
        for series in &self.0 {
            let values = labels.map(|label| series.label(label).map(str::to_owned));
            if values.iter().any(Option::is_none) {
                continue;
            }
            let values = values.map(Option::unwrap_or_default);
            if wanted.contains(&values) {
                found.entry(values).or_default().0.push(series.clone());
            }
        }
        found
    }

    /// The value of the first series with this name and these labels.
    #[must_use]
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.0.iter().find(|series| series.is(name, labels)).map(|series| series.value)
    }

    /// The sum of all series with this name and these labels; `None` if there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.0.iter().filter(|series| series.is(name, labels)).map(|series| series.value).peekable();
        values.peek().is_some().then(|| values.sum())
    }

    /// The value of a label of the first series with this name.
    #[must_use]
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.0.iter().find(|series| series.name == name)?.label(label)
    }

    /// The value of `label` in the series of a set of states whose value is 1.
    #[must_use]
    pub fn current(&self, name: &str, label: &str) -> Option<&str> {
        self.0.iter().find(|series| series.name == name && series.value == 1.0)?.label(label)
    }
}

/// A page at the beginning and at the end of the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    pub before: Page,
    pub after: Page,
}

impl Change {
    /// As [`Page::by`], for both pages. Each of `wanted` has an entry.
    #[must_use]
    pub fn by<const N: usize>(&self, labels: [&str; N], wanted: &BTreeSet<[String; N]>) -> BTreeMap<[String; N], Self> {
        let (mut before, mut after) = (self.before.by(labels, wanted), self.after.by(labels, wanted));
        let mut change = |values: &[String; N]| Self {
            before: before.remove(values).unwrap_or_default(),
            after: after.remove(values).unwrap_or_default(),
        };
        wanted.iter().map(|values| (values.clone(), change(values))).collect()
    }

    /// The last value of a gauge.
    #[must_use]
    pub fn now(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.after.get(name, labels)
    }

    /// How much a counter has grown, summed over all series with these labels. A counter that appeared began at 0; one
    /// that fell was restarted, and is unknown. `None` if it is not on the page.
    #[must_use]
    pub fn growth(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let after = self.after.sum(name, labels)?;
        let growth = after - self.before.sum(name, labels).unwrap_or(0.0);
        (growth >= 0.0).then_some(growth)
    }

    /// As [`Change::growth`], 0 if it is not known.
    #[must_use]
    pub fn grew(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.growth(name, labels).unwrap_or(0.0)
    }

    /// The mean of what a histogram observed in the window, if there were `least` observations.
    #[must_use]
    pub fn mean(&self, histogram: &str, least: f64) -> Option<f64> {
        let count = self.growth(&format!("{histogram}_count"), &[])?;
        let sum = self.growth(&format!("{histogram}_sum"), &[])?;
        (count >= least.max(1.0)).then(|| sum / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_appears_begins_at_0_and_one_that_falls_is_unknown() {
        let page = |text: &str| Page::parse(text.as_bytes());
        let change =
            Change { before: page("a 5\nb{k=\"1\"} 2\n"), after: page("a 3\nb{k=\"1\"} 4\nb{k=\"2\"} 7\nc 1\n") };
        assert_eq!(change.growth("a", &[]), None);
        assert_eq!((change.grew("a", &[]), change.grew("b", &[]), change.grew("b", &[("k", "2")])), (0.0, 9.0, 7.0));
        assert_eq!((change.growth("c", &[]), change.growth("d", &[])), (Some(1.0), None));
    }

    #[test]
    fn a_page_without_an_end_is_cut() {
        let page = Page::parse("a 1\n".repeat(MAX_SERIES + 9).as_bytes());
        assert_eq!(page.0.len(), MAX_SERIES);
    }

    #[test]
    fn series_are_grouped_by_the_values_of_several_labels() {
        let page =
            Page::parse(b"up 1\na{m=\"x\",v=\"1\"} 1\na{m=\"x\",v=\"2\"} 2\nb{v=\"1\",m=\"x\"} 3\nc{m=\"x\"} 4\n");
        let name = |version: &str| ["x".to_owned(), version.to_owned()];
        let found = page.by(["m", "v"], &BTreeSet::from([name("1"), name("3")]));
        assert_eq!(found.keys().collect::<Vec<_>>(), [&name("1")]);
        assert_eq!(found[&name("1")], page.of(&[("m", "x"), ("v", "1")]));
    }

    #[test]
    fn values_that_are_not_numbers_are_left_out() {
        let page = Page::parse(b"# HELP a b\na NaN\nb +Inf\nc{x=\"1\"} 1\n<html>\n");
        assert_eq!(page.0.len(), 1);
        assert_eq!((page.get("c", &[]), page.current("c", "x")), (Some(1.0), Some("1")));
    }
}
