//! Labels that series keep from page to page. GPUs have thousands of series: written anew for every page, their labels
//! would be most of a page's time and of the memory it takes meanwhile. A page asks for nearly the same labels in the same
//! order as the page before, so the next one is where the last one was found, and to know it takes a hash.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::page::Labels;

/// A shelf for each GPU or MIG instance. What a page did not use leaves with it.
#[derive(Debug, Default)]
pub struct LabelCache {
    hasher: RandomState,
    shelves: Vec<Shelf>,
    next: usize,
    page: u64,
}

/// The labels of one GPU or MIG instance.
#[derive(Debug)]
pub(super) struct Shelf {
    hasher: RandomState,
    /// Of what they all begin with. 64 bits of a keyed hash at the right place are no accident.
    of: u64,
    base: Arc<Labels>,
    rows: Vec<Row>,
    next: usize,
    page: u64,
}

#[derive(Debug)]
struct Row {
    of: u64,
    labels: Arc<Labels>,
    page: u64,
}

impl LabelCache {
    /// A page begins: labels that the page before did not use are forgotten.
    pub(super) fn begin(&mut self) {
        let last = self.page;
        self.shelves.retain_mut(|shelf| {
            shelf.next = 0;
            shelf.rows.retain(|row| row.page == last);
            shelf.page == last
        });
        self.next = 0;
        self.page += 1;
    }

    /// How many samples the page before had, about.
    pub(super) fn expected(&self) -> usize {
        // Some samples have no labels but the shelf's own.
        self.shelves.iter().map(|shelf| shelf.rows.len() * 3 / 2).sum()
    }

    /// That of these labels.
    pub(super) fn shelf(&mut self, base: &[(&str, &str)]) -> &mut Shelf {
        let (of, page) = (self.hasher.hash_one(base), self.page);
        let found = from(&self.shelves, self.next, |shelf| shelf.of == of);
        let at = found.unwrap_or_else(|| {
            let base = Arc::new(Labels::new(base.iter().copied()));
            let shelf = Shelf { hasher: self.hasher.clone(), of, base, rows: Vec::new(), next: 0, page };
            self.shelves.insert(self.next, shelf);
            self.next
        });
        self.next = at + 1;
        let shelf = &mut self.shelves[at];
        shelf.page = page;
        shelf
    }
}

impl Shelf {
    /// Those that all others begin with.
    pub(super) fn base(&self) -> &Arc<Labels> {
        &self.base
    }

    /// The base and more, in any order.
    pub(super) fn labels(&mut self, more: &[(&str, &str)]) -> Arc<Labels> {
        let of = self.hasher.hash_one(more);
        let found = from(&self.rows, self.next, |row| row.of == of);
        let at = found.unwrap_or_else(|| {
            let labels = Arc::new(self.base.with_all(more));
            self.rows.insert(self.next, Row { of, labels, page: self.page });
            self.next
        });
        self.next = at + 1;
        let row = &mut self.rows[at];
        row.page = self.page;
        Arc::clone(&row.labels)
    }
}

/// Where the first that is wanted stands, looked for from `next` on and then from the beginning.
fn from<T>(all: &[T], next: usize, wanted: impl Fn(&T) -> bool) -> Option<usize> {
    let after = all[next..].iter().position(&wanted).map(|at| next + at);
    after.or_else(|| all[..next].iter().position(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &[(&str, &str)] = &[("gpu_uuid", "a")];
    const B: &[(&str, &str)] = &[("gpu_uuid", "b")];

    #[test]
    fn labels_are_written_once_and_forgotten_a_page_after_their_last_use() {
        let mut cache = LabelCache::default();
        cache.begin();
        let first = cache.shelf(A).labels(&[("link", "1")]);
        assert_eq!(first.series(), "{gpu_uuid=\"a\",link=\"1\"} ");
        cache.begin();
        assert!(Arc::ptr_eq(&first, &cache.shelf(A).labels(&[("link", "1")])));
        assert_eq!(cache.shelf(B).labels(&[("link", "1")]).series(), "{gpu_uuid=\"b\",link=\"1\"} ");
        assert_eq!(cache.shelf(B).base().series(), "{gpu_uuid=\"b\"} ");
        cache.begin();
        cache.begin();
        assert!(cache.shelves.is_empty());
    }

    #[test]
    fn what_comes_goes_and_changes_places_is_found_and_nothing_is_kept_for_ever() {
        let mut cache = LabelCache::default();
        let pages: [&[&str]; 5] = [&["1", "2", "3", "4"], &["1", "4"], &["0", "4", "2", "1"], &["5"], &["5", "1"]];
        for links in pages {
            for _ in 0..2 {
                cache.begin();
                for gpu in [A, B] {
                    let shelf = cache.shelf(gpu);
                    for link in links {
                        let labels = shelf.labels(&[("link", link)]);
                        assert_eq!(*labels, Labels::new(gpu.iter().copied().chain([("link", *link)])));
                    }
                }
            }
            cache.begin();
            assert!(cache.shelves.iter().all(|shelf| shelf.rows.len() == links.len()), "{links:?}");
            assert_eq!(cache.shelves.len(), 2);
            for gpu in [A, B] {
                let shelf = cache.shelf(gpu);
                links.iter().for_each(|link| drop(shelf.labels(&[("link", link)])));
            }
        }
    }
}
