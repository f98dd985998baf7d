//! The exporter itself as samples: its build, its process and its own page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use procfs::{Current as _, WithCurrentSystemInfo as _};

use crate::engine::histogram::{Bound, Histogram, bounds};

use super::catalog::Id;
use super::page::{Labels, Page};

/// Seconds of one answer.
static SCRAPE_SECONDS: &[Bound] = bounds![0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.01, 0.1];

/// Why a request or a connection was refused. Order is the catalog's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No TLS, or no certificate that is accepted.
    TlsHandshake,
    /// No user and password that are accepted.
    Unauthorized,
    RateLimited,
    /// More connections or requests than there is room for.
    Overloaded,
    /// A peer that was too slow in asking or in reading.
    Timeout,
    /// Not HTTP, or beyond its bounds.
    BadRequest,
    /// The web configuration cannot be used now.
    WebConfig,
}

const REFUSALS: usize = Refusal::WebConfig as usize + 1;

/// What the HTTP side counts of itself.
#[derive(Debug)]
pub struct PageCounts {
    scrapes: AtomicU64,
    refused: [AtomicU64; REFUSALS],
    answering: Mutex<Histogram>,
    /// Seconds since 1970.
    process_start: OnceLock<Option<f64>>,
    most_descriptors: OnceLock<Option<u64>>,
}

impl PageCounts {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            scrapes: AtomicU64::new(0),
            refused: [const { AtomicU64::new(0) }; REFUSALS],
            answering: Mutex::new(Histogram::new(SCRAPE_SECONDS)),
            process_start: OnceLock::new(),
            most_descriptors: OnceLock::new(),
        }
    }

    /// One answer, and how long it took.
    pub fn scraped(&self, time: Duration) {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        self.answering.lock().unwrap_or_else(PoisonError::into_inner).observe(time.as_secs_f64());
    }

    /// One request or connection that was not served.
    pub fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for PageCounts {
    fn default() -> Self {
        Self::new()
    }
}

/// The exporter as of now. What `/proc` does not tell is absent.
#[must_use]
pub fn exporter_page(counts: &PageCounts) -> Page {
    let mut page = Page::default();
    let none = Arc::new(Labels::default());
    let build = Labels::new([
        ("rustversion", option_env!("TRTLLM_EXPORTER_RUSTC").unwrap_or("unknown")),
        ("version", env!("CARGO_PKG_VERSION")),
    ]);
    page.push(Id::BuildInfo, &Arc::new(build), 1_u64);
    page.push(Id::Scrapes, &none, counts.scrapes.load(Ordering::Relaxed));
    let reasons = Id::HttpRefused.metric().variant.map_or(&[][..], |variant| variant.values);
    for (reason, count) in reasons.iter().zip(&counts.refused) {
        page.push(Id::HttpRefused, &Arc::new(Labels::new([("reason", *reason)])), count.load(Ordering::Relaxed));
    }
    page.push(Id::ScrapeDuration, &none, &*counts.answering.lock().unwrap_or_else(PoisonError::into_inner));
    process(&mut page, &none, counts);
    page
}

fn process(page: &mut Page, none: &Arc<Labels>, counts: &PageCounts) {
    let Ok(process) = procfs::process::Process::myself() else { return };
    if let Ok(stat) = process.stat() {
        let ticks = procfs::ticks_per_second() as f64;
        page.push(Id::ProcessCpu, none, (stat.utime + stat.stime) as f64 / ticks);
        page.push(Id::ProcessVirtualMemory, none, stat.vsize);
        page.push(Id::ProcessResidentMemory, none, stat.rss_bytes().get());
        page.push(Id::ProcessThreads, none, stat.num_threads);
        let start = counts.process_start.get_or_init(|| process_start(stat.starttime as f64 / ticks));
        if let Some(start) = *start {
            page.push(Id::ProcessStartTime, none, start);
        }
    }
    if let Ok(open) = process.fd_count() {
        page.push(Id::ProcessOpenFds, none, open as u64);
    }
    let most = counts.most_descriptors.get_or_init(|| match process.limits().ok()?.max_open_files.soft_limit {
        procfs::process::LimitValue::Value(most) => Some(most),
        procfs::process::LimitValue::Unlimited => None,
    });
    if let Some(most) = *most {
        page.push(Id::ProcessMaxFds, none, most);
    }
}

/// From the seconds after boot at which the process began. Not by `/proc/stat`, which is long where there are many cores, and
/// tells the time of boot in whole seconds.
fn process_start(after_boot: f64) -> Option<f64> {
    let uptime = procfs::Uptime::current().ok()?.uptime;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    // A hundredth of a second is all that is known.
    Some(((now - uptime + after_boot) * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::page::Value;
    use super::*;

    #[test]
    fn the_process_has_begun_and_says_the_same_of_it_ever_after() {
        let counts = PageCounts::new();
        let start = || {
            let page = exporter_page(&counts);
            page.samples()
                .iter()
                .find(|sample| sample.metric == Id::ProcessStartTime)
                .map(|sample| sample.value.clone())
        };
        let Some(Value::Float(first)) = start() else { panic!("no start time") };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(first < now + 0.1 && first > now - 3600.0, "{first} at {now}");
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(start(), Some(Value::Float(first)));
    }
}
