//! What is broken: the engine, its requests, its memory, its statistics.

use trtllm_engine::EngineState;

use crate::reading::Reading;
use crate::verdict::{Found, Severity, Unit, percent, time};

/// Seconds without any answer until it is a warning, and of a load whose usual time is not known.
const SILENT: f64 = 120.0;
const LONG_LOAD: f64 = 3600.0;
/// Share of failed requests, and how many make it more than chance.
const FAILED: f64 = 0.02;
const FAILED_CRITICAL: f64 = 0.5;
const ENOUGH_FAILED: f64 = 5.0;
/// Growth of host memory that is more than a cache which fills: bytes, and share of the slots in which it grew.
const GROWTH: f64 = 1_073_741_824.0;
const GROWS: f64 = 0.8;
/// Seconds of growth before it is believed.
const GROWTH_SECONDS: f64 = 120.0;
/// Share of the iterations without a record.
const LOST: f64 = 0.1;

pub(super) fn unavailable(reading: &Reading) -> Option<Found> {
    if reading.state == EngineState::Stalled {
        return Some(
            Found::new("Requests are active, and the engine runs no batch.")
                .severity(Severity::Critical)
                .remedy("Restart the engine. Before that, save its stack traces and its log for a report.", &[]),
        );
    }
    let silence = reading.silence.as_ref()?;
    if silence.is_loading {
        let limit = silence.longest_load.map_or(LONG_LOAD, |longest| 2.0 * longest);
        let is_long = silence.seconds > limit;
        let found = Found::new(format!("The model loads, for {} so far.", time(silence.seconds)))
            .with("time of the load", silence.seconds, Unit::Seconds, limit)
            .severity(if is_long { Severity::Warning } else { Severity::Info });
        return Some(found.remedy("Wait. If it takes much longer than usual, look at the server's log.", &[]));
    }
    let is_long = silence.seconds >= SILENT;
    Some(
        Found::new(format!("Nothing answers for {}: {}.", time(silence.seconds), silence.why.trim_end_matches('.')))
            .with("time without an answer", silence.seconds, Unit::Seconds, SILENT)
            .severity(if is_long { Severity::Warning } else { Severity::Info })
            .remedy("Start the server, or correct the address in --source.", &[]),
    )
}

pub(super) fn memory(reading: &Reading) -> Option<Found> {
    let bytes = &reading.host_bytes;
    let growth = bytes.last()? - bytes.first()?;
    let rises = bytes.windows(2).filter(|two| two[1] > two[0]).count() as f64;
    let steady = rises >= GROWS * (bytes.len() - 1) as f64 && reading.kept.seconds >= GROWTH_SECONDS;
    let (ended, failed) = reading.failures();
    let fails = failed >= ENOUGH_FAILED && failed >= 0.1 * ended;
    if growth < GROWTH || !(steady || fails && rises >= 3.0) {
        return None;
    }
    let says = if fails {
        format!(
            "Host memory grew by {:.1} GB, and now {} of the requests fail.",
            growth / 1e9,
            percent(Reading::share(failed, ended))
        )
    } else {
        format!(
            "Host memory of the engine grows without end: {:.1} GB in {}.",
            growth / 1e9,
            time(reading.kept.seconds)
        )
    };
    Some(
        Found::new(says)
            .with("growth of host memory", growth, Unit::Bytes, GROWTH)
            .severity(if fails { Severity::Critical } else { Severity::Warning })
            .remedy(
                "Restart the engine before its memory is used up, and report the leak with its release. Statistics that nobody reads \
                 also take memory: see the engine's log.",
                &[],
            ),
    )
}

pub(super) fn errors(reading: &Reading) -> Option<Found> {
    let (ended, failed) = reading.failures();
    let share = Reading::share(failed, ended);
    if failed < ENOUGH_FAILED || share < FAILED {
        return None;
    }
    let counts = &reading.now.counts;
    let timed_out = counts.timed_out >= 0.5 * failed;
    let says = match timed_out {
        true => format!("{} of the requests time out in the server.", percent(share)),
        false => format!("{} of the requests fail.", percent(share)),
    };
    let remedy = match timed_out {
        true => {
            "Raise the server's or the request's time limit, or make the engine faster: the consequences say what it waits for."
        }
        false => {
            "Read the server's log: it names the error of each request. A prompt that is too long needs a larger max_num_tokens or \
                  chunked context, or a larger max_seq_len."
        }
    };
    Some(
        Found::new(says)
            .with("requests that failed or timed out", share, Unit::Share, FAILED)
            .severity(if share >= FAILED_CRITICAL { Severity::Critical } else { Severity::Warning })
            .remedy(remedy, &[]),
    )
}

pub(super) fn statistics(reading: &Reading) -> Option<Found> {
    let counts = &reading.now.counts;
    let (ended, _) = reading.failures();
    let ended = ended.max(reading.now.distributions.e2e.count);
    if counts.iterations <= 0.0 {
        return (ended >= ENOUGH_FAILED && reading.kept.counts.iterations <= 0.0).then(|| {
            let settings: &[_] =
                if reading.is_pytorch { &["enable_iter_perf_stats"] } else { &["iterStatsMaxIterations"] };
            Found::new("Requests end, and the engine writes no records of its iterations.")
                .with("requests that ended", ended, Unit::Count, None)
                .severity(Severity::Warning)
                .remedy(
                    if reading.is_pytorch {
                        "Set enable_iter_perf_stats: true for the engine."
                    } else {
                        "Set iterStatsMaxIterations of the executor's configuration above 0."
                    },
                    settings,
                )
        });
    }
    let lost = Reading::share(counts.iterations_lost, counts.iterations + counts.iterations_lost);
    // An engine that is known to be sampled has no gaps that are not meant.
    let gaps = if reading.now.sampling > 1.0 { 0.0 } else { counts.iterations_unreported };
    let unreported = Reading::share(gaps, counts.iterations + gaps);
    let missing = lost.max(unreported);
    (missing >= LOST).then(|| {
        Found::new(format!("{} of the iterations have no record.", percent(missing)))
            .with("iterations without a record", missing, Unit::Share, LOST)
            .severity(Severity::Warning)
            .unsure(lost < LOST)
            .remedy(
                "Stop other readers of the engine's statistics (a second exporter, a script that polls /metrics), or raise \
                 iter_stats_max_iterations, or poll more often (--poll.interval).",
                &["iter_stats_max_iterations"],
            )
    })
}
