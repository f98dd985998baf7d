//! Every family of every compatibility name set (`--metrics.compat`) has the value of its original. The original is one
//! of our families, in the unit of the other exporter, or a number that the engine sent. A new family fails this test
//! until it has an entry in the table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trtllm_engines::State;
use trtllm_intake::{Intake, Moment};
use trtllm_page::metrics::catalog::{CATALOG, Group, MetricKind};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::{EngineName, Message};
use trtllm_sources::prometheus_text::parse_server_metrics;
use trtllm_sources::trtllm_json::{parse_perf_metrics, parse_records};
use trtllm_sources::{Batch, Presence};

use crate::support::fold_page;
use crate::support::page::{Page, name_of};

mod table;

/// The value that a series with another exporter's name must have.
enum Original {
    /// The sum of our series with these labels, times this factor.
    Times(f64, &'static [Ours]),
    /// One of our series divided by another.
    Ratio(Ours, Ours),
    /// One of our histograms. Its bounds and its sum are multiplied by this factor.
    Histogram(f64, &'static str),
    /// One of our histograms, with the same sum and count but with other buckets. The buckets count these observations.
    Observations(&'static str, &'static [f64]),
    /// A histogram of these observations. No family of ours contains it.
    Values(&'static [f64]),
    /// A number that the engine or the server sent. No family of ours contains it in this form.
    Sent(f64),
}

/// One of our series: its name, and the labels that distinguish it from the others of its family.
type Ours = (&'static str, &'static [&'static str]);

/// The other exporter's series: its name, and the labels that distinguish it from the others of its family.
type Alias = (&'static str, &'static [&'static str], Original);

/// A record of an engine that reports every iteration. Each value differs from the others.
fn record(iter: u64, base: u64) -> Value {
    let views = json!({"iterReusedBlocks": 31, "iterFullReusedBlocks": 21, "iterPartialReusedBlocks": 10, "iterMissedBlocks": 9,
        "iterGenAllocBlocks": 5, "iterOnboardBytes": 4096, "iterOffloadBytes": 8192, "iterIntraDeviceCopyBytes": 12288,
        "secondaryMaxNumBlocks": 40, "secondaryUsedNumBlocks": 10});
    json!({
        "timestamp": "2025-07-25T16:54:34.140189Z", "iter": iter, "iterLatencyMS": 12.5, "numNewActiveRequests": 2,
        "numActiveRequests": 9, "numQueuedRequests": 3, "numCompletedRequests": 2, "maxNumActiveRequests": 64,
        "maxBatchSizeStatic": 128, "maxBatchSizeRuntime": 80, "maxNumTokensRuntime": 4096,
        "gpuMemUsage": 1001, "cpuMemUsage": 1002, "pinnedMemUsage": 1003,
        "kvCacheStats": {"maxNumBlocks": 1000, "freeNumBlocks": 600, "usedNumBlocks": 400, "tokensPerBlock": 32,
            "allocTotalBlocks": base + 80, "allocNewBlocks": base + 50, "reusedBlocks": base + 30,
            "missedBlocks": base + 20, "cacheHitRate": 0.6},
        "inflightBatchingStats": {"numScheduledRequests": 7, "numContextRequests": 1, "numGenRequests": 5,
            "numPausedRequests": 4, "numCtxTokens": 100 * iter, "microBatchId": 0, "avgNumDecodedTokensPerIter": 2.0},
        "specDecodingStats": {"numDraftTokens": 20, "numAcceptedTokens": 12, "numRequestsWithDraftTokens": 6,
            "acceptanceLength": 2.5, "iterLatencyMS": 1.5, "draftOverhead": 0.25},
        "kvCacheIterationStats": {"4096": views}, "iterSuspendedRequests": 2, "iterDiskPrefetchBlocks": 4,
        "iterCachedTokensByLevel": [12, 8], "kvCacheLevelTiers": ["gpu", "host"],
    })
}

/// A finished request. Its times differ from each other and from those of other requests.
fn entry(number: u32, reason: &str, prompt: u32, output: u32) -> Value {
    let n = f64::from(number);
    let (arrived, token) = (1000.0 * n, |seconds: f64| json!({"token_time": 1000.0 * n + seconds}));
    json!({
        "request_id": number, "finishReason": reason, "promptTokens": prompt, "outputTokens": output,
        "perf_metrics": {"timing_metrics": {
            "arrival_time": arrived, "first_scheduled_time": arrived + 0.25 * n, "first_token_time": arrived + 0.5 * n,
            "last_token_time": arrived + 2.5 * n, "kv_cache_transfer_start": arrived + 0.125,
            "kv_cache_transfer_end": arrived + 0.125 + 0.0625 * n, "kv_cache_size": 200_000_000_u64 * u64::from(number * number)}},
        "time_breakdown_metrics": {"ctx_chunk_metrics": [token(0.5)], "step_metrics": [token(0.5 + 0.125 * n)]},
    })
}

/// trtllm-serve's own page. Its values are 0 after the start (`more` is 0) and rise with `more`.
fn server_page(more: u32) -> String {
    let labels = r#"engine_type="pytorch",model_name="m""#;
    let mut page = String::new();
    let mut line = |name: &str, extra: &str, value: u32| {
        page += &format!("trtllm_{name}{{{labels}{extra}}} {value}\n");
    };
    line("prompt_tokens_total", "", 700 * more);
    line("generation_tokens_total", "", 90 * more);
    line("prompt_cached_tokens_total", "", 64 * more);
    line("request_error_total", r#",http_code="400""#, 5 * more);
    line("spec_decode_drafted_tokens_total", r#",token_position="0""#, 10 * more);
    line("spec_decode_accepted_tokens_total", r#",token_position="0""#, 7 * more);
    line("request_success_total", r#",finished_reason="stop""#, 0);
    for (bound, count) in [("0.1", 0), ("0.25", 0), ("0.5", more), ("+Inf", 2 * more)] {
        line("time_per_output_token_seconds_bucket", &format!(",le=\"{bound}\""), count);
    }
    line("time_per_output_token_seconds_sum", "", 99 * more);
    line("time_per_output_token_seconds_count", "", 2 * more);
    for (bound, count) in [("0.0", more), ("64.0", 2 * more), ("+Inf", 3 * more)] {
        line("prompt_cached_tokens_per_request_bucket", &format!(",le=\"{bound}\""), count);
    }
    line("prompt_cached_tokens_per_request_sum", "", 9000 * more);
    for family in ["prefill_perplexity", "generation_perplexity"] {
        for (bound, count) in [("2.0", more), ("+Inf", 2 * more)] {
            line(&format!("{family}_bucket"), &format!(",le=\"{bound}\""), count);
        }
        line(&format!("{family}_sum"), "", 2002 * more);
    }
    for (section, value) in [("model", "a"), ("parallel", "b"), ("speculative", "c"), ("kv_cache", "d")] {
        line(&format!("{section}_config_info"), &format!(",enable_block_reuse=\"{value}\""), 1);
    }
    page
}

/// The page with all name sets, of an engine that has sent the records, finished requests and server pages above.
fn page() -> Page {
    let (state, mut now) = (State::new(vec![EngineName::new("m", "1", "trtllm-serve")]), Moment::now());
    let mut intake = Intake::new(Arc::clone(&state.slots()[0]), Duration::from_secs(15));
    let mut poll = |batch: &mut Batch| {
        intake.end_poll(batch, Duration::from_millis(1), Ok(Presence::Present), now);
        now.instant += Duration::from_secs(3);
        now.unix_us += 3_000_000;
    };
    let server = |more| {
        let mut batch = Batch::default();
        batch
            .messages
            .push(Message::ServerMetrics(Box::new(parse_server_metrics(server_page(more).as_bytes()).unwrap())));
        batch
    };
    poll(&mut server(0));
    let mut batch = server(1);
    parse_records(json!([record(1, 0), record(2, 100)]).to_string().as_bytes(), &mut batch).unwrap();
    let entries = [
        entry(1, "stop", 3, 2),
        entry(2, "length", 40, 11),
        entry(3, "timed_out", 500, 60),
        entry(4, "cancelled", 6000, 7),
    ];
    parse_perf_metrics(json!(entries).to_string().as_bytes(), &mut batch).unwrap();
    poll(&mut batch);
    // Requests count once it is known which source tells what.
    for _ in 0..4 {
        poll(&mut Batch::default());
    }
    for iter in 3..6 {
        let mut batch = Batch::default();
        parse_records(json!([record(iter, 100)]).to_string().as_bytes(), &mut batch).unwrap();
        poll(&mut batch);
    }
    let compat = CompatSets { trtllm: true, vllm: true, triton_core: true, spec: true, dcgm: false };
    fold_page::parsed(&fold_page::page(&state, compat, Selection::All))
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Series of the page with this name and these labels.
fn series<'p>(page: &'p Page, name: &str, labels: &[&str]) -> Vec<&'p (String, f64)> {
    let has = |series: &str, label: &str| {
        let (key, value) = label.split_once('=').unwrap();
        series.contains(&format!("{key}=\"{value}\""))
    };
    page.series.iter().filter(|(s, _)| name_of(s) == name && labels.iter().all(|label| has(s, label))).collect()
}

/// The upper bound of a bucket, and its count.
fn buckets(page: &Page, name: &str) -> Vec<(f64, f64)> {
    let bound = |series: &str| {
        let (_, rest) = series.split_once("le=\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap_or(f64::INFINITY)
    };
    series(page, &format!("{name}_bucket"), &[]).iter().map(|(series, count)| (bound(series), *count)).collect()
}

/// The names, with labels, of all series of a histogram.
fn of_family(page: &Page, name: &str) -> Vec<String> {
    let all = ["_sum", "_count", "_bucket"].map(|end| format!("{name}{end}"));
    page.series.iter().map(|(s, _)| s.clone()).filter(|s| all.iter().any(|n| name_of(s) == n)).collect()
}

/// The infinite bucket must exist. It counts all observations.
fn check_buckets(page: &Page, name: &str, observed: &[f64]) {
    let buckets = buckets(page, name);
    assert_eq!(buckets.last().map(|(bound, _)| *bound), Some(f64::INFINITY), "{name}");
    assert_eq!(page.get(&format!("{name}_count"), &[]), observed.len() as f64, "{name}");
    for (bound, count) in buckets {
        let within = observed.iter().filter(|value| **value <= bound).count();
        assert_eq!(count, within as f64, "{name}: {bound}");
    }
}

/// Compares one alias with its original. Returns the series that were compared.
fn check(page: &Page, (name, labels, original): &Alias) -> Vec<String> {
    let ours = |(name, labels): &Ours| {
        let found = series(page, name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0].1
    };
    let of_histogram = |ours: &str, factor: f64, compared: &mut Vec<String>| {
        for (end, factor) in [("_sum", factor), ("_count", 1.0)] {
            let (theirs, ours) = (page.get(&format!("{name}{end}"), &[]), page.get(&format!("{ours}{end}"), &[]));
            assert!(same(theirs, factor * ours), "{name}{end} is {theirs}, ours {ours} times {factor}");
            assert!(theirs > 0.0, "{name} is too easy");
        }
        compared.extend(of_family(page, name));
    };
    let mut compared = Vec::new();
    let expected = match original {
        Original::Times(factor, series) => factor * series.iter().map(ours).sum::<f64>(),
        Original::Ratio(part, whole) => ours(part) / ours(whole),
        Original::Sent(value) => *value,
        Original::Histogram(factor, original) => {
            of_histogram(original, *factor, &mut compared);
            let theirs = buckets(page, name);
            let ours: Vec<(f64, f64)> = buckets(page, original);
            assert_eq!(theirs.len(), ours.len(), "{name}");
            for ((bound, count), (our_bound, our_count)) in theirs.into_iter().zip(ours) {
                assert!(bound == our_bound * factor || same(bound, our_bound * factor), "{name}: {bound}");
                assert_eq!(count, our_count, "{name}: {bound}");
            }
            return compared;
        }
        Original::Observations(original, observed) => {
            of_histogram(original, 1.0, &mut compared);
            check_buckets(page, name, observed);
            return compared;
        }
        Original::Values(observed) => {
            assert!(same(page.get(&format!("{name}_sum"), &[]), observed.iter().sum()), "{name}");
            check_buckets(page, name, observed);
            return of_family(page, name);
        }
    };
    let found = series(page, name, labels);
    assert_eq!(found.len(), 1, "{name} {labels:?}");
    assert!(same(found[0].1, expected), "{name} {labels:?} is {}, its original {expected}", found[0].1);
    compared.push(found[0].0.clone());
    compared
}

#[test]
fn every_alias_of_every_name_set_has_the_value_of_its_original() {
    let page = page();
    let compared: BTreeSet<String> = table::ALIASES.iter().flat_map(|alias| check(&page, alias)).collect();
    let family = |series: &str| {
        let name = name_of(series);
        let is = |metric: &&trtllm_page::metrics::catalog::Metric| {
            let ends = ["_bucket", "_sum", "_count"];
            let part = ends.iter().any(|end| name.strip_suffix(end) == Some(metric.name));
            metric.name == name || metric.kind == MetricKind::Histogram && part
        };
        CATALOG.iter().filter(|metric| metric.group == Group::Compat).find(is).map(|metric| metric.name)
    };
    // The set `spec` adds series to families of Triton.
    let own =
        |series: &str| series.starts_with("nv_trt_llm_") && !table::SPEC_VALUES.iter().any(|v| series.contains(v));
    let missed: Vec<&String> = page
        .series
        .iter()
        .map(|(series, _)| series)
        .filter(|series| family(series).is_some() && !own(series) && !compared.contains(*series))
        .collect();
    assert!(missed.is_empty(), "these series are compared with nothing: {missed:?}");
    let shown: BTreeSet<&str> = compared.iter().filter_map(|series| family(series)).collect();
    let absent: Vec<&str> = CATALOG
        .iter()
        .filter(|metric| metric.group == Group::Compat && !metric.name.starts_with("DCGM_FI_"))
        .map(|metric| metric.name)
        .filter(|name| !shown.contains(name))
        .collect();
    assert!(absent.is_empty(), "these families of the catalog are not on the page: {absent:?}");
}
