//! Records of KV cache manager V2, written by TensorRT-LLM's own serializers. With the name set `trtllm`, the page must
//! equal that of TensorRT-LLM's own collector. Our own families must have the sums of the records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_engines::Engine;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::Objectives;
use trtllm_records::{EngineAbout, IterationStats};

use crate::support::page::{Page, name_of};
use crate::support::{self, fold_page};

const PAYLOADS: [&str; 3] = ["cold_tiers_sampled", "shared_pools_host", "ssm"];

fn read(file: &str) -> String {
    std::fs::read_to_string(support::root().join("tests/fixtures").join(file)).unwrap()
}

fn payload(name: &str) -> Vec<Value> {
    support::payload(&format!("metrics_v2_{name}.json")).as_array().unwrap().clone()
}

/// The page after these records, with the name set `trtllm`.
fn page(records: &[Value]) -> Page {
    let now = Instant::now();
    let mut engine = ObservedEngine::new(Duration::from_secs(15));
    for record in records {
        let record: IterationStats = serde_json::from_value(record.clone()).unwrap();
        engine.absorb(&record, now, 1_753_462_475_000_000).unwrap();
    }
    let about = EngineAbout { backend: Some("pytorch".to_owned()), ..EngineAbout::default() };
    let engine = Engine { about, ..fold_page::polled(&engine, now) };
    let sets = CompatSets { trtllm: true, ..CompatSets::default() };
    fold_page::parsed(&fold_page::page(&fold_page::state(Objectives::default(), engine), sets, Selection::All))
}

/// The series of trtllm-serve's families, without buckets, because Python writes their bounds in another form.
fn trtllm_series(page: &Page) -> BTreeMap<String, f64> {
    let theirs = |series: &str| {
        series.starts_with("trtllm_")
            && !series.starts_with("trtllm_exporter_")
            && !name_of(series).ends_with("_bucket")
    };
    page.series.iter().filter(|(series, _)| theirs(series)).cloned().collect()
}

#[test]
fn the_name_set_trtllm_has_the_series_of_upstreams_collector() {
    for name in PAYLOADS {
        let records = payload(name);
        let ours = trtllm_series(&page(&records));
        let mut upstream = trtllm_series(&Page::parse(&read(&format!("metrics_v2_{name}.trtllm.txt"))));
        // Our page leaves out a limit that the engine reports as 0. The records contain no cached tokens of requests.
        upstream.retain(|series, value| *value != 0.0 || !series.starts_with("trtllm_max_"));
        upstream.retain(|series, _| name_of(series) != "trtllm_prompt_cached_tokens_total");
        assert!(ours.keys().eq(upstream.keys()), "{name}: {:?} and {:?}", ours.keys(), upstream.keys());
        for (series, value) in ours {
            // Python and serde_json may round the last digit of a float differently.
            assert!((value - upstream[&series]).abs() <= 1e-15 * value.abs(), "{name}: {series} is {value}");
        }
    }
}

#[test]
fn a_counter_of_the_name_set_trtllm_appears_with_its_first_increase_and_cached_tokens_start_at_0() {
    let mut record = payload("ssm").remove(0);
    record["numCompletedRequests"] = json!(0);
    record["iterCachedTokensByLevel"] = json!([0, 0, 0]);
    record.as_object_mut().unwrap().remove("kvCacheLevelTiers");
    let first = page(std::slice::from_ref(&record));
    assert_eq!(first.find("trtllm_num_requests_completed_total", &[]), None);
    assert_eq!(first.find("trtllm_kv_cache_disk_prefetch_blocks_total", &[]), None);
    assert_eq!(first.find("trtllm_request_queue_time_seconds_count", &[]), None);
    for level in ["cache_level=0", "cache_level=1", "cache_level=2"] {
        assert_eq!(first.count("trtllm_prompt_cache_hit_tokens_total", &[level, "cache_tier="]), 0);
    }
    let mut next = record.clone();
    for (key, value) in [("iter", 1), ("statsSequence", 1), ("numCompletedRequests", 2), ("iterDiskPrefetchBlocks", 3)]
    {
        next[key] = json!(value);
    }
    let second = page(&[record, next]);
    assert_eq!(second.count("trtllm_num_requests_completed_total", &[]), 2);
    assert_eq!(second.count("trtllm_kv_cache_disk_prefetch_blocks_total", &[]), 3);
}

#[test]
fn our_families_have_the_sums_of_the_views() {
    let page = |name| page(&payload(name));
    let (cold, shared, ssm) = (page("cold_tiers_sampled"), page("shared_pools_host"), page("ssm"));
    let check = |family: &str, label: &str, expected: [Option<u64>; 3]| {
        let labels: &[&str] = if label.is_empty() { &[] } else { &[label] };
        let found = [&cold, &shared, &ssm].map(|page| page.find(family, labels).map(|value| value as u64));
        assert_eq!(found, expected, "{family} {label}");
    };
    let all = |a, b, c| [Some(a), Some(b), Some(c)];
    let event = "nv_trt_llm_kv_cache_window_blocks_total";
    check(event, "event=reused", all(9, 50, 5));
    check(event, "event=full_reused", all(8, 43, 4));
    check(event, "event=partial_reused", all(1, 7, 1));
    check(event, "event=missed", all(44, 29, 6));
    check(event, "event=allocated", all(273, 202, 146));
    check(event, "event=newly_allocated", all(119, 112, 83));
    check(event, "event=generation_allocated", all(64, 58, 37));
    check(event, "event=onboarded", all(21, 13, 22));
    check(event, "event=offloaded", all(18, 13, 17));
    check(event, "event=copied", all(16, 8, 12));
    check(event, "event=host_dropped", all(4, 1, 8));
    let bytes = "nv_trt_llm_kv_cache_window_bytes_total";
    check(bytes, "event=onboarded", all(1_376_256, 851_968, 1_441_792));
    check(bytes, "event=offloaded", all(1_179_648, 851_968, 1_114_112));
    check(bytes, "event=copied", all(1_048_576, 524_288, 786_432));
    check(bytes, "event=host_dropped", all(262_144, 65_536, 524_288));
    check("nv_trt_llm_kv_cache_primary_pool_blocks", "state=max", all(1256, 1193, 1051));
    check("nv_trt_llm_kv_cache_primary_pool_blocks", "state=used", all(327, 479, 837));
    check("nv_trt_llm_kv_cache_secondary_pool_blocks", "state=max", [Some(5484), Some(435), None]);
    check("nv_trt_llm_kv_cache_secondary_pool_blocks", "state=used", [Some(4684), Some(222), None]);
    check("nv_trt_llm_cached_tokens_total", "tier=gpu", all(0, 2661, 3256));
    check("nv_trt_llm_cached_tokens_total", "tier=host", [Some(1946), Some(0), None]);
    check("nv_trt_llm_cached_tokens_total", "tier=disk", [Some(1545), None, None]);
    check("nv_trt_llm_kv_cache_full_reused_blocks_total", "tier=gpu", all(8, 43, 4));
    check("nv_trt_llm_kv_cache_partial_reused_blocks_total", "tier=gpu", all(0, 0, 0));
    check("nv_trt_llm_kv_cache_disk_prefetched_blocks_total", "", all(26, 0, 0));
    check("nv_trt_llm_request_suspensions_total", "", all(0, 2, 0));
    check("nv_trt_llm_ssm_snapshot_lookups_total", "", [None, None, Some(11)]);
    check("nv_trt_llm_ssm_snapshot_hits_total", "alignment=aligned", [None, None, Some(3)]);
    check("nv_trt_llm_ssm_snapshot_hits_total", "alignment=unaligned", [None, None, Some(0)]);
    check("nv_trt_llm_ssm_snapshot_misses_total", "", [None, None, Some(8)]);
    check("nv_trt_llm_ssm_snapshot_tokens_total", "outcome=reused", [None, None, Some(1596)]);
    check("nv_trt_llm_ssm_snapshot_tokens_total", "outcome=unreused", [None, None, Some(1119)]);
}

#[test]
fn several_pool_groups_have_no_token_capacity() {
    for name in PAYLOADS {
        let mut records = payload(name);
        assert_eq!(page(&records).find("nv_trt_llm_kv_cache_available_tokens", &[]), None, "{name}");
        for record in &mut records {
            record["kvCacheIterationStatsByPoolGroup"].as_object_mut().unwrap().remove("1");
        }
        let kv = &records.last().unwrap()["kvCacheStats"];
        let capacity = kv["freeNumBlocks"].as_u64().unwrap() * kv["tokensPerBlock"].as_u64().unwrap();
        assert_eq!(page(&records).count("nv_trt_llm_kv_cache_available_tokens", &[]), capacity, "{name}");
    }
}

#[test]
fn pools_of_the_engine_before_a_restart_leave_the_page() {
    let mut records = payload("shared_pools_host");
    records.push(json!({"iter": 1, "numActiveRequests": 1, "iterLatencyMS": 5.0}));
    let page = page(&records);
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 1);
    assert_eq!(page.find("nv_trt_llm_kv_cache_primary_pool_blocks", &["state=max"]), None);
    assert_eq!(page.find("trtllm_kv_cache_host_utilization", &[]), None);
    assert_eq!(page.count("nv_trt_llm_kv_cache_window_blocks_total", &["event=reused"]), 50);
}
