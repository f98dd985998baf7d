//! Servers of TensorRT-LLM that are not LLM engines, with exactly the routes that upstream registers for each
//! (`openai_server.py`, `register_…_routes`), and what each surface says about status 503.

use std::thread;
use std::time::Duration;

use crate::support::daemon::{Daemon, doctor_prints};
use crate::support::lookalike::{Lookalike, steady};
use crate::support::served::Served;
use crate::support::{ensure, until};

const VERSION: (&str, u16, &str) = ("/version", 200, r#"{"version":"1.4.0rc4"}"#);
const HEALTH: (&str, u16, &str) = ("/health", 200, "");
const MODELS: (&str, u16, &str) =
    ("/v1/models", 200, r#"{"object":"list","data":[{"id":"other","object":"model","owned_by":"tensorrt_llm"}]}"#);
/// `trtllm-serve embeddings` and `trtllm-serve rerank` have the same routes for GET.
const WITHOUT_STATISTICS: &[(&str, u16, &str)] = &[VERSION, HEALTH, MODELS];
const WORDS: &str = "answers, and has no statistics";

#[test]
fn a_configured_server_without_statistics_is_an_error_that_says_so() {
    let server = Served::start(WITHOUT_STATISTICS);
    let daemon = Daemon::start(&["--source", &server.source()]);
    daemon.until_logged(&[
        "source failed",
        WORDS,
        "a server for embeddings or reranking has none",
        "trtllm-disagg:URL",
    ]);
    let page = daemon.page();
    assert_eq!(page.get("trtllm_exporter_source_up", &[]), 0.0);
    assert_eq!(page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default(), 0.0);
    assert!(daemon.engine()["why"].as_str().unwrap().contains(WORDS));
    daemon.until_diagnosed(&["The server answers without statistics", WORDS]);
}

#[test]
fn auto_names_a_server_without_statistics_and_leaves_it() {
    let server = Served::start(WITHOUT_STATISTICS);
    let daemon = Daemon::start(&["--source", &format!("auto:?ports={}", server.port)]);
    daemon.until_logged(&["auto: found", &server.target(), "has no statistics"]);
    let discovery = daemon.text("/api/v1/discovery");
    assert!(discovery.contains("has no statistics"), "{discovery}");
    let page = daemon.page();
    assert!(page.series.iter().all(|(series, _)| !series.contains("model=\"other\"")), "it has no series");
    let asked = server.asked().len();
    thread::sleep(Duration::from_secs(7));
    // Each search asks for the models. An orchestrator would list its workers.
    let later = server.asked().split_off(asked);
    let is_search = |request: &String| ["GET /v1/models", "GET /cluster_info"].contains(&request.as_str());
    assert!(!later.is_empty() && later.iter().all(is_search), "{later:?}");
}

/// A multimodal encoder (`trtllm-serve mm_embedding_serve`) has `/metrics`, and no page for Prometheus. Its batches have
/// no KV cache.
#[test]
fn an_encoder_is_an_engine_without_a_cache_and_starts_until_it_has_a_record() {
    let silent = Served::start(&[VERSION, HEALTH, MODELS, ("/metrics", 200, "[]")]);
    let daemon = Daemon::start(&["--source", &silent.source()]);
    let page = daemon.poll(&[], 20);
    assert_eq!((page.get("trtllm_exporter_source_up", &[]), page.state(&[])), (1.0, "starting".to_owned()));
    assert_eq!(page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default(), 0.0);
    assert!(daemon.engine()["why"].as_str().unwrap().contains("has sent no record yet"));

    let serving = Served::start(&[
        VERSION,
        HEALTH,
        MODELS,
        (
            "/metrics",
            200,
            r#"[{"timestamp":"11-25-2026 10:00:01.000000","iter":7,"iterLatencyMS":12.5,"numActiveRequests":2,"numQueuedRequests":0,
                "numNewActiveRequests":2,"numCompletedRequests":0,"maxNumActiveRequests":8,"gpuMemUsage":1000,
                "inflightBatchingStats":{"numScheduledRequests":2,"numContextRequests":2,"numGenRequests":0,"numPausedRequests":0,
                "numCtxTokens":512,"microBatchId":0,"avgNumDecodedTokensPerIter":0.0},"kvCacheStats":null}]"#,
        ),
    ]);
    let daemon = Daemon::start(&["--source", &serving.source()]);
    let page = daemon.until_is("nv_trt_llm_iterations_total", &[], 1.0);
    assert_eq!(page.get("nv_trt_llm_request_metrics", &["request_type=context"]), 2.0);
    assert_eq!(page.find("nv_trt_llm_kv_cache_block_metrics", &[]), None);
}

/// A record of VisualGen has no batch.
#[test]
fn visual_gen_has_requests_and_no_iterations_and_never_stalls() {
    let server = Served::start(&[
        VERSION,
        HEALTH,
        MODELS,
        (
            "/metrics",
            200,
            r#"[{"iter":3,"timestamp":1764000000.5,"numQueuedRequests":1,"numActiveRequests":1,"currentStepsProcessed":12,
                "currentRequestId":5,"currentRequestStepIdx":4}]"#,
        ),
    ]);
    let daemon = Daemon::start(&["--source", &server.source(), "--stale-after", "2s"]);
    daemon.until_state(&[], "busy");
    thread::sleep(Duration::from_secs(4));
    let page = daemon.page();
    assert_eq!(page.state(&[]), "busy");
    assert_eq!(page.get("nv_trt_llm_request_metrics", &["request_type=active"]), 1.0);
    assert_eq!(page.find("nv_trt_llm_engine_info", &["backend=visual_gen"]), Some(1.0));
    for absent in ["iterations_total", "requests_completed_total", "generation_tokens_total"] {
        assert_eq!(page.find(&format!("nv_trt_llm_{absent}"), &[]), None, "{absent}");
    }
}

/// Checks that the log, the API, /readyz and the doctor, with these options, call a status 503 by these words.
fn until_said(daemon: &Daemon, words: &str, options: &[&str]) {
    let capital = format!("T{}", &words[1..]);
    daemon.until_logged(&["source failed", &format!("{words}: http")]);
    until(|| {
        thread::sleep(Duration::from_millis(300));
        let (why, ready) = (daemon.engine()["why"].clone(), daemon.get("/readyz").text().to_owned());
        let text = doctor_prints(&[&["diagnose", &daemon.address], options].concat());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_said =
            why.as_str().is_some_and(|why| why.starts_with(words)) && ready.contains(words) && text.contains(&capital);
        ensure(is_said && !text.contains("its engine has failed"), || format!("{why}\n{ready}\n{text}"))
    });
}

#[test]
fn status_503_has_the_same_words_on_every_surface() {
    let server = Lookalike::start(&steady(100), &[]);
    server.mode("starting");
    let daemon = Daemon::start(&["--source", &server.source(), "--stale-after", "2s"]);
    until_said(&daemon, "the model loads", &[]);
    assert_eq!(daemon.page().state(&[]), "starting");
    server.mode("ok");
    daemon.poll(&[], 10);
    server.mode("engine-gone");
    daemon.until_state(&[], "unreachable");
    until_said(&daemon, "the server has lost its engine", &["--no-sources"]);
}
