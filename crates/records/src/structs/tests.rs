#![allow(unreachable_pub, reason = "the macro makes public items")]

use serde_json::{Value, json};

use super::*;
use crate::schema::{Field, Implausible, Rejected, When, check};
use crate::{IterationStats, PerfMetricsEntry};

fn checked<M: Schema + Clone>(message: &M) -> (Result<M, Implausible>, Rejected) {
    let (mut repaired, mut rejected) = (None, Rejected::default());
    let checked = check(message, &mut repaired, &mut rejected).cloned();
    (checked, rejected)
}

/// A record with every field that has a limit.
fn record() -> Value {
    // 1 is possible for shares, too.
    let names = |names: &str| -> Value { names.split_whitespace().map(|name| (name.to_owned(), json!(1))).collect() };
    let with = |mut fields: Value, more: Value| {
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let kv = names(
        "maxNumBlocks freeNumBlocks usedNumBlocks tokensPerBlock allocTotalBlocks allocNewBlocks reusedBlocks missedBlocks \
         cacheHitRate",
    );
    let pools = names(
        "slotSize primaryMaxNumBlocks primaryFreeNumBlocks primaryUsedNumBlocks primaryEvictableNumBlocks \
         primaryPeakFreeNumBlocks primaryPeakUsedNumBlocks primaryPeakEvictableNumBlocks secondaryMaxNumBlocks \
         secondaryFreeNumBlocks secondaryUsedNumBlocks secondaryEvictableNumBlocks secondaryPeakFreeNumBlocks \
         secondaryPeakUsedNumBlocks secondaryPeakEvictableNumBlocks iterAllocTotalBlocks iterAllocNewBlocks iterReusedBlocks \
         iterFullReusedBlocks iterPartialReusedBlocks iterMissedBlocks iterCacheHitRate iterGenAllocBlocks iterOnboardBlocks \
         iterOnboardBytes iterOffloadBlocks iterOffloadBytes iterIntraDeviceCopyBlocks iterIntraDeviceCopyBytes \
         iterHostDroppedBlocks iterHostDroppedBytes",
    );
    let snapshots = names(
        "iterSnapshotLookups iterSnapshotMisses iterReusedTokens iterUnreusedTokens iterAlignedSnapshotHits \
         iterUnalignedSnapshotHits",
    );
    let lifecycle = with(
        names("iterReusedBlocks iterFullReusedBlocks iterPartialReusedBlocks iterMissedBlocks"),
        json!({"iterFullReusedBlocksByLevel": [1, 2], "iterPartialReusedBlocksByLevel": [1, 2], "snapshotStats": snapshots}),
    );
    let row = with(
        names(
            "id contextPrefillPosition numGeneratedTokens avgNumDecodedTokensPerIter allocTotalBlocksPerRequest \
             allocNewBlocksPerRequest reusedBlocksPerRequest missedBlocksPerRequest kvCacheHitRatePerRequest",
        ),
        json!({"disServingStats": {"kvCacheTransferMS": 1.5, "kvCacheSize": 3}}),
    );
    with(
        names(
            "iter iterLatencyMS newActiveRequestsQueueLatencyMS numNewActiveRequests numActiveRequests numQueuedRequests \
             numCompletedRequests maxNumActiveRequests maxBatchSizeStatic maxBatchSizeTunerRecommended maxBatchSizeRuntime \
             maxNumTokensStatic maxNumTokensTunerRecommended maxNumTokensRuntime gpuMemUsage cpuMemUsage pinnedMemUsage \
             attentionDpRank rank hostStepTimeMS prevDeviceStepTimeMS gpuForwardTimeMS statsSequence statsDroppedFrames \
             iterSuspendedRequests iterResumedRequests iterDiskPrefetchBlocks currentStepsProcessed",
        ),
        json!({
            "kvCacheStats": kv, "crossKvCacheStats": kv,
            "staticBatchingStats": names("numScheduledRequests numContextRequests numCtxTokens numGenTokens emptyGenSlots"),
            "inflightBatchingStats": names(
                "numScheduledRequests numContextRequests numGenRequests numPausedRequests numCtxTokens microBatchId \
                 avgNumDecodedTokensPerIter numCtxKvTokens numGenKvTokens numQueuedContextRequests numQueuedCtxTokens \
                 numQueuedGenRequests numQueuedGenKvTokens numPausedKvTokens",
            ),
            "specDecodingStats": names(
                "numDraftTokens numAcceptedTokens numRequestsWithDraftTokens acceptanceLength iterLatencyMS draftOverhead",
            ),
            "kvCacheIterationStats": {"4096": pools}, "kvCacheIterationStatsByPoolGroup": {"0": pools},
            "kvCacheIterationStatsByColdPoolGroup": {"0": pools}, "kvCacheIterationStatsByLifecycle": {"0": lifecycle},
            "iterCachedTokensByLevel": [1, 2], "requestStats": [row],
        }),
    )
}

fn entry() -> Value {
    let step = json!({"token_time": 2.5, "gpu_forward_time": 3, "gpu_sample_time": 3});
    json!({
        "promptTokens": 3, "outputTokens": 3, "cachedTokens": 3, "disaggServerArrivalTime": 2.5,
        "disaggServerFirstTokenTime": 2.5,
        "timeBreakdownMetrics": {"ctx_chunk_metrics": [step], "step_metrics": [step, step]},
        "perfMetrics": {
            "firstIter": 3, "lastIter": 3, "iter": 3,
            "timingMetrics": {
                "serverArrivalTime": 2.5, "serverFirstTokenTime": 2.5, "arrivalTime": 2.5, "firstScheduledTime": 2.5,
                "firstTokenTime": 2.5, "lastTokenTime": 2.5, "kvCacheTransferStart": 2.5, "kvCacheTransferEnd": 2.5,
                "kvCacheSize": 3,
            },
            "kvCacheMetrics": {
                "numTotalAllocatedBlocks": 3, "numNewAllocatedBlocks": 3, "numReusedBlocks": 3, "numMissedBlocks": 3,
                "kvCacheHitRate": 0.5,
            },
            "speculativeDecoding": {"acceptanceRate": 0.5, "totalAcceptedDraftTokens": 3, "totalDraftTokens": 3},
        },
    })
}

/// The pointers of all values in a message, such as `/kvCacheStats/usedNumBlocks`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (format!("{at}/{key}"), value)).collect(),
        Value::Array(values) => {
            (0..).zip(values).map(|(index, value): (u32, _)| (format!("{at}/{index}"), value)).collect()
        }
        _ => return,
    };
    for (at, child) in children {
        pointers(child, &at, found);
        found.push(at);
    }
}

/// The name in upstream's spelling of the last key in a pointer. Rows and elements count under the name of their view.
fn field(pointer: &str) -> String {
    let key = pointer.rsplit('/').find(|key| !key.bytes().all(|byte| byte.is_ascii_digit())).unwrap();
    let mut words = key.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Replaces each value of a message in turn, and returns what the check says, with the pointer.
fn each<M>(message: &Value, odd: &Value) -> Vec<(String, Result<M, Implausible>, Rejected)>
where
    M: Schema + Clone + serde::de::DeserializeOwned,
{
    let mut all = Vec::new();
    pointers(message, "", &mut all);
    let one = |pointer: String| {
        let mut message = message.clone();
        *message.pointer_mut(&pointer).unwrap() = odd.clone();
        let message: M = serde_json::from_value(message).unwrap();
        let (checked, rejected) = checked(&message);
        (pointer, checked, rejected)
    };
    all.into_iter().map(one).collect()
}

#[test]
fn an_impossible_value_costs_the_value_and_never_the_record() {
    let plausible: IterationStats = serde_json::from_value(record()).unwrap();
    assert_eq!(checked(&plausible), (Ok(plausible), Rejected::default()), "the control");
    for odd in [json!("1"), json!(true), json!(i64::MIN), json!(u64::MAX), json!(1e308)] {
        for (pointer, checked, rejected) in each::<IterationStats>(&record(), &odd) {
            match pointer.as_str() {
                "/iter" | "/statsSequence" | "/rank" | "/attentionDpRank" => {
                    assert_eq!((checked, rejected), (Err(Implausible), Rejected::default()), "{pointer} {odd}");
                }
                "/requestStats/0/id" | "/requestStats/0" | "/requestStats" => {
                    assert_eq!(rejected, Rejected { rows: 1, ..Rejected::default() }, "{pointer} {odd}");
                    assert_eq!(checked.unwrap().request_stats.as_deref(), Some(&[][..]), "{pointer} {odd}");
                }
                _ => {
                    let field = field(&pointer);
                    assert_eq!(rejected.values, [(&*field, 1)].into(), "{pointer} {odd}");
                    let repaired = checked.unwrap();
                    assert!(repaired.is_plausible(), "{pointer} {odd}");
                    assert_eq!(repaired.iter, Some(1), "{pointer} {odd}");
                }
            }
        }
    }
}

#[test]
fn an_impossible_time_of_an_entry_is_absent_and_the_entry_counts() {
    let plausible: PerfMetricsEntry = serde_json::from_value(entry()).unwrap();
    assert_eq!(checked(&plausible), (Ok(plausible), Rejected::default()), "the control");
    for odd in [json!("1"), json!([]), json!(u64::MAX), json!(1e308)] {
        for (pointer, checked, rejected) in each::<PerfMetricsEntry>(&entry(), &odd) {
            let repaired = checked.unwrap();
            assert!(repaired.is_plausible(), "{pointer} {odd}");
            let values = match pointer.as_str() {
                // Nothing tells what it was.
                "/perfMetrics" => vec![],
                // An empty list of steps is possible.
                "/timeBreakdownMetrics/ctx_chunk_metrics" | "/timeBreakdownMetrics/step_metrics"
                    if odd == json!([]) =>
                {
                    vec![]
                }
                of_steps
                    if of_steps.ends_with("k_metrics")
                        || of_steps.ends_with("p_metrics")
                        || of_steps.ends_with(['0', '1']) =>
                {
                    vec![("tokenTime".to_owned(), 1)]
                }
                _ => vec![(field(&pointer), 1)],
            };
            let rejected: Vec<(String, u64)> =
                rejected.values.into_iter().map(|(field, count)| (field.to_owned(), count)).collect();
            assert_eq!(rejected, values, "{pointer} {odd}");
        }
    }
    for part in ["ctx_perf_metrics", "gen_perf_metrics"] {
        let times =
            json!({part: {"perf_metrics": {"timing_metrics": {"first_token_time": 1e308, "arrival_time": 1.5}}}});
        let (repaired, rejected) = checked::<PerfMetricsEntry>(&serde_json::from_value(times).unwrap());
        assert_eq!(rejected.values, [("firstTokenTime", 1)].into(), "{part}");
        let repaired = repaired.unwrap();
        let part = repaired.ctx_perf_metrics.or(repaired.gen_perf_metrics).unwrap();
        let times = part.perf_metrics.unwrap().timing_metrics.unwrap();
        assert_eq!((times.first_token_time, times.arrival_time), (None, Some(1.5)));
    }
}

#[test]
fn a_share_above_1_is_impossible() {
    let record = |share: f64| -> IterationStats {
        let drafts = json!({"numDraftTokens": 4, "draftOverhead": share});
        serde_json::from_value(json!({"kvCacheStats": {"cacheHitRate": share}, "specDecodingStats": drafts})).unwrap()
    };
    assert_eq!(checked(&record(1.000_000_1)).1, Rejected::default(), "a rounded 1");
    for share in [1.5, 80.0, -0.1] {
        let rejected = checked(&record(share)).1;
        assert_eq!(rejected.values, [("cacheHitRate", 1), ("draftOverhead", 1)].into(), "{share}");
    }
}

#[test]
fn more_free_blocks_than_there_are_are_impossible() {
    let record = |free: i64| -> IterationStats {
        serde_json::from_value(
            json!({"kvCacheStats": {"maxNumBlocks": 7934, "freeNumBlocks": free, "usedNumBlocks": 5}}),
        )
        .unwrap()
    };
    assert_eq!(checked(&record(7934)).1, Rejected::default());
    let (repaired, rejected) = checked(&record(7936));
    let kv = repaired.unwrap().kv_cache_stats.unwrap();
    assert_eq!((kv.max_num_blocks, kv.free_num_blocks, kv.used_num_blocks), (Some(7934), None, Some(5)));
    assert_eq!(rejected.values, [("freeNumBlocks", 1)].into());
    let alone = serde_json::from_value(json!({"kvCacheStats": {"freeNumBlocks": 3}})).unwrap();
    assert_eq!(checked::<IterationStats>(&alone).1, Rejected::default());
}

schema! { MADE_UP:
    /// A part of a record.
    #[derive(Copy)]
    pub struct Sleep: Cpp {
        dreams: i64 = "dreams" [Count sum load];
        total: i64 = "total" [Cumulative all];
    }

    pub struct Record: Iterations {
        @cpp iter: u64 = "iter" [Sequence];
        share_asleep: f64 = "shareAsleep" | "asleep" [Share];
        part: Sleep = "part" [Part when(V2) none("tells nothing")];
    }
}

#[test]
fn a_line_becomes_a_field_with_its_properties() {
    let part = |key| Field::new("Sleep", key, key, When::Cpp);
    assert_eq!(MADE_UP[0], [part("dreams").sum().load(), part("total").all()]);
    let of_record = |key, member| Field::new("Record", key, member, When::Iterations);
    let record = [
        of_record("iter", "iter").cpp(),
        of_record("shareAsleep", "share_asleep"),
        of_record("part", "part").when(When::V2).none("tells nothing"),
    ];
    assert_eq!(MADE_UP[1], record);
}

#[test]
fn a_key_is_read_in_each_spelling_and_its_last_value_counts() {
    let read = |text: &str| serde_json::from_str::<Record>(text).unwrap();
    for key in ["shareAsleep", "share_asleep", "asleep"] {
        assert_eq!(read(&format!("{{\"{key}\":1}}")).share_asleep, Some(1.0), "{key}");
    }
    let part = Sleep { dreams: Some(2), total: None };
    let record = Record { iter: Some(7), share_asleep: Some(0.5), part: Some(part) };
    let text = r#"{"new":[{}],"iter":3,"iter":7.0,"asleep":0.25,"shareAsleep":0.5,"part":{"dreams":2,"total":null}}"#;
    assert_eq!(read(text), record);
    let written = serde_json::to_string(&record).unwrap();
    assert_eq!(written, r#"{"iter":7,"shareAsleep":0.5,"part":{"dreams":2}}"#);
}

#[test]
fn what_is_impossible_is_removed_and_only_a_key_refuses_the_record() {
    let check_text = |text: &str| checked(&serde_json::from_str::<Record>(text).unwrap());
    let (record, rejected) = check_text(r#"{"iter":1,"asleep":2,"part":{"dreams":-1,"total":-1}}"#);
    let part = Sleep { dreams: None, total: Some(-1) };
    assert_eq!(record, Ok(Record { iter: Some(1), share_asleep: None, part: Some(part) }));
    assert_eq!(rejected.values, [("shareAsleep", 1), ("dreams", 1)].into());
    assert_eq!(check_text(r#"{"iter":"1","asleep":2}"#), (Err(Implausible), Rejected::default()));
    let (record, rejected) = check_text(r#"{"iter":1,"part":[]}"#);
    assert_eq!((record.unwrap().part, rejected.values), (None, [("part", 1)].into()));
}

#[test]
fn ranks_add_up_and_load_is_0_while_idle() {
    let mut sum = Sleep { dreams: None, total: Some(5) };
    sum.add(&Sleep { dreams: Some(2), total: Some(4) });
    assert_eq!(sum, Sleep { dreams: Some(2), total: Some(9) });
    sum.add(&Sleep { dreams: Some(1), total: None });
    assert_eq!(sum, Sleep { dreams: Some(3), total: None });
    sum.make_idle();
    assert_eq!(sum, Sleep { dreams: Some(0), total: None });
}

#[test]
fn requests_beyond_the_limit_of_a_record_are_not_skipped_in_silence() {
    for (requests, rows) in [(8192, 0), (8193, 1), (9000, 1)] {
        let value = serde_json::json!({"iter": 1, "requestStats": vec![serde_json::json!({"id": 1}); requests]});
        let mut record: IterationStats = serde_json::from_value(value).unwrap();
        let mut rejected = Rejected::default();
        record.repair(&mut rejected);
        let kept = record.request_stats.map(|requests| requests.len());
        assert_eq!((kept, rejected.rows), (Some(requests.min(8192)), rows));
    }
}
