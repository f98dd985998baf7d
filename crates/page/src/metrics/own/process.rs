//! The `process_*` families, read from /proc when the page is built. A value that /proc does not offer is absent.

use std::fmt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use procfs::process::{LimitValue, Process};
use procfs::{Current as _, WithCurrentSystemInfo as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::families::Families;
use crate::metrics::catalog::Id;

pub(super) fn encode(families: &mut Families<'_>) -> fmt::Result {
    let Ok(process) = Process::myself() else { return Ok(()) };
    let (stat, ticks) = (process.stat().ok(), procfs::ticks_per_second() as f64);
    if let Some(stat) = &stat {
        families.single(Id::ProcessCpu, &ConstCounter::new((stat.utime + stat.stime) as f64 / ticks))?;
    }
    if let Ok(open) = process.fd_count() {
        families.single(Id::ProcessOpenFds, &ConstGauge::new(open as u64))?;
    }
    if let Some(max) = max_descriptors(&process) {
        families.single(Id::ProcessMaxFds, &ConstGauge::new(max))?;
    }
    if let Some(stat) = &stat {
        families.single(Id::ProcessVirtualMemory, &ConstGauge::new(stat.vsize))?;
        families.single(Id::ProcessResidentMemory, &ConstGauge::new(stat.rss_bytes().get()))?;
        if let Some(start) = start_time(stat.starttime as f64 / ticks) {
            families.single(Id::ProcessStartTime, &ConstGauge::new(start))?;
        }
        families.single(Id::ProcessThreads, &ConstGauge::new(stat.num_threads))?;
    }
    Ok(())
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
