//! The meaning of TensorRT-LLM's counts and request rows (`requestStats`), as found in its source. Each test checks one
//! statement of docs/semantics.md with its own numbers. Times are milliseconds since the first record.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_page::metrics::catalog::Group;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::{IterationStats, Objectives, RequestStatsPerIteration};

use crate::support::fold_page;
use crate::support::page::Page;

mod counts;

/// Latency of each iteration in milliseconds, except the first one after an idle time.
const LATENCY: u64 = 50;

struct Engine {
    fold: ObservedEngine,
    start: Instant,
}

impl Engine {
    fn new() -> Self {
        Self { fold: ObservedEngine::new(Duration::from_secs(15)), start: Instant::now() }
    }

    /// Absorbs a record at the moment of its timestamp.
    fn record(&mut self, record: &Value) {
        let at = record["at"].as_u64().unwrap();
        let stats: IterationStats = serde_json::from_value(record.clone()).unwrap();
        let instant = self.start + Duration::from_millis(at);
        self.fold.absorb(&stats, instant, (at * 1000).try_into().unwrap()).unwrap();
    }

    fn records(records: &[Value]) -> Self {
        let mut engine = Self::new();
        records.iter().for_each(|record| engine.record(record));
        engine
    }

    /// The page ten minutes later, when the exporter no longer waits for exact times of ended requests.
    fn page(&mut self) -> Page {
        let later = self.start + Duration::from_secs(600);
        self.fold.settle(false, later);
        let state = fold_page::state(Objectives::default(), fold_page::polled(&self.fold, self.start));
        let selection = Selection::of(&[Group::Triton, Group::Engine]);
        fold_page::parsed(&fold_page::page(&state, CompatSets::default(), selection))
    }
}

/// Count and sum of a histogram, with the sum in milliseconds.
fn observed(page: &Page, family: &str) -> (u64, u64) {
    let value = |end: &str| page.find(&format!("nv_trt_llm_{family}_seconds_{end}"), &[]).unwrap_or(0.0);
    (value("count") as u64, (value("sum") * 1000.0).round() as u64)
}

/// The times of the only request: to the first token, end to end, in the queue, in prefill, in decode, and per output
/// token.
fn times(page: &Page) -> [u64; 6] {
    [
        "time_to_first_token",
        "e2e_request_latency",
        "request_queue_time",
        "request_prefill_time",
        "request_decode_time",
        "time_per_output_token",
    ]
    .map(|family| {
        let (count, sum) = observed(page, family);
        assert_eq!(count, 1, "{family}");
        sum
    })
}

/// A record of the C++ executor with the timestamp `at`.
fn cpp(iter: u64, at: u64, rows: Value) -> Value {
    json!({"at": at, "timestamp": format!("11-24-2026 10:00:{:02}.{:03}000", at / 1000, at % 1000), "iter": iter,
        "iterLatencyMS": LATENCY, "numActiveRequests": 1, "numQueuedRequests": 0, "numNewActiveRequests": 0, "numCompletedRequests": 0,
        "inflightBatchingStats": {"numScheduledRequests": 1, "numContextRequests": 0, "numGenRequests": 1, "numCtxTokens": 0},
        "requestStats": rows})
}

/// A record of the PyTorch engine.
fn pytorch(iter: u64, at: u64, rows: Value) -> Value {
    let mut record = cpp(iter, at, rows);
    record["schedulerMode"] = json!("overlap");
    record
}

fn row(stage: &str, scheduled: bool, tokens: u64) -> Value {
    json!([{"id": 7, "stage": stage, "scheduled": scheduled, "paused": false, "numGeneratedTokens": tokens,
        "contextPrefillPosition": 96}])
}

const CONTEXT: &str = "CONTEXT_IN_PROGRESS";
const GENERATION: &str = "GENERATION_IN_PROGRESS";
const COMPLETE: &str = "GENERATION_COMPLETE";

/// The records of a request of three tokens in the C++ executor, without the record of its end.
fn begun_in_cpp() -> Vec<Value> {
    vec![
        cpp(10, 1000, json!([])),
        cpp(11, 1050, row(CONTEXT, true, 0)),
        cpp(12, 1100, row(GENERATION, true, 1)),
        cpp(13, 1150, row(GENERATION, true, 2)),
    ]
}

/// The same request in the PyTorch engine. The record of a batch contains the tokens that the batch produced.
fn whole_in_pytorch() -> Vec<Value> {
    vec![
        pytorch(10, 1000, json!([])),
        pytorch(11, 1050, row(GENERATION, true, 1)),
        pytorch(12, 1100, row(GENERATION, true, 2)),
        pytorch(13, 1150, row(COMPLETE, true, 3)),
    ]
}

/// The request in the C++ executor with the record of its end.
fn whole_in_cpp() -> Vec<Value> {
    [begun_in_cpp(), vec![cpp(14, 1200, row(COMPLETE, false, 3))]].concat()
}

fn with_idle_flush() -> Vec<Value> {
    let mut flush = cpp(14, 1190, row(COMPLETE, false, 3));
    (flush["numActiveRequests"], flush["iterLatencyMS"]) = (json!(0), json!(0.0));
    flush["inflightBatchingStats"]["numScheduledRequests"] = json!(0);
    [begun_in_cpp(), vec![flush]].concat()
}

/// With pipeline parallelism, every second batch belongs to another micro batch. A pass waits for the tokens of its own batch, so a
/// new request first appears with a token.
fn in_micro_batches() -> Vec<Value> {
    let rows = [1, 2].into_iter().flat_map(|tokens| [true, false].map(|own| row(GENERATION, own, tokens)));
    let rows = [json!([])].into_iter().chain(rows).chain([row(COMPLETE, false, 3)]);
    let mut records: Vec<_> = (10..).zip(rows).map(|(iter, row)| cpp(iter, iter * 50 + 500, row)).collect();
    for record in &mut records {
        record["inflightBatchingStats"]["microBatchId"] = json!(record["iter"].as_u64().unwrap() % 2);
    }
    records
}

/// The engine sends a record some loops later, and older releases assign the iteration number only then.
fn sent_later(mode: &str, loops: u64) -> Vec<Value> {
    let mut records = whole_in_pytorch();
    for record in &mut records {
        record["schedulerMode"] = json!(mode);
        record["iter"] = json!(record["iter"].as_u64().unwrap() + loops);
        record["at"] = json!(record["at"].as_u64().unwrap() + loops * LATENCY);
    }
    records
}

fn without_timestamps() -> Vec<Value> {
    let mut records = whole_in_pytorch();
    records.iter_mut().for_each(|record| record["timestamp"] = Value::Null);
    records
}

/// While a batch runs the prefill of a request that was fetched later, the stage is already "generation", but it has no token.
fn fetched_later() -> Vec<Value> {
    vec![
        pytorch(10, 1000, json!([])),
        pytorch(11, 1050, row(CONTEXT, false, 0)),
        pytorch(12, 1100, row(GENERATION, true, 0)),
        pytorch(13, 1150, row(GENERATION, true, 1)),
        pytorch(14, 1200, row(COMPLETE, true, 3)),
    ]
}

/// The row of the cancelled request is not in the batch, which ends as any other.
fn cancelled_in_pytorch() -> Vec<Value> {
    let mut records = whole_in_pytorch();
    records[3]["requestStats"] = row(COMPLETE, false, 2);
    records
}

/// The engine repeats the complete row while the request still transfers its KV cache.
fn repeated_end() -> Vec<Value> {
    let ends = [15, 16].map(|iter| cpp(iter, iter * 50 + 500, row(COMPLETE, false, 3)));
    [whole_in_cpp(), ends.to_vec()].concat()
}

/// A case, its records, and the times and tokens that they must give.
type Ruling = (&'static str, fn() -> Vec<Value>, [u64; 6], f64);

#[test]
fn ruling_the_records_of_a_request_tell_when_it_arrived_began_and_ended() {
    let cases: [Ruling; 12] = [
        // The request arrived in the pass that ends at 1050, was first scheduled at 1050, had its first token at 1100, and ended at
        // 1200, the timestamp of the record with the complete row.
        ("C++ executor", whole_in_cpp, [100, 200, 50, 50, 100, 50], 3.0),
        ("idle flush", with_idle_flush, [100, 190, 50, 50, 90, 45], 3.0),
        // The request was scheduled at 1000, had its first token at 1050, and ended at 1250.
        ("micro batches", in_micro_batches, [50, 250, 0, 50, 200, 100], 3.0),
        // It arrived during the previous batch, was scheduled at 1050, had its first token at 1100, and ended at 1150 + 50.
        ("PyTorch", whole_in_pytorch, [100, 200, 50, 50, 100, 50], 3.0),
        ("serial", || sent_later("non_overlap", 0), [100, 200, 50, 50, 100, 50], 3.0),
        ("overlap", || sent_later("overlap", 1), [100, 200, 50, 50, 100, 50], 3.0),
        ("deep overlap", || sent_later("overlap", 3), [100, 200, 50, 50, 100, 50], 3.0),
        ("pipeline", || sent_later("pipeline", 3), [100, 200, 50, 50, 100, 50], 3.0),
        ("times of receipt", without_timestamps, [100, 200, 50, 50, 100, 50], 3.0),
        // The request arrived at 1050, was scheduled at 1100, had its first token at 1200, and ended at 1250.
        ("fetched later", fetched_later, [150, 200, 50, 100, 50, 25], 3.0),
        ("cancelled", cancelled_in_pytorch, [100, 200, 50, 50, 100, 100], 2.0),
        ("repeated end", repeated_end, [100, 200, 50, 50, 100, 50], 3.0),
    ];
    for (name, records, expected, tokens) in cases {
        let page = Engine::records(&records()).page();
        assert_eq!(times(&page), expected, "{name}");
        // The tokens of a complete row contain the last one.
        let lengths = ["output", "input"].map(|kind| page.get(&format!("nv_llm_{kind}_token_len_sum"), &[]));
        assert_eq!(lengths, [tokens, 96.0], "{name}");
        assert_eq!(page.find("nv_trt_llm_iterations_lost_total", &[]).unwrap_or(0.0), 0.0, "{name}");
    }
}

#[test]
fn ruling_releases_0_9_to_0_15_have_times_by_the_rule_of_later_ones() {
    let mut engine = Engine::new();
    for record in whole_in_cpp() {
        let mut old = record.clone();
        for key in
            ["iterLatencyMS", "numQueuedRequests", "numNewActiveRequests", "numCompletedRequests", "requestStats"]
        {
            old.as_object_mut().unwrap().remove(key);
        }
        engine.record(&old);
        let rows = json!({"iter": record["iter"], "requestStats": record["requestStats"]});
        engine.fold.absorb_requests(&serde_json::from_value(rows).unwrap(), engine.start).unwrap();
    }
    assert_eq!(times(&engine.page()), [100, 200, 50, 50, 100, 50]);
}

#[test]
fn ruling_a_static_batch_ended_at_the_timestamp_of_its_record() {
    // The requests of a static batch are complete, but still active, when its record is written. The flush reports them again.
    let mut records =
        vec![cpp(10, 1000, json!([])), cpp(11, 1100, row(COMPLETE, true, 3)), cpp(11, 1100, row(COMPLETE, false, 3))];
    for record in &mut records {
        let batch = json!({"numScheduledRequests": 1, "numContextRequests": 1, "numCtxTokens": 8, "numGenTokens": 9, "emptyGenSlots": 0});
        (record["staticBatchingStats"], record["inflightBatchingStats"]) = (batch, Value::Null);
    }
    let empty = json!({"numScheduledRequests": 0, "numContextRequests": 0, "numCtxTokens": 0, "numGenTokens": 0, "emptyGenSlots": 0});
    records[2]["staticBatchingStats"] = empty;
    (records[2]["numActiveRequests"], records[2]["iterLatencyMS"]) = (json!(0), json!(0.0));
    // The batch began at 1000, and all its tokens came at 1100.
    let page = Engine::records(&records).page();
    let families = ["time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time"];
    assert_eq!(families.map(|family| observed(&page, family)), [(1, 100), (1, 100), (1, 0), (1, 100)]);
}

#[test]
fn ruling_the_first_latency_after_idle_of_the_pytorch_engine_contains_the_wait() {
    let mut engine = Engine::new();
    let mut ended = whole_in_pytorch();
    ended[3]["numCompletedRequests"] = json!(1);
    ended.iter().for_each(|record| engine.record(record));
    let before = engine.page();
    // The batch starts at 9000. The latency that the engine reports starts at the end of the previous batch, at 1200.
    let mut woken = pytorch(14, 9000, row(GENERATION, true, 1));
    (woken["requestStats"][0]["id"], woken["numNewActiveRequests"], woken["iterLatencyMS"]) =
        (json!(8), json!(1), json!(7900));
    let mut end = pytorch(15, 9100, row(COMPLETE, true, 2));
    end["requestStats"][0]["id"] = json!(8);
    engine.record(&woken);
    engine.record(&end);
    let after = engine.page();
    let took = |family| observed(&after, family).1 - observed(&before, family).1;
    assert_eq!((took("time_to_first_token"), took("e2e_request_latency")), (100, 150));
    // The first batch ended at 1200 + 7900, so it took 100 without the wait. The second one took 50.
    assert_eq!(observed(&after, "iteration_latency").1 - observed(&before, "iteration_latency").1, 150);
}

#[test]
fn ruling_a_dropped_iteration_loses_the_rows_of_rank_0() {
    let mut engine = Engine::new();
    for (iter, record) in whole_in_pytorch().into_iter().enumerate() {
        // Leave out the iteration with the first token.
        if iter == 1 {
            continue;
        }
        for rank in 0..2 {
            let mut record = record.clone();
            (record["attentionDpRank"], record["statsSequence"]) = (json!(rank), json!(iter + 1));
            if rank > 0 {
                record["requestStats"] = json!([]);
            }
            engine.record(&record);
        }
    }
    let page = engine.page();
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 1);
    assert_eq!(page.count("nv_llm_output_token_len_count", &[]), 1, "its length is known");
    assert_eq!((observed(&page, "e2e_request_latency"), observed(&page, "time_to_first_token")), ((0, 0), (0, 0)));
}

#[test]
fn ruling_releases_without_rows_have_no_times_of_requests() {
    let mut records = whole_in_pytorch();
    records.iter_mut().for_each(|record| record["requestStats"] = Value::Null);
    let page = Engine::records(&records).page();
    assert_eq!(observed(&page, "e2e_request_latency"), (0, 0));
    assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=none"]), 1.0);
}

#[test]
fn ruling_rows_without_a_number_have_lengths_and_no_times() {
    let mut engine = Engine::new();
    for record in begun_in_cpp() {
        let rows = json!({"requestStats": record["requestStats"]});
        engine.record(&cpp(record["iter"].as_u64().unwrap(), record["at"].as_u64().unwrap(), Value::Null));
        let rows: RequestStatsPerIteration = serde_json::from_value(rows).unwrap();
        engine.fold.absorb_requests(&rows, engine.start).unwrap();
    }
    let rows: RequestStatsPerIteration =
        serde_json::from_value(json!({"requestStats": row(COMPLETE, false, 3)})).unwrap();
    engine.fold.absorb_requests(&rows, engine.start).unwrap();
    let page = engine.page();
    assert_eq!((page.count("nv_llm_output_token_len_count", &[]), observed(&page, "e2e_request_latency")), (1, (0, 0)));
}

#[test]
fn ruling_a_cancelled_request_of_the_cpp_executor_has_no_tokens_and_is_the_same_request() {
    let mut records = begun_in_cpp();
    records.push(cpp(14, 1200, row(COMPLETE, false, 0)));
    let page = Engine::records(&records).page();
    assert_eq!((observed(&page, "e2e_request_latency"), observed(&page, "time_to_first_token")), ((1, 200), (1, 100)));
}

#[test]
fn ruling_a_complete_row_that_is_scheduled_is_one_of_the_pytorch_engine() {
    // Only the complete row shows which kind of engine wrote these records.
    let [scheduled, not] = [true, false].map(|scheduled| {
        let mut records = begun_in_cpp();
        records.push(cpp(14, 1200, row(COMPLETE, scheduled, 3)));
        let mut engine = Engine::records(&records);
        observed(&engine.page(), "e2e_request_latency")
    });
    assert_eq!((not, scheduled), ((1, 200), (1, 250)), "its time is the start of the batch");
}
