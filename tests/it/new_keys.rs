//! For every kind of source, the exporter reports keys that it does not know: their names in the API, their number on
//! the page, and a finding of `doctor`. tests/it/server_page.rs tests the same with trtllm-serve.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, doctor_prints};
use crate::support::ingest::Ingest;
use crate::support::{ensure, until, write_line};

const RECORD: &str = r#"{"iter": 1, "numActiveRequests": 0, "kvCacheStats": {"maxNumBlocks": 9, "wishes": 1}}"#;
const ROWS: &str = r#"{"iter": 1, "requestStats": [{"id": 7, "stage": "QUEUED", "numDreams": 3}]}"#;
const REQUEST: &str = r#"{"request_id": 7, "perf_metrics": {"timing_metrics": {"hoped_time": 1.5}}}"#;

fn unread(daemon: &Daemon, model: &str) -> Value {
    let engines = daemon.get("/api/v1/engines").json();
    let mut engines = engines.as_array().unwrap().iter();
    engines.find(|engine| engine["model"] == model).unwrap()["unreadKeys"].clone()
}

fn until_unread(daemon: &Daemon, model: &str, keys: &Value) {
    until(|| ensure(unread(daemon, model) == *keys, || format!("{model}: {}", unread(daemon, model))));
}

#[test]
fn keys_that_are_new_are_named_for_every_source_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("lines"), [RECORD, ROWS, REQUEST].join("\n")).unwrap();
    fs::write(path("array"), format!("[{RECORD}]")).unwrap();
    fs::write(path("python"), RECORD.replace('"', "'").replace('9', "None")).unwrap();
    fs::create_dir(path("files")).unwrap();
    write_line(&path("files"), "server", REQUEST);
    let sources = ["lines", "array", "python"].map(|name| (name, format!("replay:{}", path(name).display())));
    let files = ("files", format!("perf-metrics:{}?from_start=true", path("files").display()));
    let socket = Ingest::new();
    let sources: Vec<_> = sources.into_iter().chain([files, ("socket", socket.source())]).collect();
    let arguments = sources.iter().flat_map(|(model, source)| ["--source", source, "--model", model]);
    let daemon = Daemon::start(&arguments.collect::<Vec<_>>());
    let hello = r#"{"model": "socket", "version": "1"}"#;
    let mut publisher = socket.publisher(hello);
    writeln!(publisher, "{RECORD}\n{ROWS}\n{REQUEST}").unwrap();

    let all = json!(["hoped_time", "numDreams", "wishes"]);
    for (model, keys) in [
        ("lines", &all),
        ("array", &json!(["wishes"])),
        ("python", &json!(["wishes"])),
        ("files", &json!(["hoped_time"])),
        ("socket", &all),
    ] {
        until_unread(&daemon, model, keys);
        let number = daemon.page().get("trtllm_exporter_source_unread_keys", &[&format!("model={model}")]);
        assert_eq!(number, keys.as_array().unwrap().len() as f64, "{model}");
    }
    daemon.until_logged(&["model=socket", "hoped_time numDreams wishes", "update the exporter"]);
    // `doctor` reports nothing about an engine that has been idle for a while, so send records of a busy engine.
    let mut iter = 1;
    until(|| {
        iter += 1;
        writeln!(publisher, r#"{{"iter": {iter}, "iterLatencyMS": 9, "numActiveRequests": 1}}"#).unwrap();
        let text = doctor_prints(&["diagnose", &daemon.address]);
        let is_named = text.contains("engine-newer") && text.contains("hoped_time, numDreams, wishes");
        ensure(is_named, || text)
    });

    // The next process of the engine sends 100 unknown keys. The exporter keeps only 64.
    let more: BTreeSet<String> = (0..100).map(|number| format!("\"key{number}\":1")).collect();
    let more = more.into_iter().collect::<Vec<_>>().join(",");
    let mut next = socket.publisher(hello);
    let iter = iter + 1;
    writeln!(next, "{{\"iter\":{iter},\"numActiveRequests\":0,{more}}}").unwrap();
    until(|| {
        let kept = unread(&daemon, "socket").as_array().map_or(0, Vec::len);
        ensure(kept == 64, || format!("{kept} keys"))
    });
}
