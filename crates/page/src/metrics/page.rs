//! The page as data: samples in catalog order. Every format is rendered from it.

use std::sync::Arc;

use super::family::{Group, Id, InDefault, Metric, Profile};

pub use super::labels::Labels;
pub use super::value::Value;

/// A full page of one engine has fewer samples.
const USUAL_SAMPLES: usize = 512;

/// One series of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub metric: Id,
    pub labels: Arc<Labels>,
    pub value: Value,
}

/// The samples of a page. Once sorted, they are in catalog order; within a family, first by engine (in configured
/// order), then by the catalog's label values.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    samples: Vec<Sample>,
    profile: Profile,
    /// Some families have another meaning, and so another HELP, on the page for the gateway's endpoint picker.
    for_gateway: bool,
}

impl Page {
    /// An empty page.
    pub(super) fn new(profile: Profile, for_gateway: bool) -> Self {
        Self { samples: Vec::with_capacity(USUAL_SAMPLES), profile, for_gateway }
    }

    pub(super) fn has(&self, family: Id) -> bool {
        family.metric().is_in(self.profile)
    }

    /// Whether of this state set only the series that is 1 is on the page.
    pub(super) fn has_only_the_current_state(&self, family: Id) -> bool {
        self.profile == Profile::Default && family.metric().in_default == InDefault::CurrentState
    }

    /// Adds a sample. A value that is not finite is dropped, because routers would prefer a pod with NaN or Inf.
    pub fn push(&mut self, metric: Id, labels: &Arc<Labels>, value: impl Into<Value>) {
        let value = value.into();
        if matches!(value, Value::Float(value) if !value.is_finite()) {
            return;
        }
        self.samples.push(Sample { metric, labels: Arc::clone(labels), value });
    }

    /// Brings the samples of each family together, in catalog order. The sort is stable: within a family, samples keep
    /// the order in which they were added.
    pub fn sort(&mut self) {
        self.samples.sort_by_key(|sample| sample.metric.place);
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

    /// The samples, family by family. Neighbours in the catalog with the same name are one family, because a page must
    /// not have two headers for one name.
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

/// An empty page of the full profile.
impl Default for Page {
    fn default() -> Self {
        Self::new(Profile::Full, false)
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
