//! Writes the samples of one engine, GPU or MIG instance, family by family.

use std::borrow::Cow;
use std::sync::Arc;

use super::family::Id;
use super::page::{Labels, Page, Value};
use super::series_labels::SeriesLabels;
use super::value::OrAbsent;
use trtllm_fold::server_metrics::ByLabel;
use trtllm_records::named_numbers::NamedNumbers;

/// Adds the families of one engine, GPU or MIG instance, all with the same base labels.
pub(super) struct SeriesWriter<'p> {
    page: &'p mut Page,
    labels: &'p SeriesLabels,
}

/// Families, and the function that writes each from an `S`.
type Families<S> = [(Id, fn(&S, &mut FamilyWriter<'_>) -> Option<()>)];

impl<'p> SeriesWriter<'p> {
    pub(super) fn new(page: &'p mut Page, labels: &'p SeriesLabels) -> Self {
        Self { page, labels }
    }

    /// The writer of this family.
    pub(super) fn of(&mut self, family: Id) -> FamilyWriter<'_> {
        FamilyWriter { page: self.page, labels: self.labels, family }
    }

    /// Adds all families of a table that have a closure.
    pub(super) fn table<S>(&mut self, families: &Families<S>, source: &S) {
        self.table_if(families, source, |_| true);
    }

    /// Adds those families of a table that the page has and for which `kept` is true.
    pub(super) fn table_if<S>(&mut self, families: &Families<S>, source: &S, kept: impl Fn(Id) -> bool) {
        for (family, write) in families.iter().filter(|(family, _)| kept(*family)) {
            if self.page.has(*family) {
                write(source, &mut self.of(*family));
            }
        }
    }
}

/// Adds the samples of one family. An absent value has no sample.
pub(super) struct FamilyWriter<'p> {
    page: &'p mut Page,
    labels: &'p SeriesLabels,
    family: Id,
}

impl FamilyWriter<'_> {
    /// Adds the only series of the family.
    pub(super) fn one(&mut self, value: impl OrAbsent) {
        if let Some(value) = value.or_absent() {
            self.page.push(self.family, &self.labels.of(self.family)[0], value);
        }
    }

    /// Adds one sample for each value that is present. The values are in the order of the family's label values.
    pub(super) fn all<V: Into<Value>>(&mut self, values: impl IntoIterator<Item = Option<V>>) {
        for (labels, value) in self.labels.of(self.family).iter().zip(values) {
            if let Some(value) = value {
                self.page.push(self.family, labels, value);
            }
        }
    }

    /// Adds one sample for each number that is present.
    pub(super) fn each<N: NamedNumbers<Number: Into<Value>>>(&mut self, numbers: N) {
        let names = self.family.metric().variant.map(|variant| variant.values);
        debug_assert_eq!(names, Some(N::NAMES), "{:?}", self.family);
        self.all(numbers.numbers());
    }

    /// Adds 1 for the label value at the index `current`, and 0 for the others that the page has.
    pub(super) fn one_of(&mut self, current: usize) {
        let only_current = self.page.has_only_the_current_state(self.family);
        let values = (0..self.labels.of(self.family).len()).map(|at| at == current);
        self.all(values.map(|is_current| (is_current || !only_current).then_some(is_current)));
    }

    /// Adds a sample with more labels, whose values are not in the catalog.
    pub(super) fn with<K, V>(&mut self, more: impl IntoIterator<Item = (K, V)>, value: impl OrAbsent)
    where
        K: Into<Cow<'static, str>>,
        V: Into<Cow<'static, str>>,
    {
        if let Some(value) = value.or_absent() {
            self.page.push(self.family, &Arc::new(Labels::extend(self.labels.base(), more)), value);
        }
    }

    /// Adds one sample for each value of a label whose values are not in the catalog.
    pub(super) fn by_label(&mut self, label: &'static str, counts: &ByLabel) {
        for (value, count) in counts {
            self.with([(label, value.clone())], *count);
        }
    }

    /// Whether all series of the engine have this label.
    pub(super) fn has_label(&self, name: &str) -> bool {
        self.labels.base().pairs().iter().any(|(own, _)| *own == name)
    }
}
