//! A page in the form in which all formats can be compared: families and series by name, numbers by their bits. The
//! protobuf format is parsed here, the text formats in `text_page`.

use std::collections::HashMap;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as proto;
use prost::Message as _;
use trtllm_page::metrics::catalog::MetricKind;
use trtllm_page::metrics::page::{Page, Value};

/// Labels as text that is the same in every format. Maps of strings would take most of a target's time.
#[derive(Clone)]
pub struct LabelText(String);

impl LabelText {
    /// The names must be in ascending order and unique, as on a page.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut text, mut last) = (String::new(), "");
        for (name, value) in pairs {
            assert!(last < name && name != "le", "label {name:?} after {last:?}");
            last = name;
            text.extend([" ", name, "=", value, "\0"]);
        }
        Self(text)
    }

    fn series(&self, name: &str, suffix: &str, bound: Option<f64>) -> String {
        let bound = bound.map(|bound| format!(" le={bound}")).unwrap_or_default();
        [name, suffix, &self.0, &bound].concat()
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct ParsedPage {
    /// Type and help text of each family, by its name in the catalog.
    pub families: HashMap<String, (String, String)>,
    /// The bits of the value, by series. Histograms are stored as their buckets, sum and count.
    pub samples: HashMap<String, u64>,
    /// The request and the bits of the value of an exemplar, by the series of its bucket.
    pub exemplars: HashMap<String, (String, u64)>,
}

impl ParsedPage {
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let before = self.families.insert(name.to_owned(), (kind.to_owned(), help.to_owned()));
        assert_eq!(before, None, "duplicate family {name}");
    }

    /// `bound` is the upper bound of a bucket.
    pub fn sample(&mut self, name: &str, suffix: &str, labels: &LabelText, bound: Option<f64>, value: f64) {
        let series = labels.series(name, suffix, bound);
        assert!(value.is_finite(), "{series:?} is {value}");
        if let Some(before) = self.samples.insert(series, value.to_bits()) {
            panic!("duplicate series {:?} of {}", labels.series(name, suffix, bound), f64::from_bits(before));
        }
    }

    pub fn exemplar(&mut self, name: &str, labels: &LabelText, bound: f64, request: String, value: f64) {
        self.exemplars.insert(labels.series(name, "_bucket", Some(bound)), (request, value.to_bits()));
    }

    /// Checks that buckets are cumulative, and that the last bucket is the infinite one.
    fn histogram(
        &mut self,
        name: &str,
        labels: &LabelText,
        buckets: impl Iterator<Item = (f64, u64, Option<(String, f64)>)>,
        sum: f64,
        count: u64,
    ) {
        let (mut below, mut lower) = (0, f64::NEG_INFINITY);
        for (bound, total, exemplar) in buckets {
            assert!(bound > lower && total >= below, "{name}: {total} up to {bound}, {below} before");
            if let Some((request, value)) = exemplar {
                assert!(value <= bound && (value > lower || lower <= 0.0), "{name}: exemplar {value} up to {bound}");
                self.exemplar(name, labels, bound, request, value);
            }
            self.sample(name, "_bucket", labels, Some(bound), total as f64);
            (below, lower) = (total, bound);
        }
        assert_eq!((lower, below), (f64::INFINITY, count), "{name}");
        self.sample(name, "_sum", labels, None, sum);
        self.sample(name, "_count", labels, None, count as f64);
    }
}

impl From<&Page> for ParsedPage {
    fn from(page: &Page) -> Self {
        let mut parsed = Self::default();
        for (metric, samples) in page.families() {
            parsed.family(metric.name, metric.kind.name(), page.help(metric));
            for sample in samples {
                let labels = LabelText::new(sample.labels.pairs().iter().map(|(name, value)| (&**name, &**value)));
                let value = match &sample.value {
                    Value::Integer(value) => *value as f64,
                    Value::Count(value) => *value as f64,
                    Value::Float(value) => *value,
                    Value::Histogram(found) => {
                        let bounds = found.cumulative().map(|(bound, count)| (bound.value, count));
                        let buckets = bounds.chain([(f64::INFINITY, found.count())]).zip(found.exemplars());
                        let buckets = buckets.map(|((bound, count), exemplar)| {
                            (bound, count, exemplar.map(|exemplar| (exemplar.request.to_string(), exemplar.value)))
                        });
                        parsed.histogram(metric.name, &labels, buckets, found.sum(), found.count());
                        continue;
                    }
                    Value::ClientHistogram(found) => {
                        let buckets =
                            found.bucket.iter().map(|bucket| (bucket.upper_bound, bucket.cumulative_count, None));
                        parsed.histogram(metric.name, &labels, buckets, found.sample_sum, found.sample_count);
                        continue;
                    }
                };
                if metric.kind != MetricKind::Gauge {
                    assert!(value >= 0.0, "{sample:?}");
                }
                parsed.sample(metric.name, "", &labels, None, value);
            }
        }
        parsed
    }
}

pub fn protobuf(mut bytes: &[u8]) -> ParsedPage {
    let mut parsed = ParsedPage::default();
    while !bytes.is_empty() {
        let family = proto::MetricFamily::decode_length_delimited(&mut bytes).unwrap();
        let kind = match family.r#type() {
            proto::MetricType::Counter => "counter",
            proto::MetricType::Gauge => "gauge",
            proto::MetricType::Histogram => "histogram",
            other => panic!("{} is a {other:?}", family.name),
        };
        parsed.family(&family.name, kind, &family.help);
        for metric in family.metric {
            let labels = LabelText::new(metric.label.iter().map(|pair| (&*pair.name, &*pair.value)));
            match (kind, metric.counter, metric.gauge, metric.histogram) {
                ("counter", Some(counter), None, None) => parsed.sample(&family.name, "", &labels, None, counter.value),
                ("gauge", None, Some(gauge), None) => parsed.sample(&family.name, "", &labels, None, gauge.value),
                ("histogram", None, None, Some(histogram)) => {
                    check_native(&family.name, &histogram);
                    let buckets = histogram.bucket.iter().map(|bucket| {
                        let exemplar = bucket.exemplar.as_ref();
                        let exemplar = exemplar.map(|exemplar| (exemplar.label[0].value.clone(), exemplar.value));
                        (bucket.upper_bound, bucket.cumulative_count, exemplar)
                    });
                    parsed.histogram(&family.name, &labels, buckets, histogram.sample_sum, histogram.sample_count);
                }
                other => panic!("{}: {other:?}", family.name),
            }
        }
    }
    parsed
}

/// Checks that a native histogram has as many observations as the classic histogram, in spans that Prometheus accepts.
fn check_native(name: &str, histogram: &proto::Histogram) {
    if histogram.zero_threshold == 0.0 && histogram.positive_span.is_empty() {
        return;
    }
    assert!((-4..=8).contains(&histogram.schema), "{name}: schema {}", histogram.schema);
    let buckets: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
    assert_eq!(buckets as usize, histogram.positive_delta.len(), "{name}");
    assert!(histogram.positive_span.iter().skip(1).all(|span| span.offset >= 0), "{name}");
    let (mut count, mut total) = (0_i64, histogram.zero_count);
    for delta in &histogram.positive_delta {
        count += delta;
        total = total.saturating_add(u64::try_from(count).unwrap());
    }
    assert_eq!(total, histogram.sample_count, "{name}");
}
