//! The dialects of real logs, and the times of batches against the truth.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;

use trtllm_records::RejectCounts;
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats};

use super::*;

fn fixture(name: &str) -> String {
    let path = format!("{}/../../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of real logs, without the notes between them.
fn real(name: &str) -> Vec<String> {
    fixture(name).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn records(batch: &Batch) -> Vec<IterationStats> {
    let record =
        |message: &Message| if let Message::Record(record) = message { Some((**record).clone()) } else { None };
    batch.messages.iter().filter_map(record).collect()
}

/// The records of all these lines.
fn read(lines: &[String]) -> Vec<IterationStats> {
    let (mut log, mut batch) = (IterationLog::default(), Batch::default());
    lines.iter().for_each(|line| log.absorb(line.as_bytes(), &mut batch));
    log.flush(&mut batch);
    assert_eq!(batch.rejected, RejectCounts::default());
    records(&batch)
}

fn ms(ms: Option<f64>) -> String {
    ms.map_or("N/A".to_owned(), |ms| format!("{ms}ms"))
}

/// A line as release 1.3 writes it, with requests of the context and the generation phase.
fn line(iter: u64, context: i64, generation: i64, host: Option<f64>, device: Option<f64>) -> String {
    let (scheduled, host, device) = (context + generation, ms(host), ms(device));
    format!(
        "[08/19/2026-14:11:49] [TRT-LLM] [I] [_torch][RANK 0] iter = {iter}, global_rank = 0, rank = 0, num_scheduled_requests = \
         {scheduled}, kv_cache_util = 0.250, currank_total_requests = 0/{iter}, host_step_time = {host}, prev_device_step_time = \
         {device}, timestamp = 2026-08-19 14:11:49, states = {{'num_ctx_requests': {context}, 'num_ctx_tokens': {}, \
         'num_generation_tokens': {generation}, 'cached_kv_tokens': 900}}",
        100 * context
    )
}

#[test]
fn each_dialect_of_real_logs_is_read_and_other_lines_are_skipped() {
    let lines = real("iteration_log_dialects.log");
    let found: Vec<Pass> = lines.iter().filter_map(|line| Pass::parse(line.as_bytes())).collect();
    let plain = |iter: u64, host_ms: f64, time: &str| IterationStats {
        timestamp: trtllm_records::timestamp::parse_timestamp(time),
        iter: Some(iter),
        rank: Some(0),
        host_step_time_ms: Some(host_ms),
        ..IterationStats::default()
    };
    let batch = |scheduled: Option<i64>, context: i64, tokens: i64| InflightBatchingStats {
        num_scheduled_requests: scheduled,
        num_context_requests: Some(context),
        num_gen_requests: scheduled.map(|scheduled| scheduled - context),
        num_ctx_tokens: Some(tokens),
        ..InflightBatchingStats::default()
    };
    let used = |share: f64| KvCacheStats { used_share: Some(share), ..KvCacheStats::default() };
    let pass = |record: &IterationStats, all: i64, slots: i64| Pass {
        record: record.clone(),
        fetched: Some((0, all)),
        generation_slots: slots,
        ..Pass::default()
    };
    let of_0_19 = IterationStats {
        inflight_batching_stats: Some(batch(None, 0, 0)),
        ..plain(198, 5.060911178588867, "2025-04-28 09:56:44")
    };
    let of_1_2 = IterationStats {
        prev_device_step_time_ms: Some(89.87372589111328),
        inflight_batching_stats: Some(batch(Some(48), 0, 0)),
        ..plain(4286, 88.22870254516602, "2025-12-05 06:23:18")
    };
    let first = IterationStats {
        inflight_batching_stats: Some(batch(Some(1), 1, 13_694)),
        ..plain(1, 45_810.214_281_082_15, "2026-05-20 23:24:41")
    };
    // No batch was launched. The line repeats the batch before.
    let of_1_3 = IterationStats {
        kv_cache_stats: Some(used(0.0)),
        prev_device_step_time_ms: Some(243.13),
        ..plain(2, 4.08, "2026-08-19 14:11:49")
    };
    let expected = [pass(&of_0_19, 0, 16), pass(&of_1_2, 0, 96), pass(&first, 1, 0), pass(&of_1_3, 1, 0)];
    assert_eq!(found, expected);
    assert_eq!(lines.len(), 5, "one line is of a crash");

    let parse = |line: &str| Pass::parse(line.as_bytes()).unwrap();
    let of_0_20 = lines[0].replace("states", "num_scheduled_requests: 10, states");
    let expected = IterationStats { inflight_batching_stats: Some(batch(Some(10), 0, 0)), ..of_0_19 };
    assert_eq!(parse(&of_0_20), pass(&expected, 0, 16));
    let launched = lines[4].replace("num_scheduled_requests = 0", "num_scheduled_requests = 1");
    let of_launched = InflightBatchingStats { num_ctx_kv_tokens: Some(0), ..batch(Some(1), 1, 4) };
    assert_eq!(parse(&launched).record.inflight_batching_stats, Some(of_launched));
    let tensor = lines[4].replace("'num_generation_tokens': 0", "'num_generation_tokens': tensor(256)");
    assert_eq!(parse(&tensor).generation_slots, 256);
    let newest = lines[4]
        .replace("kv_cache_util = 0.000", "kv_cache_util = 0.600, kv_cache_gpu_pool_util = [0:0.900;1:0.500]")
        .replace("num_scheduled_requests = 0", "num_scheduled_requests = 15")
        .replace("'num_ctx_requests': 1", "'num_ctx_requests': 0")
        + ", num_active = 14, num_fetched = 3, num_dummy = 1, num_unscheduled = 5";
    let of_each = "'cached_kv_tokens': 7, 'cached_kv_tokens_per_req': [3, 4], 'cached_kv_tokens_cuda_graph_padding': 0";
    let newest = newest.replace("'cached_kv_tokens': 0", of_each);
    let expected = IterationStats {
        num_active_requests: Some(14),
        inflight_batching_stats: Some(InflightBatchingStats { num_gen_kv_tokens: Some(7), ..batch(Some(14), 0, 4) }),
        kv_cache_stats: Some(used(0.6)),
        ..of_1_3
    };
    assert_eq!(parse(&newest), pass(&expected, 1, 0));
    let of_docker = format!("{{\"log\":\"{}\\n\",\"stream\":\"stderr\"}}", lines[1]);
    assert_eq!(parse(&of_docker), pass(&of_1_2, 0, 96));
}

#[test]
fn a_line_that_is_cut_anywhere_is_skipped_or_lacks_its_end() {
    for line in real("iteration_log_dialects.log").iter().chain(&real("iteration_log_executor.log")) {
        for end in 0..line.len() {
            let cut = &line.as_bytes()[..end];
            if let Some(pass) = Pass::parse(cut) {
                let whole = Pass::parse(line.as_bytes()).unwrap();
                assert_eq!((pass.record.iter, pass.record.rank), (whole.record.iter, whole.record.rank));
                assert!(pass.record.rank.is_some() || pass == whole, "{end}: {line}");
            }
        }
    }
}

#[test]
fn lines_of_the_executor_are_records_with_what_they_have() {
    let records = read(&real("iteration_log_executor.log"));
    let iters: Vec<_> = records.iter().map(|record| record.iter.unwrap()).collect();
    assert_eq!(iters, [90, 0, 200, 392]);
    let blocks = KvCacheStats {
        max_num_blocks: Some(2448),
        free_num_blocks: Some(0),
        used_num_blocks: Some(2448),
        tokens_per_block: Some(128),
        ..KvCacheStats::default()
    };
    assert_eq!((records[0].num_active_requests, records[0].kv_cache_stats), (Some(249), Some(blocks)));
    let batch = records[0].inflight_batching_stats.unwrap();
    assert_eq!(
        (batch.num_context_requests, batch.num_gen_requests, batch.num_ctx_tokens),
        (Some(8), Some(231), Some(6904))
    );
    assert_eq!(
        (records[2].inflight_batching_stats, records[2].kv_cache_stats),
        (None, None),
        "statistics without a batch"
    );
    assert_eq!(records[3].inflight_batching_stats.unwrap().num_paused_requests, Some(0));
    let backend = |record: &IterationStats| record.backend() == trtllm_records::iteration::Backend::TensorRt;
    assert!(records.iter().all(backend));
}

/// The lines that an engine would have written beside the records of `tests/fixtures/overlap`, which have the true time
/// of each batch. A record of the serial loop has the times of the pass before.
fn lines_beside(kind: &str, lag: usize) -> Vec<String> {
    let text = fixture(&format!("overlap/{kind}.jsonl"));
    let records: Vec<IterationStats> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut lines = Vec::new();
    for (record, told) in records.iter().zip(&records[lag..]) {
        let batch = record.inflight_batching_stats.unwrap();
        let (context, generation) = (batch.num_context_requests.unwrap(), batch.num_gen_requests.unwrap());
        let (iter, device) = (record.iter.unwrap(), told.prev_device_step_time_ms.filter(|ms| *ms > 0.0));
        // A pass without a batch has no record.
        lines.extend((lines.len() as u64 + 1..iter).map(|pass| line(pass, 0, 0, None, None)));
        lines.push(line(iter, context, generation, told.host_step_time_ms, device));
    }
    lines
}

#[test]
fn the_time_of_each_batch_is_the_true_one_with_and_without_the_overlap_scheduler() {
    // Unknown are the last batch, those before a pass without a batch, and of the serial loop those that may contain a
    // wait.
    for (kind, lag, untold) in [("today", 0, 4), ("serial", 1, 5)] {
        let truth = fixture(&format!("overlap/{kind}.truth.csv"));
        let of =
            |line: &str| line.split_once(',').map(|(iter, ms)| (iter.parse().unwrap(), ms.parse().unwrap())).unwrap();
        let truth: BTreeMap<u64, f64> = truth.lines().skip(1).map(of).collect();
        let records = read(&lines_beside(kind, lag));
        assert!(records.len() > 150);
        let told: Vec<(u64, f64)> =
            records.iter().filter_map(|record| Some((record.iter?, record.iter_latency_ms?))).collect();
        for (iter, ms) in &told {
            assert!((ms / truth[iter] - 1.0).abs() < 0.1, "{kind} {iter}: {ms} instead of {}", truth[iter]);
        }
        assert!(told.len() + untold >= records.len(), "{kind}: {} of {}", told.len(), records.len());
    }
}

#[test]
fn a_wait_for_work_is_in_no_time() {
    // nvbugs 6627789: pass 259 had no batch and waited.
    let rows = fixture("iteration_log_nvbugs_6627789.csv");
    let number = |text: &str| text.parse::<f64>().ok();
    let lines = rows.lines().skip(1).map(|row| {
        let row: Vec<&str> = row.split(',').collect();
        line(row[0].parse().unwrap(), 0, row[1].parse().unwrap(), number(row[2]), number(row[3]))
    });
    let records = read(&lines.collect::<Vec<_>>());
    let latencies: Vec<_> = records.iter().map(|record| (record.iter.unwrap(), record.iter_latency_ms)).collect();
    // The next line has no host step. The device step contains the wait if pass 260 waited.
    assert_eq!(latencies, [(258, Some(7.391_776_084_899_902)), (260, None), (261, None)]);
    assert!(
        records.iter().all(|record| record.host_step_time_ms.is_none() && record.prev_device_step_time_ms.is_none())
    );

    let first = [
        line(1, 1, 0, Some(45_810.0), None),
        line(2, 0, 1, Some(31.0), Some(45_838.0)),
        line(3, 0, 1, Some(7.0), Some(7.1)),
    ];
    let times: Vec<_> = read(&first).iter().map(|record| (record.iter_latency_ms, record.host_step_time_ms)).collect();
    assert_eq!(times, [(Some(31.0), None), (Some(7.0), Some(31.0)), (None, Some(7.0))]);
}

#[test]
fn requests_the_batch_and_the_cache_are_those_of_the_line() {
    let records = read(&[line(7, 0, 3, Some(7.0), Some(7.0)), line(9, 1, 2, Some(8.0), Some(8.0))]);
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_eq!((first.num_new_active_requests, second.num_new_active_requests), (None, Some(2)));
    assert_eq!((first.stats_sequence, second.stats_sequence), (Some(7), Some(9)), "line 8 is lost");
    let used = second.kv_cache_stats.unwrap();
    assert_eq!((used.used_share, used.used_fraction(), used.max_num_blocks), (Some(0.25), Some(0.25), None));
    let batch = second.inflight_batching_stats.unwrap();
    let requests = (batch.num_scheduled_requests, batch.num_context_requests, batch.num_gen_requests);
    assert_eq!((requests, batch.num_ctx_tokens), ((Some(3), Some(1), Some(2)), Some(100)));
    assert_eq!(batch.num_gen_kv_tokens, None, "some may be of the prompt");
    assert_eq!(first.inflight_batching_stats.unwrap().num_gen_kv_tokens, Some(900));
    assert_eq!((second.timestamp, second.rank, second.num_active_requests), (None, None, None));
}

#[test]
fn a_pass_without_a_batch_is_no_iteration_and_no_loss() {
    let records = read(&[line(1, 1, 0, None, None), line(2, 0, 0, None, None), line(3, 1, 0, None, None)]);
    let numbers: Vec<_> = records.iter().map(|record| (record.iter, record.stats_sequence)).collect();
    assert_eq!(numbers, [(Some(1), Some(1)), (Some(3), Some(2))]);
}

#[test]
fn only_ranks_of_attention_data_parallelism_count_beside_rank_0() {
    let of = |rank: i64, fetched: &str| {
        line(7, 0, 1, Some(7.0), Some(7.0)).replace(" rank = 0", &format!(" rank = {rank}")).replace("0/7", fetched)
    };
    let ranks = |lines: &[String]| read(lines).iter().map(|record| record.rank).collect::<Vec<_>>();
    assert_eq!(ranks(&[of(0, "0/9"), of(1, "0/9")]), [None]);
    assert_eq!(ranks(&[of(0, "5/9"), of(1, "4/9")]), [Some(0), Some(1)]);
    let (mut log, mut batch) = (IterationLog::default(), Batch::default());
    log.absorb(of(0, "5/9").as_bytes(), &mut batch);
    assert!(log.notice().unwrap().contains("TLLM_PROFILE_LOG_RANKS"));
    log.absorb(of(1, "4/9").as_bytes(), &mut batch);
    assert_eq!(log.notice(), None);
}

#[test]
fn drafts_have_a_notice_and_padding_has_none() {
    let notice = |slots: i64| {
        let (mut log, mut batch) = (IterationLog::default(), Batch::default());
        let tokens = format!("'num_generation_tokens': {slots}");
        let line = line(7, 0, 10, Some(7.0), None).replace("'num_generation_tokens': 10", &tokens);
        log.absorb(line.as_bytes(), &mut batch);
        log.flush(&mut batch);
        log.notice()
    };
    assert_eq!((notice(10), notice(16)), (None, None));
    assert!(notice(20).unwrap().contains("drafts"));
}

#[test]
fn a_new_start_of_the_engine_is_a_new_process() {
    let (mut log, mut batch) = (IterationLog::default(), Batch::default());
    for iter in [7, 8, 1, 2] {
        log.absorb(line(iter, 0, 1, Some(7.0), Some(7.0)).as_bytes(), &mut batch);
    }
    let kinds: Vec<_> = batch
        .messages
        .iter()
        .map(|message| match message {
            Message::Record(record) => (record.iter, None),
            Message::Process(number) => (None, Some(*number)),
            message => panic!("{message:?}"),
        })
        .collect();
    assert_eq!(kinds, [(None, Some(0)), (Some(7), None), (Some(8), None), (None, Some(1)), (Some(1), None)]);
}

#[test]
fn a_new_start_of_the_engine_may_have_other_settings() {
    let (mut log, mut batch) = (IterationLog::default(), Batch::default());
    let drafts = line(7, 0, 10, Some(7.0), None).replace("'num_generation_tokens': 10", "'num_generation_tokens': 20");
    log.absorb(drafts.replace("0/7", "5/9").as_bytes(), &mut batch);
    assert!(log.has_attention_dp && log.has_drafts);
    for iter in [1, 2, 3] {
        log.absorb(line(iter, 0, 10, Some(7.0), Some(7.0)).as_bytes(), &mut batch);
    }
    let told: Vec<_> = records(&batch).iter().map(|record| (record.rank, record.stats_sequence)).collect();
    assert_eq!(told, [(Some(0), None), (None, Some(1)), (None, Some(2))]);
    assert_eq!(log.notice(), None);
}

fn iters(log: &mut FollowedLog) -> Vec<u64> {
    let mut batch = Batch::default();
    log.poll(&mut batch).unwrap();
    records(&batch).iter().map(|record| record.iter.unwrap()).collect()
}

fn add(path: &Path, iters: std::ops::RangeInclusive<u64>) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for iter in iters {
        writeln!(file, "some other line\n{}", line(iter, 0, 1, Some(7.0), Some(7.0))).unwrap();
    }
}

#[test]
fn a_link_leads_to_the_next_file_and_old_lines_count_only_if_asked() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second, link] = ["0.log", "1.log", "serve.log"].map(|name| directory.path().join(name));
    add(&first, 1..=3);
    symlink(&first, &link).unwrap();
    assert_eq!(iters(&mut FollowedLog::new(link.clone(), true)), [1, 2]);
    let mut log = FollowedLog::new(link.clone(), false);
    assert_eq!(iters(&mut log), [0; 0]);
    add(&first, 4..=5);
    assert_eq!(iters(&mut log), [4]);
    fs::remove_file(&link).unwrap();
    symlink(&second, &link).unwrap();
    add(&second, 6..=7);
    assert_eq!(iters(&mut log), [5, 6]);
}

#[test]
fn a_directory_is_refused_and_a_missing_file_is_not() {
    assert!(check(Path::new("/")).unwrap_err().to_string().contains("the file with the log of the server"));
    check(Path::new("/nowhere/serve.log")).unwrap();
    check(Path::new("-")).unwrap();
}
