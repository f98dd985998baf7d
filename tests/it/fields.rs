//! Every field of the engine's statistics changes the families that the catalog names for it, or the catalog states why
//! no family uses it. The test reads the fields from the source of the model, so it fails until the catalog lists a new
//! field.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_page::metrics::catalog::CATALOG;
use trtllm_page::metrics::catalog::feeds::{families_of, is};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page::Value as Sample;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::schema::Field;
use trtllm_records::statistics::EXECUTOR;
use trtllm_records::{IterationStats, Objectives, PerfMetricsEntry, fields};

use crate::support::fold_page;

#[test]
fn every_field_feeds_a_family_or_has_a_reason() {
    for field in fields() {
        let name = format!("{}.{}", field.structure, field.key);
        match field.none {
            None => {
                assert!(families_of(field).next().is_some(), "{name}: add it to `feeds` of a family, or add `none`")
            }
            Some(why) => {
                assert_eq!(families_of(field).next(), None, "{name} has `none` and feeds a family");
                assert!(why.split(' ').count() > 3, "{name}: {why}");
            }
        }
    }
    let feeds = CATALOG.iter().flat_map(|metric| metric.feeds.split_whitespace().map(|name| (metric.name, name)));
    let unknown: Vec<_> = feeds.filter(|(_, name)| !fields().any(|field| is(field, name))).collect();
    assert!(unknown.is_empty(), "not in crates/records/src/statistics.rs: {unknown:?}");
}

#[test]
fn both_spellings_of_a_key_are_one_name() {
    let mut names = BTreeSet::new();
    for field in fields() {
        assert_eq!(field.key.to_lowercase(), field.member.replace('_', ""), "{}", field.structure);
        assert!(names.insert((field.structure, field.key)), "{}.{} is listed twice", field.structure, field.key);
    }
}

/// The struct of cxx with this name: its members.
fn of_ffi(text: &str, structure: &str) -> BTreeSet<String> {
    let (_, members) = text.split_once(&format!("    struct {structure} {{\n")).unwrap();
    let (members, _) = members.split_once("\n    }").unwrap();
    let names = members.lines().filter(|line| !line.contains("///")).filter_map(|line| line.trim().split_once(": "));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "present").collect()
}

/// The list of C++ with this name: key and member.
fn of_cpp(text: &str, structure: &str) -> BTreeMap<String, String> {
    let (_, list) = text.split_once(&format!("#define TRTLLM_EXPORTER_{structure}(V, N, T)")).unwrap();
    let lines = list.lines().scan(true, |more, line| std::mem::replace(more, line.ends_with('\\')).then_some(line));
    let list: String = lines.collect();
    let entries = list.split(')').filter_map(|entry| entry.split_once('('));
    entries
        .map(|(_, names)| names.split(", ").map(str::to_owned))
        .map(|mut names| (names.next().unwrap(), names.next().unwrap()))
        .collect()
}

/// cxx expands no macros and the C++ compiler knows no Rust, so their lists of members are written by hand.
#[test]
fn the_bridge_has_the_members_of_the_schema() {
    let (ffi, list) = ("cpp-bridge/src/ffi.rs", "cpp-bridge/publisher/include/trtllm_exporter/detail/member_list.h");
    let [ffi_text, list_text] = [ffi, list].map(|path| std::fs::read_to_string(path).unwrap());
    for structure in EXECUTOR.iter().map(|fields| fields[0].structure) {
        let marked = fields().filter(|field| field.structure == structure && field.is_cpp);
        let schema: BTreeMap<_, _> = marked.map(|field| (field.key.to_owned(), field.member.to_owned())).collect();
        let members: BTreeSet<String> = schema.values().cloned().collect();
        let differ: Vec<_> = members.symmetric_difference(&of_ffi(&ffi_text, structure)).cloned().collect();
        assert_eq!(differ, [""; 0], "{structure}: {ffi} differs from `@cpp` in crates/records/src/statistics.rs");
        let cpp = of_cpp(&list_text, structure);
        let differ: Vec<_> = schema.iter().filter(|(key, member)| cpp.get(*key) != Some(member)).collect();
        assert_eq!(differ, [], "{structure}: not in {list}");
        assert_eq!(cpp.len(), schema.len(), "{structure}: {list} has more: {cpp:?}");
    }
}

/// docs/METRICS.md describes by hand when the engine reads each field. This checks only that no field is missing there.
#[test]
fn the_reference_describes_when_the_engine_reads_each_field() {
    let page = include_str!("../../src/tools/metrics.md");
    let (_, page) = page.split_once("## When the engine reads each field").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let tables: BTreeMap<&str, &str> = page.split("\n**").filter_map(|part| part.split_once("**")).collect();
    let table_of = |structure| match structure {
        "IterationStats" | "KvCacheStats" | "InflightBatchingStats" | "SpecDecodingStats" | "RequestStats" => structure,
        "DisServingRequestStats" => "RequestStats",
        "TimingMetrics" | "RequestKvCacheMetrics" | "SpeculativeDecodingMetrics" => "Entries",
        _ => "",
    };
    let missing: Vec<String> = fields()
        .filter(|field| !table_of(field.structure).is_empty())
        .filter(|field| {
            let rows = tables[table_of(field.structure)].lines();
            !rows.filter_map(|row| row.split('|').nth(1)).any(|cell| cell.contains(&format!("`{}`", field.key)))
        })
        .map(|field| format!("{}.{}", field.structure, field.key))
        .collect();
    assert!(missing.is_empty(), "not in src/tools/metrics.md, \"When the engine reads each field\": {missing:?}");
}

/// A record with a different value in every field.
fn full_record() -> Value {
    let kv = |base: i64| {
        json!({"maxNumBlocks": base + 900, "freeNumBlocks": base + 400, "usedNumBlocks": base + 300, "tokensPerBlock": 32,
            "allocTotalBlocks": base + 80, "allocNewBlocks": base + 50, "reusedBlocks": base + 30,
            "missedBlocks": base + 20, "cacheHitRate": 0.6, "usedShare": 0.3})
    };
    let mut window = serde_json::Map::new();
    for (at, field) in fields().filter(|field| field.structure == "KvCacheIterationStats").enumerate() {
        window.insert(field.key.to_owned(), if field.key == "iterCacheHitRate" { json!(0.5) } else { json!(10 + at) });
    }
    json!({
        "timestamp": "2025-07-25T16:54:34.140189Z", "iter": 7, "iterLatencyMS": 12.5,
        "newActiveRequestsQueueLatencyMS": 40.0, "numNewActiveRequests": 2, "numActiveRequests": 5,
        "numQueuedRequests": 3, "numCompletedRequests": 1, "maxNumActiveRequests": 64,
        "maxBatchSizeStatic": 128, "maxBatchSizeTunerRecommended": 96, "maxBatchSizeRuntime": 80,
        "maxNumTokensStatic": 8192, "maxNumTokensTunerRecommended": 6144, "maxNumTokensRuntime": 4096,
        "gpuMemUsage": 1001, "cpuMemUsage": 1002, "pinnedMemUsage": 1003,
        "kvCacheStats": kv(0), "crossKvCacheStats": kv(7),
        "inflightBatchingStats": {
            "numScheduledRequests": 4, "numContextRequests": 1, "numGenRequests": 3, "numPausedRequests": 6,
            "numCtxTokens": 100, "microBatchId": 0, "avgNumDecodedTokensPerIter": 2.0, "numCtxKvTokens": 11,
            "numGenKvTokens": 12, "numQueuedContextRequests": 13, "numQueuedCtxTokens": 14, "numQueuedGenRequests": 15,
            "numQueuedGenKvTokens": 16, "numPausedKvTokens": 17},
        "specDecodingStats": {
            "numDraftTokens": 20, "numAcceptedTokens": 12, "numRequestsWithDraftTokens": 3, "acceptanceLength": 2.5,
            "iterLatencyMS": 1.5, "draftOverhead": 0.25},
        "attentionDpRank": 0, "rank": 0, "hostStepTimeMS": 6.1, "prevDeviceStepTimeMS": 5.8, "gpuForwardTimeMS": 5.7,
        "schedulerMode": "overlap", "statsSequence": 41, "statsDroppedFrames": 2,
        "kvCacheIterationStats": {"32768": window},
        "iterSuspendedRequests": 2, "iterResumedRequests": 1, "iterDiskPrefetchBlocks": 4,
        "iterCachedTokensByLevel": [12, 8], "kvCacheLevelTiers": ["gpu", "host"],
    })
}

fn full_row(stage: &str) -> Value {
    json!({
        "id": 7, "stage": stage, "contextPrefillPosition": 96, "numGeneratedTokens": 16,
        "avgNumDecodedTokensPerIter": 1.0, "scheduled": true, "paused": false,
        "disServingStats": {"kvCacheTransferMS": 20.0, "kvCacheSize": 100000},
        "allocTotalBlocksPerRequest": 7, "allocNewBlocksPerRequest": 4, "reusedBlocksPerRequest": 3,
        "missedBlocksPerRequest": 1, "kvCacheHitRatePerRequest": 0.75})
}

fn full_entry() -> Value {
    json!({
        "ctxRequestId": 9, "finishReason": "stop", "promptTokens": 40, "outputTokens": 11, "cachedTokens": 8,
        "perfMetrics": {
            "firstIter": 10, "lastIter": 25, "iter": 25,
            "timingMetrics": {
                "serverArrivalTime": 999.9, "serverFirstTokenTime": 1000.21, "arrivalTime": 1000.0,
                "firstScheduledTime": 1000.06, "firstTokenTime": 1000.2, "lastTokenTime": 1001.2,
                "kvCacheTransferStart": 1000.02, "kvCacheTransferEnd": 1000.05, "kvCacheSize": 1048576},
            "kvCacheMetrics": {
                "numTotalAllocatedBlocks": 6, "numNewAllocatedBlocks": 4, "numReusedBlocks": 2, "numMissedBlocks": 4,
                "kvCacheHitRate": 0.33},
            "speculativeDecoding": {
                "acceptanceRate": 0.5, "totalAcceptedDraftTokens": 10, "totalDraftTokens": 20}}})
}

/// All messages that an engine sends.
#[derive(Clone)]
struct Messages {
    records: Vec<Value>,
    entries: Vec<Value>,
}

/// The samples of each family, as text.
fn page(messages: &Messages) -> BTreeMap<&'static str, String> {
    let start = Instant::now();
    let objectives = Objectives { e2e: Some(Duration::from_secs(60)), ..Objectives::default() };
    let mut engine = ObservedEngine::new(Duration::from_secs(15)).with_objectives(objectives);
    for record in &messages.records {
        let record: IterationStats = serde_json::from_value(record.clone()).unwrap();
        engine.absorb(&record, start, 1_753_462_475_000_000).unwrap();
        // Each record comes with an answer of its own: what was dropped before the first answer is not a loss.
        engine.settle(false, start);
    }
    for entry in &messages.entries {
        engine.absorb_perf_metrics(&serde_json::from_value::<PerfMetricsEntry>(entry.clone()).unwrap(), start).unwrap();
    }
    engine.settle(false, start + Duration::from_secs(60));
    let state = fold_page::state(objectives, fold_page::polled(&engine, start));
    let page = fold_page::page(&state, CompatSets::default(), Selection::All);
    let mut families: BTreeMap<&'static str, String> = BTreeMap::new();
    for sample in page.samples() {
        let value = match &sample.value {
            Sample::Histogram(histogram) => {
                format!("{:?} {} {}", histogram.cumulative().collect::<Vec<_>>(), histogram.count(), histogram.sum())
            }
            value => format!("{value:?}"),
        };
        let text = format!("{}{value}\n", sample.labels.series());
        families.entry(sample.metric.metric().name).or_default().push_str(&text);
    }
    families
}

/// Another value of the same JSON type.
fn another(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(integer) => json!(integer + 1),
            None => json!(number.as_f64().unwrap() * 1.75),
        },
        Value::Bool(value) => json!(!value),
        Value::String(text) => match text.as_str() {
            "overlap" => json!("non_overlap"),
            "stop" => json!("cancelled"),
            "GENERATION_IN_PROGRESS" => json!("CONTEXT_IN_PROGRESS"),
            text => json!(text.replace("34.140189", "35.5")),
        },
        Value::Array(items) if items.iter().all(Value::is_string) => json!(["disk", "host"]),
        Value::Array(items) => items.iter().map(another).collect(),
        Value::Object(_) | Value::Null => Value::Null,
    }
}

/// Applies `change`, which changes the field. Every family that it feeds must change.
fn must_change(field: &Field, messages: &Messages, change: impl FnOnce(&mut Messages)) {
    let families: Vec<&str> = families_of(field).map(|metric| metric.name).collect();
    if families.is_empty() {
        return;
    }
    families_must_change(&families, field, messages, change);
}

fn families_must_change(families: &[&str], field: &Field, messages: &Messages, change: impl FnOnce(&mut Messages)) {
    let mut changed = messages.clone();
    change(&mut changed);
    let (before, after) = (page(messages), page(&changed));
    for name in families {
        let Field { structure, key, .. } = field;
        assert!(before.contains_key(name) || after.contains_key(name), "{structure}.{key}: {name} is not there");
        assert_ne!(before.get(name), after.get(name), "{structure}.{key} does not change {name}");
    }
}

fn swap(at: &mut Value, pointer: &str) {
    let value = at.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not in the example"));
    *value = another(value);
}

fn fields_of(of: &str) -> impl Iterator<Item = &'static Field> + use<'_> {
    let mut found = fields().filter(move |field| field.structure == of).peekable();
    assert!(found.peek().is_some(), "{of}");
    found
}

/// Two records, because cumulative counts, losses and restarts are differences.
fn two_records() -> Messages {
    let mut first = full_record();
    first["iter"] = json!(6);
    first["statsSequence"] = json!(40);
    for cache in ["kvCacheStats", "crossKvCacheStats"] {
        for count in ["allocTotalBlocks", "allocNewBlocks", "reusedBlocks", "missedBlocks"] {
            first[cache][count] = json!(5);
        }
    }
    first["kvCacheIterationStats"] = Value::Null;
    first["newActiveRequestsQueueLatencyMS"] = json!(5.0);
    let mut records = vec![first, full_record()];
    // A record with `rank` contains no queue time, so remove `rank`.
    records.iter_mut().for_each(|record| record["rank"] = Value::Null);
    Messages { records, entries: Vec::new() }
}

#[test]
fn every_field_of_a_record_changes_the_families_named_for_it() {
    let messages = two_records();
    for field in fields_of("IterationStats") {
        match field.key {
            // Other tests check these fields.
            "iter" | "staticBatchingStats" | "requestStats" | "iterLatencyMS" | "attentionDpRank" | "rank" => {}
            name if name.starts_with("kvCacheIterationStatsBy") => {}
            // The time of a batch needs the host step of the record before it.
            "hostStepTimeMS" => {
                must_change(field, &messages, |messages| swap(&mut messages.records[0], "/hostStepTimeMS"))
            }
            // The queue of releases without timestamps has all requests that wait. That of later ones has only the arrivals of one pass,
            // which change nothing while a seat is free.
            "numQueuedRequests" => {
                let mut old = messages.clone();
                old.records.iter_mut().for_each(|record| record["timestamp"] = Value::Null);
                must_change(field, &old, |messages| swap(&mut messages.records[1], "/numQueuedRequests"));
            }
            name => must_change(field, &messages, |messages| swap(&mut messages.records[1], &format!("/{name}"))),
        }
    }
    for (of, at) in [
        ("InflightBatchingStats", "/inflightBatchingStats"),
        ("SpecDecodingStats", "/specDecodingStats"),
        ("KvCacheStats", "/kvCacheStats"),
        ("KvCacheIterationStats", "/kvCacheIterationStats/32768"),
    ] {
        for field in fields_of(of) {
            let messages = if field.key == "usedShare" { without_blocks(&messages) } else { messages.clone() };
            must_change(field, &messages, |messages| swap(&mut messages.records[1], &format!("{at}/{}", field.key)));
        }
    }
}

/// The used share of a cache counts only where nothing tells its blocks, as in an iteration log.
fn without_blocks(messages: &Messages) -> Messages {
    let mut messages = messages.clone();
    for record in &mut messages.records {
        for cache in ["kvCacheStats", "crossKvCacheStats"] {
            record[cache]["maxNumBlocks"] = Value::Null;
        }
    }
    messages
}

#[test]
fn the_number_latency_and_rank_of_a_record_change_the_families_named_for_them() {
    let messages = two_records();
    let field = |name: &str| fields_of("IterationStats").find(|field| field.key == name).unwrap();
    let iter_must_change = |family: &str, messages: &Messages, iter: u64| {
        families_must_change(&[family], field("iter"), messages, |messages| messages.records[1]["iter"] = json!(iter));
    };
    iter_must_change("nv_trt_llm_general_metrics", &messages, 9);
    iter_must_change("nv_trt_llm_iterations_total", &messages, 6);
    // Without frame numbers, a gap in the iteration numbers counts as a loss only for the C++ executor.
    let mut executor = messages.clone();
    for record in &mut executor.records {
        for key in ["statsSequence", "schedulerMode", "attentionDpRank"] {
            record[key] = Value::Null;
        }
    }
    iter_must_change("nv_trt_llm_iterations_lost_total", &executor, 9);
    iter_must_change("nv_trt_llm_engine_restarts_total", &messages, 2);
    iter_must_change("nv_trt_llm_iterations_unreported_total", &messages, 9);
    // With the overlap scheduler, the exporter uses the host step as the latency instead of iterLatencyMS.
    let mut apart = messages.clone();
    apart.records[1]["schedulerMode"] = json!("non_overlap");
    must_change(field("iterLatencyMS"), &apart, |messages| swap(&mut messages.records[1], "/iterLatencyMS"));
    must_change(field("attentionDpRank"), &messages, |messages| {
        // The exporter must see the second rank in the first iteration to know the number of ranks.
        let with_sibling = |record: Value| {
            let mut sibling = record.clone();
            sibling["attentionDpRank"] = json!(1);
            [record, sibling]
        };
        messages.records = std::mem::take(&mut messages.records).into_iter().flat_map(with_sibling).collect();
    });
    must_change(field("rank"), &messages, |messages| {
        messages.records.iter_mut().for_each(|record| record["rank"] = json!(0));
        let mut sibling = messages.records[1].clone();
        sibling["rank"] = json!(1);
        messages.records.push(sibling);
    });
}

#[test]
fn every_field_of_static_batching_and_cross_attention_changes_the_families_named_for_it() {
    let mut messages = two_records();
    for record in &mut messages.records {
        record["inflightBatchingStats"] = Value::Null;
        record["staticBatchingStats"] = json!({
            "numScheduledRequests": 4, "numContextRequests": 1, "numCtxTokens": 40, "numGenTokens": 3, "emptyGenSlots": 2});
    }
    let whole = fields_of("IterationStats").find(|field| field.key == "staticBatchingStats").unwrap();
    must_change(whole, &messages, |messages| messages.records[1]["staticBatchingStats"] = Value::Null);
    for field in fields_of("StaticBatchingStats") {
        must_change(field, &messages, |messages| {
            swap(&mut messages.records[1], &format!("/staticBatchingStats/{}", field.key))
        });
    }
    // The cache of the cross attention has its own families.
    for field in fields_of("KvCacheStats") {
        let pointer = format!("/crossKvCacheStats/{}", field.key);
        let messages = if field.key == "usedShare" { without_blocks(&messages) } else { messages.clone() };
        let mut changed = messages.clone();
        swap(&mut changed.records[1], &pointer);
        let (before, after) = (page(&messages), page(&changed));
        let differ = ["nv_trt_llm_cross_kv_cache_block_metrics", "nv_trt_llm_cross_kv_cache_blocks_total"]
            .into_iter()
            .any(|name| before.get(name) != after.get(name));
        assert_eq!(differ, field.none.is_none(), "{pointer}");
    }
}

#[test]
fn every_field_of_the_views_of_kv_cache_manager_v2_changes_the_families_named_for_it() {
    let mut messages = two_records();
    for record in &mut messages.records {
        let pools = &full_record()["kvCacheIterationStats"]["32768"];
        record["kvCacheIterationStatsByPoolGroup"] = json!({"0": pools, "1": pools});
        record["kvCacheIterationStatsByColdPoolGroup"] = json!({"0": pools});
        record["kvCacheIterationStatsByLifecycle"] = json!({
            "0": {"kind": "attention", "iterReusedBlocks": 5, "iterFullReusedBlocks": 4, "iterPartialReusedBlocks": 1,
                "iterMissedBlocks": 2, "iterFullReusedBlocksByLevel": [4, 0], "iterPartialReusedBlocksByLevel": [0, 1]},
            "1": {"kind": "ssm", "snapshotStats": {"iterSnapshotLookups": 9, "iterSnapshotMisses": 2, "iterReusedTokens": 70,
                "iterUnreusedTokens": 30, "iterAlignedSnapshotHits": 4, "iterUnalignedSnapshotHits": 3}}});
    }
    for field in fields_of("IterationStats").filter(|field| field.key.starts_with("kvCacheIterationStatsBy")) {
        must_change(field, &messages, |messages| messages.records[1][field.key] = Value::Null);
    }
    for field in fields_of("KvCacheLifecycleStats") {
        must_change(field, &messages, |messages| {
            let lifecycles = &mut messages.records[1]["kvCacheIterationStatsByLifecycle"];
            match field.key {
                "kind" => lifecycles["0"]["kind"] = json!("ssm"),
                "snapshotStats" => swap(lifecycles, "/1/snapshotStats"),
                name => swap(lifecycles, &format!("/0/{name}")),
            }
        });
    }
    for field in fields_of("SsmSnapshotStats") {
        let pointer = format!("/kvCacheIterationStatsByLifecycle/1/snapshotStats/{}", field.key);
        must_change(field, &messages, |messages| swap(&mut messages.records[1], &pointer));
    }
}

/// Records with `requestStats` of one request that arrives, runs and ends.
fn complete_request() -> Messages {
    let record = |iter: u64, row: Option<Value>| {
        let mut record = full_record();
        for key in ["attentionDpRank", "schedulerMode", "statsSequence", "statsDroppedFrames"] {
            record[key] = Value::Null;
        }
        record["iter"] = json!(iter);
        record["timestamp"] = json!(format!("2025-07-25T16:54:{:02}.500000Z", 10 + iter));
        record["requestStats"] = row.map_or(json!([]), |row| json!([row]));
        record
    };
    let mut waiting = full_row("CONTEXT_IN_PROGRESS");
    waiting["scheduled"] = json!(false);
    waiting["numGeneratedTokens"] = json!(0);
    let mut running = full_row("GENERATION_IN_PROGRESS");
    running["numGeneratedTokens"] = json!(1);
    Messages {
        records: vec![
            record(1, None),
            record(2, Some(waiting)),
            record(3, Some(running.clone())),
            record(4, Some(running)),
            record(5, Some(full_row("GENERATION_COMPLETE"))),
            record(
                6,
                Some({
                    let mut other = full_row("GENERATION_IN_PROGRESS");
                    other["id"] = json!(8);
                    other
                }),
            ),
        ],
        entries: Vec::new(),
    }
}

#[test]
fn every_field_of_a_request_row_changes_the_families_named_for_it() {
    let messages = complete_request();
    for field in fields_of("RequestStats") {
        let (record, pointer) = match field.key {
            "stage" => (5, "/requestStats/0/stage".to_owned()),
            "scheduled" => (1, "/requestStats/0/scheduled".to_owned()),
            "paused" => (3, "/requestStats/0/paused".to_owned()),
            name => (4, format!("/requestStats/0/{name}")),
        };
        must_change(field, &messages, |messages| swap(&mut messages.records[record], &pointer));
    }
    for field in fields_of("DisServingRequestStats") {
        let pointer = format!("/requestStats/0/disServingStats/{}", field.key);
        must_change(field, &messages, |messages| {
            let value = messages.records[4].pointer_mut(&pointer).unwrap();
            *value = json!(value.as_f64().unwrap() as u64 * 1000);
        });
    }
    let rows = fields_of("RequestStatsPerIteration").find(|field| field.key == "requestStats").unwrap();
    let waiting = json!([{"id": 99, "stage": "QUEUED", "scheduled": false, "paused": false, "numGeneratedTokens": 0}]);
    must_change(rows, &messages, |messages| messages.records[5]["requestStats"] = waiting);
}

#[test]
fn every_field_of_request_perf_metrics_changes_the_families_named_for_it() {
    let messages = Messages { records: Vec::new(), entries: vec![full_entry()] };
    for (of, at) in [
        ("PerfMetricsEntry", ""),
        ("RequestPerfMetrics", "/perfMetrics"),
        ("TimingMetrics", "/perfMetrics/timingMetrics"),
        ("RequestKvCacheMetrics", "/perfMetrics/kvCacheMetrics"),
        ("SpeculativeDecodingMetrics", "/perfMetrics/speculativeDecoding"),
    ] {
        for field in fields_of(of) {
            let mut messages = messages.clone();
            match field.key {
                // Another test checks these fields.
                "ctxPerfMetrics" | "genPerfMetrics" | "disaggServerArrivalTime" | "disaggServerFirstTokenTime" => {
                    continue;
                }
                // A KV cache transfer also marks a request as disaggregated, so remove it first.
                "ctxRequestId" => {
                    messages.entries[0]["perfMetrics"]["timingMetrics"]["kvCacheTransferStart"] = Value::Null;
                    must_change(field, &messages, |messages| messages.entries[0]["ctxRequestId"] = Value::Null);
                    continue;
                }
                // A step returns one token, or several with speculative decoding. Test both.
                "timeBreakdownMetrics" => {
                    let step = |time| json!({"token_time": time, "gpu_forward_time": 8.0, "gpu_sample_time": 0.5});
                    let steps = json!({"ctx_chunk_metrics": [step(1.0)], "step_metrics": [step(1.5)]});
                    messages.entries[0][field.key] = steps;
                    let mut plain = messages.entries[0].clone();
                    plain["perfMetrics"]["speculativeDecoding"] = Value::Null;
                    messages.entries.push(plain);
                    must_change(field, &messages, |messages| {
                        messages.entries.iter_mut().for_each(|entry| entry[field.key] = Value::Null);
                    });
                    continue;
                }
                "acceptanceRate" => {
                    let spec = &mut messages.entries[0]["perfMetrics"]["speculativeDecoding"];
                    spec["totalDraftTokens"] = Value::Null;
                    spec["totalAcceptedDraftTokens"] = Value::Null;
                }
                _ => {}
            }
            must_change(field, &messages, |messages| swap(&mut messages.entries[0], &format!("{at}/{}", field.key)));
        }
    }
}

#[test]
fn every_field_of_a_step_changes_the_families_named_for_it() {
    let step = |time: f64, gpu: f64| json!({"tokenTime": time, "gpuForwardTime": gpu, "gpuSampleTime": gpu / 16.0});
    let snake = |step: &Value| json!({"token_time": step["tokenTime"], "gpu_forward_time": step["gpuForwardTime"], "gpu_sample_time": step["gpuSampleTime"]});
    // Two requests: with and without speculative decoding.
    let messages = |chunk: Option<&Value>, step: Option<&Value>| {
        let steps = json!({"ctx_chunk_metrics": chunk.map(|chunk| [snake(chunk)]), "step_metrics": step.map(|last| [snake(&json!(
            {"tokenTime": 1.5, "gpuForwardTime": 8.0, "gpuSampleTime": 0.5})), snake(last)])});
        let mut entry = full_entry();
        entry["timeBreakdownMetrics"] = steps;
        let mut plain = entry.clone();
        plain["perfMetrics"]["speculativeDecoding"] = Value::Null;
        Messages { records: Vec::new(), entries: vec![entry, plain] }
    };
    let (chunk, last) = (step(1.0, 48.0), step(2.0, 8.0));
    let all = messages(Some(&chunk), Some(&last));
    for field in fields_of("StepTimes") {
        must_change(field, &all, |all| {
            *all = if field.key == "stepMetrics" { messages(Some(&chunk), None) } else { messages(None, Some(&last)) };
        });
    }
    for field in fields_of("Step") {
        let mut changed = last.clone();
        swap(&mut changed, &format!("/{}", field.key));
        must_change(field, &all, |all| *all = messages(Some(&chunk), Some(&changed)));
    }
}

#[test]
fn every_field_of_a_disaggregated_entry_changes_the_families_named_for_it() {
    let (mut context, generation) = (full_entry(), full_entry());
    for (name, time) in
        [("arrivalTime", 990.0), ("firstScheduledTime", 991.0), ("firstTokenTime", 993.0), ("lastTokenTime", 993.0)]
    {
        context["perfMetrics"]["timingMetrics"][name] = json!(time);
    }
    context["perfMetrics"]["timingMetrics"]["kvCacheTransferStart"] = Value::Null;
    context["outputTokens"] = Value::Null;
    let entry = json!({"ctxPerfMetrics": context, "genPerfMetrics": generation, "disaggServerArrivalTime": 989.0,
        "disaggServerFirstTokenTime": 1000.5});
    let messages = Messages { records: Vec::new(), entries: vec![entry] };
    for field in fields_of("PerfMetricsEntry").filter(|field| messages.entries[0].get(field.key).is_some()) {
        must_change(field, &messages, |messages| swap(&mut messages.entries[0], &format!("/{}", field.key)));
    }
}
