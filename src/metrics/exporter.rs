//! The exporter itself as samples: its build, its process and its own page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use procfs::WithCurrentSystemInfo as _;

use crate::engine::histogram::{Bound, Histogram, bounds};

use super::catalog::Id;
use super::page::{Labels, Page};

/// Seconds of one answer.
static SCRAPE_SECONDS: &[Bound] = bounds![0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.01, 0.1];

/// Why a request or a connection was refused. Order is the catalog's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No TLS, no certificate that is accepted, or a web configuration that cannot be used now.
    TlsHandshake,
    /// No user and password that are accepted.
    Unauthorized,
    RateLimited,
    /// More connections or requests than there is room for.
    Overloaded,
    /// A peer that was too slow in asking or in reading.
    Timeout,
}

/// What the HTTP side counts of itself.
#[derive(Debug)]
pub struct PageCounts {
    scrapes: AtomicU64,
    refused: [AtomicU64; 5],
    answering: Mutex<Histogram>,
}

impl PageCounts {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            scrapes: AtomicU64::new(0),
            refused: [const { AtomicU64::new(0) }; 5],
            answering: Mutex::new(Histogram::new(SCRAPE_SECONDS)),
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
    process(&mut page, &none);
    page
}

fn process(page: &mut Page, none: &Arc<Labels>) {
    let Ok(process) = procfs::process::Process::myself() else { return };
    if let Ok(stat) = process.stat() {
        let ticks = procfs::ticks_per_second() as f64;
        page.push(Id::ProcessCpu, none, (stat.utime + stat.stime) as f64 / ticks);
        page.push(Id::ProcessVirtualMemory, none, stat.vsize);
        page.push(Id::ProcessResidentMemory, none, stat.rss_bytes().get());
        page.push(Id::ProcessThreads, none, stat.num_threads);
        if let Ok(booted) = procfs::boot_time_secs() {
            page.push(Id::ProcessStartTime, none, booted as f64 + stat.starttime as f64 / ticks);
        }
    }
    if let Ok(open) = process.fd_count() {
        page.push(Id::ProcessOpenFds, none, open as u64);
    }
    if let Ok(limits) = process.limits()
        && let procfs::process::LimitValue::Value(most) = limits.max_open_files.soft_limit
    {
        page.push(Id::ProcessMaxFds, none, most);
    }
}
