//! Counts of the KV cache, of the queue and of transfers.

use serde_json::{Value, json};

use super::{COMPLETE, CONTEXT, Engine, GENERATION, LATENCY, cpp, observed, pytorch, row};
use crate::support::page::Page;

// newActiveRequestsQueueLatencyMS

/// Count and sum of the queue times after one record per element of `values`: a queue latency, and a number of new
/// requests.
fn queued(engine: fn(u64, u64, Value) -> Value, values: &[(f64, u64)]) -> (u64, u64) {
    let records: Vec<Value> = (0_u64..)
        .zip(values)
        .map(|(at, (value, new))| {
            let mut record = engine(at + 1, 1000 + at * LATENCY, json!([]));
            (record["newActiveRequestsQueueLatencyMS"], record["numNewActiveRequests"]) = (json!(value), json!(new));
            record
        })
        .collect();
    observed(&Engine::records(&records).page(), "new_request_queue_time")
}

/// Like [`queued`], for two ranks. An element has the queue latency that rank 0 reports, and the new requests of each
/// rank.
fn queued_by_rank(key: &str, iterations: &[(f64, [u64; 2])]) -> (u64, u64) {
    let mut engine = Engine::new();
    for (at, (value, new)) in (0_u64..).zip(iterations) {
        for (rank, new) in new.iter().enumerate() {
            let mut record = pytorch(at + 1, 1000 + at * LATENCY, json!([]));
            (record["attentionDpRank"], record["numNewActiveRequests"]) = (json!(rank), json!(new));
            record[key] = json!(rank);
            record["newActiveRequestsQueueLatencyMS"] = json!(if rank == 0 { *value } else { 0.0 });
            engine.record(&record);
        }
    }
    observed(&engine.page(), "new_request_queue_time")
}

#[test]
fn ruling_the_queue_latency_counts_as_the_engine_means_it() {
    // The C++ executor has milliseconds of one iteration.
    assert_eq!(queued(cpp, &[(300.0, 2), (0.0, 0), (40.0, 1)]), (3, 340));
    // PyTorch has a sum of seconds since the start.
    assert_eq!(queued(pytorch, &[(0.3, 2), (0.3, 0), (0.34, 1)]), (3, 340));
    // The wait of a rejected request is in the sum: no request became active when it rose to 0.5, so the next one gets the increase.
    assert_eq!(queued(pytorch, &[(0.3, 2), (0.5, 0), (0.6, 1)]), (3, 600));
    // Copied rows of ranks: the sum contains all ranks, but the number of new requests only rank 0. So the mean is unknown.
    assert_eq!(queued_by_rank("attentionDpRank", &[(0.4, [1, 0]), (0.8, [1, 0])]), (0, 0));
    // Own rows of ranks: the increase of rank 0 over the new requests of all.
    assert_eq!(queued_by_rank("rank", &[(0.4, [1, 1]), (1.0, [0, 3])]), (5, 1000));
}

// KvCacheStats

/// The page after two records. In the first, all counts are 0. The second has the given counts: allocated, newly
/// allocated, reused, missed.
fn cached(allocated: u64, new: u64, reused: u64, missed: Option<u64>) -> Page {
    let record = |iter: u64, of: [u64; 3], missed: Option<u64>| {
        let mut record = cpp(iter, 1000 + iter * LATENCY, json!([]));
        record["kvCacheStats"] = json!({"maxNumBlocks": 900, "freeNumBlocks": 400, "usedNumBlocks": 500, "tokensPerBlock": 32,
            "allocTotalBlocks": of[0], "allocNewBlocks": of[1], "reusedBlocks": of[2], "missedBlocks": missed});
        record
    };
    Engine::records(&[record(1, [0; 3], missed.map(|_| 0)), record(2, [allocated, new, reused], missed)]).page()
}

fn blocks(page: &Page, what: &str) -> f64 {
    page.find(&format!("nv_trt_llm_kv_cache_blocks_{what}_total"), &[]).unwrap_or(0.0)
}

#[test]
fn ruling_blocks_are_counted_as_the_engine_counts_them_and_tell_how_much_is_reused() {
    for (name, [allocated, new, reused], missed, efficiency) in [
        ("allocated blocks that are not new displaced cached content", [30, 12, 8], Some(2), Some(0.8)),
        // If the efficiency were a share of the allocated blocks, it would be 4.
        ("a reused block is not an allocated one", [5, 5, 20], Some(5), Some(0.8)),
        ("reuse is off, so every allocated block is new and nothing is looked up", [30, 30, 0], Some(0), None),
        ("without missed blocks, the share of the reused and the allocated ones", [30, 12, 10], None, Some(0.25)),
        (
            "the second manager counts each allocation as new, and misses without reuse",
            [30, 30, 0],
            Some(25),
            Some(0.0),
        ),
    ] {
        let page = cached(allocated, new, reused, missed);
        let counted = ["allocated", "newly_allocated", "reused", "missed"].map(|what| blocks(&page, what));
        assert_eq!(counted, [allocated, new, reused, missed.unwrap_or(0)].map(|blocks| blocks as f64), "{name}");
        assert_eq!(page.find("nv_trt_llm_kv_cache_reuse_efficiency_ratio", &[]), efficiency, "{name}");
    }
}

#[test]
fn ruling_the_blocks_of_a_request_are_those_of_its_row() {
    let mut rows = row(COMPLETE, true, 3);
    for (key, blocks) in [("allocTotal", 5), ("allocNew", 3), ("reused", 2), ("missed", 1)] {
        rows[0][format!("{key}BlocksPerRequest")] = json!(blocks);
    }
    let mut records = [pytorch(1, 1000, json!([])), pytorch(2, 1050, rows)];
    for record in &mut records {
        record["kvCacheStats"] =
            json!({"maxNumBlocks": 900, "allocTotalBlocks": 70, "allocNewBlocks": 70, "reusedBlocks": 0});
    }
    let page = Engine::records(&records).page();
    let of_request =
        ["kv_cache_blocks", "kv_cache_new_blocks"].map(|name| page.get(&format!("nv_trt_llm_request_{name}_sum"), &[]));
    assert_eq!((of_request, blocks(&page, "reused")), ([5.0, 3.0], 0.0));
    assert_eq!(page.get("nv_trt_llm_request_kv_cache_hit_ratio_sum", &[]), 2.0 / 3.0);
}

// disServingStats

/// The page after the rows of one disaggregated request. Each row has a stage and a transfer time in milliseconds.
fn transferred(engine: fn(u64, u64, Value) -> Value, rows: &[(&str, f64)]) -> Page {
    let records: Vec<Value> = (0_u64..)
        .zip(rows)
        .map(|(at, (stage, ms))| {
            let mut rows = row(stage, *stage != COMPLETE, 1);
            rows[0]["disServingStats"] = json!({"kvCacheTransferMS": ms, "kvCacheSize": 4096});
            engine(10 + at, 1000 + at * LATENCY, rows)
        })
        .collect();
    Engine::records(&records).page()
}

fn transfers(page: &Page) -> (f64, f64) {
    let value = |kind: &str| {
        let label = format!("disaggregated_serving_type={kind}");
        page.find("nv_trt_llm_disaggregated_serving_metrics", &[&label]).unwrap_or(0.0)
    };
    (value("request_count"), value("kv_cache_transfer_ms"))
}

#[test]
fn ruling_a_context_request_of_the_pytorch_engine_that_still_sends_has_no_complete_row() {
    let mut records = vec![pytorch(10, 1000, json!([])), pytorch(11, 1050, row(CONTEXT, true, 0))];
    records.extend([pytorch(12, 1100, row(GENERATION, true, 1)), pytorch(13, 1150, json!([]))]);
    records[3]["numCompletedRequests"] = json!(1);
    let page = Engine::records(&records).page();
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", &[]), 1);
    assert_eq!(page.find("nv_llm_output_token_len_count", &[]).unwrap_or(0.0), 0.0, "its length is unknown");
    assert_eq!((transfers(&page), observed(&page, "e2e_request_latency")), ((0.0, 0.0), (0, 0)));
}

#[test]
fn ruling_a_request_has_one_transfer_once_a_row_has_its_time() {
    // A row: a stage and the milliseconds of the transfer.
    type Case = (fn(u64, u64, Value) -> Value, &'static [(&'static str, f64)], f64, (u64, u64));
    let cases: [Case; 3] = [
        // A context request that ends before its transfer: Triton counts it, but there is no transfer.
        (cpp, &[(CONTEXT, 0.0), (GENERATION, 0.0), (COMPLETE, 0.0)], 0.0, (0, 0)),
        // A context request of the PyTorch engine that has sent its cache.
        (pytorch, &[(CONTEXT, 0.0), (GENERATION, 0.0), (COMPLETE, 30.0), (COMPLETE, 30.0)], 30.0, (1, 30)),
        // A generation request has its final transfer on every later row.
        (
            cpp,
            &[(GENERATION, 0.0), (GENERATION, 20.0), (GENERATION, 20.0), (COMPLETE, 20.0), (COMPLETE, 20.0)],
            20.0,
            (1, 20),
        ),
    ];
    for (engine, rows, ms, transfer) in cases {
        let page = transferred(engine, rows);
        assert_eq!((transfers(&page), observed(&page, "kv_cache_transfer")), ((1.0, ms), transfer), "{rows:?}");
    }
}
