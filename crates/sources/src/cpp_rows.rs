//! Decodes the rows of numbers in which C++ passes TensorRT-LLM's records. They come from the bridge of a hosted engine, and
//! from `libtrtllm_exporter` inside a server.

use trtllm_rows::{Kind, Row, finished};

use trtllm_model::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use trtllm_model::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use trtllm_model::request::{DisServingRequestStats, RequestStats};
use trtllm_model::timestamp::parse_timestamp;
use trtllm_model::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};
use trtllm_recording::Item;

/// The items of `rows`, in their order, and whether the last row is complete.
#[must_use]
pub fn items(mut rows: &[u8]) -> (Vec<Item>, bool) {
    let mut items = Vec::new();
    while let Some(row) = Row::next(&mut rows) {
        match row.kind {
            Kind::Iteration => items.push(Item::Record(Box::new(iteration(&row)))),
            Kind::Requests => items.push(Item::RequestRows(RequestStatsPerIteration {
                iter: row.get(0),
                request_stats: Some(Vec::new()),
            })),
            Kind::Request => {
                if let Some(Item::RequestRows(RequestStatsPerIteration { request_stats: Some(requests), .. })) =
                    items.last_mut()
                {
                    requests.push(decode_request_stats(&row.reader(), 0));
                }
            }
            Kind::Finished => items.push(Item::FinishedRequest(Box::new(finished(&row)))),
            Kind::Unknown => {}
        }
    }
    (items, rows.is_empty())
}

fn iteration(row: &Row<'_>) -> IterationStats {
    IterationStats { timestamp: parse_timestamp(row.text()), ..decode_iteration_stats(&row.reader(), 0) }
}

/// A finished request: its finish reason, its lengths, and its times if this release of TensorRT-LLM has them.
fn finished(row: &Row<'_>) -> PerfMetricsEntry {
    PerfMetricsEntry {
        request_id: row.get(finished::REQUEST),
        finish_reason: row.get(finished::REASON).map(|reason: i64| match reason {
            0 | 1 => FinishReason::Stop,
            2 => FinishReason::Length,
            3 => FinishReason::Timeout,
            4 => FinishReason::Cancelled,
            _ => FinishReason::Other,
        }),
        prompt_tokens: row.get(finished::PROMPT_TOKENS),
        output_tokens: row.get(finished::OUTPUT_TOKENS),
        perf_metrics: row.reader().nested(0, decode_request_perf_metrics),
        ..PerfMetricsEntry::default()
    }
}

// A struct whose members are all in the list needs no default, and the first slot has the number 0.
#[allow(clippy::identity_op, clippy::needless_update)]
mod decoders {
    use crate::cpp_rows::*;
    trtllm_rows::decoders!();
}
use decoders::{decode_iteration_stats, decode_request_perf_metrics, decode_request_stats};

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as C++ writes it, whose slots are all present.
    fn row(kind: u8, slots: &[u64], text: &str) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((slots.len() as u16).to_ne_bytes());
        bytes.extend((text.len() as u16).to_ne_bytes());
        for word in slots.chunks(64) {
            bytes.extend((u64::MAX >> (64 - word.len())).to_ne_bytes());
        }
        slots.iter().for_each(|slot| bytes.extend(slot.to_ne_bytes()));
        bytes.extend(text.as_bytes());
        bytes
    }

    fn record(item: &Item) -> &IterationStats {
        let Item::Record(record) = item else { panic!("{item:?}") };
        record
    }

    #[test]
    fn a_header_with_fewer_or_more_slots_than_this_library_is_read() {
        let (items, whole) = items(&[row(b'i', &[5], ""), row(b'i', &[6; 70], "01-02-1970 00:00:01")].concat());
        assert!(whole);
        let [older, newer] = [&items[0], &items[1]].map(record);
        assert_eq!((older.iter, older.num_active_requests, &older.kv_cache_stats), (Some(5), None, &None));
        assert_eq!((older.timestamp, newer.timestamp.map(|time| time.micros)), (None, Some(86_401_000_000)));
        assert_eq!(newer.spec_decoding_stats.as_ref().and_then(|stats| stats.num_accepted_tokens), Some(6));
    }

    #[test]
    fn requests_belong_to_the_iteration_before_them() {
        let stray = row(b'q', &[1], "");
        let rows = [stray.clone(), row(b'r', &[8], ""), row(b'q', &[1, 4], ""), stray, row(b'r', &[9], "")].concat();
        let (items, _) = items(&rows);
        let found: Vec<_> = items
            .iter()
            .map(|item| {
                let Item::RequestRows(requests) = item else { panic!("{item:?}") };
                let rows = requests.request_stats.iter().flatten();
                (requests.iter, rows.map(|row| (row.id, row.stage)).collect::<Vec<_>>())
            })
            .collect();
        let complete = (Some(1), Some(trtllm_model::request::RequestStage::Complete));
        assert_eq!(found, [(Some(8), vec![complete, (Some(1), None)]), (Some(9), vec![])]);
    }

    #[test]
    fn a_finished_request_has_its_reason_and_lengths_and_perhaps_times() {
        let finished = |slots: &[u64]| {
            let (items, _) = items(&row(b'p', slots, ""));
            let [Item::FinishedRequest(entry)] = &items[..] else { panic!("{items:?}") };
            (**entry).clone()
        };
        let failed = finished(&[7, 99]);
        assert_eq!((failed.request_id, failed.finish_reason), (Some(7), Some(FinishReason::Other)));
        assert_eq!((failed.perf_metrics, failed.output_tokens), (None, None));
        let mut slots = [2.5_f64.to_bits(); 22];
        slots[..4].copy_from_slice(&[7, 2, 10, 12]);
        slots[finished::PROMPT_TOKENS] = 30;
        let ended = finished(&slots);
        assert_eq!((ended.finish_reason, ended.prompt_tokens), (Some(FinishReason::Length), Some(30)));
        let metrics = ended.perf_metrics.unwrap();
        assert_eq!((metrics.first_iter, metrics.last_iter), (Some(10), Some(12)));
        assert_eq!(metrics.timing_metrics.unwrap().arrival_time, Some(2.5));
    }

    #[test]
    fn truncated_rows_and_kinds_of_a_newer_header_are_no_items() {
        let newer = row(b'z', &[1, 2, 3], "text");
        let mut rows = [newer, row(b'i', &[5], "")].concat();
        assert!(matches!(items(&rows), (items, true) if items.len() == 1));
        rows.pop();
        assert!(matches!(items(&rows), (items, false) if items.is_empty()));
    }
}
