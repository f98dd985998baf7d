//! Labels that are kept from page to page. GPUs and engines have thousands of series: making their labels for every
//! page would take most of a page's time and memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::catalog::{Id, Table};
use super::labels::Labels;

type OfTable = Box<[Box<[Arc<Labels>]>]>;

/// The labels of every series of one engine, GPU or MIG instance, made once.
#[derive(Debug)]
pub(super) struct SeriesLabels {
    base: Arc<Labels>,
    /// For each family of each table, the labels of its series, one for each label value. Empty for a family with the
    /// base labels only.
    tables: Box<[OfTable]>,
}

impl SeriesLabels {
    /// `tables`: those that the engine, GPU or MIG instance can have families of.
    pub(super) fn new(base: impl Into<Arc<Labels>>, tables: &[Table]) -> Self {
        let base = base.into();
        let of_family = |family: Id| {
            let variant = family.metric().variant.into_iter();
            let pairs = variant.flat_map(|variant| variant.values.iter().map(move |value| (variant.label, *value)));
            pairs.map(|pair| Arc::new(Labels::extend(&base, [pair]))).collect()
        };
        let count = tables.iter().map(|table| *table as usize + 1).max().unwrap_or(0);
        let mut of_tables = vec![OfTable::default(); count];
        for table in tables {
            of_tables[*table as usize] = Id::all(*table).map(of_family).collect();
        }
        Self { base, tables: of_tables.into() }
    }

    /// The labels that all series have.
    pub(super) fn base(&self) -> &Arc<Labels> {
        &self.base
    }

    /// The labels of a family's series: one for each of its label values, in the catalog's order, or the base for a
    /// family without a variant.
    pub(super) fn of(&self, family: Id) -> &[Arc<Labels>] {
        let (table, index) = family.table_and_index();
        match self.tables.get(table).and_then(|families| families.get(index)) {
            Some(labels) if !labels.is_empty() => labels,
            _ => std::slice::from_ref(&self.base),
        }
    }
}

/// The labels of the GPUs and MIG instances of a page, by the UUIDs of both.
#[derive(Debug, Default)]
pub struct LabelCache(HashMap<(String, String), SeriesLabels>);

impl LabelCache {
    /// The labels of a GPU, or of a MIG instance of it. `before`: those of the last page, which are used again.
    pub(super) fn of(&mut self, before: &mut Self, gpu: &str, mig: Option<&str>) -> &SeriesLabels {
        let key = (gpu.to_owned(), mig.unwrap_or_default().to_owned());
        let labels = before.0.remove(&key).unwrap_or_else(|| {
            let base = Labels::new([("gpu_uuid", gpu)].into_iter().chain(mig.map(|mig| ("mig_uuid", mig))));
            SeriesLabels::new(base, &[if mig.is_some() { Table::Mig } else { Table::Gpu }])
        });
        self.0.entry(key).or_insert(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_one_text_for_each_label_value() {
        let labels = SeriesLabels::new(Labels::new([("gpu_uuid", "a")]), &[Table::Gpu]);
        let texts = |family| labels.of(family).iter().map(|labels| labels.series().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(Id::GpuTemperature)[1], "{gpu_uuid=\"a\",sensor=\"memory\"} ");
        assert_eq!(texts(Id::GpuUp), ["{gpu_uuid=\"a\"} "]);
    }

    #[test]
    fn labels_are_made_once_and_dropped_by_the_page_after_their_last_use() {
        let (mut first, mut second, mut third) = (LabelCache::default(), LabelCache::default(), LabelCache::default());
        let base = Arc::clone(first.of(&mut LabelCache::default(), "a", None).base());
        assert_eq!(base.series(), "{gpu_uuid=\"a\"} ");
        assert!(Arc::ptr_eq(&base, second.of(&mut first, "a", None).base()));
        assert_eq!(second.of(&mut first, "a", Some("b")).base().series(), "{gpu_uuid=\"a\",mig_uuid=\"b\"} ");
        assert!(Arc::ptr_eq(&base, third.of(&mut second, "a", None).base()));
        assert_eq!((first.0.len(), third.0.len()), (0, 1));
    }
}
