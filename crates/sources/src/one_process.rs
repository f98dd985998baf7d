//! Finds out whether a single process answers on a port. Several processes of a server may share a port, each with a
//! page of its own. The system gives a connection to any of them, and no page says which process wrote it.
//!
//! If a count falls, another process has answered, or the server was replaced. After a replacement, counts fall only
//! once. So if a page is the first one, or a count has fallen, the page is read several more times, each time over a
//! new connection. Processes with equal load may differ by less than they count between two readings, so that no count
//! falls. Therefore these readings are repeated whenever the counts have doubled.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::time::{Duration, Instant};

use super::error::SourceError;

/// Further readings of a page. If there are two processes, all readings reach the same process in one of 256 cases.
const PROBES: u32 = 8;
/// After this time, no further reading starts.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// A page of counts that do not fall while the same process answers. The sums of histograms are not among them: they fall with a
/// negative value.
pub(super) trait CountedPage {
    fn counts(&self) -> impl Iterator<Item = (impl Hash, u64)>;
}

/// Reads a page.
pub(super) trait ReadPage {
    type Page: CountedPage;

    /// Reads the page. With `again`, over a new connection, which the system may give to another process.
    async fn read_page(&mut self, again: bool) -> Result<Self::Page, SourceError>;
}

/// The counts of a page, by the hash of their series.
#[derive(Debug)]
pub(super) struct LastCounts {
    hasher: RandomState,
    counts: HashMap<u64, u64>,
    /// The sum of the counts when the page was last read several times.
    probed: u128,
}

impl LastCounts {
    fn of(page: &impl CountedPage) -> Self {
        let hasher = RandomState::new();
        let counts = page.counts().map(|(series, count)| (hasher.hash_one(series), count)).collect();
        Self { hasher, counts, probed: sum(page) }
    }

    /// Whether a count of the page is lower than before.
    fn are_above(&self, page: &impl CountedPage) -> bool {
        let mut counts = page.counts();
        counts.any(|(series, count)| self.counts.get(&self.hasher.hash_one(series)).is_some_and(|last| *last > count))
    }
}

fn sum(page: &impl CountedPage) -> u128 {
    page.counts().map(|(_, count)| u128::from(count)).sum()
}

/// Reads a page until it is certain whether a single process answers. `last`: the counts of the last page, if there was
/// one. Returns the page and its counts, or `None` for the counts if several processes answer.
pub(super) async fn read_until_certain<R: ReadPage>(
    reader: &mut R,
    last: Option<LastCounts>,
) -> Result<(R::Page, Option<LastCounts>), SourceError> {
    let start = Instant::now();
    let mut page = reader.read_page(false).await?;
    if let Some(last) = last
        && !last.are_above(&page)
        && (sum(&page) == 0 || sum(&page) < 2 * last.probed)
    {
        let counts = LastCounts { probed: last.probed, ..LastCounts::of(&page) };
        return Ok((page, Some(counts)));
    }
    for _ in 0..PROBES {
        if start.elapsed() >= PROBE_TIME {
            break;
        }
        let next = reader.read_page(true).await?;
        if LastCounts::of(&page).are_above(&next) {
            return Ok((next, None));
        }
        page = next;
    }
    let counts = LastCounts::of(&page);
    Ok((page, Some(counts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CountedPage for Vec<(&str, u64)> {
        fn counts(&self) -> impl Iterator<Item = (impl Hash, u64)> {
            self.iter().copied()
        }
    }

    /// The pages that are still to be read.
    struct Pages(Vec<u64>);

    impl ReadPage for Pages {
        type Page = Vec<(&'static str, u64)>;

        async fn read_page(&mut self, _: bool) -> Result<Self::Page, SourceError> {
            Ok(vec![("a", self.0.remove(0)), ("b", 0)])
        }
    }

    /// Returns the count on the page that was used, whether several processes answer, and the number of pages that were
    /// not read.
    async fn read(last: Option<u64>, pages: &[u64]) -> (u64, bool, usize) {
        let last = last.map(|count| LastCounts::of(&vec![("a", count), ("gone", 9)]));
        let mut pages = Pages(pages.to_vec());
        let (page, counts) = read_until_certain(&mut pages, last).await.unwrap();
        (page[0].1, counts.is_none(), pages.0.len())
    }

    #[tokio::test]
    async fn a_page_is_read_again_if_it_is_the_first_or_has_fallen() {
        assert_eq!(read(Some(5), &[5, 5]).await, (5, false, 1));
        assert_eq!(read(Some(5), &[6, 6]).await, (6, false, 1));
        let replaced = [1, 1, 1, 2, 2, 2, 2, 2, 3, 3];
        assert_eq!(read(Some(5), &replaced).await, (3, false, 1));
        assert_eq!(read(None, &replaced).await, (3, false, 1));
    }

    #[tokio::test]
    async fn processes_that_count_alike_are_noticed_when_their_counts_have_doubled() {
        let mut pages = Pages(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 9, 11, 10]);
        let mut last = None;
        for left in [13, 12, 3, 2] {
            last = read_until_certain(&mut pages, last).await.unwrap().1;
            assert!(last.is_some() && pages.0.len() == left, "{} of {left} pages are left", pages.0.len());
        }
        assert!(read_until_certain(&mut pages, last).await.unwrap().1.is_none());
    }

    #[tokio::test]
    async fn counts_that_fall_again_are_those_of_several_processes() {
        assert_eq!(read(Some(5), &[1, 1, 6, 1, 1]).await, (1, true, 1));
        assert_eq!(read(None, &[7, 6, 6]).await, (6, true, 1));
    }
}
