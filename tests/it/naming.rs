//! Engines that name themselves: several publishers share one ingest socket, and each is a separate engine.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::support::daemon::Daemon;
use crate::support::ingest::{Ingest, send};
use crate::support::page::Page;
use crate::support::{ensure, until};

fn names(daemon: &Daemon) -> Vec<String> {
    let engines = daemon.get("/api/v1/engines").json();
    let name = |engine: &serde_json::Value| {
        format!("{} {}", engine["model"].as_str().unwrap(), engine["version"].as_str().unwrap())
    };
    engines.as_array().unwrap().iter().map(name).collect()
}

fn until_named(daemon: &Daemon, expected: &[&str]) {
    until(|| {
        let names = names(daemon);
        ensure(names == expected, || format!("{names:?} instead of {expected:?}"))
    });
}

/// Iterations, lost iterations and restarts of an engine.
fn counts(daemon: &Daemon, model: &str, version: &str) -> [u64; 3] {
    let page = daemon.page();
    let labels = [format!("model={model}"), format!("version={version}")];
    let labels = labels.each_ref().map(String::as_str);
    ["iterations_total", "iterations_lost_total", "engine_restarts_total"]
        .map(|name| page.find(&format!("nv_trt_llm_{name}"), &labels).unwrap_or_default() as u64)
}

fn until_counts(daemon: &Daemon, [model, version]: [&str; 2], expected: [u64; 3]) {
    until(|| {
        let counts = counts(daemon, model, version);
        ensure(counts == expected, || format!("{model} {version}: {counts:?} instead of {expected:?}"))
    });
}

#[test]
fn two_publishers_at_once_are_two_engines_and_nothing_is_lost() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--metrics.compat", "trtllm"]);
    assert_eq!(names(&daemon), [""; 0], "no engine before one has spoken");
    assert_eq!(daemon.get("/readyz").status, 200);
    std::thread::scope(|scope| {
        // If both were counted as one engine, the iteration numbers would look like restarts and losses.
        for (model, first) in [("llama", 1), ("mixtral", 50_001)] {
            let socket = &socket;
            scope.spawn(move || {
                let mut stream = socket.publisher(&format!("{{\"model\":\"{model}\",\"version\":\"2\",\"pid\":1}}"));
                for start in (first..first + 5_000).step_by(100) {
                    send(&mut stream, start..=start + 99);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                // Keep the connection open until the test has checked the numbers.
                until(|| ensure(socket.path().with_extension("checked").exists(), || "not yet".to_owned()));
            });
        }
        until_counts(&daemon, ["llama", "2"], [5_000, 0, 0]);
        until_counts(&daemon, ["mixtral", "2"], [5_000, 0, 0]);
        let page = daemon.page();
        for model in ["llama", "mixtral"] {
            let model = format!("model={model}");
            assert_eq!(page.count("trtllm_exporter_ingest_connections", &[&model]), 1);
            assert_eq!(page.count("trtllm_exporter_source_up", &[&model]), 1);
        }
        assert!(page.find("trtllm_num_requests_running", &["model_name=llama"]).is_some());
        std::fs::write(socket.path().with_extension("checked"), "").unwrap();
    });
}

#[test]
fn a_taken_name_is_refused_once_and_free_when_its_connection_ends() {
    let socket = Ingest::new();
    let engines = format!("- source: replay:/dev/null\n  model: configured\n- source: {}\n", socket.source());
    let daemon = Daemon::configured(&engines, &[]);
    let mut first = socket.publisher("{\"model\":\"llama\",\"pid\":1}");
    send(&mut first, 1..=10);
    until_counts(&daemon, ["llama", "1"], [10, 0, 0]);
    // A publisher with records would get the name of a silent one, but not that of the configuration.
    for (count, model, more) in [(1.0, "llama", ""), (2.0, "configured", "{\"iter\":77}\n")] {
        let mut third = socket.publisher(&format!("{{\"model\":\"{model}\",\"version\":\"1\",\"pid\":1}}"));
        let _ = third.write_all(more.as_bytes());
        // The read fails or returns 0 bytes, because the exporter closes the connection.
        assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
        daemon.until_is("trtllm_exporter_publishers_refused_total", &["reason=name"], count);
        daemon.until_logged(&["publisher refused", model, "give each engine its own name"]);
    }
    assert_eq!(counts(&daemon, "llama", "1"), [10, 0, 0]);
    assert_eq!(counts(&daemon, "configured", "1"), [0, 0, 0]);
    assert_eq!(names(&daemon), ["configured 1", "llama 1"], "in the order of the configuration");
    // If the same process connects again, the engine continues. Another process counts as a restart of the engine.
    drop(first);
    let mut again = socket.publisher("{\"model\":\"llama\",\"pid\":1}");
    send(&mut again, 11..=20);
    until_counts(&daemon, ["llama", "1"], [20, 0, 0]);
    drop(again);
    let mut other = socket.publisher("{\"model\":\"llama\",\"pid\":2}");
    send(&mut other, 1..=5);
    until_counts(&daemon, ["llama", "1"], [25, 0, 1]);
    until(|| {
        ensure(daemon.logged(&["the last publisher of the engine has left", "model=llama"]) == 2, || daemon.stderr())
    });
    daemon.until_logged(&["the engine has restarted", "restarts=1"]);
    assert_eq!(daemon.logged(&["records were lost"]), 0);
    for sequence in [9, 13] {
        writeln!(other, "{{\"iter\":{sequence},\"statsSequence\":{sequence},\"numActiveRequests\":1}}").unwrap();
    }
    until_counts(&daemon, ["llama", "1"], [27, 3, 1]);
    daemon.until_logged(&["records were lost", "lost=3", "another reader"]);
}

#[test]
fn a_publisher_with_records_gets_the_name_of_one_that_hangs() {
    let socket = Ingest::new();
    let daemon = socket.serve(&[]);
    let mut hanging = socket.publisher("{\"model\":\"llama\",\"pid\":1}");
    send(&mut hanging, 1..=10);
    until_counts(&daemon, ["llama", "1"], [10, 0, 0]);
    let mut successor = socket.publisher("{\"model\":\"llama\",\"pid\":2}");
    send(&mut successor, 1..=5);
    until_counts(&daemon, ["llama", "1"], [15, 0, 1]);
    daemon.until_logged(&["a silent publisher loses its name", "model=llama", "pid=1"]);
    assert!(matches!(hanging.read(&mut [0]), Ok(0) | Err(_)), "its connection is closed");
    send(&mut successor, 6..=9);
    until_counts(&daemon, ["llama", "1"], [19, 0, 1]);
}

#[test]
fn derived_names_take_the_lowest_free_version_and_keep_the_order_of_versions() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--metrics.compat", "trtllm"]);
    let hello = |pid| format!("{{\"model\":\"llama\",\"pid\":{pid},\"derived\":true}}");
    let mut streams = Vec::new();
    let mut expected = Vec::new();
    for pid in 1..=11 {
        let mut stream = socket.publisher(&hello(pid));
        send(&mut stream, 1..=pid);
        streams.push(stream);
        expected.push(format!("llama {pid}"));
        until_named(&daemon, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for version in 1..=11 {
        until_counts(&daemon, ["llama", &version.to_string()], [version, 0, 0]);
        let version = format!("version={version}");
        // Series with this name have a version label only if several engines have the same model.
        daemon.until_shown("trtllm_num_requests_running", &["model_name=llama", &version], true);
    }
    drop(streams.swap_remove(3));
    daemon.until_is("trtllm_exporter_ingest_connections", &["version=4"], 0.0);
    let mut new = socket.publisher(&hello(99));
    send(&mut new, 1..=7);
    until_counts(&daemon, ["llama", "4"], [11, 0, 1]);
}

#[test]
fn a_publisher_sends_the_settings_of_its_engine() {
    let socket = Ingest::new();
    let daemon = socket.serve(&[]);
    let until_settings = |expected: &[&str]| {
        daemon.until(|page| {
            let info = page.series.iter().find(|(name, _)| name.starts_with("nv_trt_llm_engine_config_info"));
            let found = expected.iter().all(|label| info.is_some_and(|(name, _)| name.contains(label)));
            ensure(found, || format!("{info:?} has not {expected:?}"))
        })
    };
    let config = r#"{"tensor_parallel_size":2,"quantization":"FP8","dtype":[1],
        "max_batch_size":"96","gpus":"8","tokens_per_block":64}"#
        .replace('\n', "");
    let mut stream = socket.publisher(&format!("{{\"model\":\"llama\",\"pid\":1,\"config\":{config}}}"));
    let page = until_settings(&[
        "tensor_parallel_size=\"2\"",
        "quantization=\"FP8\"",
        "dtype=\"unknown\"",
        "max_batch_size=\"96\"",
        "tokens_per_block=\"64\"",
    ]);
    assert_eq!(page.find("nv_trt_llm_engine_config_info", &["gpus=8"]), None);
    // Settings in records take precedence over settings in the hello line.
    send(&mut stream, 1..=2);
    until_settings(&["tokens_per_block=\"32\"", "quantization=\"FP8\""]);
    drop(stream);
    // After a hello line with missing or invalid settings, the old settings and the connection remain.
    for config in ["", ",\"config\":null", ",\"config\":[\"dtype\"]", ",\"config\":{\"dtype\":{}}"] {
        let mut stream = socket.publisher(&format!("{{\"model\":\"llama\",\"pid\":1{config}}}"));
        let next = daemon.page().count("nv_trt_llm_iterations_total", &[]) + 1;
        send(&mut stream, next..=next);
        until_counts(&daemon, ["llama", "1"], [next, 0, 0]);
        until_settings(&["quantization=\"FP8\"", "tensor_parallel_size=\"2\""]);
    }
    let _restarted = socket.publisher(r#"{"model":"llama","pid":1,"config":{"quantization":"NVFP4"}}"#);
    until_settings(&["quantization=\"NVFP4\"", "tensor_parallel_size=\"unknown\""]);
    assert_eq!(daemon.page().count("trtllm_exporter_records_rejected_total", &["reason=not_a_record"]), 0);
}

#[test]
fn a_first_line_that_cannot_be_read_names_no_engine() {
    let socket = Ingest::new();
    let daemon = socket.serve(&[]);
    // A name of 2 MiB, and a hello that is cut in the middle.
    let mut long = socket.publisher(&format!("{{\"model\":\"{}\"}}", "m".repeat(2 << 20)));
    let mut cut = socket.connect();
    cut.write_all(b"{\"hello\":{\"model\":\"ll").unwrap();
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    for (stream, what) in [(&mut long, "a long name"), (&mut cut, "half a hello")] {
        // The exporter may close the connection before it has read the records.
        let record = "{\"iter\":1,\"numActiveRequests\":1}\n";
        _ = stream.write_all(record.as_bytes());
        stream.set_read_timeout(Some(crate::support::TIMEOUT)).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "{what}: its connection is closed");
    }
    until(|| {
        let refused = daemon.logged(&["publisher refused", "has no valid hello"]);
        ensure(refused == 2, || format!("{refused} of two were refused"))
    });
    assert_eq!(names(&daemon), [""; 0]);
    send(&mut socket.publisher("{\"model\":\"llama\"}"), 1..=3);
    until_counts(&daemon, ["llama", "1"], [3, 0, 0]);
    assert_eq!(names(&daemon), ["llama 1"]);
}

#[test]
fn engines_that_come_and_go_are_forgotten_and_their_series_end() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--engine.forget-after", "2s"]);
    let mut keeper = socket.publisher("{\"model\":\"keeper\",\"pid\":1}");
    send(&mut keeper, 1..=1);
    // The engine's name is on the page before its first record. Some series need a record, so wait for it.
    until_counts(&daemon, ["keeper", "1"], [1, 0, 0]);
    // Do not count the series of the verdict, which appear some seconds after the records.
    let series_of =
        |page: &Page| page.series.iter().filter(|(name, _)| !name.starts_with("nv_trt_llm_limited_by")).count();
    let series = series_of(&daemon.page());
    for round in 0..3 {
        // Each round has 63 new engines, and those of the previous round must be gone.
        let hello = |engine: u64| format!("{{\"model\":\"engine-{round}-{engine}\",\"pid\":{}}}", 10 + engine);
        let streams: Vec<UnixStream> = (0..63)
            .map(|engine| {
                let mut stream = socket.publisher(&hello(engine));
                send(&mut stream, 1..=20);
                stream
            })
            .collect();
        let page = daemon.until(|page| {
            let counted = page.series.iter().filter(|(name, _)| name.starts_with("nv_trt_llm_iterations_total"));
            let counted: Vec<f64> = counted.map(|(_, value)| *value).filter(|value| *value != 1.0).collect();
            ensure(counted == [20.0; 63], || format!("{counted:?}"))
        });
        assert!(series_of(&page) <= 64 * series, "{} series", series_of(&page));
        let mut refused = socket.publisher("{\"model\":\"one too many\",\"pid\":1}");
        assert!(matches!(refused.read(&mut [0]), Ok(0) | Err(_)), "64 engines are the limit");
        drop(streams);
        until_named(&daemon, &["keeper 1"]);
    }
    let page = daemon.page();
    assert_eq!(series_of(&page), series);
    assert_eq!(page.count("nv_trt_llm_iterations_total", &[]), 1);
    assert_eq!(page.count("trtllm_exporter_publishers_refused_total", &["reason=engines"]), 3);
    drop(keeper);
}

#[test]
fn a_publisher_that_leaves_the_socket_of_one_engine_is_logged() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--model", "m"]);
    let mut publisher = socket.publisher("{\"model\":\"llama\",\"pid\":1}");
    send(&mut publisher, 1..=10);
    until_counts(&daemon, ["m", "1"], [10, 0, 0]);
    assert_eq!(daemon.logged(&["publisher disconnected"]), 0);
    drop(publisher);
    daemon.until_logged(&["publisher disconnected", "left_out=0"]);
}

#[test]
fn engines_of_one_socket_are_read_however_many_other_sources_there_are() {
    let sockets: Vec<Ingest> = (0..40).map(|_| Ingest::new()).collect();
    let others = sockets[1..].iter().enumerate();
    let others = others.map(|(index, socket)| format!("  - {{source: {:?}, model: other{index}}}\n", socket.source()));
    let named = format!("  - {{source: {:?}}}\n", sockets[0].source());
    let daemon = Daemon::configured(&others.fold(named, |text, other| text + &other), &[]);
    let hello = |engine: u64| format!("{{\"model\":\"named\",\"version\":\"{engine}\"}}");
    let mut publishers: Vec<UnixStream> = (0..30).map(|engine| sockets[0].publisher(&hello(engine))).collect();
    publishers.iter_mut().for_each(|publisher| send(publisher, 1..=2));
    let is_named = |name: &&String| name.starts_with("named ");
    until(|| {
        let count = names(&daemon).iter().filter(is_named).count();
        ensure(count == 30, || format!("{count} engines"))
    });
}
