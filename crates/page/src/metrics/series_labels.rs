//! Labels that are kept from page to page. GPUs and engines have thousands of series: making their labels for every
//! page would take most of a page's time and memory.

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
    others: Vec<Other>,
    /// Index in `others` at which [`SeriesLabels::with`] starts to search.
    next: usize,
    /// The last page that used these labels.
    page: u64,
}

/// Labels whose values are not in the catalog, such as those of links and processes.
#[derive(Debug)]
struct Other {
    labels: Arc<Labels>,
    /// The last page that used them.
    page: u64,
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
        Self { base, tables: of_tables.into(), others: Vec::new(), next: 0, page: 0 }
    }

    /// The labels that all series have.
    pub(super) fn base(&self) -> &Arc<Labels> {
        &self.base
    }

    /// The labels of a family's series: one for each of its label values, in the catalog's order, or the base for a
    /// family without a variant.
    pub(super) fn of(&self, family: Id) -> &[Arc<Labels>] {
        let (table, position) = family.place();
        match self.tables.get(table).and_then(|families| families.get(position)) {
            Some(labels) if !labels.is_empty() => labels,
            _ => std::slice::from_ref(&self.base),
        }
    }

    /// The base labels and `more`. The result is kept as long as every page asks for it.
    pub(super) fn with(&mut self, more: &[(&'static str, &str)]) -> Arc<Labels> {
        let found = find_from(&self.others, self.next, |other| other.labels.adds(more));
        let at = found.unwrap_or_else(|| {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            let labels = Arc::new(Labels::extend(&self.base, more));
            self.others.insert(self.next, Other { labels, page: self.page });
            self.next
        });
        self.next = at + 1;
        let other = &mut self.others[at];
        other.page = self.page;
        Arc::clone(&other.labels)
    }
}

/// The labels of the GPUs and MIG instances of the last page. Labels that a page did not use are dropped.
#[derive(Debug, Default)]
pub struct LabelCache {
    identities: Vec<SeriesLabels>,
    /// Where [`LabelCache::of`] starts to search: pages ask for nearly the same labels in the same order as the last
    /// page.
    next: usize,
    page: u64,
    /// Number of samples of the last page.
    pub(super) samples: usize,
}

impl LabelCache {
    /// Starts a page: drops the labels that the page before did not use.
    pub(super) fn begin(&mut self) {
        let last = self.page;
        self.identities.retain_mut(|labels| {
            labels.next = 0;
            labels.others.retain(|other| other.page == last);
            labels.page == last
        });
        self.next = 0;
        self.page += 1;
    }

    /// The labels of the engine, GPU or MIG instance with these base labels.
    pub(super) fn of(&mut self, base: &[(&str, &str)], tables: &[Table]) -> &mut SeriesLabels {
        let found = find_from(&self.identities, self.next, |labels| labels.base.adds(base));
        let at = found.unwrap_or_else(|| {
            self.identities.insert(self.next, SeriesLabels::new(Labels::new(base.iter().copied()), tables));
            self.next
        });
        self.next = at + 1;
        let labels = &mut self.identities[at];
        labels.page = self.page;
        labels
    }
}

/// Index of the first wanted element, searched from `next` to the end and then from the start.
fn find_from<T>(all: &[T], next: usize, wanted: impl Fn(&T) -> bool) -> Option<usize> {
    let after = all[next..].iter().position(&wanted).map(|at| next + at);
    after.or_else(|| all[..next].iter().position(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_GPU: &[Table] = &[Table::Gpu];
    const A: &[(&str, &str)] = &[("gpu_uuid", "a")];
    const B: &[(&str, &str)] = &[("gpu_uuid", "b")];

    #[test]
    fn a_family_has_one_text_for_each_label_value() {
        let labels = SeriesLabels::new(Labels::new([("gpu_uuid", "a")]), OF_GPU);
        let texts = |family| labels.of(family).iter().map(|labels| labels.series().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(Id::GpuTemperature)[1], "{gpu_uuid=\"a\",sensor=\"memory\"} ");
        assert_eq!(texts(Id::GpuUp), ["{gpu_uuid=\"a\"} "]);
    }

    #[test]
    fn labels_are_made_once_and_dropped_by_the_page_after_their_last_use() {
        let mut cache = LabelCache::default();
        cache.begin();
        let first = cache.of(A, OF_GPU).with(&[("link", "1")]);
        assert_eq!(first.series(), "{gpu_uuid=\"a\",link=\"1\"} ");
        cache.begin();
        assert!(Arc::ptr_eq(&first, &cache.of(A, OF_GPU).with(&[("link", "1")])));
        assert_eq!(cache.of(B, OF_GPU).with(&[("link", "1")]).series(), "{gpu_uuid=\"b\",link=\"1\"} ");
        assert_eq!(cache.of(B, OF_GPU).base().series(), "{gpu_uuid=\"b\"} ");
        cache.begin();
        cache.begin();
        assert!(cache.identities.is_empty());
    }

    #[test]
    fn labels_that_appear_disappear_and_move_are_found_and_unused_ones_are_dropped() {
        let mut cache = LabelCache::default();
        let pages: [&[&str]; 5] = [&["1", "2", "3", "4"], &["1", "4"], &["0", "4", "2", "1"], &["5"], &["5", "1"]];
        for links in pages {
            for _ in 0..2 {
                cache.begin();
                for gpu in [A, B] {
                    let kept = cache.of(gpu, OF_GPU);
                    for link in links {
                        let labels = kept.with(&[("link", link)]);
                        assert_eq!(*labels, Labels::new(gpu.iter().copied().chain([("link", *link)])));
                    }
                }
            }
            cache.begin();
            assert!(cache.identities.iter().all(|labels| labels.others.len() == links.len()), "{links:?}");
            assert_eq!(cache.identities.len(), 2);
            for gpu in [A, B] {
                let kept = cache.of(gpu, OF_GPU);
                links.iter().for_each(|link| drop(kept.with(&[("link", link)])));
            }
        }
    }
}
