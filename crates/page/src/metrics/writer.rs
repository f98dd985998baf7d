//! Writes the samples of one engine, GPU or MIG instance. Each subject adds its part in a file of its own.

use std::sync::Arc;

use super::catalog::Id;
use super::page::{Labels, Page, Value};
use super::series_labels::SeriesLabels;
use trtllm_engine::histogram::Histogram;
use trtllm_engine::server_metrics::ByLabel;
use trtllm_model::named_numbers::NamedNumbers;

/// Writes the samples of one engine.
pub(super) struct SampleWriter<'a> {
    pub(super) labels: &'a SeriesLabels,
    pub(super) page: Page,
}

impl<'a> SampleWriter<'a> {
    pub(super) fn new(labels: &'a SeriesLabels) -> Self {
        Self { labels, page: Page::default() }
    }

    /// The only series of a family.
    pub(super) fn one(&mut self, family: Id, value: impl Into<Value>) {
        self.page.push(family, &self.labels.of(family)[0], value);
    }

    /// Like [`SampleWriter::one`]; an absent value has no sample.
    pub(super) fn put(&mut self, family: Id, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.one(family, value);
        }
    }

    /// A histogram that only some engines feed: absent until its first observation.
    pub(super) fn observed(&mut self, family: Id, histogram: &Histogram) {
        self.put(family, (histogram.count() > 0).then_some(histogram));
    }

    /// One sample for each value of a label whose values are not in the catalog.
    pub(super) fn by_label(&mut self, family: Id, label: &'static str, counts: &ByLabel) {
        for (value, count) in counts {
            let labels = Labels::extend(self.labels.base(), [(label, value.clone())]);
            self.page.push(family, &Arc::new(labels), *count);
        }
    }

    /// One sample for each number that is present.
    pub(super) fn each<N: NamedNumbers<Number: Into<Value>>>(&mut self, family: Id, numbers: N) {
        debug_assert_eq!(family.metric().variant.map(|variant| variant.values), Some(N::NAMES), "{family:?}");
        self.in_order(family, numbers.numbers());
    }

    /// One sample for each value that is present; the values are in the order of the catalog's label values.
    pub(super) fn in_order<V: Into<Value>>(&mut self, family: Id, values: impl IntoIterator<Item = Option<V>>) {
        self.page.push_each(family, self.labels.of(family), values);
    }
}

/// Writes the samples of one GPU or MIG instance. An absent reading has no sample.
pub(super) struct GpuWriter<'p> {
    page: &'p mut Page,
    labels: &'p mut SeriesLabels,
}

impl<'p> GpuWriter<'p> {
    pub(super) fn new(page: &'p mut Page, labels: &'p mut SeriesLabels) -> Self {
        Self { page, labels }
    }

    pub(super) fn put(&mut self, family: Id, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.page.push(family, self.labels.base(), value);
        }
    }

    /// One sample for each number that is present.
    pub(super) fn each<N: NamedNumbers<Number: Into<Value>>>(&mut self, family: Id, numbers: N) {
        self.each_as(family, numbers, |number| number);
    }

    /// Like [`GpuWriter::each`], for numbers in another unit than the family's.
    pub(super) fn each_as<N: NamedNumbers, V: Into<Value>>(
        &mut self,
        family: Id,
        numbers: N,
        convert: impl Fn(N::Number) -> V,
    ) {
        debug_assert_eq!(family.metric().variant.map(|variant| variant.values), Some(N::NAMES), "{family:?}");
        self.in_order(family, numbers.numbers().map(|number| number.map(&convert)));
    }

    /// One sample for each value that is present; the values are in the order of the catalog's label values.
    pub(super) fn in_order<V: Into<Value>>(&mut self, family: Id, values: impl IntoIterator<Item = Option<V>>) {
        self.page.push_each(family, self.labels.of(family), values);
    }

    /// With more labels, whose values are not in the catalog.
    pub(super) fn with(&mut self, family: Id, more: &[(&'static str, &str)], value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let labels = self.labels.with(more);
            self.page.push(family, &labels, value);
        }
    }
}
