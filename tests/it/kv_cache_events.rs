//! KV cache events of a simulated trtllm-serve. If they are enabled, the exporter counts stored, removed and updated
//! blocks by tier. If a server lacks the endpoint, all other statistics still work.

use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::{ensure, until};

/// The engine removes blocks from the GPU. If there is room in host memory, they are moved there and removed later.
#[test]
fn blocks_are_counted_by_tier() {
    blocks_are_counted(0, "removed_gpu");
    blocks_are_counted(256, "removed_host");
}

fn blocks_are_counted(host_blocks: u64, removed: &str) {
    let engine = format!("{}&kv_blocks=512&host_blocks={host_blocks}", steady(500));
    let engine = Lookalike::start(&engine, &["--ring", "50000", "--kv-events"]);
    let source = format!("{}?kv_cache_events=true", engine.source());
    let daemon = Daemon::start(&["--source", &source]);
    until(|| {
        let enough = engine.truth().count(&format!("kv_events/{removed}")) > 10;
        ensure(enough, || "too few blocks were removed".to_owned())
    });
    engine.stop();
    let truth = until(|| {
        let truth = engine.truth();
        ensure(truth.count("kv_events/waiting") == 0, || "events wait".to_owned()).map(|()| truth)
    });
    let page = daemon.until(|page| {
        let events: f64 = ["created", "stored", "removed", "updated", "other"]
            .iter()
            .map(|event| page.find("nv_trt_llm_kv_cache_events_total", &[&format!("event={event}")]).unwrap_or(0.0))
            .sum();
        ensure(events as u64 == truth.count("kv_events/events"), || format!("{events} events"))
    });
    let blocks = |what: &str, tier: &str| {
        page.count(&format!("nv_trt_llm_kv_cache_blocks_{what}_total"), &[&format!("tier={tier}")])
    };
    assert_eq!((blocks("stored", "gpu"), blocks("stored", "host")), (truth.count("kv_events/stored"), 0));
    assert_eq!(blocks("removed", "gpu"), truth.count("kv_events/removed_gpu"));
    assert_eq!(blocks("removed", "host"), truth.count("kv_events/removed_host"));
    assert_eq!(blocks("removed", "other"), 0, "each removed block was seen stored");
    assert_eq!(blocks("updated", "host"), truth.count("kv_events/updated_host"));
    assert_eq!(blocks("updated", "gpu"), truth.count("kv_events/updated_gpu"));
    assert_eq!(page.count("nv_trt_llm_kv_cache_events_lost_total", &[]), 0);
    let tier = |tier| page.count("nv_trt_llm_kv_cache_tier_blocks", &[tier]);
    assert_eq!((tier("tier=gpu"), tier("tier=host"), tier("tier=disk")), (512, host_blocks, 0));
}

#[test]
fn events_are_not_read_unless_enabled() {
    let engine = Lookalike::start(&steady(500), &["--kv-events"]);
    let daemon = Daemon::start(&["--source", &engine.source()]);
    let page = daemon.until(|page| {
        let completed = page.count("nv_trt_llm_requests_completed_total", &[]);
        ensure(completed > 5, || format!("{completed} requests"))
    });
    assert_eq!(page.find("nv_trt_llm_kv_cache_events_lost_total", &[]), None);
    let truth = engine.truth();
    assert_eq!(truth.count("kv_events/waiting"), truth.count("kv_events/events"));
}
