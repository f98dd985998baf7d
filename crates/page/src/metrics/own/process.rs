//! The numbers of the `process_*` families, read from /proc when the page is built. What /proc does not offer is
//! absent.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use procfs::process::{LimitValue, Process};
use procfs::{Current as _, WithCurrentSystemInfo as _};

#[derive(Debug, Clone, Default)]
pub(in crate::metrics) struct ProcessReadings {
    pub(in crate::metrics) cpu_seconds: Option<f64>,
    pub(in crate::metrics) open_descriptors: Option<u64>,
    pub(in crate::metrics) max_descriptors: Option<u64>,
    pub(in crate::metrics) virtual_bytes: Option<u64>,
    pub(in crate::metrics) resident_bytes: Option<u64>,
    /// Seconds since 1970 UTC.
    pub(in crate::metrics) start: Option<f64>,
    pub(in crate::metrics) threads: Option<u64>,
}

pub(in crate::metrics) fn read() -> ProcessReadings {
    // Kept open, because opening it for each page costs a third of what its reads cost.
    static PROCESS: OnceLock<Process> = OnceLock::new();
    let opened = || Process::myself().ok().map(|opened| PROCESS.get_or_init(|| opened));
    let Some(process) = PROCESS.get().or_else(opened) else { return ProcessReadings::default() };
    let (stat, ticks) = (process.stat().ok(), procfs::ticks_per_second() as f64);
    let stat = stat.as_ref();
    ProcessReadings {
        cpu_seconds: stat.map(|stat| (stat.utime + stat.stime) as f64 / ticks),
        open_descriptors: process.fd_count().ok().map(|open| open as u64),
        max_descriptors: max_descriptors(process),
        virtual_bytes: stat.map(|stat| stat.vsize),
        resident_bytes: stat.map(|stat| stat.rss_bytes().get()),
        start: stat.and_then(|stat| start_time(stat.starttime as f64 / ticks)),
        threads: stat.and_then(|stat| stat.num_threads.try_into().ok()),
    }
}

/// The soft limit of open file descriptors. Absent if there is no limit.
fn max_descriptors(process: &Process) -> Option<u64> {
    static MAX: OnceLock<Option<u64>> = OnceLock::new();
    *MAX.get_or_init(|| match process.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(max) => Some(max),
        LimitValue::Unlimited => None,
    })
}

/// Seconds since 1970 UTC, from the seconds between boot and the start of the process. Computed once, since the clock
/// may be adjusted later. The boot time in /proc/stat is not used: it has whole seconds, and that file is long on
/// machines with many cores.
fn start_time(after_boot: f64) -> Option<f64> {
    static START: OnceLock<Option<f64>> = OnceLock::new();
    *START.get_or_init(|| {
        let uptime = procfs::Uptime::current().ok()?.uptime;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        // /proc has a resolution of 10 ms.
        Some(((now - uptime + after_boot) * 100.0).round() / 100.0)
    })
}
