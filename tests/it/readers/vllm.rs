//! Queries of programs that read vLLM's metrics, in a Prometheus that scrapes `--metrics.compat vllm`. They are from
//! these sources, read in autumn 2026: llm-d's autoscaler (llm-d-autoscaling @3300e6f,
//! internal/collector/registration), OpenCost 1.121 (inference_queries.go), KServe (website @05b83a6), KEDA samples
//! (llm-d @56cb121, production-stack @183a136), vLLM (examples/observability @4b5c627).

use super::publisher::{Load, Publisher};
use crate::support::daemon::Daemon;
use crate::support::ingest::Ingest;
use crate::support::page::Page;
use crate::support::prometheus::{Prometheus, now, prometheus_3};
use crate::support::sessions::SESSION;
use crate::support::{ensure, until};

/// What a query must return.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Is(f64),
    /// A positive rate. Its value depends on when Prometheus scraped.
    Positive,
    Empty,
}
use Answer::{Empty, Is, Positive};

/// A query, and its answers for an engine that is busy, idle, stale and gone.
type Case = (String, [Answer; 4]);

/// Labels that Prometheus adds in a cluster.
const TARGET: &str = "namespace: ns, pod: llama-decode-0, llm_d_ai_variant: v";

fn queries(batch_seen: f64) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |query: &str, answers: [Answer; 4]| {
        let query = query.replace("S[", r#"{namespace="ns",model_name="llama"}["#);
        let query = query.replace("S)", r#"{namespace="ns",model_name="llama"})"#);
        cases.push((query.replace(" B ", " by (instance, pod, llm_d_ai_variant) "), answers));
    };
    let same = |answer| [answer; 4];
    let load = |busy| [Is(busy), Is(0.0), Empty, Empty];
    // llm-d's autoscaler. When the engine becomes idle or stale or disappears, a maximum over a minute still contains
    // the earlier values.
    add("max B (vllm:kv_cache_usage_percS)", load(0.25));
    add("max B (max_over_time(vllm:kv_cache_usage_percS[1m]))", same(Is(0.25)));
    add("max B (max_over_time(vllm:num_requests_waitingS[1m]))", same(Is(5.0)));
    add(
        r#"max by (instance, pod, llm_d_ai_variant, num_gpu_blocks, block_size) (vllm:cache_config_info{namespace="ns",num_gpu_blocks="1000",block_size="32"})"#,
        [Is(1.0), Is(1.0), Empty, Empty],
    );
    for (name, mean, window) in [
        ("request_generation_tokens", 101.0, "5m"),
        ("request_prompt_tokens", 200.0, "5m"),
        ("time_to_first_token_seconds", 0.75, "1m"),
        ("request_inference_time_seconds", 2.0, "1m"),
    ] {
        add(&format!("max B (rate(vllm:{name}_sumS[{window}]) / rate(vllm:{name}_countS[{window}]))"), same(Is(mean)));
    }
    // The requests of this test have no times of single tokens.
    let between_tokens = "vllm:inter_token_latency_seconds";
    add(&format!("max B (rate({between_tokens}_sumS[1m]) / rate({between_tokens}_countS[1m]))"), same(Empty));
    add("sum B (rate(vllm:request_generation_tokens_sumS[1m]))", same(Positive));
    add("sum B (rate(vllm:generation_tokens_totalS[1m]))", same(Positive));
    add("sum(increase(vllm:request_success_totalS[10m]))", same(Positive));
    add("max B (rate(vllm:prefix_cache_hits_totalS[5m]) / rate(vllm:prefix_cache_queries_totalS[5m]))", same(Is(0.5)));
    add("max B (time() - timestamp(vllm:kv_cache_usage_percS))", [Positive, Positive, Empty, Empty]);
    // OpenCost: the increase between two moments, and the share of each cache configuration.
    for (name, increase) in [
        ("prompt_tokens_total", 1600.0),
        ("generation_tokens_total", 808.0),
        ("request_prefill_time_seconds_sum", 4.0),
        ("request_time_per_output_token_seconds_sum", 8.0 * 0.015),
        ("prefix_cache_hits_total", 800.0),
    ] {
        let at = |window: &str, time: f64| {
            format!("sum by (model_name, namespace) (last_over_time(vllm:{name}[{window}] @ {time:.3}))")
        };
        add(&format!("{} - {}", at("60m", now()), at("2m", batch_seen)), same(Is(increase)));
    }
    add(
        "max by (model_name, namespace, enable_prefix_caching) (sum by (model_name, namespace, pod) (vllm:prompt_tokens_total)
            * on (namespace, pod) group_left(enable_prefix_caching)
            max by (namespace, pod, enable_prefix_caching) (vllm:cache_config_info))",
        [Is(2400.0), Is(2400.0), Empty, Empty],
    );
    // KServe and KEDA. Because of `or vector(0)`, a stale engine looks idle.
    add("vllm:num_requests_running", load(8.0));
    add("vllm:num_requests_waiting", load(5.0));
    add(r#"sum(vllm:num_requests_waiting{model_name="llama"})"#, load(5.0));
    add(
        r#"sum(vllm:kv_cache_usage_perc{namespace="ns",pod=~".*decode.*"}) or vector(0)"#,
        [Is(0.25), Is(0.0), Is(0.0), Is(0.0)],
    );
    // vLLM's dashboards.
    for (name, low, high) in [("e2e_request_latency_seconds", 2.0, 2.5), ("time_to_first_token_seconds", 0.5, 0.75)] {
        for quantile in [0.99, 0.95, 0.9, 0.5] {
            let buckets = format!(r#"sum by(le) (rate(vllm:{name}_bucket{{model_name="llama"}}[1m]))"#);
            let value = low + quantile * (high - low);
            add(&format!("histogram_quantile({quantile}, {buckets})"), same(Is(value)));
        }
    }
    for (name, mean) in [
        ("e2e_request_latency_seconds", 2.25),
        ("request_queue_time_seconds", 0.25),
        ("request_prefill_time_seconds", 0.5),
        ("request_decode_time_seconds", 1.5),
    ] {
        let rate = |part: &str| format!(r#"rate(vllm:{name}_{part}{{model_name="llama"}}[1m])"#);
        add(&format!("{} / {}", rate("sum"), rate("count")), same(Is(mean)));
    }
    // All prompts are in the bucket of 100 to 200 tokens.
    for (bound, in_bucket) in [("100(.0)?", Is(0.0)), ("200(.0)?", Positive)] {
        let bucket = format!(r#"vllm:request_prompt_tokens_bucket{{model_name="llama",le=~"{bound}"}}"#);
        add(&format!("sum by(le) (increase({bucket}[1m]))"), same(in_bucket));
    }
    let by_reason = r#"sum by(finished_reason) (increase(vllm:request_success_total{model_name="llama"}[1m]))"#;
    add(
        &format!(r#"{by_reason} > 0 and on(finished_reason) vllm:request_success_total{{finished_reason="length"}}"#),
        same(Positive),
    );
    // These counters are read by none of the programs above.
    add("vllm:num_preemptions_total", same(Is(12.0)));
    add("vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_draft_tokens_total", same(Is(2.0 / 3.0)));
    add("vllm:spec_decode_num_draft_tokens_total / vllm:spec_decode_num_drafts_total", same(Is(3.0)));
    cases
}

fn check(prometheus: &Prometheus, state: usize, batch_seen: f64) {
    for (query, answers) in queries(batch_seen) {
        until(|| {
            let value = prometheus.value(&query, None);
            let right = match (answers[state], value) {
                (Is(wanted), Some(value)) => (value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0),
                (Positive, Some(value)) => value > 0.0,
                (Empty, None) => true,
                _ => false,
            };
            ensure(right, || format!("state {state}: {query} is {value:?}, not {:?}", answers[state]))
        });
    }
}

#[test]
fn the_queries_of_vllms_readers_return_the_right_values_in_every_state_of_an_engine() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--model=llama", "--metrics.compat=vllm", "--stale-after=2s"]);
    let engine = Publisher::connect(&socket);
    let config = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}\nscrape_configs:\n- job_name: vllm\n  \
         static_configs: [{{targets: ['{}'], labels: {{{TARGET}}}}}]\n",
        daemon.address
    );
    // Without request rows, the exporter counts the lengths of requests only five seconds after the first request.
    engine.finish(4);
    daemon.until_is("vllm:prompt_tokens_total", &[], 800.0);
    let prometheus = Prometheus::start(&prometheus_3(), &config);
    prometheus.until_value("vllm:prompt_tokens_total", 800.0);
    let batch_seen = now();
    engine.finish(8);
    prometheus.until_value("vllm:prompt_tokens_total", 2400.0);

    daemon.until_state(&[], "busy");
    check(&prometheus, 0, batch_seen);
    engine.load(Load::Idle);
    daemon.until_state(&[], "idle");
    check(&prometheus, 1, batch_seen);
    engine.load(Load::Busy);
    daemon.until_state(&[], "busy");
    engine.load(Load::Hanging);
    daemon.until_state(&[], "stalled");
    check(&prometheus, 2, batch_seen);
    engine.leave();
    daemon.until_state(&[], "unreachable");
    check(&prometheus, 3, batch_seen);
}

#[test]
fn engines_that_share_a_model_are_told_apart_by_their_version() {
    let engines = [("llama", 1), ("llama", 2), ("other", 1)];
    let engine = |(model, version)| format!("- {{source: '{SESSION}', model: {model}, version: '{version}'}}\n");
    let arguments = ["--metrics.compat=vllm,trtllm", "--stale-after=1h"];
    let daemon = Daemon::configured(&engines.map(engine).concat(), &arguments);
    for (model, version) in engines {
        daemon.until_state(&[&format!("model={model}"), &format!("version={version}")], "idle");
    }
    let page = Page::parse(&daemon.text("/metrics?collect[]=compat"));
    let mut names: Vec<&String> = page.series.iter().map(|(series, _)| series).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), page.series.len(), "a series is on the page twice");
    for name in ["vllm:num_requests_running", "trtllm_num_requests_running"] {
        let labels = |version| [String::from("model_name=llama"), format!("version={version}")];
        for labels in [labels(1), labels(2)] {
            assert_eq!(page.get(name, &[&labels[0], &labels[1]]), 0.0);
        }
        assert_eq!(page.find(name, &["model_name=other", "version=1"]), None);
        assert_eq!(page.get(name, &["model_name=other"]), 0.0);
    }
}
