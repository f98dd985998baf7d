use super::samples::{full_pass, pytorch, ranks_with_drafts, row_of_7, seated, working};
use super::*;
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats, SchedulerMode, StaticBatchingStats};
use trtllm_records::{IterationStats, RecordTime, RequestStage, RequestStats};

const STALE: Duration = Duration::from_secs(15);

/// An engine and its clock.
struct Bench {
    engine: EngineFold,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        Self { engine: EngineFold::new(STALE), now }
    }

    fn absorb(&mut self, record: &IterationStats) -> &EngineTotals {
        // A record with absurd values is not counted.
        let _ = self.engine.absorb(record, self.now, 0, &mut ());
        &self.engine.totals
    }

    fn all(&mut self, records: &[IterationStats]) -> &EngineTotals {
        for record in records {
            self.absorb(record);
        }
        &self.engine.totals
    }

    /// Ends an answer of the engine.
    fn settled(&mut self, from_ring: bool) -> &EngineTotals {
        self.engine.settle(from_ring, self.now, &mut ());
        &self.engine.totals
    }
}

/// The idle flush of the C++ executor: the number of the next iteration, and old counts.
fn flush(next_iter: u64, completed: i64) -> IterationStats {
    IterationStats {
        timestamp: Some(RecordTime { micros: 0, zoned: true }),
        iter: Some(next_iter),
        iter_latency_ms: Some(0.0),
        num_active_requests: Some(0),
        num_queued_requests: Some(0),
        num_new_active_requests: Some(1),
        num_completed_requests: Some(completed),
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(0),
            num_context_requests: Some(0),
            num_gen_requests: Some(0),
            num_ctx_tokens: Some(0),
            ..InflightBatchingStats::default()
        }),
        ..IterationStats::default()
    }
}

fn with_kv(mut record: IterationStats, reused: i64, missed: i64) -> IterationStats {
    record.kv_cache_stats =
        Some(KvCacheStats { reused_blocks: Some(reused), missed_blocks: Some(missed), ..KvCacheStats::default() });
    record
}

#[test]
fn the_idle_flush_of_an_executor_without_latencies_is_not_an_iteration() {
    let oldest = |record: IterationStats| IterationStats { iter_latency_ms: None, ..record };
    let mut bench = Bench::new();
    assert_eq!(bench.all(&[oldest(working(1)), oldest(flush(2, 1))]).iterations, 1);
    assert_eq!(bench.absorb(&oldest(working(2))).iterations, 2);
}

#[test]
fn completed_requests_count_once_if_the_flush_was_lost() {
    let mut bench = Bench::new();
    bench.absorb(&working(1));
    let repeated = IterationStats { num_completed_requests: Some(2), ..working(2) };
    assert_eq!(bench.absorb(&repeated).requests_completed, 2);
}

#[test]
fn old_new_requests_and_queue_time_in_the_flush_are_not_counted() {
    let mut bench = Bench::new();
    let totals = bench.all(&[working(1), flush(2, 1), flush(2, 1)]);
    assert_eq!((totals.requests_started, totals.new_request_queue_time.count()), (1, 1));
}

#[test]
fn a_latency_of_zero_or_with_the_wait_for_work_is_not_observed() {
    let mut bench = Bench::new();
    let after_idle = IterationStats { iter_latency_ms: Some(0.0), ..working(3) };
    let waited = IterationStats { iter_latency_ms: Some(90_000.0), ..working(4) };
    let totals = bench.all(&[working(1), working(2), flush(3, 2), after_idle, waited, working(5)]);
    assert_eq!(totals.iteration_latency.count(), 3);
    assert!((totals.iteration_latency.sum() - 0.03).abs() < 1e-9);
    assert_eq!(totals.iterations, 5, "an iteration without a latency is an iteration");
}

#[test]
fn the_wait_for_work_is_not_observed_if_the_flush_was_lost() {
    let mut bench = Bench::new();
    let after_idle = IterationStats { iter_latency_ms: Some(0.0), ..working(3) };
    let waited = IterationStats { iter_latency_ms: Some(90_000.0), ..working(4) };
    assert_eq!(bench.all(&[working(2), after_idle, waited, working(5)]).iteration_latency.count(), 2);
}

#[test]
fn the_page_has_the_time_of_one_batch_where_a_latency_covers_two() {
    let mut bench = Bench::new();
    let overlap = |iter| IterationStats {
        scheduler_mode: Some(SchedulerMode::Overlap),
        host_step_time_ms: Some(10.0),
        iter_latency_ms: Some(19.0),
        ..working(iter)
    };
    // The first record alone tells how long the next pass waited for its batch.
    assert!((bench.absorb(&overlap(7)).iteration_latency.sum() - 0.009).abs() < 1e-12);
    assert!((bench.absorb(&overlap(8)).iteration_latency.sum() - 0.019).abs() < 1e-12);
    assert!((bench.engine.totals.host_step.sum() - 0.02).abs() < 1e-12, "upstream's values stay");
}

#[test]
fn dropped_frames_and_the_gap_that_they_leave_count_once() {
    let mut bench = Bench::new();
    let frame = |iter, sequence, dropped| IterationStats {
        stats_sequence: Some(sequence),
        stats_dropped_frames: Some(dropped),
        ..working(iter)
    };
    assert_eq!(bench.all(&[frame(1, 0, 0), frame(2, 1, 0), frame(6, 5, 0), frame(7, 6, 3)]).losses.lost, 3);
    assert_eq!(bench.absorb(&frame(8, 7, 5)).losses.lost, 5, "dropped without a gap");
}

/// Records with these sequence numbers, and how many the engine has dropped until each.
fn frames(numbers: std::ops::Range<u64>, dropped: impl Fn(u64) -> u64) -> Vec<IterationStats> {
    let frame = |sequence| IterationStats {
        stats_sequence: Some(sequence),
        stats_dropped_frames: Some(dropped(sequence)),
        ..working(1 + sequence)
    };
    numbers.map(frame).collect()
}

#[test]
fn what_a_full_ring_dropped_before_the_first_answer_is_no_loss() {
    // Nobody has read the engine, so each record of the ring displaced an older one.
    let mut bench = Bench::new();
    bench.all(&frames(49_000..50_000, |sequence| sequence - 999));
    assert_eq!(bench.settled(true).losses.lost, 0);
    // From now on, what is dropped is lost.
    bench.all(&frames(50_000..50_010, |_| 49_003));
    assert_eq!(bench.settled(true).losses.lost, 3);
    // Nobody has read this engine, either, and its ring was not full when the oldest record was written.
    let mut bench = Bench::new();
    bench.all(&frames(120..1120, |sequence| sequence.saturating_sub(999)));
    assert_eq!(bench.settled(true).losses.lost, 0);
}

#[test]
fn what_was_dropped_while_the_exporter_restarted_is_lost() {
    // 28 s without a reader at 40 records a second: the ring had room for the first 1000 of 1120 records. Earlier losses do not count.
    let mut bench = Bench::new();
    bench.all(&frames(50_120..51_120, |sequence| 7 + sequence.saturating_sub(50_999)));
    assert_eq!(bench.settled(true).losses.lost, 120);
    bench.all(&frames(51_120..51_130, |_| 127));
    assert_eq!(bench.settled(true).losses.lost, 120);
    // The ring was not full.
    let mut bench = Bench::new();
    bench.all(&frames(50_000..50_900, |_| 7));
    assert_eq!(bench.settled(true).losses.lost, 0);
}

#[test]
fn a_pass_without_a_batch_is_no_loss_where_records_are_numbered() {
    // Answers of three tokens, one after the other: each time the engine becomes idle, a pass without a batch takes a number.
    let mut bench = Bench::new();
    let frame = |iter, sequence| IterationStats {
        stats_sequence: Some(sequence),
        scheduler_mode: Some(SchedulerMode::Overlap),
        ..working(iter)
    };
    let totals =
        bench.all(&[frame(2, 1), frame(3, 2), frame(4, 3), frame(6, 4), frame(7, 5), frame(8, 6), frame(10, 7)]);
    assert_eq!((totals.losses.unreported, totals.losses.unexplained, totals.losses.lost), (2, 0, 0));
}

#[test]
fn records_of_several_engines_are_not_counted_and_their_load_is_absent() {
    let mut bench = Bench::new();
    let mut alternating = |first: u64, polls: u64| {
        for poll in 0..polls {
            for iter in [100_000 + first + poll, 50 + first + poll] {
                bench.absorb(&working(iter));
                bench.settled(true);
            }
        }
        (bench.engine.totals.clone(), bench.engine.latest().copied(), bench.engine.health.state(bench.now))
    };
    let (before, ..) = alternating(0, 3);
    assert_eq!((before.engine_restarts, before.iterations, before.losses.lost), (1, 3, 0));
    let (after, latest, state) = alternating(3, 100);
    let counted = |totals: &EngineTotals| (totals.engine_restarts, totals.iterations, totals.losses.unreported);
    assert_eq!((counted(&after), latest, state), (counted(&before), None, EngineState::Busy));
    assert!(bench.engine.has_several_engines());
}

/// Reads two engines behind one address, which have run `each` iterations more at each poll, `difference` apart. Returns the engine when
/// it is known that there are two.
fn two_engines(difference: u64, each: u64) -> Bench {
    let mut bench = Bench::new();
    let mut next = [500 + difference, 500];
    let mut random = 1_u64;
    for poll in 1..100 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let which = (random >> 40 & 1) as usize;
        let due = [500 + difference, 500][which] + poll * each;
        for iter in next[which]..due {
            bench.absorb(&with_kv(working(iter), 4 * iter as i64, 0));
        }
        next[which] = due;
        bench.settled(true);
        bench.now += Duration::from_millis(100);
        if bench.engine.has_several_engines() {
            return bench;
        }
    }
    panic!("not found with {each} iterations a poll, {difference} apart");
}

#[test]
fn engines_with_numbers_close_together_are_found() {
    for difference in [0, 1, 2, 5, 10, 15, 16, 30] {
        for each in [1, 2, 5, 20, 60] {
            let restarts = two_engines(difference, each).engine.totals.engine_restarts;
            assert!(restarts <= 2, "{restarts} restarts with {each} iterations a poll, {difference} apart");
        }
    }
}

#[test]
fn an_engine_whose_number_is_too_high_for_one_that_has_just_started_is_no_restart() {
    let mut bench = Bench::new();
    let totals = bench.all(&[with_kv(working(90_000), 900, 0), with_kv(working(50_000), 700, 0)]);
    assert_eq!((totals.engine_restarts, totals.kv.reused_blocks), (0, Some(0)));
}

#[test]
fn a_new_process_is_a_restart_even_if_iteration_numbers_keep_growing() {
    let mut bench = Bench::new();
    bench.engine.set_process(4711, &mut ());
    bench.absorb(&with_kv(working(5), 10, 0));
    bench.engine.set_process(4711, &mut ());
    assert_eq!(bench.engine.totals.engine_restarts, 0);
    bench.engine.set_process(4712, &mut ());
    let totals = bench.absorb(&with_kv(working(9), 3, 0));
    assert_eq!((totals.engine_restarts, totals.losses.lost, totals.kv.reused_blocks), (1, 0, Some(3)));
}

#[test]
fn blocks_of_the_warm_up_do_not_count_at_the_start_nor_after_a_restart() {
    let record = |iter, allocated, missed| {
        let mut record = with_kv(pytorch(iter, 2, 1, 0), 0, missed);
        if let Some(stats) = &mut record.kv_cache_stats {
            (stats.alloc_total_blocks, stats.used_num_blocks, stats.tokens_per_block) =
                (Some(allocated), Some(8), Some(32));
        }
        record
    };
    let counted = |totals: &EngineTotals| (totals.kv.alloc_total_blocks, totals.kv.missed_blocks);
    let mut bench = Bench::new();
    // 100 tokens are 4 blocks, and 8 blocks are in use.
    assert_eq!(counted(bench.all(&[record(1, 1632, 30_000), record(2, 1640, 30_008)])), (Some(8), Some(8)));
    assert_eq!(
        counted(bench.absorb(&record(1, 1632, 8))),
        (Some(8), Some(16)),
        "only missed blocks are without warm-up"
    );
    assert_eq!(bench.engine.totals.engine_restarts, 1);
    assert_eq!(counted(bench.absorb(&record(2, 1640, 16))), (Some(16), Some(24)));
    assert_eq!(counted(bench.all(&[record(1, 8, 6_000), record(2, 16, 6_008)])), (Some(32), Some(32)));
}

#[test]
fn rows_of_other_attention_dp_ranks_add_only_their_batch() {
    let mut bench = Bench::new();
    let row = |iter, rank| IterationStats {
        attention_dp_rank: Some(rank),
        num_active_requests: Some(5),
        num_completed_requests: Some(if rank == 0 { 2 } else { 0 }),
        num_new_active_requests: Some(if rank == 0 { 1 } else { 0 }),
        gpu_mem_usage: Some(1000),
        ..with_kv(working(iter), 10 * iter as i64, 0)
    };
    bench.all(&[row(11, 0), row(11, 1), row(11, 2), row(12, 0), row(12, 1), row(12, 2)]);
    let totals = &bench.engine.totals;
    assert_eq!((totals.iterations, totals.losses.lost, totals.engine_restarts), (2, 0, 0));
    assert_eq!((totals.requests_completed, totals.requests_started), (4, 2));
    assert_eq!((totals.batch.tokens.context, totals.batch.tokens.generation), (600, 6));
    assert_eq!((totals.kv.reused_blocks, totals.iteration_latency.count()), (Some(10), 1));
    let latest = bench.engine.latest().unwrap();
    assert_eq!((latest.scheduled(), latest.active, latest.gpu_memory), (Some(6), Some(5), Some(1000)));
}

#[test]
fn equal_ranks_with_drafts_are_balanced_and_all_their_tokens_count() {
    for own in [false, true] {
        let mut bench = Bench::new();
        for iter in 100..103 {
            bench.all(&ranks_with_drafts(iter, 45, own));
        }
        bench.engine.settle(false, bench.now, &mut ());
        bench.engine.settle(false, bench.now, &mut ());
        let totals = &bench.engine.totals;
        let imbalance = &totals.ranks.as_ref().unwrap().imbalance;
        assert_eq!((imbalance.count(), imbalance.sum()), (3, 3.0), "own: {own}");
        let batch = &totals.batch;
        assert_eq!(batch.tokens.generation, 3 * 8 * 77, "own: {own}");
        assert_eq!((batch.spec_decode_draft_tokens, batch.spec_decode_accepted_tokens), (3 * 8 * 96, 3 * 8 * 45));
        let latest = bench.engine.latest().unwrap();
        assert_eq!((latest.batch_tokens, latest.spec_acceptance_ratio()), (Some(8 * 77), Some(45.0 / 96.0)));
    }
}

#[test]
fn accepted_tokens_of_another_rank_have_no_error_over_many_iterations() {
    let mut bench = Bench::new();
    for iter in 0..3000 {
        let mut rows = ranks_with_drafts(iter, 1, false);
        for row in &mut rows[1..] {
            // One of 32 requests of rank 0 had an accepted token, so one of 32 iterations with one request has one.
            row.inflight_batching_stats.as_mut().unwrap().num_gen_requests = Some(1);
        }
        bench.all(&rows);
    }
    assert_eq!(bench.engine.totals.batch.spec_decode_accepted_tokens, 3000 + 7 * (3000 / 32));
}

#[test]
fn an_average_of_zero_decoded_tokens_is_taken_as_one() {
    let mut bench = Bench::new();
    let mut record = working(1);
    let stats = record.inflight_batching_stats.as_mut().unwrap();
    stats.num_gen_requests = Some(7);
    stats.avg_num_decoded_tokens_per_iter = Some(0.0);
    assert_eq!(bench.absorb(&record).batch.tokens.generation, 7);
    let mut record = working(2);
    let stats = record.inflight_batching_stats.as_mut().unwrap();
    stats.num_gen_requests = Some(3);
    stats.avg_num_decoded_tokens_per_iter = Some(f64::from(7.0_f32 / 3.0));
    assert_eq!(bench.absorb(&record).batch.tokens.generation, 14);
}

#[test]
fn zero_static_batching_and_zero_limits_of_the_pytorch_backend_are_absent() {
    let zero = StaticBatchingStats {
        num_scheduled_requests: Some(0),
        num_context_requests: Some(0),
        num_ctx_tokens: Some(0),
        num_gen_tokens: Some(0),
        empty_gen_slots: Some(0),
    };
    let record = IterationStats {
        static_batching_stats: Some(zero),
        max_batch_size_static: Some(0),
        max_num_tokens_runtime: Some(8192),
        ..working(1)
    };
    let mut bench = Bench::new();
    bench.absorb(&record);
    let latest = bench.engine.latest().unwrap();
    assert_eq!(latest.static_batching, None);
    assert_eq!((latest.batch_size_limits.fixed, latest.token_limits.runtime), (None, Some(8192)));
}

#[test]
fn static_batches_count_the_tokens_of_their_prompts_but_not_those_that_they_may_decode() {
    let fixed = StaticBatchingStats {
        num_scheduled_requests: Some(4),
        num_ctx_tokens: Some(40),
        num_gen_tokens: Some(3),
        ..StaticBatchingStats::default()
    };
    let record = IterationStats { static_batching_stats: Some(fixed), inflight_batching_stats: None, ..working(1) };
    let totals = Bench::new().absorb(&record).clone();
    assert_eq!((totals.batch.tokens.context, totals.batch.decoded_tokens()), (40, None));
    assert_eq!(totals.iteration_scheduled_requests.sum(), 4.0);
}

#[test]
fn an_engine_is_idle_after_the_flush_and_busy_after_new_work() {
    let mut bench = Bench::new();
    let now = bench.now;
    bench.absorb(&working(1));
    assert_eq!(bench.engine.health.state(now), EngineState::Busy);
    bench.absorb(&flush(2, 1));
    assert_eq!(bench.engine.health.state(now), EngineState::Idle);
    let queued = IterationStats { num_queued_requests: Some(3), num_active_requests: Some(0), ..working(2) };
    bench.absorb(&queued);
    assert_eq!(bench.engine.health.state(now), EngineState::Busy, "queued work is outstanding");
}

#[test]
fn an_engine_whose_log_is_silent_is_idle_and_not_stalled() {
    let mut bench = Bench::new();
    let line = |iter| IterationStats {
        timestamp: None,
        num_queued_requests: None,
        num_completed_requests: None,
        static_batching_stats: None,
        ..working(iter)
    };
    bench.all(&[line(7), line(8)]);
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy);
    bench.now += STALE;
    bench.engine.health.answered(bench.now);
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Idle, "a log tells no end of a request");
    assert_eq!(bench.engine.overlaps(), None, "nor the kind of the loop");
    assert_eq!(bench.engine.timed_batch.unwrap().time.seconds, 0.01);
}

#[test]
fn an_engine_is_idle_at_the_end_of_a_replay() {
    let mut bench = Bench::new();
    bench.absorb(&working(1));
    bench.engine.finish();
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Idle);
}

#[test]
fn only_complete_requests_have_a_length() {
    let row = |stage, generated| RequestStats {
        stage: Some(stage),
        context_prefill_position: Some(120),
        num_generated_tokens: Some(generated),
        ..RequestStats::default()
    };
    let mut bench = Bench::new();
    let rows = vec![row(RequestStage::Generation, 3), row(RequestStage::Complete, 40), row(RequestStage::Queued, 0)];
    bench.absorb(&IterationStats { request_stats: Some(rows), ..working(1) });
    bench.engine.settle_all(bench.now, &mut ());
    let requests = &bench.engine.requests.totals;
    assert_eq!((requests.input_token_len.count(), requests.input_token_len.sum()), (1, 120.0));
    assert_eq!((requests.output_token_len.count(), requests.output_token_len.sum()), (1, 40.0));
}

#[test]
fn a_record_with_only_a_number_is_an_iteration_without_other_values() {
    let mut bench = Bench::new();
    let totals = bench.absorb(&IterationStats { iter: Some(1), ..IterationStats::default() });
    assert_eq!((totals.iterations, totals.requests_completed), (1, 0));
    let latest = bench.engine.latest().unwrap();
    assert_eq!((latest.active, latest.kv, latest.scheduled()), (None, None, None));
}

#[test]
fn extreme_numbers_never_lower_or_overflow_a_total() {
    let mut bench = Bench::new();
    let mut record = working(u64::MAX);
    record.num_completed_requests = Some(i64::MIN);
    record.num_new_active_requests = Some(-5);
    record.new_active_requests_queue_latency_ms = Some(f64::NAN);
    record.iter_latency_ms = Some(f64::INFINITY);
    bench.all(&[with_kv(record.clone(), i64::MIN, i64::MAX), with_kv(record, i64::MAX, i64::MIN), working(0)]);
    let totals = &bench.engine.totals;
    assert_eq!((totals.requests_completed, totals.iteration_latency.count()), (0, 1));
}

#[test]
fn a_record_with_an_impossible_gauge_counts_and_the_gauge_is_absent() {
    let with_used = |iter, used| IterationStats {
        kv_cache_stats: Some(KvCacheStats {
            max_num_blocks: Some(100),
            used_num_blocks: Some(used),
            ..KvCacheStats::default()
        }),
        ..working(iter)
    };
    let mut bench = Bench::new();
    bench.all(&[with_used(1, 5), with_used(2, -2), with_used(3, -2)]);
    assert_eq!((bench.engine.totals.iterations, bench.engine.totals.losses.lost), (3, 0));
    let kv = bench.engine.latest().unwrap().kv.unwrap();
    assert_eq!((kv.max_num_blocks, kv.used_num_blocks), (Some(100), None));
    assert_eq!(bench.engine.take_rejected().values, [("usedNumBlocks", 2)].into());
    assert_eq!(bench.engine.take_rejected(), Rejected::default(), "counted once");
    bench.absorb(&with_used(4, 7));
    assert_eq!(bench.engine.latest().unwrap().kv.unwrap().used_num_blocks, Some(7), "the control");
}

#[test]
fn blocks_of_ranks_of_which_one_is_impossible_have_no_sum() {
    let row = |rank, used| IterationStats {
        rank: Some(rank),
        kv_cache_stats: Some(KvCacheStats {
            max_num_blocks: Some(100),
            used_num_blocks: Some(used),
            ..KvCacheStats::default()
        }),
        ..pytorch(1, 2, 0, 0)
    };
    for (used, sum) in [([5, 7], Some(12)), ([5, -2], None), ([-2, 5], None)] {
        let mut bench = Bench::new();
        bench.all(&[row(0, used[0]), row(1, used[1])]);
        let kv = bench.engine.latest().unwrap().kv.unwrap();
        assert_eq!((kv.max_num_blocks, kv.used_num_blocks), (Some(200), sum), "{used:?}");
    }
}

#[test]
fn refused_records_prove_that_the_engine_runs() {
    // The source answers each second, without records.
    let after_16_seconds = |bench: &mut Bench| {
        for _ in 0..16 {
            bench.now += Duration::from_secs(1);
            bench.engine.health.answered(bench.now);
        }
        bench.engine.health.state(bench.now)
    };
    let mut bench = Bench::new();
    bench.absorb(&working(1));
    let refused = IterationStats { iter: Some(u64::MAX), ..working(2) };
    for _ in 0..60 {
        bench.now += Duration::from_secs(1);
        assert_eq!(bench.engine.absorb(&refused, bench.now, 0, &mut ()), Err(Implausible));
        bench.engine.health.answered(bench.now);
        assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy);
    }
    assert_eq!(after_16_seconds(&mut bench), EngineState::Idle, "nobody knows whether it has work");
    // The control: without those records, the engine is stalled.
    let mut silent = Bench::new();
    silent.absorb(&working(1));
    assert_eq!(after_16_seconds(&mut silent), EngineState::Stalled);
    // A record that counts says again what is outstanding.
    bench.absorb(&working(3));
    assert_eq!(after_16_seconds(&mut bench), EngineState::Stalled);
}

#[test]
fn the_extra_pass_of_the_overlap_scheduler_after_a_stop_word_is_not_work() {
    let mut bench = Bench::new();
    bench.all(&[pytorch(1, 2, 2, 0), pytorch(2, 2, 0, 1), pytorch(3, 2, 0, 1), pytorch(4, 1, 0, 0)]);
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy, "records still come");
    assert_eq!(bench.engine.health.state(bench.now + health::DOUBT), EngineState::Idle);
    bench.absorb(&pytorch(5, 3, 3, 0));
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy);
}

#[test]
fn the_active_requests_of_a_pytorch_engine_come_from_its_record_at_first_and_after_a_loss() {
    let mut bench = Bench::new();
    bench.absorb(&pytorch(100, 5, 0, 1));
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy);
    bench.absorb(&pytorch(200, 3, 0, 3));
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Idle);
}

/// A row of one rank with its own numbers. `waited`: seconds that requests have waited since the start of the engine.
fn own_rank(iter: u64, rank: i64, waited: f64, started: i64) -> IterationStats {
    IterationStats {
        rank: Some(rank),
        attention_dp_rank: Some(rank),
        new_active_requests_queue_latency_ms: Some(waited),
        ..pytorch(iter, 4, started, 0)
    }
}

#[test]
fn the_queue_time_of_ranks_is_that_of_rank_0_over_the_new_requests_of_all() {
    let mut bench = Bench::new();
    let iteration =
        |iter, waited, started: [i64; 2]| [own_rank(iter, 0, waited, started[0]), own_rank(iter, 1, 0.0, started[1])];
    bench.all(&iteration(100, 10.0, [0, 0]));
    // Rank 0 reports the waiting time of the requests of rank 1.
    bench.all(&iteration(101, 13.0, [0, 3]));
    bench.all(&iteration(102, 14.0, [1, 1]));
    // The row of rank 1 is missing, so the number of new requests is unknown.
    bench.absorb(&own_rank(103, 0, 20.0, 1));
    bench.all(&iteration(104, 20.0, [0, 0]));
    let waited = &bench.engine.totals.new_request_queue_time;
    assert_eq!((waited.count(), waited.sum()), (5, 4.0));
}

/// A context worker of the PyTorch engine whose requests wait for the transfer of their cache.
fn context_worker(iter: u64, scheduled: i64, used: i64) -> IterationStats {
    IterationStats {
        max_num_active_requests: Some(8),
        kv_cache_stats: Some(KvCacheStats {
            max_num_blocks: Some(100),
            used_num_blocks: Some(used),
            ..KvCacheStats::default()
        }),
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(scheduled),
            ..InflightBatchingStats::default()
        }),
        ..pytorch(iter, 8, 0, 0)
    }
}

/// The server has answered all requests, so its counters say that none is left.
fn answer_all(bench: &mut Bench) {
    for _ in 0..8 {
        bench.engine.absorb_entry(&PerfMetricsEntry::default(), false, bench.now, &mut ()).unwrap();
    }
}

#[test]
fn a_worker_that_is_blocked_after_its_answers_is_stalled_and_one_that_becomes_idle_is_not() {
    for (used, expected) in [(96, EngineState::Stalled), (40, EngineState::Idle)] {
        let mut bench = Bench::new();
        bench.absorb(&context_worker(1, 1, used));
        answer_all(&mut bench);
        for _ in 0..STALE.as_secs() {
            bench.now += Duration::from_secs(1);
            bench.engine.health.answered(bench.now);
        }
        assert_eq!(bench.engine.health.state(bench.now), expected, "{used} of 100 blocks used");
    }
}

#[test]
fn the_server_page_ends_requests_by_an_empty_batch_and_by_ends_but_not_by_refused_ones() {
    const EMPTY: &str = "trtllm_scheduled_batch_size 0\n";
    let ended = |code: &str, ended: u64| format!("trtllm_request_error_total{{http_code=\"{code}\"}} {ended}\n");
    let all_run = |active| IterationStats {
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(active),
            ..working(30).inflight_batching_stats.unwrap()
        }),
        ..pytorch(30, active, active, 0)
    };
    use EngineState::{Idle, Stalled};
    for (record, page, expected) in [
        (all_run(8), EMPTY.to_owned(), Idle),
        // The server has refused a request that the engine never had.
        (all_run(1), ended("400", 1), Stalled),
        (all_run(1), ended("500", 1), Idle),
    ] {
        let mut bench = Bench::new();
        let read = |page: &str, bench: &mut Bench| {
            let page = trtllm_sources::prometheus_text::parse_server_metrics(page.as_bytes()).unwrap();
            bench.engine.absorb_server_metrics(&page, bench.now, &mut ());
        };
        read("trtllm_scheduled_batch_size 8\n", &mut bench);
        bench.absorb(&record);
        bench.now += Duration::from_secs(5);
        read(&page, &mut bench);
        for _ in 0..STALE.as_secs() {
            bench.now += Duration::from_secs(1);
            bench.engine.health.answered(bench.now);
        }
        assert_eq!(bench.engine.health.state(bench.now), expected, "{page}");
    }
}

#[test]
fn a_context_server_whose_last_requests_leave_uncounted_is_idle() {
    let context = |iter, active, used| {
        let worker = context_worker(iter, 1, used);
        let batch = InflightBatchingStats { num_ctx_tokens: Some(100), ..worker.inflight_batching_stats.unwrap() };
        IterationStats { num_active_requests: Some(active), inflight_batching_stats: Some(batch), ..worker }
    };
    for (records, expected) in [
        (vec![context(1, 8, 40), context(2, 6, 40)], EngineState::Idle),
        // Its cache is full.
        (vec![context(1, 8, 40), context(2, 6, 40), context(3, 8, 96)], EngineState::Stalled),
        // The first prompts hang: no request has left uncounted.
        (vec![context(1, 8, 40), context(2, 8, 40)], EngineState::Stalled),
        // An engine that decodes counts the ends of all requests.
        (vec![working(1), context(2, 6, 40)], EngineState::Stalled),
    ] {
        let mut bench = Bench::new();
        bench.all(&records.into_iter().map(|record| IterationStats { timestamp: None, ..record }).collect::<Vec<_>>());
        for _ in 0..STALE.as_secs() {
            bench.now += Duration::from_secs(1);
            bench.engine.health.answered(bench.now);
        }
        assert_eq!(bench.engine.health.state(bench.now), expected);
    }
}

#[test]
fn an_engine_that_reports_iterations_without_a_batch_is_stalled() {
    let mut bench = Bench::new();
    for iter in 0..=STALE.as_secs() {
        bench.absorb(&context_worker(iter, 0, 40));
        bench.now += Duration::from_secs(1);
        bench.engine.health.answered(bench.now);
    }
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Stalled);
    bench.absorb(&context_worker(20, 1, 40));
    assert_eq!(bench.engine.health.state(bench.now), EngineState::Busy);
}

/// The sums of queue time, TTFT, E2E and TPOT in milliseconds, if they were observed.
fn derived(bench: &mut Bench) -> [Option<i64>; 4] {
    bench.engine.settle(false, bench.now + Duration::from_secs(60), &mut ());
    let times = &bench.engine.requests.totals.times;
    [&times.queue_time, &times.time_to_first_token, &times.e2e_latency, &times.time_per_output_token]
        .map(|histogram| (histogram.count() > 0).then(|| (histogram.sum() * 1e3).round() as i64))
}

#[test]
fn the_times_of_rows_contain_the_wait_for_a_seat_that_no_row_shows() {
    let mut bench = Bench::new();
    bench.all(&[10, 11].map(|iter| full_pass(iter, Some(500.0), 0, None)));
    bench.all(&seated(13, Some(500.0), Some(530.0)));
    assert_eq!(derived(&mut bench), [Some(30_000), Some(30_100), Some(30_150), Some(50)]);
}

#[test]
fn a_request_that_was_seen_before_it_waited_for_a_seat_arrived_then() {
    let mut bench = Bench::new();
    bench.all(&[10, 11].map(|iter| full_pass(iter, Some(500.0), 0, None)));
    bench.absorb(&full_pass(12, Some(500.0), 0, row_of_7(RequestStage::Queued, 0, false)));
    for iter in 13..500 {
        bench.absorb(&full_pass(iter, Some(500.0), 0, None));
    }
    bench.all(&seated(501, Some(500.0), Some(530.0)));
    assert_eq!(derived(&mut bench), [Some(24_450), Some(24_550), Some(24_600), Some(50)]);
}

/// Static batches, as the V1 executor reports them: a record at the end of each batch, then a flush with the same number. `requests`
/// and `queued` are of the batch and of the flush, and `before` is the number of requests of the batch before. `latency_ms` is that of
/// the pass before.
fn static_batch(iter: u64, latency_ms: f64, requests: i64, before: i64, queued: i64) -> [IterationStats; 2] {
    let batch = |requests: i64| StaticBatchingStats {
        num_scheduled_requests: Some(requests),
        num_context_requests: Some(requests),
        num_ctx_tokens: Some(100 * requests),
        num_gen_tokens: Some(512 * requests),
        empty_gen_slots: Some(0),
    };
    let record = |latency_ms, requests, completed| IterationStats {
        timestamp: Some(RecordTime { micros: 1_000_000 * iter as i64, zoned: true }),
        iter_latency_ms: Some(latency_ms),
        num_active_requests: Some(requests),
        num_queued_requests: Some(queued),
        num_new_active_requests: Some(requests),
        num_completed_requests: Some(completed),
        static_batching_stats: Some(batch(requests)),
        inflight_batching_stats: None,
        ..working(iter)
    };
    [record(latency_ms, requests, before), record(0.0, 0, requests)]
}

#[test]
fn the_requests_of_static_batches_complete_once_and_their_times_are_known() {
    let mut bench = Bench::new();
    // Requests are queued after the first batch, and none after the second. So the third pass waits for work, for 5 s.
    bench.all(&static_batch(1, 0.0, 8, 0, 3));
    bench.all(&static_batch(2, 1000.0, 2, 8, 0));
    bench.all(&static_batch(3, 1100.0, 8, 2, 3));
    bench.all(&static_batch(4, 6000.0, 4, 8, 3));
    bench.all(&static_batch(5, 1200.0, 8, 4, 0));
    let totals = &bench.engine.totals;
    assert_eq!((totals.iterations, totals.losses.lost, totals.requests_completed), (5, 0, 30));
    // The first pass waited for the first request, too.
    assert_eq!((totals.iteration_latency.count(), totals.iteration_latency.sum()), (2, 2.3));
}

/// The latencies of two requests, from rows of records 10 ms apart. The clock is set back by `back_ms` while the first runs. The last
/// number is that of the noticed steps.
fn latencies_with_a_clock_that_is_set_back(back_ms: i64) -> (u64, f64, u64) {
    let mut bench = Bench::new();
    let mut record = |iter: i64, back_ms: i64, rows: &[(u64, RequestStage, i64)]| {
        let rows = rows.iter().map(|(id, stage, tokens)| RequestStats {
            id: Some(*id),
            stage: Some(*stage),
            scheduled: Some(*stage == RequestStage::Context || *stage == RequestStage::Generation),
            num_generated_tokens: Some(*tokens),
            ..RequestStats::default()
        });
        let micros = 1_760_000_000_000_000 + (10 * iter - back_ms) * 1000;
        let record = IterationStats {
            iter: u64::try_from(iter).ok(),
            timestamp: Some(RecordTime { micros, zoned: true }),
            iter_latency_ms: Some(10.0),
            num_active_requests: Some(1),
            inflight_batching_stats: Some(InflightBatchingStats::default()),
            request_stats: Some(rows.collect()),
            ..IterationStats::default()
        };
        bench.engine.absorb(&record, bench.now, 0, &mut ()).unwrap();
    };
    use RequestStage::{Complete, Context, Generation};
    record(1, 0, &[]);
    record(2, 0, &[(1, Context, 0)]);
    record(3, 0, &[(1, Generation, 1)]);
    for iter in 4..10 {
        record(iter, back_ms, &[(1, Generation, iter - 2)]);
    }
    record(10, back_ms, &[(1, Complete, 8), (2, Context, 0)]);
    for iter in 11..15 {
        record(iter, back_ms, &[(2, Generation, iter - 10)]);
    }
    record(15, back_ms, &[(2, Complete, 5)]);
    bench.engine.settle_all(bench.now, &mut ());
    let times = &bench.engine.requests.totals.times;
    (times.e2e_latency.count(), times.e2e_latency.sum(), bench.engine.totals.clock_steps)
}

#[test]
fn a_clock_that_is_set_never_changes_the_times_of_requests() {
    let (count, sum, steps) = latencies_with_a_clock_that_is_set_back(0);
    assert_eq!((count, steps), (2, 0), "the control");
    for back_ms in [35, 3_600_000, -30_000, -3_600_000] {
        let (of_second, its_sum, steps) = latencies_with_a_clock_that_is_set_back(back_ms);
        assert_eq!((of_second, steps), (1, 1), "the first request has no time");
        assert!(its_sum >= 0.05 && its_sum < sum, "{its_sum} of {sum}");
    }
}

#[test]
fn a_local_time_of_an_old_record_that_seems_younger_is_no_step_of_the_clock() {
    let wall_us = 1_760_000_000_000_000;
    for (zoned, minutes, expected) in [(false, [200, 174], 0), (false, [174, 176], 1), (true, [174, 176], 1)] {
        let mut bench = Bench::new();
        // The engine is idle between the two records. By a quarter of an hour, they seem 5 and 9 minutes old.
        for (record, minutes) in [(working(1), minutes[0]), (flush(2, 1), minutes[0]), (working(2), minutes[1])] {
            let timestamp = Some(RecordTime { micros: wall_us - minutes * 60_000_000, zoned });
            let record = IterationStats { timestamp, ..record };
            bench.engine.absorb(&record, bench.now, wall_us, &mut ()).unwrap();
        }
        assert_eq!(bench.engine.totals.clock_steps, expected, "{zoned} {minutes:?}");
    }
}

#[test]
fn the_gap_before_a_long_answer_counts_once_the_answer_has_ended() {
    for (records, expected) in [(5, (50, 0)), (1000, (0, 50))] {
        let mut bench = Bench::new();
        bench.absorb(&pytorch(1, 2, 0, 0));
        bench.settled(true);
        // A scrape in the middle of the answer shows a count that never falls.
        for iter in 52..52 + records {
            assert_eq!(bench.absorb(&pytorch(iter, 2, 0, 0)).losses.unreported, 0);
        }
        let losses = bench.settled(true).losses;
        assert_eq!((losses.unreported, losses.lost), expected);
    }
}
