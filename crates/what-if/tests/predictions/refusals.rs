//! Tests that questions without a reliable answer are refused, and that the reason says what to do.

use trtllm_what_if::measured_engine::{Cache, Drafts, EqualWork, Limits, Prices, Request, Work};
use trtllm_what_if::{Change, MeasuredEngine, ask, capacity};

/// An engine whose iterations take 10 ms, plus 0.1 ms for each decoding request. None of its 400 requests waited.
fn engine() -> MeasuredEngine {
    let work = |requests: f64| EqualWork {
        iterations: 100.0,
        seconds: 0.01 + 0.0001 * requests,
        work: Work { generation_tokens: requests, ..Work::default() },
        ..EqualWork::default()
    };
    let mut contexts = EqualWork { iterations: 100.0, seconds: 0.012, ..work(1.0) };
    contexts.work.context_tokens = 100.0;
    MeasuredEngine {
        limits: Limits { max_batch_size: Some(16), max_num_tokens: Some(1024), policy: None, overlap: Some(true) },
        cache: Some(Cache { blocks: 1000, tokens_per_block: 32 }),
        prices: Some(Prices { base: 0.01, context_token: 2e-5, generation_token: 1e-4, kv_token: 0.0, error: 0.02 }),
        equal_work: vec![work(1.0), work(2.0), work(4.0), contexts],
        requests: (0..400).map(request).collect(),
        sampling: 1.0,
        attention_dp_ranks: 1,
        ..MeasuredEngine::default()
    }
}

/// One request every half second. Its prompt takes one iteration, and its ten output tokens take nine more.
fn request(number: u32) -> Request {
    let arrived = 0.5 * f64::from(number) + f64::from(number % 7) * 0.01;
    Request { arrived, prompt: 100, cached: 0, output: 10, first_token: 0.012, ended: 0.012 + 9.0 * 0.0101 }
}

fn reason(engine: &MeasuredEngine, change: &str) -> Option<String> {
    reasons(engine, &[change])
}

fn reasons(engine: &MeasuredEngine, changes: &[&str]) -> Option<String> {
    let mut set = Change::default();
    changes.iter().for_each(|change| set.set(change).unwrap());
    ask(engine, &set).reason
}

#[test]
fn the_present_of_a_calm_engine_is_simulated_as_it_was() {
    let answer = ask(&engine(), &Change::default());
    assert_eq!(answer.reason, None);
    let now = answer.now.unwrap();
    assert!(now.stable);
    assert!((now.requests_per_second.value - 2.0).abs() < 0.05, "{now:?}");
    let tpot = now.tpot_seconds.unwrap().p50;
    assert!((tpot.value / 0.0101 - 1.0).abs() < 0.03, "{tpot:?}");
    assert_eq!(answer.now, answer.then);
}

#[test]
fn above_capacity_the_queue_grows_and_there_are_no_latencies() {
    let (mut engine, mut change) = (engine(), Change { rate: 10.0, ..Change::default() });
    engine.limits.max_batch_size = Some(1);
    let answer = ask(&engine, &change);
    let then = answer.then.unwrap_or_else(|| panic!("{answer:?}"));
    assert!(!then.stable && then.ttft_seconds.is_none() && then.tpot_seconds.is_none());
    let (growth, capacity) = (then.queue_growth_per_second.unwrap(), then.requests_per_second);
    // One request takes 0.103 s, so 9.7 of the 20 requests per second are served.
    assert!(capacity.holds(9.7) && growth.holds(10.3), "{capacity:?} {growth:?}");
    change.rate = 1.0;
    assert!(ask(&engine, &change).then.unwrap().stable);
}

#[test]
fn questions_about_the_unknown_are_refused_with_a_remedy() {
    let change = "max_batch_size=8";
    let known = engine();
    assert_eq!(reason(&known, change), None);
    let cases: [(MeasuredEngine, &str); 8] = [
        (MeasuredEngine { sampling: 10.0, ..known.clone() }, "stats_interval"),
        (MeasuredEngine { attention_dp_ranks: 4, ..known.clone() }, "attention data parallelism"),
        (MeasuredEngine { disaggregated: true, ..known.clone() }, "disaggregated"),
        (MeasuredEngine { static_batching: true, ..known.clone() }, "in-flight batching"),
        (MeasuredEngine { slowdown: Some(1.5), ..known.clone() }, "doctor"),
        (MeasuredEngine { requests: known.requests[..100].to_vec(), ..known.clone() }, "enable_iter_req_stats"),
        (MeasuredEngine { prices: None, ..known.clone() }, "costs"),
        (MeasuredEngine { limits: Limits { max_batch_size: None, ..known.limits }, ..known.clone() }, "max_batch_size"),
    ];
    for (engine, says) in cases {
        let reason = reason(&engine, change).unwrap_or_default();
        assert!(reason.contains(says), "{says}: {reason}");
    }
    let drafts = MeasuredEngine { drafts: Some(Drafts { length: 3.0, accepted: 1.0 }), ..known };
    assert!(reason(&drafts, "max_draft_len=1").unwrap().contains("drafts"));
}

#[test]
fn a_setting_that_the_engine_does_not_report_is_refused_alone_and_is_the_present_value_beside_another_change() {
    let mut engine = engine();
    for alone in ["enable_chunked_prefill=false", "capacity_scheduler_policy=MAX_UTILIZATION"] {
        let refused = reason(&engine, alone).unwrap_or_default();
        assert!(refused.contains("does not report"), "{alone}: {refused}");
    }
    assert_eq!(reasons(&engine, &["max_batch_size=8", "capacity_scheduler_policy=MAX_UTILIZATION"]), None);
    engine.limits.max_num_tokens = None;
    assert!(reason(&engine, "max_num_tokens=2048").unwrap().contains("does not report"));
    assert!(reason(&engine, "max_batch_size=8").unwrap().contains("--set max_num_tokens"));
    assert_eq!(reasons(&engine, &["max_batch_size=8", "max_num_tokens=2048"]), None);
}

#[test]
fn a_prompt_that_never_fits_is_refused() {
    for (chunked, says) in [("false", "never fits"), ("true", "")] {
        let chunked = format!("enable_chunked_prefill={chunked}");
        let refused = reasons(&engine(), &["max_num_tokens=64", &chunked]).unwrap_or_default();
        assert!(refused.contains(says) && refused.is_empty() == says.is_empty(), "{chunked}: {refused}");
    }
    assert!(reason(&engine(), "max_num_tokens=64").unwrap().contains("--set enable_chunked_prefill"));
}

#[test]
fn an_unknown_cache_may_be_too_small_for_larger_batches() {
    let mut engine = engine();
    engine.limits.max_batch_size = Some(3);
    let more = Change { rate: 20.0, ..Change::default() };
    let says_cache = |engine: &MeasuredEngine| ask(engine, &more).reason.unwrap_or_default().contains("is not known");
    assert_eq!((capacity(&engine).is_some(), says_cache(&engine)), (true, false));
    engine.cache = None;
    assert_eq!((capacity(&engine).is_some(), says_cache(&engine)), (false, true));
    assert!(reason(&engine, "max_tokens=64000").unwrap().contains("KV cache"));
    assert_eq!(reason(&engine, "max_batch_size=8"), None);
}

#[test]
fn the_measurement_and_the_simulation_count_the_same_requests() {
    let mut engine = engine();
    // The first quarter came more slowly.
    let late = |number: usize| 0.75 * number.min(100) as f64;
    engine.requests.iter_mut().enumerate().for_each(|(number, request)| request.arrived += late(number));
    assert_eq!(reason(&engine, "max_batch_size=8"), None);
}

#[test]
fn clients_that_cannot_be_divided_evenly_are_refused() {
    let mut engine = engine();
    // Eight clients, each of which sends a request when the one before has ended.
    for (number, request) in (0_u32..).zip(&mut engine.requests) {
        request.arrived = f64::from(number) * request.ended / 8.0;
    }
    let is_refused = |change| reason(&engine, change).is_some_and(|why| why.contains("divided evenly"));
    assert_eq!(["replicas=2", "replicas=3", "replicas=8", "replicas=64"].map(is_refused), [false, true, false, true]);
}

#[test]
fn a_batch_limit_that_is_never_reached_does_not_matter() {
    assert_eq!(reason(&engine(), "max_batch_size=65536"), None);
}

#[test]
fn an_engine_that_something_else_slows_is_not_predicted() {
    let mut engine = engine();
    for request in &mut engine.requests {
        request.first_token += 0.1;
        request.ended += 0.1;
    }
    assert!(reason(&engine, "max_batch_size=8").unwrap().contains("differs from what was measured"));
}

#[test]
fn batches_that_the_engine_has_hardly_run_are_refused_if_a_step_may_lie_there() {
    let mut engine = engine();
    let any = engine.equal_work[0];
    let work = |requests: f64, seconds: f64| EqualWork {
        work: Work { generation_tokens: requests, ..any.work },
        seconds,
        ..any
    };
    let steps = [work(1.0, 0.01), work(16.0, 0.02), work(24.0, 0.02)];
    let mut context = work(1.0, 0.012);
    context.work.context_tokens = 100.0;
    engine.equal_work = steps.into_iter().chain([context]).collect();
    let refused = ask(&engine, &Change { rate: 15.0, ..Change::default() }).reason.unwrap();
    assert!(refused.contains("hardly run"), "{refused}");
    engine.equal_work.insert(1, work(4.0, 0.01));
    engine.equal_work.insert(1, work(8.0, 0.01));
    let refused = ask(&engine, &Change { rate: 15.0, ..Change::default() }).reason;
    assert!(!refused.as_deref().is_some_and(|reason| reason.contains("hardly run")), "{refused:?}");
}

#[test]
fn work_far_beyond_the_known_work_is_refused() {
    let mut change = Change { rate: 100.0, ..Change::default() };
    change.set("max_batch_size=512").unwrap();
    let answer = ask(&engine(), &change);
    assert!(!answer.supported && answer.then.is_none());
    assert!(answer.reason.unwrap().contains("4 times is the most"));
}

#[test]
fn a_full_cache_is_refused_if_it_is_not_known_what_requests_reserve() {
    let mut engine = engine();
    engine.cache = Some(Cache { blocks: 40, tokens_per_block: 32 });
    // Two requests at a time, each of which takes four blocks.
    for (number, request) in (0_u32..).zip(&mut engine.requests) {
        (request.arrived, request.first_token) = (f64::from(number / 2), 0.014);
    }
    assert_eq!(reason(&engine, "max_batch_size=8"), None);
    let refused = reason(&engine, "max_tokens=128").unwrap();
    assert!(refused.contains("reserves"), "{refused}");
    // The capacity is unknown, too: it is absent from the answer and from the metrics.
    engine.limits.max_batch_size = Some(3);
    engine.cache = Some(Cache { blocks: 8, tokens_per_block: 32 });
    let capacities = |engine: &MeasuredEngine| {
        let now = ask(engine, &Change::default()).now.unwrap();
        [now.capacity_requests_per_second, capacity(engine)].map(|capacity| capacity.is_some())
    };
    assert_eq!(capacities(&engine), [false; 2]);
    engine.cache = Some(Cache { blocks: 1000, tokens_per_block: 32 });
    assert_eq!(capacities(&engine), [true; 2]);
}

#[test]
fn a_present_can_be_kept_as_json() {
    let text = serde_json::to_string(&engine()).unwrap();
    assert_eq!(serde_json::from_str::<MeasuredEngine>(&text).unwrap(), engine());
}

#[test]
fn a_load_with_which_the_batch_stays_small_or_large_is_refused() {
    let mut engine = engine();
    engine.limits.max_batch_size = Some(32);
    let any = engine.equal_work[0];
    let sizes = [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0];
    let iteration = |requests: f64, context_tokens: f64, large: f64| EqualWork {
        work: Work { context_tokens, generation_tokens: requests, ..any.work },
        seconds: 2e-5 * context_tokens + if requests > 8.0 { large } else { 0.01 },
        ..any
    };
    let ask_with = |large: f64, engine: &mut MeasuredEngine| {
        engine.equal_work =
            sizes.into_iter().flat_map(|size| [0.0, 100.0].map(|tokens| iteration(size, tokens, large))).collect();
        ask(engine, &Change { rate: 30.0, ..Change::default() }).reason
    };
    // Five requests at a time, or twelve whose tokens take more than twice as long.
    let refused = ask_with(0.022, &mut engine).unwrap();
    assert!(refused.contains("two sizes of the batch are stable"), "{refused}");
    assert_eq!(ask_with(0.011, &mut engine), None);
}
