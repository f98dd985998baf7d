//! The page as data: samples in catalog order. Every format renders this.

use std::sync::Arc;

use super::catalog::{Group, Id, Metric};

pub use super::labels::Labels;
pub use super::value::Value;

/// One series of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub metric: Id,
    pub labels: Arc<Labels>,
    pub value: Value,
}

/// Samples in catalog order; within a family, first by engine (in configured order), then by the catalog's label values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    samples: Vec<Sample>,
    /// Some families have another meaning, and so another HELP, on the page of the gateway's picker.
    for_gateway: bool,
}

impl Page {
    /// An empty page with room for this many samples.
    pub(super) fn with_capacity(samples: usize) -> Self {
        Self { samples: Vec::with_capacity(samples), for_gateway: false }
    }

    /// Drops a value that is not finite, because routers would prefer a pod with NaN or Inf.
    pub fn push(&mut self, metric: Id, labels: &Arc<Labels>, value: impl Into<Value>) {
        let value = value.into();
        if matches!(value, Value::Float(value) if !value.is_finite()) {
            return;
        }
        self.samples.push(Sample { metric, labels: Arc::clone(labels), value });
    }

    /// One sample for each value that is present; labels and values have the same order.
    pub(super) fn push_each<V: Into<Value>>(
        &mut self,
        metric: Id,
        labels: &[Arc<Labels>],
        values: impl IntoIterator<Item = Option<V>>,
    ) {
        for (labels, value) in labels.iter().zip(values) {
            if let Some(value) = value {
                self.push(metric, labels, value);
            }
        }
    }

    /// Joins pages so that the samples of a family are together. The sort is stable: within a family, the parts keep their order.
    #[must_use]
    pub fn join(parts: impl IntoIterator<Item = Page>) -> Page {
        let parts: Vec<Page> = parts.into_iter().collect();
        let for_gateway = parts.iter().any(|page| page.for_gateway);
        let mut samples = Vec::with_capacity(parts.iter().map(|page| page.samples.len()).sum());
        samples.extend(parts.into_iter().flat_map(|page| page.samples));
        samples.sort_by_key(|sample| sample.metric);
        Page { samples, for_gateway }
    }

    pub(super) fn for_gateway(self) -> Self {
        Self { for_gateway: true, ..self }
    }

    /// The HELP of a family on this page.
    #[must_use]
    pub fn help(&self, metric: &'static Metric) -> &'static str {
        metric.gateway_help.filter(|_| self.for_gateway).unwrap_or(metric.help)
    }

    /// Keeps only families of the groups for which `kept` is true.
    pub fn retain(&mut self, kept: impl Fn(Group) -> bool) {
        self.samples.retain(|sample| kept(sample.metric.metric().group));
    }

    /// Family by family. Neighbours in the catalog with the same name are one family, because a page must not have two headers for one name.
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
    fn a_value_that_is_not_finite_never_reaches_the_page() {
        let mut page = Page::default();
        page.push(Id::KvCacheHitRatio, &Arc::default(), f64::NAN);
        page.push(Id::KvCacheHitRatio, &Arc::default(), f64::INFINITY);
        assert!(page.samples().is_empty());
    }
}
