//! Labels that are kept from page to page. GPUs and engines have thousands of series: making their labels for every
//! page would take most of a page's time and memory.

use std::sync::Arc;

use super::family::Id;
use super::labels::Labels;

/// A family, and the labels of its series.
type OfFamily = (Id, Box<[Arc<Labels>]>);

/// The labels of every series of one engine, GPU or MIG instance, made once.
#[derive(Debug)]
pub(super) struct SeriesLabels {
    base: Arc<Labels>,
    /// The families with a label of their own, in page order.
    variants: Box<[OfFamily]>,
}

impl SeriesLabels {
    /// `tables`: the families that the engine, GPU or MIG instance can have, in page order.
    pub(super) fn new(base: impl Into<Arc<Labels>>, tables: &[&[Id]]) -> Self {
        let base = base.into();
        let variants = tables.iter().copied().flatten().filter_map(|family| {
            let variant = family.metric().variant?;
            let of = |value: &&'static str| Arc::new(Labels::extend(&base, [(variant.label, *value)]));
            Some((*family, variant.values.iter().map(of).collect()))
        });
        Self { variants: variants.collect(), base }
    }

    /// The labels that all series have.
    pub(super) fn base(&self) -> &Arc<Labels> {
        &self.base
    }

    /// The labels of a family's series: one for each of its label values, in the catalog's order, or the base for a
    /// family without a variant.
    pub(super) fn of(&self, family: Id) -> &[Arc<Labels>] {
        match self.variants.binary_search_by_key(&family.place, |(family, _)| family.place) {
            Ok(at) => &self.variants[at].1,
            Err(_) => std::slice::from_ref(&self.base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog::table::gpu;
    use super::*;

    #[test]
    fn a_family_has_one_text_for_each_label_value() {
        let labels = SeriesLabels::new(Labels::new([("gpu_uuid", "a")]), &[gpu::FAMILIES]);
        let texts = |family| labels.of(family).iter().map(|labels| labels.series().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(Id::GpuTemperature)[1], "{gpu_uuid=\"a\",sensor=\"memory\"} ");
        assert_eq!(texts(Id::GpuUp), ["{gpu_uuid=\"a\"} "]);
    }
}
