//! The parsers read every payload in `tests/fixtures`: complete, and truncated at every byte.
//! Each file names its source and says whether it is real, partial or only a shape (right keys, invented values).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_fold::histogram::Histogram;
use trtllm_page::metrics::catalog::not_read::unknown_keys;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::statistics::NOT_READ;
use trtllm_records::{IterationStats, Message, RecordTime, RejectReason};
use trtllm_sources::Batch;
use trtllm_sources::engine_settings::parse_settings;
use trtllm_sources::keys::keys_of_first;
use trtllm_sources::trtllm_json::{Hello, ParseError, PublisherLine, parse_line, parse_perf_metrics, parse_records};

use crate::support::payload;

const RECORD_FILES: [&str; 9] = [
    "metrics_pytorch_docs_0.20.json",
    "metrics_pytorch_first_iteration_PARTIAL.json",
    "metrics_pytorch_v1.0.0rc4_PARTIAL.json",
    "metrics_record_SHAPE_2026H2.json",
    "metrics_trt_host_tier_issue3376.json",
    "metrics_trt_v1.0.0rc4.json",
    "metrics_v2_cold_tiers_sampled.json",
    "metrics_v2_shared_pools_host.json",
    "metrics_v2_ssm.json",
];

fn records(text: &str) -> Vec<IterationStats> {
    let mut batch = Batch::default();
    parse_records(text.as_bytes(), &mut batch).unwrap();
    assert_eq!(batch.rejected, [0; 6]);
    batch
        .messages
        .into_iter()
        .map(|item| match item {
            Message::Record(record) => *record,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn one(name: &str) -> IterationStats {
    let mut found = records(&payload(name).to_string());
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// These fixtures are from releases whose keys the exporter knows completely.
#[test]
fn no_key_of_the_fixtures_is_unknown() {
    for file in RECORD_FILES {
        let keys = keys_of_first(payload(file).to_string().as_bytes());
        assert!(keys.len() > 3, "{file}: {keys:?}");
        assert_eq!(unknown_keys(keys), BTreeSet::new(), "{file}");
    }
}

#[test]
fn every_field_of_the_real_tensorrt_record_is_read() {
    let record = one("metrics_trt_v1.0.0rc4.json");
    assert_eq!(record.timestamp, Some(RecordTime { micros: 1_753_462_474_140_189, zoned: false }));
    assert_eq!((record.iter, record.iter_latency_ms), (Some(60), Some(13.021_209)));
    assert_eq!((record.num_active_requests, record.max_num_active_requests), (Some(1), Some(2048)));
    assert_eq!((record.max_batch_size_static, record.max_batch_size_tuner_recommended), (Some(2048), Some(256)));
    assert_eq!(record.pinned_mem_usage, Some(2_952_841_216));
    let kv = record.kv_cache_stats.unwrap();
    assert_eq!((kv.max_num_blocks, kv.used_num_blocks, kv.missed_blocks), (Some(22955), Some(3), Some(2)));
    let inflight = record.inflight_batching_stats.unwrap();
    assert_eq!((inflight.num_gen_requests, inflight.avg_num_decoded_tokens_per_iter), (Some(1), Some(1.0)));
    assert_eq!(inflight.num_ctx_kv_tokens, None);
    assert_eq!((record.static_batching_stats, record.spec_decoding_stats), (None, None));
}

#[test]
fn the_blocks_on_the_host_of_a_real_engine_are_left_out() {
    let mut observed = ObservedEngine::new(Duration::from_secs(60));
    observed.absorb(&one("metrics_trt_host_tier_issue3376.json"), Instant::now(), 0).unwrap();
    let kv = observed.fold.latest().unwrap().kv.unwrap();
    assert_eq!((kv.used_num_blocks, kv.max_num_blocks), (Some(250), Some(1995)));
}

#[test]
fn the_times_of_a_real_disaggregated_request_are_read() {
    let text = payload("perf_metrics_disaggregated_PR8005_PARTIAL.json").to_string();
    let mut batch = Batch::default();
    parse_perf_metrics(text.as_bytes(), &mut batch).unwrap();
    let mut observed = ObservedEngine::new(Duration::from_secs(60));
    for message in batch.drain() {
        let Message::FinishedRequest(entry) = message else { panic!("{message:?}") };
        observed.absorb_perf_metrics(&entry, Instant::now()).unwrap();
    }
    let times = &observed.fold.requests.totals.times;
    let milliseconds = |histogram: &Histogram| (histogram.count(), (histogram.sum() * 1e6).round() / 1e3);
    // Scheduled 1.921 ms after its arrival, and the prompt took 20.914 ms.
    assert_eq!(milliseconds(&times.queue_time), (1, 1.921));
    assert_eq!(milliseconds(&times.prefill_time), (1, 20.914));
    assert_eq!(milliseconds(&times.time_to_first_token), (1, 22.835));
    assert_eq!(times.kv_cache_blocks.sum(), 1.0);
}

/// The exporter derives the same time per output token as the LLM API itself.
#[test]
fn the_time_per_output_token_of_real_requests_is_that_of_the_llm_api() {
    let requests = payload("llmapi_metrics_dict.json");
    for (request, output_tokens) in requests.as_array().unwrap().iter().zip([96, 112, 128, 96]) {
        let seconds = |name: &str| request[format!("MetricNames.{name}")].as_f64().unwrap();
        let at = |name: &str| 1000.0 + seconds(name);
        let timing = json!({"arrival_time": 1000.0, "first_scheduled_time": at("REQUEST_QUEUE_TIME"),
            "first_token_time": at("TTFT"), "last_token_time": at("E2E")});
        let entry = json!({"output_tokens": output_tokens, "perf_metrics": {"timing_metrics": timing}});
        let mut observed = ObservedEngine::new(Duration::from_secs(60));
        observed.absorb_perf_metrics(&serde_json::from_value(entry).unwrap(), Instant::now()).unwrap();
        let times = &observed.fold.requests.totals.times;
        for (histogram, name) in [
            (&times.time_per_output_token, "TPOT"),
            (&times.time_to_first_token, "TTFT"),
            (&times.e2e_latency, "E2E"),
            (&times.queue_time, "REQUEST_QUEUE_TIME"),
        ] {
            assert!(
                (histogram.sum() - seconds(name)).abs() < 1e-9,
                "{name}: {}, not {}",
                histogram.sum(),
                seconds(name)
            );
        }
    }
}

/// Triton's llmapi model answers its client with the values of RequestPerfMetrics. The Python package sends the same
/// object to the exporter. The answer itself does not contain statistics.
#[test]
fn a_real_request_of_tritons_llmapi_model_is_read_as_the_publisher_sends_it() {
    let answer = payload("triton_llmapi_response_PR5554_PARTIAL.json");
    assert_eq!(parse_line(answer.to_string().as_bytes()), Err(RejectReason::NotARecord));
    let number = |name: &str| answer[name].as_str().unwrap().parse::<f64>().unwrap();
    let at = |name: &str| number(&format!("{name}_time_ns")) / 1e9;
    let timing = json!({"arrival_time": at("arrival"), "first_scheduled_time": at("first_scheduled"),
        "first_token_time": at("first_token"), "last_token_time": at("last_token")});
    let cache = json!({"num_total_allocated_blocks": number("kv_cache_alloc_total_blocks") as i64,
        "num_new_allocated_blocks": number("kv_cache_alloc_new_blocks") as i64,
        "num_reused_blocks": number("kv_cache_reused_block") as i64,
        "num_missed_blocks": number("kv_cache_missed_block") as i64,
        "kv_cache_hit_rate": number("kv_cache_hit_rate")});
    let line =
        json!({"requestId": 1, "perfMetrics": {"timing_metrics": timing, "kv_cache_metrics": cache}}).to_string();
    let Ok(PublisherLine::Message(Message::FinishedRequest(entry))) = parse_line(line.as_bytes()) else {
        panic!("{line}")
    };
    let mut observed = ObservedEngine::new(Duration::from_secs(60));
    observed.absorb_perf_metrics(&entry, Instant::now()).unwrap();
    let times = &observed.fold.requests.totals.times;
    let milliseconds = |histogram: &Histogram| (histogram.count(), (histogram.sum() * 1e6).round() / 1e3);
    assert_eq!(milliseconds(&times.queue_time), (1, 0.538));
    assert_eq!(milliseconds(&times.prefill_time), (1, 126.016));
    assert_eq!(milliseconds(&times.time_to_first_token), (1, 126.554));
    assert_eq!(milliseconds(&times.e2e_latency), (1, 1297.578));
    assert_eq!((times.time_per_output_token.count(), times.kv_cache_blocks.sum()), (0, 1.0));
}

#[test]
fn every_key_of_every_record_is_known_to_the_model() {
    // Removing any one key must change the parsed record: no key is silently ignored.
    for name in RECORD_FILES {
        let mut payload = payload(name);
        let records_of_file = payload.as_array_mut().unwrap();
        records_of_file.drain(..records_of_file.len() - 1);
        let read = records(&payload.to_string());
        for pointer in leaves(&payload, "") {
            let mut changed = payload.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let object = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            let value = object.remove(key).unwrap();
            let of_lifecycle = parent.contains("ByLifecycle/") && key == "iterCacheHitRate";
            let not_read = of_lifecycle || NOT_READ.iter().any(|(name, _)| *name == key);
            // Null and "" mean absent, so removing them changes nothing.
            if !value.is_null() && value != "" && !not_read {
                assert_ne!(records(&changed.to_string()), read, "{name}{pointer} is ignored");
            }
        }
    }
}

/// JSON pointers of every value that contains no object.
fn leaves(value: &Value, at: &str) -> Vec<String> {
    match value {
        Value::Object(map) => map.iter().flat_map(|(key, value)| leaves(value, &format!("{at}/{key}"))).collect(),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().enumerate().flat_map(|(index, value)| leaves(value, &format!("{at}/{index}"))).collect()
        }
        _ => vec![at.to_owned()],
    }
}

#[test]
fn a_body_truncated_at_any_byte_keeps_its_complete_records() {
    let record = payload("metrics_trt_v1.0.0rc4.json")[0].to_string();
    let body = format!("[{record},{record},{record}]");
    for end in 0..body.len() {
        let mut batch = Batch::default();
        let result = parse_records(&body.as_bytes()[..end], &mut batch);
        assert_eq!(result, Err(ParseError::Truncated), "truncated at {end}");
        // A record is complete once its closing brace is read.
        let complete = (1..=3).filter(|n| end > n * (record.len() + 1) - 1).count();
        assert_eq!(batch.messages.len(), complete, "truncated at {end}");
    }
}

#[test]
fn the_keys_of_a_line_decide_its_kind() {
    let hello = parse_line(br#"{"hello":{"model":"m","version":"2","pid":7,"more":1,"config":{"dtype":"float16"}}}"#);
    assert_eq!(
        hello,
        Ok(PublisherLine::Hello(Hello {
            model: Some("m".into()),
            version: Some("2".into()),
            pid: Some(7),
            derived: false,
            config: parse_settings(r#"{"dtype":"float16"}"#),
            unclear: None,
        }))
    );
    let item = |line: &str| match parse_line(line.as_bytes()) {
        Ok(PublisherLine::Message(item)) => item,
        other => panic!("{line}: {other:?}"),
    };
    assert!(matches!(item(r#"{"iter":1,"num_active_requests":2}"#), Message::Record(_)));
    assert!(matches!(item(r#"{"iter":1,"iterLatencyMS":2,"requestStats":[]}"#), Message::Record(_)));
    assert!(matches!(item(r#"{"iter":1,"requestStats":[{"id":1}]}"#), Message::RequestRows(_)));
    let entry = payload("perf_metrics_SHAPE.json")[0].to_string();
    assert!(matches!(item(&entry), Message::FinishedRequest(_)));
    // The form in the original metrics specification: not wrapped, with wall-clock times.
    let specified = r#"{"request_id":"req-1","timing_metrics":{"arrival_time":"2025-10-04T12:34:56.000Z",
        "first_token_time":"2025-10-04T12:34:56.200Z","ttft_ms":200},"first_iter":1200}"#;
    let Message::FinishedRequest(entry) = item(&specified.replace('\n', "")) else { panic!("{specified}") };
    let times = entry.perf_metrics.unwrap().timing_metrics.unwrap();
    assert!((times.first_token_time.unwrap() - times.arrival_time.unwrap() - 0.2).abs() < 1e-6);
}

#[test]
fn finish_reasons_of_the_executor_and_of_trtllm_serve_are_read() {
    for (text, reason) in [
        ("stop", FinishReason::Stop),
        ("END_ID", FinishReason::Stop),
        ("stop_words", FinishReason::Stop),
        ("LENGTH", FinishReason::Length),
        ("timed_out", FinishReason::Timeout),
        ("cancelled", FinishReason::Cancelled),
        ("an unknown reason", FinishReason::Other),
    ] {
        for key in ["finish_reason", "finishReason"] {
            let line = format!(r#"{{"perf_metrics":{{}},"{key}":"{text}","promptTokens":5,"output_tokens":7}}"#);
            let Ok(PublisherLine::Message(Message::FinishedRequest(entry))) = parse_line(line.as_bytes()) else {
                panic!("{line}")
            };
            assert_eq!(entry.finish_reason, Some(reason), "{line}");
            assert_eq!((entry.prompt_tokens, entry.output_tokens), (Some(5), Some(7)));
        }
    }
}
