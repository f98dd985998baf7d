//! The exporter interprets the numbers of current engines as TensorRT-LLM's code defines them: the PyTorch engine,
//! attention data parallelism, sampled statistics (only every n-th iteration is reported), late and absurd records. A
//! row is the record of one rank for one iteration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trtllm_engines::State;
use trtllm_intake::{Intake, Moment};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::{EngineName, RejectReason};
use trtllm_sources::trtllm_json::parse_records;
use trtllm_sources::{Batch, Presence};

use crate::support::fold_page;
use crate::support::page::Page;

/// An engine, and an exporter that polls it.
struct Bench {
    state: State,
    intake: Intake,
    now: Moment,
}

impl Bench {
    fn new() -> Self {
        let (state, now) = (State::new(vec![EngineName::new("m", "1", "trtllm-serve")]), Moment::now());
        let intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
        Self { state, intake, now }
    }

    fn wait(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.unix_us += i64::try_from(time.as_micros()).unwrap();
    }

    /// Gives the exporter one answer of `/metrics`.
    fn answer(&mut self, records: &[Value]) -> &mut Self {
        let mut batch = Batch::default();
        batch.from_ring = true;
        parse_records(serde_json::to_string(records).unwrap().as_bytes(), &mut batch).unwrap();
        self.intake.end_poll(&mut batch, Duration::from_millis(1), Ok(Presence::Present), self.now);
        self.wait(Duration::from_millis(100));
        self
    }

    fn page_of(&self, selection: Selection) -> Page {
        let compat = CompatSets { trtllm: true, triton_core: true, ..CompatSets::default() };
        fold_page::parsed(&fold_page::page(&self.state, compat, selection))
    }

    fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        self.page_of(Selection::All).find(name, labels)
    }

    fn request(&self, kind: &str) -> Option<f64> {
        self.value("nv_trt_llm_request_metrics", &[&format!("request_type={kind}")])
    }

    /// The value of a family `nv_trt_llm_*` without labels.
    fn ours(&self, name: &str) -> Option<f64> {
        self.value(&format!("nv_trt_llm_{name}"), &[])
    }
}

fn with(mut record: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        if let (Some(old), Some(new)) = (record.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
            old.extend(new.clone());
        } else {
            record[key] = value.clone();
        }
    }
    record
}

/// A record of the PyTorch engine without frame numbers. The iteration has 1 active request and takes 10 ms.
fn pytorch(iter: u64, fields: Value) -> Value {
    let record = json!({
        "timestamp": "", "iter": iter, "iterLatencyMS": 10.0, "newActiveRequestsQueueLatencyMS": 0.0,
        "numNewActiveRequests": 0, "numActiveRequests": 1, "numQueuedRequests": 0, "numCompletedRequests": 0,
        "maxNumActiveRequests": 16,
        "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": 90, "usedNumBlocks": 10, "tokensPerBlock": 32,
            "allocTotalBlocks": 0, "allocNewBlocks": 0, "reusedBlocks": 0, "missedBlocks": 0},
        "staticBatchingStats": {"numScheduledRequests": 0, "numContextRequests": 0, "numCtxTokens": 0, "numGenTokens": 0,
            "emptyGenSlots": 0},
        "inflightBatchingStats": {"numScheduledRequests": 1, "numContextRequests": 0, "numGenRequests": 1,
            "numPausedRequests": 0, "numCtxTokens": 0, "microBatchId": 0, "avgNumDecodedTokensPerIter": 0.0},
        "specDecodingStats": null,
    });
    with(record, fields)
}

/// A record of the C++ executor.
fn executor(iter: u64, fields: Value) -> Value {
    let record = json!({"timestamp": "07-25-2025 16:54:34.140189", "staticBatchingStats": null});
    with(pytorch(iter, Value::Object(serde_json::Map::new())), with(record, fields))
}

fn kv(total: i64, reused: i64) -> Value {
    json!({"kvCacheStats": {"allocTotalBlocks": total, "allocNewBlocks": total, "reusedBlocks": reused, "missedBlocks": 0}})
}

#[test]
fn sampled_statistics_are_not_lost_and_their_batch_counts_are_absent() {
    for sequence in [false, true] {
        let mut bench = Bench::new();
        let records: Vec<Value> = (10..20_u64)
            .map(|n| {
                let mut record = pytorch(
                    10 * n,
                    json!({"numActiveRequests": 5, "numNewActiveRequests": 3, "numCompletedRequests": 2}),
                );
                if sequence {
                    record["statsSequence"] = (n - 9).into();
                }
                record
            })
            .collect();
        bench.answer(&records[..1]);
        assert!(bench.ours("generation_tokens_total").is_some());
        bench.answer(&records[1..]);
        assert_eq!(bench.ours("iterations_lost_total"), Some(0.0));
        assert_eq!(bench.ours("iterations_unreported_total"), Some(81.0));
        assert_eq!(bench.ours("statistics_interval_iterations"), Some(10.0));
        assert_eq!(bench.ours("requests_started_total"), Some(30.0));
        assert_eq!(bench.ours("requests_completed_total"), Some(20.0));
        for absent in ["generation_tokens_total", "context_tokens_total", "spec_decode_draft_tokens_total"] {
            assert_eq!(bench.ours(absent), None, "{absent} of one iteration in ten must not be published as a total");
        }
    }
}

#[test]
fn partial_sums_of_a_sampled_epoch_do_not_come_back_after_a_restart() {
    let names = ["generation_tokens_total", "context_tokens_total", "spec_decode_draft_tokens_total"];
    let sums = |bench: &Bench| names.map(|name| bench.ours(name));
    let ranks = |bench: &Bench| {
        ["0", "1"].map(|rank| bench.value("nv_trt_llm_rank_context_tokens_total", &[&format!("rank={rank}")]))
    };
    // One generated token, two context tokens and three draft tokens in each iteration of each rank.
    let rows = |iter: u64| {
        [0, 1].map(|rank| {
            let batch = json!({"numScheduledRequests": 1, "numGenRequests": 1, "numCtxTokens": 2});
            pytorch(
                iter,
                json!({"rank": rank, "inflightBatchingStats": batch,
                "specDecodingStats": {"numDraftTokens": 3, "numAcceptedTokens": 0}}),
            )
        })
    };
    let mut bench = Bench::new();
    for iter in [7, 8, 9] {
        bench.answer(&rows(iter));
    }
    assert_eq!((sums(&bench), ranks(&bench)), ([6.0, 12.0, 18.0].map(Some), [Some(6.0); 2]));
    // The engine restarts with sampled statistics. The first two records do not show yet that iterations are skipped.
    for iter in [2, 4, 6, 8] {
        bench.answer(&rows(iter));
    }
    assert_eq!(bench.ours("statistics_interval_iterations"), Some(2.0));
    assert_eq!((sums(&bench), ranks(&bench)), ([None; 3], [None; 2]));
    let reported = bench.value("trtllm_spec_decode_num_draft_tokens_total", &[]);
    assert_eq!(reported, Some(42.0), "trtllm-serve's name sums all records");
    // After the next restart, every iteration is reported again. The exporter knows that only after the third record.
    for iter in [1, 2] {
        bench.answer(&rows(iter));
        assert_eq!((sums(&bench), ranks(&bench)), ([None; 3], [None; 2]), "not known yet: iteration {iter}");
    }
    bench.answer(&rows(3));
    assert_eq!(bench.ours("engine_restarts_total"), Some(2.0));
    // The sums contain eight iterations: three before the sampled statistics, the first two of them, and three after
    // the next restart.
    assert_eq!((sums(&bench), ranks(&bench)), ([16.0, 32.0, 48.0].map(Some), [Some(16.0); 2]));
    let reported = bench.value("trtllm_spec_decode_num_draft_tokens_total", &[]);
    assert_eq!(reported, Some(60.0));
}

#[test]
fn a_gap_is_lost_only_where_that_is_certain() {
    // The C++ executor writes one record per iteration number, so a gap means lost records.
    let mut bench = Bench::new();
    bench.answer(&[executor(1, json!({})), executor(5, json!({}))]);
    assert_eq!(bench.ours("iterations_lost_total"), Some(3.0));
    // The PyTorch engine also numbers passes without a batch, so a gap may be harmless.
    let mut bench = Bench::new();
    bench.answer(&[pytorch(101, json!({})), pytorch(103, json!({}))]).answer(&[pytorch(104, json!({}))]);
    bench.answer(&[pytorch(107, json!({}))]);
    assert_eq!(bench.ours("iterations_lost_total"), Some(0.0));
    assert_eq!(bench.ours("iterations_unreported_total"), Some(3.0));
    assert_eq!(bench.ours("statistics_interval_iterations"), Some(1.0));
    assert_eq!(bench.ours("generation_tokens_total"), Some(4.0));
    // An answer that fills the whole ring means that the ring overflowed.
    let full: Vec<Value> = (200..1200).map(|iter| pytorch(iter, json!({}))).collect();
    bench.answer(&full);
    assert_eq!(bench.ours("iterations_lost_total"), Some(92.0));
    bench.answer(&[pytorch(1210, json!({}))]).answer(&[pytorch(1212, json!({}))]);
    assert_eq!(bench.ours("iterations_lost_total"), Some(102.0), "the answer before was full");
    assert_eq!(bench.ours("iterations_unreported_total"), Some(4.0));
    // If a frame is missing in the sequence of frames, it is lost. The iteration numbers do not matter.
    let mut bench = Bench::new();
    let frame = |iter, sequence| pytorch(iter, json!({"statsSequence": sequence}));
    bench.answer(&[frame(10, 5), frame(20, 6), frame(40, 8)]);
    assert_eq!(bench.ours("iterations_lost_total"), Some(1.0));
}

#[test]
fn rows_with_a_rank_are_counted_per_rank_and_summed() {
    for attention_dp_rank in [None, Some(0)] {
        let row = |iter: u64, rank: u64| {
            let mut row = pytorch(
                iter,
                json!({"rank": rank, "numActiveRequests": 4, "numNewActiveRequests": 1, "numCompletedRequests": 1,
                    "inflightBatchingStats": {"numScheduledRequests": 3, "numGenRequests": 3 + rank, "numCtxTokens": 10}}),
            );
            let (total, reused) = if rank == 0 { (7000 + iter, 4600 + iter) } else { (50 + iter, 40 + iter) };
            row = with(row, kv(total.cast_signed(), reused.cast_signed()));
            if let Some(rank) = attention_dp_rank {
                row["attentionDpRank"] = rank.into();
            }
            row
        };
        let by_iteration: Vec<Value> = (100..110).flat_map(|iter| [row(iter, 0), row(iter, 1)]).collect();
        let by_rank: Vec<Value> = (0..2)
            .flat_map(|rank| (100..110).map(move |iter| (iter, rank)))
            .map(|(iter, rank)| row(iter, rank))
            .collect();
        for records in [by_iteration, by_rank] {
            let mut bench = Bench::new();
            bench.answer(&records);
            assert_eq!(bench.ours("kv_cache_blocks_reused_total"), Some(18.0));
            assert_eq!(bench.ours("kv_cache_blocks_allocated_total"), Some(18.0));
            assert_eq!(bench.ours("generation_tokens_total"), Some(70.0));
            assert_eq!(bench.ours("context_tokens_total"), Some(200.0));
            assert_eq!(bench.ours("iterations_total"), Some(10.0));
            assert_eq!(bench.ours("requests_completed_total"), Some(20.0));
            assert_eq!(bench.ours("engine_restarts_total"), Some(0.0));
        }
        let mut bench = Bench::new();
        bench.answer(&(100..110).flat_map(|iter| [row(iter, 0), row(iter, 1)]).collect::<Vec<_>>());
        let kinds = ["active", "max", "scheduled", "waiting"].map(|kind| bench.request(kind).unwrap());
        assert_eq!(kinds, [8.0, 32.0, 6.0, 2.0]);
        let blocks = |kind| bench.value("nv_trt_llm_kv_cache_block_metrics", &[&format!("kv_cache_block_type={kind}")]);
        assert_eq!([blocks("max"), blocks("used"), blocks("fraction")], [Some(200.0), Some(20.0), Some(0.1)]);
        assert_eq!(bench.ours("attention_dp_ranks"), Some(2.0));
    }
}

#[test]
fn with_attention_data_parallelism_each_number_has_one_scope() {
    let row = |iter: u64, rank: u64| {
        pytorch(
            iter,
            json!({"attentionDpRank": rank, "numActiveRequests": 8, "numQueuedRequests": if rank == 0 { 7 } else { 0 },
                "inflightBatchingStats": {"numScheduledRequests": 5, "numContextRequests": 2, "numGenRequests": 3,
                    "numCtxTokens": 100}}),
        )
    };
    let mut bench = Bench::new();
    bench.answer(&(7..10).flat_map(|iter| (0..4).map(move |rank| row(iter, rank))).collect::<Vec<_>>());
    assert_eq!((bench.request("active"), bench.request("waiting")), (None, None), "rows copy them from rank 0");
    assert_eq!((bench.request("scheduled"), bench.request("max")), (Some(20.0), Some(64.0)));
    assert_eq!(bench.ours("batch_occupancy_ratio"), Some(20.0 / 64.0));
    for (name, per_iteration) in [("iteration_scheduled_requests", 20.0), ("iteration_context_tokens", 400.0)] {
        assert_eq!(bench.ours(&format!("{name}_count")), Some(3.0), "{name}");
        assert_eq!(bench.ours(&format!("{name}_sum")), Some(3.0 * per_iteration), "{name}");
    }
    let gateway = bench.page_of(Selection::Gateway);
    assert_eq!(gateway.find("nv_trt_llm_request_metrics", &["request_type=waiting"]), Some(7.0));
    assert_eq!(gateway.find("nv_trt_llm_request_metrics", &["request_type=scheduled"]), Some(20.0));
    // An iteration whose rows arrive in two answers counts as one iteration.
    bench.answer(&[row(10, 0), row(10, 1)]);
    assert_eq!(bench.ours("iteration_scheduled_requests_count"), Some(3.0));
    bench.answer(&[row(10, 2), row(10, 3)]);
    assert_eq!(bench.ours("iteration_scheduled_requests_sum"), Some(80.0));
    // A lost row does not delay the iteration for long.
    bench.answer(&[row(11, 0), row(11, 1)]).answer(&[]);
    assert_eq!(bench.ours("iteration_scheduled_requests_sum"), Some(90.0));
}

/// The row of a rank. With `own`, it has the form that TensorRT-LLM writes with `TLLM_METRICS_ALL_RANKS=1`.
fn rank_row(iter: i64, rank: i64, own: bool, [context, generation]: [i64; 2]) -> Value {
    let batch = json!({"numScheduledRequests": generation, "numGenRequests": generation, "numCtxTokens": context});
    let row =
        pytorch(iter.cast_unsigned(), json!({"numActiveRequests": generation + 1, "inflightBatchingStats": batch}));
    with(row, if own { json!({"attentionDpRank": 0, "rank": rank}) } else { json!({"attentionDpRank": rank}) })
}

fn of_rank(name: &str, rank: &str, page: &Page) -> Option<f64> {
    page.find(&format!("nv_trt_llm_rank_{name}"), &[&format!("rank={rank}")])
}

fn label_of_rank(rank: i64) -> String {
    if rank < 64 { rank.to_string() } else { "other".to_owned() }
}

#[test]
fn the_counts_of_each_rank_are_the_planted_ones_over_restarts_and_late_rows() {
    const RANKS: i64 = 70;
    let planted = |life: i64, iter: i64, rank: i64| [(iter * 31 + rank * 17 + life) % 50, (iter + rank * rank) % 7];
    for own in [true, false] {
        let (mut rows, mut truth, mut ratios) = (Vec::new(), BTreeMap::<String, [f64; 2]>::new(), Vec::new());
        for (life, last) in [(0, 20), (1, 15), (2, 18)] {
            // Iteration 7 arrives after 9, and one row of iteration 11 never arrives.
            for iter in (1..=6).chain([8, 9, 7]).chain(10..=last) {
                let lost = (iter == 11).then_some(30);
                for rank in (0..RANKS).filter(|rank| Some(*rank) != lost) {
                    let tokens = planted(life, iter, rank);
                    rows.push(rank_row(iter, rank, own, tokens));
                    let sums = truth.entry(label_of_rank(rank)).or_default();
                    *sums = [0, 1].map(|kind| sums[kind] + tokens[kind] as f64);
                }
                let of_ranks: Vec<i64> = (0..RANKS).map(|rank| planted(life, iter, rank).iter().sum()).collect();
                let (most, all) = (of_ranks.iter().max().unwrap(), of_ranks.iter().sum::<i64>());
                ratios.extend(lost.is_none().then(|| *most as f64 / (all as f64 / RANKS as f64)));
            }
        }
        let mut bench = Bench::new();
        // An answer may end in the middle of an iteration.
        for answer in rows.chunks(100) {
            bench.answer(answer);
        }
        let page = bench.page_of(Selection::All);
        assert_eq!(page.get("nv_trt_llm_engine_restarts_total", &[]), 2.0);
        assert_eq!(truth.len(), 65);
        let mut all = [0.0; 2];
        for (rank, [context, generation]) in &truth {
            assert_eq!(of_rank("context_tokens_total", rank, &page), Some(*context), "rank {rank}");
            assert_eq!(of_rank("generation_tokens_total", rank, &page), Some(*generation), "rank {rank}");
            all = [all[0] + context, all[1] + generation];
        }
        assert_eq!(
            all,
            ["context", "generation"].map(|kind| page.get(&format!("nv_trt_llm_{kind}_tokens_total"), &[]))
        );
        assert_eq!(page.get("nv_trt_llm_rank_imbalance_ratio_count", &[]), ratios.len() as f64);
        let sum = page.get("nv_trt_llm_rank_imbalance_ratio_sum", &[]);
        assert!((sum - ratios.iter().sum::<f64>()).abs() < 1e-9, "{sum}");
        // The gauges show the last iteration.
        let scheduled = |rank| planted(2, 18, rank)[1] as f64;
        assert_eq!(of_rank("scheduled_requests", "63", &page), Some(scheduled(63)));
        assert_eq!(of_rank("scheduled_requests", "other", &page), Some((64..RANKS).map(scheduled).sum()));
        assert_eq!(of_rank("active_requests", "63", &page), own.then_some(scheduled(63) + 1.0));
        // A restart removes the gauges.
        bench.answer(&[rank_row(1, 0, own, [0, 1])]);
        let page = bench.page_of(Selection::All);
        assert_eq!(of_rank("scheduled_requests", "0", &page), None);
        assert_eq!(of_rank("context_tokens_total", "63", &page), Some(truth["63"][0]));
    }
}

#[test]
fn no_step_contains_the_wait_for_work() {
    // A latency covers two passes of a loop that overlaps. The host step of a record is that of its own pass or, in the serial loop,
    // that of the pass before.
    for (mode, second_pass, first, second, batches) in
        [("overlap", 10.0, 60_010.0, 10.0, 5.0), ("non_overlap", 0.0, 10.0, 60_010.0, 4.0)]
    {
        let record = |iter: u64, active: i64, new: i64, done: i64, pass: f64, step: f64| {
            pytorch(
                iter,
                json!({"schedulerMode": mode, "numActiveRequests": active, "numNewActiveRequests": new,
                    "numCompletedRequests": done, "iterLatencyMS": pass + second_pass, "hostStepTimeMS": step}),
            )
        };
        let mut bench = Bench::new();
        // The exporter connects while the engine is busy.
        bench.answer(&[record(50, 1, 0, 0, 10.0, 10.0), record(51, 1, 0, 1, 10.0, 10.0)]);
        bench.wait(Duration::from_secs(60));
        bench.answer(&[
            record(53, 1, 1, 0, 60_010.0, first),
            record(54, 1, 0, 0, 10.0, second),
            record(55, 1, 0, 1, 10.0, 10.0),
        ]);
        for (name, observations) in [("iteration_latency_seconds", batches), ("host_step_seconds", 4.0)] {
            let (sum, count) = (bench.ours(&format!("{name}_sum")).unwrap(), bench.ours(&format!("{name}_count")));
            let is_right = (sum - 0.01 * observations).abs() < 1e-9 && count == Some(observations);
            assert!(is_right, "{mode} {name}: {sum} of {count:?}");
        }
    }
}

#[test]
fn a_late_record_is_late_and_a_restart_is_a_restart() {
    for record in [pytorch, executor] {
        let mut bench = Bench::new();
        let numbered =
            |iter: u64, blocks: i64| with(record(iter, json!({"numCompletedRequests": 1})), kv(blocks, blocks));
        bench.answer(&[numbered(100, 1000), numbered(101, 1001)]);
        bench.answer(&[numbered(103, 1003), numbered(102, 1002), numbered(104, 1004)]);
        assert_eq!(bench.ours("engine_restarts_total"), Some(0.0));
        assert_eq!(bench.ours("kv_cache_blocks_reused_total"), Some(4.0));
        assert_eq!(bench.ours("iterations_total"), Some(5.0));
        assert_eq!(bench.ours("requests_completed_total"), Some(5.0));
        // Iteration 102 was already counted as missing when its record arrived late. The count is not corrected.
        let lost = bench.ours("iterations_lost_total").unwrap() + bench.ours("iterations_unreported_total").unwrap();
        assert_eq!(lost, 1.0);
        // The first record of the new engine has a higher number, but smaller cumulative counts.
        bench.answer(&[numbered(154, 7), numbered(155, 9)]);
        assert_eq!(bench.ours("engine_restarts_total"), Some(1.0));
        assert_eq!(
            bench.ours("iterations_lost_total").unwrap() + bench.ours("iterations_unreported_total").unwrap(),
            lost
        );
        assert_eq!(bench.ours("kv_cache_blocks_reused_total"), Some(13.0));
        // An iteration number appears again with a smaller cumulative count, so the engine has restarted.
        bench.answer(&[numbered(154, 3)]);
        assert_eq!(bench.ours("engine_restarts_total"), Some(2.0));
    }
}

#[test]
fn the_counts_of_an_engine_met_at_its_first_record_begin_at_0() {
    let mut bench = Bench::new();
    bench.answer(&[with(executor(1, json!({})), kv(12, 5)), with(executor(2, json!({})), kv(13, 6))]);
    assert_eq!(bench.ours("kv_cache_blocks_reused_total"), Some(6.0));
    let mut bench = Bench::new();
    bench.answer(&[with(executor(40, json!({})), kv(12, 5)), with(executor(41, json!({})), kv(13, 6))]);
    assert_eq!(bench.ours("kv_cache_blocks_reused_total"), Some(1.0));
}

#[test]
fn queued_requests_wait_for_the_gateway_and_not_for_triton() {
    let mut bench = Bench::new();
    bench.answer(&[executor(9, json!({"numQueuedRequests": 500, "numActiveRequests": 3}))]);
    assert_eq!((bench.request("waiting"), bench.ours("queued_requests")), (Some(2.0), Some(500.0)));
    assert_eq!(bench.ours("request_pauses_total"), None, "no rows tell pauses");
    let gateway = bench.page_of(Selection::Gateway);
    assert_eq!(gateway.find("nv_trt_llm_request_metrics", &["request_type=waiting"]), Some(502.0));
}

/// Gives the exporter five records. The third has these fields, too.
fn with_a_third(fields: &Value) -> Bench {
    let records: Vec<Value> =
        (11..=15).map(|iter| with(executor(iter, json!({})), kv(iter.cast_signed(), iter.cast_signed()))).collect();
    let mut bench = Bench::new();
    bench.answer(&records[..2]).answer(&[with(records[2].clone(), fields.clone())]).answer(&records[3..]);
    bench
}

/// The counts after [`with_a_third`], as far as an absurd third record could disturb them.
fn counts(bench: &Bench) -> [Option<f64>; 5] {
    [
        "iterations_total",
        "iterations_lost_total",
        "kv_cache_blocks_reused_total",
        "engine_restarts_total",
        "generation_tokens_total",
    ]
    .map(|family| bench.ours(family))
}

#[test]
fn an_absurd_key_costs_only_its_record() {
    for fields in [
        json!({"iter": u64::MAX}),
        json!({"iter": 2_000_000_000_000_u64}),
        json!({"iter": -1}),
        json!({"iter": "12"}),
        json!({"iter": 12.5}),
        json!({"statsSequence": -3}),
        json!({"rank": -1}),
        json!({"attentionDpRank": "0"}),
    ] {
        let bench = with_a_third(&fields);
        assert_eq!(counts(&bench), [4.0, 1.0, 4.0, 0.0, 4.0].map(Some), "{fields}");
        let rejected = bench.value("trtllm_exporter_records_rejected_total", &["reason=implausible"]);
        assert_eq!(rejected, Some(1.0), "{fields}");
    }
    assert_eq!(RejectReason::Implausible.name(), "implausible");
}

#[test]
fn an_absurd_value_costs_only_itself() {
    for (name, fields) in [
        ("numActiveRequests", json!({"numActiveRequests": -5})),
        ("maxNumActiveRequests", json!({"maxNumActiveRequests": "64"})),
        ("reusedBlocks", json!({"kvCacheStats": {"reusedBlocks": i64::MAX}})),
        ("usedNumBlocks", json!({"kvCacheStats": {"usedNumBlocks": -2}})),
        ("kvCacheStats", json!({"kvCacheStats": "none"})),
        ("tokensPerBlock", json!({"kvCacheStats": {"tokensPerBlock": 2_662_439_576_u64}})),
        ("newActiveRequestsQueueLatencyMS", json!({"newActiveRequestsQueueLatencyMS": 1e308})),
        ("gpuMemUsage", json!({"gpuMemUsage": i64::MIN})),
        ("statsDroppedFrames", json!({"statsDroppedFrames": u64::MAX})),
        ("iterReusedBlocks", json!({"kvCacheIterationStats": {"4096": {"iterReusedBlocks": -1}}})),
    ] {
        let bench = with_a_third(&fields);
        assert_eq!(counts(&bench), [5.0, 0.0, 4.0, 0.0, 5.0].map(Some), "{name}");
        let rejected = bench.value("trtllm_exporter_values_rejected_total", &[&format!("field={name}")]);
        assert_eq!(rejected, Some(1.0), "{name}");
    }
}

#[test]
fn an_implausible_record_counts_as_lost_like_an_unreadable_one() {
    let frame = |iter: u64, fields| with(pytorch(2 * iter, json!({"statsSequence": iter})), fields);
    type Record = fn(u64, Value) -> Value;
    for (record, lost, unreported) in [(executor as Record, 2.0, 0.0), (pytorch, 0.0, 2.0), (frame, 2.0, 5.0)] {
        let good = |iter| record(iter, json!({}));
        let unreadable = || json!(["not", "a", "record"]);
        let implausible = |iter| record(iter, json!({"attentionDpRank": -5}));
        for (rejected, reason) in [
            ([unreadable(), unreadable()], RejectReason::NotARecord),
            ([implausible(6), implausible(7)], RejectReason::Implausible),
        ] {
            let mut bench = Bench::new();
            bench.answer(&[good(4), good(5)]).answer(&rejected).answer(&[good(8), good(9)]);
            let reason = reason.name();
            let count = bench.value("trtllm_exporter_records_rejected_total", &[&format!("reason={reason}")]);
            assert_eq!(count, Some(2.0), "{reason}");
            assert_eq!(bench.ours("iterations_total"), Some(4.0), "{reason}");
            assert_eq!(bench.ours("iterations_lost_total"), Some(lost), "{reason}");
            assert_eq!(bench.ours("iterations_unreported_total"), Some(unreported), "{reason}");
        }
    }
}

#[test]
fn the_name_set_trtllm_observes_the_prefill_of_each_row_like_upstreams_collector() {
    // Rows with `rank` contain the rank's own numbers. In rows with `attentionDpRank`, only the numbers of the batch
    // are the rank's own; all other values are copied from rank 0.
    for key in ["rank", "attentionDpRank"] {
        let row = |iter: u64, rank: u64, tokens: u64| {
            let batch = json!({"numScheduledRequests": 1, "numGenRequests": 0, "numCtxTokens": tokens});
            pytorch(iter, json!({key: rank, "inflightBatchingStats": batch}))
        };
        let mut bench = Bench::new();
        let iterations = [[60, 100, 0, 900], [0; 4], [0, 0, 64, 0]];
        for (iter, tokens) in (1..).zip(iterations) {
            let rows: Vec<Value> = (0..).zip(tokens).map(|(rank, tokens)| row(iter, rank, tokens)).collect();
            bench.answer(&rows);
        }
        // TensorRT-LLM observes every row that has tokens, no matter from which rank.
        let rows: Vec<u64> = iterations.into_iter().flatten().filter(|tokens| *tokens > 0).collect();
        for bound in [64, 128, 1024] {
            let upstream = rows.iter().filter(|tokens| **tokens <= bound).count() as f64;
            let labels = [&*format!("le={bound}")];
            assert_eq!(bench.value("trtllm_prefill_batch_tokens_bucket", &labels), Some(upstream), "{key} {bound}");
        }
        assert_eq!(bench.value("trtllm_prefill_batch_tokens_sum", &[]), Some(1124.0), "{key}");
        // Our own family observes each iteration once.
        bench.answer(&[]).answer(&[]);
        assert_eq!(bench.ours("iteration_context_tokens_count"), Some(2.0), "{key}");
        assert_eq!(bench.ours("iteration_context_tokens_sum"), Some(1124.0), "{key}");
    }
}

#[test]
fn the_reused_and_missed_blocks_of_the_name_set_trtllm_do_not_wait_for_their_first_increase() {
    let names = ["trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_missed_blocks_total"];
    let counts = |bench: &Bench| names.map(|name| bench.value(name, &[]));
    // The engine has run for a long time before the first poll, so its first counts are only a baseline.
    let record = |iter, reused, missed| {
        executor(iter, json!({"kvCacheStats": {"reusedBlocks": reused, "missedBlocks": missed}}))
    };
    let mut bench = Bench::new();
    assert_eq!(counts(&bench), [None; 2], "an engine that has told nothing has no count");
    bench.answer(&[record(500, 70, 20)]);
    assert_eq!(counts(&bench), [Some(0.0); 2]);
    bench.answer(&[record(501, 73, 20)]);
    assert_eq!(counts(&bench), [Some(3.0), Some(0.0)]);
    // This record is from a release that does not report misses.
    let mut bench = Bench::new();
    let mut old = record(500, 70, 20);
    old["kvCacheStats"].as_object_mut().unwrap().remove("missedBlocks");
    bench.answer(&[old]);
    assert_eq!(counts(&bench), [Some(0.0), None]);
}
