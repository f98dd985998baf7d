//! Engines whose limit is known, of both backends: the advice is right or there is none, and never contradicts itself.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The PyTorch engine tells no limit of the batch and of the tokens in its records.
const NO_LIMITS: [&str; 5] =
    ["maxBatchSizeRuntime", "maxBatchSizeStatic", "maxNumTokensRuntime", "maxNumTokensStatic", "attentionDpRank"];
const CONFIGURED: Line = ("nv_trt_llm_engine_config_info{max_batch_size=\"64\",max_num_tokens=\"2048\"}", 1.0, 1.0);

fn pytorch(record: Value) -> Vec<Value> {
    let mut record = record;
    for limit in &NO_LIMITS[..4] {
        record[*limit] = json!(0);
    }
    one(record)
}

/// Its latency is in the record after the next one, as all are alike that does not matter.
fn cpp(record: Value) -> Vec<Value> {
    let mut record = record;
    record.as_object_mut().unwrap().remove("attentionDpRank");
    one(with(record, json!({"timestamp": "07-25-2025 16:54:34.140189"})))
}

/// What the rules say about an engine. The page tells its configuration.
fn found(record: fn(u64) -> Vec<Value>, lines: &'static [Line]) -> Vec<&'static str> {
    names(&observation(&Case { record: Some(record), lines, ..Case::default() }))
}

/// 30 requests wait, 7 are scheduled, and each iteration computes this many tokens of prompts.
fn few_scheduled(iter: u64, context_tokens: u64) -> Value {
    let batch = json!({"numScheduledRequests": 7, "numContextRequests": 2, "numGenRequests": 5, "numCtxTokens": context_tokens});
    with(
        record(iter),
        json!({"numQueuedRequests": 30, "numActiveRequests": 7, "iterLatencyMS": 30,
        "inflightBatchingStats": batch, "kvCacheStats": {"usedNumBlocks": 300}}),
    )
}

#[test]
fn a_token_limit_that_is_full_is_to_be_raised_not_lowered() {
    for found in [
        found(|iter| cpp(few_scheduled(iter, 2040)), &[]),
        found(|iter| pytorch(few_scheduled(iter, 2040)), &[CONFIGURED]),
        // Without chunks: a third prompt of 700 tokens does not fit.
        found(|iter| cpp(few_scheduled(iter, 1400)), &[]),
        found(|iter| pytorch(few_scheduled(iter, 1400)), &[CONFIGURED]),
    ] {
        assert_eq!(found, ["token-limit-reached"]);
    }
    // A full iteration of 120 ms or 400 ms is compute. More tokens in it help nobody, nor does a larger batch.
    let batch = |iter| {
        let full =
            json!({"numScheduledRequests": 64, "numContextRequests": 2, "numGenRequests": 62, "numCtxTokens": 1980});
        cpp(with(few_scheduled(iter, 0), json!({"iterLatencyMS": 120, "inflightBatchingStats": full})))
    };
    assert_eq!(found(batch, &[]), ["requests-wait"]);
    let long = |iter| cpp(with(few_scheduled(iter, 2040), json!({"iterLatencyMS": 400})));
    assert_eq!(found(long, &[]), ["context-bound", "requests-wait"]);
    let rule = rules::all().find(|rule| rule.name == "token-limit-reached").unwrap();
    assert!(rule.change.starts_with("Raise max_num_tokens"), "{}", rule.change);
}

#[test]
fn a_limit_that_nobody_tells_is_not_guessed() {
    // As much as the engine ever computes, and no word about its limit.
    assert_eq!(found(|iter| pytorch(few_scheduled(iter, 2040)), &[]), ["requests-wait"]);
    // Draft tokens count, too. Tokens of prompts that a release leaves at 0 do not tell that there is room.
    let zero = |iter| pytorch(with(few_scheduled(iter, 0), json!({"kvCacheStats": {"usedNumBlocks": 600}})));
    assert_eq!(found(zero, &[CONFIGURED]), ["requests-wait"]);
    let draft = |iter| {
        let spec = json!({"numDraftTokens": 1500, "numAcceptedTokens": 900, "numRequestsWithDraftTokens": 5});
        pytorch(with(few_scheduled(iter, 400), json!({"specDecodingStats": spec})))
    };
    assert_eq!(found(draft, &[CONFIGURED]), ["token-limit-reached"]);
}

#[test]
fn a_larger_batch_is_advised_only_at_its_limit_and_where_the_rest_has_room() {
    fn full(iter: u64, scheduled: u64, blocks: u64) -> Value {
        let full = json!({"numQueuedRequests": 30, "numActiveRequests": scheduled, "kvCacheStats": {"usedNumBlocks": blocks},
            "inflightBatchingStats": {"numScheduledRequests": scheduled, "numGenRequests": scheduled}});
        with(record(iter), full)
    }
    let queue_bound = ["queue-bound"];
    assert_eq!(found(|iter| cpp(full(iter, 64, 400)), &[]), queue_bound);
    assert_eq!(found(|iter| pytorch(full(iter, 64, 400)), &[CONFIGURED]), queue_bound);
    // 7 of 64: the KV cache is full, or reserved by the policy, or nobody knows.
    assert_eq!(found(|iter| cpp(full(iter, 7, 980)), &[]), ["kv-cache-starved"]);
    assert_eq!(found(|iter| pytorch(full(iter, 7, 980)), &[CONFIGURED]), ["kv-cache-starved"]);
    // Without transfers, in which active requests wait for their KV cache.
    let alone = |record: fn(u64) -> Vec<Value>| {
        let removed = &["nv_trt_llm_kv_cache_transfer"];
        names(&observation(&Case { record: Some(record), lines: &[CONFIGURED], removed, start: None }))
    };
    assert_eq!(alone(|iter| cpp(full(iter, 7, 600))), ["kv-cache-starved"]);
    assert_eq!(alone(|iter| pytorch(full(iter, 7, 600))), ["kv-cache-starved"]);
    assert_eq!(found(|iter| pytorch(full(iter, 7, 600)), &[CONFIGURED]), ["requests-wait"]);
    // The overlap scheduler counts a request as active that the batch has left.
    let one_more = |iter| pytorch(with(full(iter, 20, 600), json!({"numQueuedRequests": 0, "numActiveRequests": 21})));
    assert_eq!(alone(one_more), [""; 0]);
    let one_more = |iter| pytorch(with(full(iter, 20, 950), json!({"numQueuedRequests": 0, "numActiveRequests": 21})));
    assert_eq!(alone(one_more), ["saturated"]);
    assert_eq!(found(|iter| cpp(full(iter, 7, 150)), &[]), ["requests-wait"]);
    assert_eq!(found(|iter| pytorch(full(iter, 7, 150)), &[]), ["requests-wait"]);
    // A larger batch would only wait for blocks or for compute, or make slow iterations slower.
    let busy = |iter: u64| {
        pytorch(with(full(iter, 64, 400), json!({"iterLatencyMS": if iter.is_multiple_of(8) { 2000 } else { 14 }})))
    };
    assert_eq!(found(busy, &[CONFIGURED]), ["context-bound", "requests-wait"]);
    assert_eq!(found(|iter| cpp(full(iter, 64, 960)), &[]), ["requests-wait"]);
    let slow = |iter| cpp(with(full(iter, 64, 400), json!({"iterLatencyMS": 70})));
    assert_eq!(found(slow, &[]), ["generation-bound", "requests-wait"]);
}

#[test]
fn speculation_that_pays_is_no_problem() {
    let report = |lines, share: fn(u64) -> Vec<Value>| found(share, lines);
    // 4000 steps. A share of the iteration that is spent drafting of 15 %, 10 %, 20 %, 40 %; 0 is not measured.
    const LONG: &[Line] = &[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 10_400.0)];
    const SHORT: &[Line] = &[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 4800.0)];
    const BAD: &[Line] = &[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 400.0)];
    const USELESS: &[Line] = &[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 200.0)];
    const DEAR: &[Line] = &[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 2400.0)];
    fn overhead(iter: u64, share: f64) -> Vec<Value> {
        pytorch(with(record(iter), json!({"specDecodingStats": {"draftOverhead": share}})))
    }
    assert_eq!(report(LONG, |iter| overhead(iter, 0.15)), [""; 0]);
    assert_eq!(report(SHORT, |iter| overhead(iter, 0.1)), [""; 0]);
    assert_eq!(report(SHORT, |iter| overhead(iter, 0.2)), [""; 0]);
    assert_eq!(report(BAD, |iter| overhead(iter, 0.4)), ["poor-speculation"]);
    assert_eq!(report(DEAR, |iter| overhead(iter, 0.4)), ["poor-speculation"]);
    assert_eq!(report(DEAR, |iter| overhead(iter, 0.0)), [""; 0]);
    assert_eq!(report(USELESS, |iter| overhead(iter, 0.0)), ["poor-speculation"]);
    // Only one of four ranks tells its draft tokens.
    let ranks = |iter| (0..4).map(|rank| with(record(iter), json!({"attentionDpRank": rank}))).collect();
    assert_eq!(report(&[("nv_trt_llm_spec_decode_drafted_requests_total", 3000.0, 4000.0)], ranks), [""; 0]);
}

#[test]
fn pauses_that_only_records_tell_count() {
    fn pausing(iter: u64, used: u64) -> Value {
        let paused = u64::from(iter.is_multiple_of(10));
        with(
            record(iter),
            json!({"kvCacheStats": {"usedNumBlocks": used}, "inflightBatchingStats": {"numPausedRequests": paused}}),
        )
    }
    let case = |record: fn(u64) -> Vec<Value>| Case {
        record: Some(record),
        removed: &["nv_trt_llm_request_pauses"],
        ..Case::default()
    };
    for case in [case(|iter| cpp(pausing(iter, 850))), case(|iter| pytorch(pausing(iter, 850)))] {
        assert_eq!(names(&observation(&case)), ["requests-paused"]);
    }
    let all = observation(&case(|iter| cpp(pausing(iter, 960))));
    assert_eq!(names(&all), ["kv-cache-starved", "requests-paused"]);
    // 500 iterations ran in the window.
    assert_eq!(judge(&all)[1].facts[0].to_string(), "requests paused or suspended: 50");
    // KV cache manager V2 counts suspensions.
    const SUSPENDED: &[Line] = &[("nv_trt_llm_request_suspensions_total", 3.0, 60.0)];
    assert_eq!(found(|iter| pytorch(record(iter)), SUSPENDED), ["requests-paused"]);
}

#[test]
fn prompts_that_share_nothing_and_a_full_cache_without_waiting_are_no_problem() {
    const NOTHING: &[Line] = &[
        ("nv_trt_llm_kv_cache_blocks_reused_total", 100.0, 120.0),
        ("nv_trt_llm_kv_cache_blocks_missed_total", 5000.0, 7000.0),
        ("nv_trt_llm_context_tokens_total", 0.0, 1e5),
    ];
    let busy = |iter: u64| cpp(with(record(iter), json!({"iterLatencyMS": if iter % 8 == 1 { 80 } else { 14 }})));
    assert_eq!(found(busy, NOTHING), [""; 0]);
    // An old release that counts no misses, and found nothing.
    const NOT_COUNTED: &[Line] =
        &[("nv_trt_llm_kv_cache_blocks_reused_total", 0.0, 0.0), ("nv_trt_llm_kv_cache_blocks_missed_total", 0.0, 0.0)];
    assert_eq!(found(busy, NOT_COUNTED), [""; 0]);
    let full = |iter| cpp(with(record(iter), json!({"kvCacheStats": {"usedNumBlocks": 970}})));
    assert_eq!(found(full, &[]), ["saturated"]);
}

#[test]
fn shorter_chunks_are_not_advised_while_requests_wait() {
    fn long(iter: u64, queued: u64) -> Value {
        let slow = if iter.is_multiple_of(8) { 600 } else { 14 };
        with(record(iter), json!({"iterLatencyMS": slow, "numQueuedRequests": queued}))
    }
    let delays = ["context-bound", "context-delays-generation"];
    assert_eq!(found(|iter| pytorch(long(iter, 0)), &[CONFIGURED]), delays);
    assert_eq!(found(|iter| pytorch(long(iter, 30)), &[CONFIGURED]), ["context-bound", "requests-wait"]);
}

#[test]
fn healthy_engines_of_both_backends_have_no_finding() {
    assert_eq!(found(|iter| cpp(record(iter)), &[]), [""; 0]);
    for lines in [&[][..], &[CONFIGURED]] {
        assert_eq!(found(|iter| pytorch(record(iter)), lines), [""; 0]);
    }
}

/// A setting, and whether it is to be raised. Words in brackets are left out.
fn directions(change: &str) -> Vec<(String, bool)> {
    let (mut found, mut direction, mut depth) = (Vec::new(), None, 0_i32);
    for word in change.split(' ') {
        depth += word.matches('(').count() as i32;
        if depth == 0 {
            match word.to_lowercase().as_str() {
                "raise" | "higher" | "larger" | "longer" => direction = Some(true),
                "lower" | "reduce" | "smaller" | "shorter" | "remove" => direction = Some(false),
                _ => {}
            }
            let setting = word.trim_end_matches([',', ';', '.', ':']);
            if let Some(direction) = direction.filter(|_| setting.contains('_')) {
                found.push((setting.to_owned(), direction));
            }
            if word.ends_with([',', ';', '.', ':']) {
                direction = None;
            }
        }
        depth -= word.matches(')').count() as i32;
    }
    found
}

#[test]
fn no_report_advises_to_raise_and_to_lower_one_setting() {
    assert_eq!(
        directions("Raise a_b (or c_d) and e_f, g_h; or a lower i_j."),
        [("a_b".to_owned(), true), ("e_f".to_owned(), true), ("i_j".to_owned(), false)]
    );
    let mut seen: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    let mut choices = 0;
    let mut all = observation(&Case { lines: &[CONFIGURED], ..Case::default() });
    let choose = |number: &mut u64, of: &[u64]| {
        let index = *number % of.len() as u64;
        *number /= of.len() as u64;
        of[index as usize]
    };
    while choices < 3072 {
        let mut number = choices;
        choices += 1;
        let [cpp_backend, context_each, paused, tuned] =
            [[0, 1], [1, 4], [0, 1], [0, 1]].map(|of| choose(&mut number, &of));
        let (scheduled, queued) = (choose(&mut number, &[7, 64]), choose(&mut number, &[0, 30]));
        let (tokens, blocks) = (choose(&mut number, &[300, 2040]), choose(&mut number, &[150, 600, 990]));
        let (latency, slow) = (choose(&mut number, &[14, 70]), choose(&mut number, &[20, 600]));
        let spec = choose(&mut number, &[400, 10_400]);
        let row = |iter: u64| {
            let context = u64::from(iter.is_multiple_of(context_each));
            let change = json!({"numQueuedRequests": queued, "numActiveRequests": scheduled,
                "iterLatencyMS": if context == 1 { latency + slow } else { latency }, "kvCacheStats": {"usedNumBlocks": blocks},
                "maxBatchSizeRuntime": if tuned == 1 { 60 } else { 64 },
                "inflightBatchingStats": {"numScheduledRequests": scheduled, "numContextRequests": context,
                    "numGenRequests": scheduled - context, "numCtxTokens": tokens * context, "numPausedRequests": paused}});
            let record = with(record(iter), change);
            if cpp_backend == 1 { cpp(record) } else { pytorch(record) }
        };
        let rows = (0..24).flat_map(row).map(|row| serde_json::from_value::<IterationStats>(row).unwrap());
        let engine = &mut all.exporters[0].engines[0];
        engine.batches = Batches::of(&rows.collect::<Vec<_>>(), configured(&engine.page.after));
        for series in engine.page.after.0.iter_mut().filter(|series| series.name.ends_with("accepted_tokens_total")) {
            series.value = 8e3 + spec as f64;
        }
        let mut of_report: BTreeMap<String, bool> = BTreeMap::new();
        let findings = judge(&all);
        for (setting, direction) in findings.iter().flat_map(|finding| directions(finding.rule.change)) {
            let other = of_report.insert(setting.clone(), direction);
            let names: Vec<_> = findings.iter().map(|finding| finding.rule.name).collect();
            assert_ne!(other, Some(!direction), "{setting} in {names:?}: {:?}", engine_of(&all));
            seen.entry(setting).or_default().insert(direction);
        }
    }
    for setting in ["max_batch_size", "max_num_tokens"] {
        assert_eq!(seen[setting].len(), 2, "{setting} in one direction only, so the test shows nothing: {seen:?}");
    }
}

fn engine_of(all: &Observation) -> &Batches {
    &all.exporters[0].engines[0].batches
}
