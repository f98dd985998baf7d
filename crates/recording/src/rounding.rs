//! Rounds times to 1 µs, and ratios of requests to six digits. Further digits are errors of the engine's arithmetic, which do not
//! compress well.

use trtllm_model::perf_metrics::TimingMetrics;
use trtllm_model::{IterationStats, PerfMetricsEntry, RequestStats};

use super::Item;

impl Item {
    /// Rounds the times in the item to 1 µs.
    pub fn round_times(&mut self) {
        match self {
            Self::Record(record) | Self::RefusedRecord(record) => of_record(record),
            Self::RequestRows(rows) => of_rows(rows.request_stats.as_deref_mut()),
            Self::FinishedRequest(entry) => {
                of_entry(entry);
                [&mut entry.ctx_perf_metrics, &mut entry.gen_perf_metrics]
                    .into_iter()
                    .flatten()
                    .for_each(|part| of_entry(part));
            }
            _ => {}
        }
    }
}

fn of_record(record: &mut IterationStats) {
    // The PyTorch engine sends seconds under the name of milliseconds.
    seconds(&mut record.new_active_requests_queue_latency_ms);
    let speculation = record.spec_decoding_stats.as_mut().map(|stats| &mut stats.iter_latency_ms);
    [
        &mut record.iter_latency_ms,
        &mut record.host_step_time_ms,
        &mut record.prev_device_step_time_ms,
        &mut record.gpu_forward_time_ms,
    ]
    .into_iter()
    .chain(speculation)
    .for_each(milliseconds);
    of_rows(record.request_stats.as_deref_mut());
}

fn of_rows(rows: Option<&mut [RequestStats]>) {
    for row in rows.into_iter().flatten() {
        for ratio in [&mut row.avg_num_decoded_tokens_per_iter, &mut row.kv_cache_hit_rate_per_request] {
            *ratio = ratio.map(|ratio| rounded(ratio, 1e6));
        }
        if let Some(transfer) = &mut row.dis_serving_stats {
            milliseconds(&mut transfer.kv_cache_transfer_ms);
        }
    }
}

fn of_entry(entry: &mut PerfMetricsEntry) {
    seconds(&mut entry.disagg_server_arrival_time);
    seconds(&mut entry.disagg_server_first_token_time);
    if let Some(TimingMetrics {
        server_arrival_time,
        server_first_token_time,
        arrival_time,
        first_scheduled_time,
        first_token_time,
        last_token_time,
        kv_cache_transfer_start,
        kv_cache_transfer_end,
        kv_cache_size: _,
    }) = entry.perf_metrics.as_mut().and_then(|metrics| metrics.timing_metrics.as_mut())
    {
        let engine = [arrival_time, first_scheduled_time, first_token_time, last_token_time];
        let others = [server_arrival_time, server_first_token_time, kv_cache_transfer_start, kv_cache_transfer_end];
        engine.into_iter().chain(others).for_each(seconds);
    }
    let steps = entry.time_breakdown_metrics.as_deref_mut();
    for phase in steps.into_iter().flat_map(|steps| [&mut steps.ctx_chunk_metrics, &mut steps.step_metrics]) {
        phase.token_times.iter_mut().for_each(|time| *time = rounded(*time, 1e6));
        milliseconds(&mut phase.gpu_forward_ms);
        milliseconds(&mut phase.gpu_sample_ms);
    }
}

fn milliseconds(time: &mut Option<f64>) {
    *time = time.map(|time| rounded(time, 1e3));
}

fn seconds(time: &mut Option<f64>) {
    *time = time.map(|time| rounded(time, 1e6));
}

/// Leaves absurd times as they are. A short time does not become 0, because 0 means that the time was not measured.
fn rounded(time: f64, per_unit: f64) -> f64 {
    let rounded = (time * per_unit).round() / per_unit;
    match rounded {
        0.0 if time != 0.0 => (1.0 / per_unit).copysign(time),
        rounded if rounded.is_finite() => rounded,
        _ => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_to_a_microsecond_and_a_rounded_time_stays() {
        for (time, per_unit, expected) in [
            (17.236_000_000_000_03, 1e3, 17.236),
            (17.236, 1e3, 17.236),
            (1_001.928_526_636_67, 1e6, 1_001.928_527),
            (f64::MAX, 1e3, f64::MAX),
            (-0.000_4, 1e3, -0.001),
            (1e-300, 1e6, 0.000_001),
            (0.0, 1e6, 0.0),
        ] {
            assert_eq!(rounded(time, per_unit), expected);
            assert_eq!(rounded(expected, per_unit), expected);
        }
    }
}
