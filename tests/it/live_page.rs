//! The live page (`/`) in a real Chromium: its numbers, its updates, and its accessibility as axe-core judges it. The
//! checks are in `judges/live_page.py`.

use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support;
use crate::support::daemon::BINARY;
use crate::support::orchestrator::{DisaggServer, cluster_info};
use crate::support::standin::Standin;

#[test]
fn a_browser_shows_the_numbers_of_the_metrics_page() {
    support::program("chromedriver");
    let axe = support::tool("TRTLLM_TEST_AXE", "axe.min.js");
    let busy = include_str!("../fixtures/busy_gpu.state");
    let standin = Standin::new(&format!("gpus=3\n{busy}"));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("engines.yaml");
    let replayed = support::root().join("tests/fixtures/session.ndjson");
    let [copied, own] = ["copied", "own"].map(|name| folder.path().join(name).with_extension("ndjson"));
    let row = |row: u64, ranks: String| {
        let (iter, rank) = (row / 2 + 1, row % 2);
        format!(
            "{{\"iter\": {iter}, \"iterLatencyMS\": 10.0, {ranks}, \"numActiveRequests\": {}, \
             \"inflightBatchingStats\": {{\"numScheduledRequests\": {}, \"numCtxTokens\": {iter}, \"numGenRequests\": {rank}}}, \
             \"kvCacheStats\": {{\"maxNumBlocks\": 200, \"usedNumBlocks\": 50}}}}\n",
            rank + 3,
            rank + 1
        )
    };
    let rows = (0..3000).map(|number| row(number, format!("\"attentionDpRank\": {}", number % 2)));
    std::fs::write(&copied, rows.collect::<String>()).unwrap();
    // With TLLM_METRICS_ALL_RANKS=1, one rank may send the rows of all ranks.
    let rows = (0..3000).map(|number| row(number, format!("\"attentionDpRank\": 0, \"rank\": {}", number % 2)));
    std::fs::write(&own, rows.collect::<String>()).unwrap();
    let orchestrator = DisaggServer::start();
    orchestrator.change(|counted| counted.cluster_info = cluster_info(2, 0));
    let serving = orchestrator.clone();
    // A thread generates requests until the process ends.
    thread::spawn(move || {
        loop {
            serving.change(|counted| {
                counted.streamed += 10;
                counted.http_errors += 1;
                counted.context.sent += 10;
                counted.generation.sent += 10;
                counted.generation.failed += 1;
                counted.generation.first_bytes += 9;
            });
            thread::sleep(Duration::from_millis(200));
        }
    });
    let engines = format!(
        "engines:\n\
         - source: \"sim:?rate=20\"\n  model: live\n\
         - source: replay:{}?speed=max\n  model: ended\n\
         - source: replay:{}?rate=3\n  model: copied\n\
         - source: replay:{}?rate=3\n  model: each-its-own\n\
         - source: trtllm-serve:http://127.0.0.1:1\n  model: nowhere\n\
         - source: {}\n  model: disagg\n\
         - source: socket:{}\n  model: '<img src=x onerror=\"window.attacked=1\">'\n",
        replayed.display(),
        copied.display(),
        own.display(),
        orchestrator.source(),
        folder.path().join("ingest.sock").display()
    );
    std::fs::write(&config, engines).unwrap();
    // Choose the address before the start, because the exporter is restarted and must keep it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = Command::new(support::python())
        .arg(support::root().join("tests/judges/live_page.py"))
        .args([axe.as_os_str(), address.as_ref(), BINARY.as_ref(), "--config.file".as_ref()])
        .arg(&config)
        .args(["--web.listen-address", &address, "--gpu.interval", "100ms", "--gpu.library"])
        .arg(standin.library())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
    assert!(output.status.success(), "{printed}{errors}");
}
