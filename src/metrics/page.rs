//! The page as data: samples in catalog order. What every format renders.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as proto;

use crate::engine::histogram::Histogram;

use super::catalog::{Group, Id, Metric};

/// A series' labels, sorted by name, as what stands between name and value in the text format: written once, copied at
/// every scrape. A page has thousands, so what few formats and few series need is made when it is asked for.
#[derive(Debug, Clone)]
pub struct Labels {
    series: Box<str>,
    /// For formats that are no text.
    pairs: OnceLock<Box<[(String, String)]>>,
    /// For histograms.
    bucket: OnceLock<Box<str>>,
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.series == other.series
    }
}

impl Eq for Labels {}

impl Labels {
    /// Names are valid and distinct; values may be any text.
    #[must_use]
    pub fn new<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        pairs.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
        let length = |(name, value): &(K, V)| name.as_ref().len() + value.as_ref().len() + r#",="""#.len();
        // Exact unless something is escaped.
        let mut text = String::with_capacity(pairs.iter().map(length).sum::<usize>() + 2);
        for (name, value) in &pairs {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(name.as_ref());
            text.push_str("=\"");
            escape(value.as_ref(), &mut text);
            text.push('"');
        }
        text.push_str(if text.is_empty() { " " } else { "} " });
        Self { series: text.into_boxed_str(), pairs: OnceLock::new(), bucket: OnceLock::new() }
    }

    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        Self::new(self.read().chain([(name, Cow::Borrowed(value))]))
    }

    #[must_use]
    pub(super) fn with_all(&self, more: &[(&str, &str)]) -> Self {
        Self::new(self.read().chain(more.iter().map(|(name, value)| (*name, Cow::Borrowed(*value)))))
    }

    #[must_use]
    pub fn pairs(&self) -> &[(String, String)] {
        self.pairs.get_or_init(|| self.read().map(|(name, value)| (name.to_owned(), value.into_owned())).collect())
    }

    /// Names and values, read back from the text.
    fn read(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let mut rest = self.series.trim_start_matches(['{', ' ']);
        std::iter::from_fn(move || {
            let (name, quoted) = rest.split_once("=\"")?;
            let mut escaped = false;
            let end = quoted.find(|character| {
                let ends = character == '"' && !escaped;
                escaped = character == '\\' && !escaped;
                ends
            })?;
            let value = &quoted[..end];
            rest = quoted[end + 1..].trim_start_matches(',');
            Some((name, if value.contains('\\') { Cow::Owned(unescape(value)) } else { Cow::Borrowed(value) }))
        })
    }

    /// `{a="1",b="2"} `, values escaped; a blank without labels.
    #[must_use]
    pub fn series(&self) -> &str {
        &self.series
    }

    /// As [`Labels::series`], up to the bound of a bucket: `{a="1",b="2",le="`.
    #[must_use]
    pub fn bucket(&self) -> &str {
        self.bucket.get_or_init(|| match self.series.strip_suffix("} ") {
            Some(labels) => format!("{labels},le=\"").into_boxed_str(),
            None => "{le=\"".into(),
        })
    }
}

fn escape(value: &str, text: &mut String) {
    if !value.contains(['\\', '"', '\n']) {
        text.push_str(value);
        return;
    }
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => break,
            },
            plain => plain,
        });
    }
    text
}

impl Default for Labels {
    fn default() -> Self {
        Self::new::<&str, &str>([])
    }
}

/// A sample's value. Integers stay integers to the last step: Triton's readers match digits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(i64),
    Count(u64),
    /// Always finite: see [`Page::push`].
    Float(f64),
    Histogram(Box<Histogram>),
    /// A histogram of prometheus-client: one of the exporter's own metrics.
    ClientHistogram(Box<proto::Histogram>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Count(u64::from(value))
    }
}

impl From<proto::Histogram> for Value {
    fn from(value: proto::Histogram) -> Self {
        Self::ClientHistogram(Box::new(value))
    }
}

impl From<&Histogram> for Value {
    fn from(value: &Histogram) -> Self {
        Self::Histogram(Box::new(value.clone()))
    }
}

/// One series of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub metric: Id,
    pub labels: Arc<Labels>,
    pub value: Value,
}

/// Samples in catalog order; within a family, in the order of engines (the first configured first) and of the catalog's
/// label values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    samples: Vec<Sample>,
}

impl Page {
    /// Empty, with room for as many samples.
    pub(super) fn with_capacity(samples: usize) -> Self {
        Self { samples: Vec::with_capacity(samples) }
    }

    /// A value that is not finite is left out: NaN or Inf makes routers prefer the broken pod.
    pub fn push(&mut self, metric: Id, labels: &Arc<Labels>, value: impl Into<Value>) {
        let value = value.into();
        if matches!(value, Value::Float(value) if !value.is_finite()) {
            return;
        }
        self.samples.push(Sample { metric, labels: Arc::clone(labels), value });
    }

    /// Joins pages so that each family stands together; the sort is stable, so parts keep their order within it.
    #[must_use]
    pub fn join(parts: impl IntoIterator<Item = Page>) -> Page {
        let parts: Vec<Page> = parts.into_iter().collect();
        let mut samples = Vec::with_capacity(parts.iter().map(|page| page.samples.len()).sum());
        samples.extend(parts.into_iter().flat_map(|page| page.samples));
        samples.sort_by_key(|sample| sample.metric);
        Page { samples }
    }

    /// Only the families of groups that are kept.
    pub fn retain(&mut self, kept: impl Fn(Group) -> bool) {
        self.samples.retain(|sample| kept(sample.metric.metric().group));
    }

    /// Family by family. Neighbours in the catalog of one name are one family: a second header would be malformed.
    pub fn families(&self) -> impl Iterator<Item = (&'static Metric, &[Sample])> {
        self.samples
            .chunk_by(|a, b| a.metric == b.metric || a.metric.metric().name == b.metric.metric().name)
            .map(|chunk| (chunk[0].metric.metric(), chunk))
    }

    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_escaped() {
        let labels = Labels::new([("version", "1"), ("model", "a\"b\\c\nd")]).with("request_type", "max");
        assert_eq!(labels.series(), r#"{model="a\"b\\c\nd",request_type="max",version="1"} "#);
        assert_eq!(labels.bucket(), r#"{model="a\"b\\c\nd",request_type="max",version="1",le=""#);
        assert_eq!((Labels::default().series(), Labels::default().bucket()), (" ", "{le=\""));
    }

    #[test]
    fn labels_are_read_back_as_they_were_given() {
        let given = [("a", r#"x\"} ,b="y"#), ("b", "line\nline\\n"), ("c", ""), ("d", "é")];
        let labels = Labels::new(given);
        let pairs: Vec<(&str, &str)> = labels.pairs().iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, given);
        assert_eq!(labels.with("e", "1").pairs().len(), 5);
        assert_eq!(Labels::default().pairs(), []);
    }

    #[test]
    fn a_value_that_is_not_finite_never_reaches_the_page() {
        let mut page = Page::default();
        page.push(Id::KvCacheHitRatio, &Arc::default(), f64::NAN);
        page.push(Id::KvCacheHitRatio, &Arc::default(), f64::INFINITY);
        assert!(page.samples().is_empty());
    }
}
