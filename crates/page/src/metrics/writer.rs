//! Writes the samples of one engine, GPU or MIG instance, or of the exporter. Other files add the functions for each subject.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use super::catalog::Id;
use super::page::{Labels, Page, Value};
use super::series_labels::SeriesLabels;
use super::value::OrAbsent;
use trtllm_fold::server_metrics::ByLabel;
use trtllm_records::named_numbers::NamedNumbers;

/// A family with a single series, and the function that reads its value from an `S`.
type Valued<S> = (Id, fn(&S) -> Option<Value>);

/// Adds samples with the same base labels to a page. An absent value has no sample.
pub(super) struct SampleWriter<'p, L> {
    pub(super) page: &'p mut Page,
    pub(super) labels: L,
}

/// Writes the samples of an engine, of its source or of the exporter. Labels whose values are not in the catalog are made for each
/// page.
pub(super) type EngineWriter<'p> = SampleWriter<'p, &'p SeriesLabels>;

/// Writes the samples of one GPU or MIG instance. All labels are kept from page to page.
pub(super) type GpuWriter<'p> = SampleWriter<'p, &'p mut SeriesLabels>;

impl<L: Deref<Target = SeriesLabels>> SampleWriter<'_, L> {
    /// Adds the only series of a family.
    pub(super) fn put(&mut self, family: Id, value: impl OrAbsent) {
        if let Some(value) = value.or_absent() {
            self.page.push(family, &self.labels.of(family)[0], value);
        }
    }

    /// Adds the families for which the catalog has a function that reads the value.
    pub(super) fn put_all<S>(&mut self, values: &[Valued<S>], source: &S) {
        for (family, value) in values {
            self.put(*family, value(source));
        }
    }

    /// Adds one sample for each number that is present.
    pub(super) fn each<N: NamedNumbers<Number: Into<Value>>>(&mut self, family: Id, numbers: N) {
        debug_assert_eq!(family.metric().variant.map(|variant| variant.values), Some(N::NAMES), "{family:?}");
        self.in_order(family, numbers.numbers());
    }

    /// Adds one sample for each value that is present. The names are label values of the catalog.
    pub(super) fn named<V: Into<Value>, const N: usize>(&mut self, family: Id, values: [(&str, Option<V>); N]) {
        let names = family.metric().variant.map_or(&[][..], |variant| variant.values);
        for (name, value) in values {
            let labels = names.iter().zip(self.labels.of(family)).find(|(known, _)| **known == name);
            debug_assert!(labels.is_some(), "{family:?} has no {name}");
            if let (Some((_, labels)), Some(value)) = (labels, value) {
                self.page.push(family, labels, value);
            }
        }
    }

    /// Adds one sample for each value that is present. The values are in the order of the catalog's label values.
    pub(super) fn in_order<V: Into<Value>>(&mut self, family: Id, values: impl IntoIterator<Item = Option<V>>) {
        for (labels, value) in self.labels.of(family).iter().zip(values) {
            if let Some(value) = value {
                self.page.push(family, labels, value);
            }
        }
    }
}

impl EngineWriter<'_> {
    /// Adds a sample with more labels, whose values are not in the catalog.
    pub(super) fn with<K, V>(&mut self, family: Id, more: impl IntoIterator<Item = (K, V)>, value: impl Into<Value>)
    where
        K: Into<Cow<'static, str>>,
        V: Into<Cow<'static, str>>,
    {
        self.page.push(family, &Arc::new(Labels::extend(self.labels.base(), more)), value);
    }

    /// Adds one sample for each value of a label whose values are not in the catalog.
    pub(super) fn by_label(&mut self, family: Id, label: &'static str, counts: &ByLabel) {
        for (value, count) in counts {
            self.with(family, [(label, value.clone())], *count);
        }
    }
}

impl GpuWriter<'_> {
    /// Adds a sample with more labels, whose values are not in the catalog.
    pub(super) fn with(&mut self, family: Id, more: &[(&'static str, &str)], value: impl OrAbsent) {
        if let Some(value) = value.or_absent() {
            let labels = self.labels.with(more);
            self.page.push(family, &labels, value);
        }
    }
}
