//! Labels that series keep from page to page. GPUs have thousands of series: written anew for every page, their labels
//! would be most of a page's time and of the memory it takes meanwhile.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::page::Labels;

/// By the labels they are made of. What a page did not use leaves with it.
#[derive(Debug, Default)]
pub struct LabelCache {
    hasher: RandomState,
    known: HashMap<u64, Known>,
    page: u64,
}

#[derive(Debug)]
struct Known {
    labels: Arc<Labels>,
    page: u64,
}

impl LabelCache {
    /// A page begins: labels that the page before did not use are forgotten.
    pub(super) fn begin(&mut self) {
        let last = self.page;
        self.known.retain(|_, known| known.page == last);
        self.page += 1;
    }

    /// How many series the page before had, about.
    pub(super) fn expected(&self) -> usize {
        self.known.len()
    }

    /// `base` and more, in any order.
    pub(super) fn labels(&mut self, base: &[(&str, &str)], more: &[(&str, &str)]) -> Arc<Labels> {
        let key = self.hasher.hash_one((base, more));
        if let Some(known) = self.known.get_mut(&key)
            // Two different sets of labels may have one hash.
            && known.labels.are(&[base, more])
        {
            known.page = self.page;
            return Arc::clone(&known.labels);
        }
        let labels = Arc::new(Labels::new(base.iter().chain(more).copied()));
        self.known.insert(key, Known { labels: Arc::clone(&labels), page: self.page });
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_written_once_and_forgotten_a_page_after_their_last_use() {
        let mut cache = LabelCache::default();
        cache.begin();
        let first = cache.labels(&[("gpu_uuid", "a")], &[("link", "1")]);
        assert_eq!(first.series(), "{gpu_uuid=\"a\",link=\"1\"} ");
        cache.begin();
        assert!(Arc::ptr_eq(&first, &cache.labels(&[("gpu_uuid", "a")], &[("link", "1")])));
        let other = cache.labels(&[("gpu_uuid", "b")], &[("link", "1")]);
        assert_eq!(other.series(), "{gpu_uuid=\"b\",link=\"1\"} ");
        cache.begin();
        cache.begin();
        assert!(cache.known.is_empty());
    }
}
