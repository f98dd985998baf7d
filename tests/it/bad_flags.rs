//! With an invalid flag the daemon does not start: it exits with a code and one message that names the flag
//! and the remedy. `mistakes` has those of a file, and typing errors.

use std::os::unix::net::UnixListener;
use std::time::Instant;

use crate::support::daemon::{Launch, either, run};

/// Checks that the daemon does not start: this exit code, one message on stderr with all these words, nothing on stdout.
fn refused(code: i32, arguments: &[&str], words: &[&str]) {
    let started = Instant::now();
    let output = either(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?} after {:?}: {message}", started.elapsed());
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(message.contains(word), "{arguments:?}: the message does not contain {word:?}: {message}");
    }
    let messages =
        message.matches(&format!("{}: ", program_of(arguments))).count() + message.matches("error: ").count();
    assert_eq!(messages, 1, "expected one message: {message}");
}

/// The program that `either` runs.
fn program_of<'a>(arguments: &[&'a str]) -> &'a str {
    if arguments.first() == Some(&"trtllm-doctor") { "trtllm-doctor" } else { "trtllm-exporter" }
}

/// One test per invalid flag: exit code, arguments, and words that the message must contain.
macro_rules! flags {
    ($($name:ident: $code:literal $arguments:expr => $words:expr;)*) => {
        $(#[test]
        fn $name() {
            refused($code, &$arguments, &$words);
        })*
    };
}

flags! {
    a_port_above_65535_of_an_exporter_is_named: 2 ["trtllm-doctor", "diagnose", "http://127.0.0.1:99999"] => ["URL", "port \"99999\""];
    a_bad_port_of_auto_is_named: 2 ["--source", "auto:?ports=8000,x"] => ["--source", "ports", "commas"];
    text_after_auto_is_named: 2 ["--source", "auto:host"] => ["--source", "host", "ports=8000"];
    an_unknown_option_of_a_source_is_named: 2 ["--source", "trtllm-serve:http://h:1?sped=2"] => ["--source", "sped", "perf_metrics", "prometheus_metrics"];
    an_option_of_a_simulated_engine_given_twice_is_named: 2 ["--source", "sim:?rate=1&seed=2&rate=3"] => ["--source", "rate", "twice"];
    an_option_of_a_server_given_twice_is_named: 2 ["--source", "trtllm-serve:http://h:1?perf_metrics=true&perf_metrics=true"] => ["--source", "perf_metrics", "twice"];
    a_health_address_that_the_page_has_is_named: 1 ["--web.listen-address", "127.0.0.1:29417", "--web.health-address", "127.0.0.1:29417"] => ["cannot listen on 127.0.0.1:29417", "--web.health-address"];
    a_bad_option_of_a_source_is_named: 2 ["--source", "trtllm-serve:http://h:1?perf_metrics=yes"] => ["--source", "perf_metrics", "true or false"];
    an_ingest_socket_without_a_path_is_named: 2 ["--source", "socket:"] => ["--source", "socket", "path"];
    a_replay_without_a_file_is_named: 2 ["--source", "replay:"] => ["--source", "replay", "path"];
    a_replay_with_a_bad_speed_is_named: 2 ["--source", "replay:x?speed=-1"] => ["--source", "speed", "above 0"];
    a_replay_with_a_bad_rate_is_named: 2 ["--source", "replay:x?rate=fast"] => ["--source", "rate", "above 0"];
    a_replay_with_rate_and_speed_is_named: 2 ["--source", "replay:x?rate=1&speed=2"] => ["--source", "rate", "speed"];
    a_poll_interval_of_0_is_named: 2 ["--poll.interval", "0s"] => ["--poll.interval", "between"];
    objectives_beside_a_config_file_are_refused: 2 ["--config.file", "/x.yaml", "--objectives", "ttft=500ms"] => ["--objectives", "ttft=500ms", "key objectives"];
    a_bench_report_that_is_something_else_is_named: 2 ["--source", "auto", "--bench-report", "Cargo.toml"] => ["--bench-report", "Cargo.toml", "not a report", "--report_json"];
    a_price_that_is_no_number_above_0_is_named: 2 ["--source", "auto", "--cost.gpu-hour", "0"] => ["--cost.gpu-hour", "a number above 0"];
    a_price_beside_a_config_file_is_refused: 2 ["--config.file", "/x.yaml", "--cost.gpu-hour", "2.5"] => ["--cost.gpu-hour", "key gpu_hour_cost"];
    an_endpoint_of_spans_beside_a_config_file_is_refused: 2 ["--config.file", "/x.yaml", "--otlp.endpoint", "http://otel:4318"] => ["--otlp.endpoint", "key otlp_endpoint"];
    an_endpoint_without_a_receiver_of_spans_is_refused: 2 ["--source", "auto", "--otlp.endpoint", "http://otel:4318"] => ["--otlp.endpoint", "receives no spans", "otlp:HOST:PORT"];
    a_bench_report_beside_a_config_file_is_refused: 2 ["--config.file", "/x.yaml", "--bench-report", "/r.json"] => ["--bench-report", "/r.json", "key bench_report"];
    a_stale_after_below_the_poll_interval_is_named: 2 ["--stale-after", "3s", "--poll.interval", "2s"] => ["--stale-after", "twice --poll.interval"];
    a_telemetry_path_without_a_slash_is_named: 2 ["--web.telemetry-path", "metrics"] => ["--web.telemetry-path", "begin with /"];
    a_telemetry_path_that_another_page_uses_is_named: 2 ["--web.telemetry-path", "/healthz"] => ["--web.telemetry-path", "/healthz"];
    a_telemetry_path_that_needs_escapes_is_named: 2 ["--web.telemetry-path", "/é"] => ["--web.telemetry-path", "no escapes"];
    empty_web_flags_count_as_not_given: 2 ["--web.config.file=", "--web.health-address=", "--web.telemetry-path", "metrics"] => ["--web.telemetry-path", "begin with /"];
    a_wrong_number_of_models_is_named: 2 ["--source", "socket:a", "--model", "x", "--model", "y"] => ["--model", "--source"];
    a_wrong_number_of_versions_is_named: 2 ["--source", "socket:a", "--model-version", "1", "--model-version", "2"] => ["--model-version", "--source"];
    a_required_gpu_without_a_library_is_fatal: 1 ["--gpu", "required", "--gpu.library", "/nowhere/libnvidia-ml.so.1", "--web.listen-address", "127.0.0.1:0"] => ["--gpu required", "/nowhere/libnvidia-ml.so.1", "--gpu auto"];
}

#[cfg(feature = "executor")]
flags! {
    text_between_sim_and_its_options_is_named: 2 ["--source", "sim:fast", "--web.listen-address", "127.0.0.1:0"] => ["--source", "sim:", "fast"];
    an_unknown_scenario_is_named: 2 ["--source", "sim:?scenario=nothing", "--web.listen-address", "127.0.0.1:0"] => ["--source", "nothing", "scenario=list"];
    an_option_beside_a_scenario_is_named: 2 ["--source", "sim:?scenario=kv-thrash&rate=3", "--web.listen-address", "127.0.0.1:0"] => ["--source", "kv-thrash", "rate"];
    a_bad_option_of_the_simulated_engine_is_named: 2 ["--source", "sim:?rate=-1", "--web.listen-address", "127.0.0.1:0"] => ["--source", "rate"];
}

#[test]
fn a_variable_holds_several_sources_and_models() {
    let run = |source: &str, model: &str| {
        let launch = Launch::new().variable("TRTLLM_EXPORTER_SOURCE", source).variable("TRTLLM_EXPORTER_MODEL", model);
        let output = launch.run(&[]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // All sources of the variable are parsed: the last one is invalid.
    let (code, message) = run("replay:a  replay:b\n  nothing:c\n", "one\ntwo words\nthree");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("nothing:c") && message.contains("unknown scheme"), "{message}");
    let (code, message) = run("replay:a replay:b", "one\ntwo\nthree");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("3 values for 2 --source"), "{message}");
}

/// Regression: check-config accepted these files, and the daemon rejected them only when it opened the sources.
mod files_of_a_source {
    use super::*;

    #[cfg(feature = "executor")]
    #[test]
    fn a_mistake_of_an_engine_in_this_process_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        let path = file.to_str().unwrap();
        for (source, words) in [
            ("sim:?bogus=1", ["bogus", "rate"]),
            ("sim:?rate=5&rate=6", ["rate", "twice"]),
            ("executor:/nowhere/engine", ["/nowhere/engine", "executor:"]),
            ("executor:/nowhere/engine?load=/nowhere/requests", ["load", "synthetic"]),
        ] {
            std::fs::write(&file, format!("engines:\n- source: socket:a\n  model: b\n- source: {source}\n")).unwrap();
            let words = [&words[..], &["line 4, engines[1]", path]].concat();
            refused(2, &["--config.file", path], &words);
            refused(2, &["check-config", path], &words);
        }
    }

    /// Opening a pipe would block until its writer opens it, and reading it would take data that the daemon needs.
    #[test]
    fn a_pipe_to_replay_is_not_opened_by_check_config() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("x.yaml"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, format!("engines:\n- source: replay:{}\n", pipe.display())).unwrap();
        let output = run(&["check-config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Before a start, the folder may not exist, because systemd or Kubernetes creates it. After a start, the exporter
    /// itself listens on the path.
    #[test]
    fn a_socket_that_the_exporter_itself_serves_or_will_serve_below_run_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("x.sock"), folder.path().join("x.yaml"));
        let _served = UnixListener::bind(&path).unwrap();
        for path in [path.to_str().unwrap(), "/run/trtllm-exporter-of-a-test/x.sock"] {
            std::fs::write(&file, format!("engines:\n- source: socket:{path}\n")).unwrap();
            let output = run(&["check-config", file.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// The file is valid: the server may report the times in another way.
#[test]
fn check_config_says_which_objective_is_never_judged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    let write = |limit| {
        let engine =
            format!("- source: trtllm-serve:http://127.0.0.1:8000\n  objectives: {{ttft: 410ms, tpot: {limit}}}\n");
        std::fs::write(&file, format!("engines:\n{engine}")).unwrap();
        let output = run(&["check-config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = write("45ms");
    assert!(
        said.contains("warning: objective tpot=45ms can never be judged") && said.contains("25ms or 50ms"),
        "{said}"
    );
    assert!(said.contains("objective all is then unknown") && said.contains("ok, 1 engine(s)"), "{said}");
    let said = write("50ms");
    assert!(!said.contains("warning"), "{said}");
}

/// The flags of the daemon are checked with the file, because a start checks both. They may be before and after the command.
#[test]
fn check_config_checks_the_flags_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, "engines:\n- source: socket:a\n").unwrap();
    let file = file.to_str().unwrap();
    refused(
        2,
        &["--web.config.file", "/nowhere/web.yml", "check-config", file],
        &["--web.config.file", "/nowhere/web.yml"],
    );
    refused(2, &["--poll.interval", "0s", "check-config", file], &["--poll.interval", "between"]);
    refused(2, &["--objectives", "ttft=1s", "check-config", file], &["--objectives", "key objectives"]);
    refused(2, &["--bench-report", "Cargo.toml", "check-config", file], &["--bench-report", "key bench_report"]);
    refused(2, &["--record.dir", "Cargo.toml", "check-config", file], &["--record.dir", "Cargo.toml"]);
    let page = ["--web.listen-address", "unix:/nowhere/x.sock", "check-config", file];
    refused(2, &page, &["--web.listen-address", "/nowhere/x.sock"]);
    assert_eq!(run(&["check-config", file]).status.code(), Some(0));
    refused(2, &["check-config", file, "--poll.interval", "0s"], &["--poll.interval", "between"]);
    refused(2, &["check-config", "--poll.interval=0s", file, "--gpu", "off"], &["--poll.interval", "between"]);
    refused(2, &["--gpu", "off", "check-config", file, "--stale-after", "1ms"], &["--stale-after", "between"]);
    assert_eq!(run(&["--gpu", "off", "check-config", file, "--gpu", "auto"]).status.code(), Some(0));
}

/// A token belongs into a file. If it is typed as an option by mistake, the error must not repeat it.
#[test]
fn no_error_repeats_the_value_of_an_unknown_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    let path = file.to_str().unwrap();
    for query in [
        "?token=hunter2",
        "?bearer_token=hunter2",
        "?perf_metrics=true&apiKey=hunter2",
        "?token=x&token=hunter2",
        "?token=a hunter2",
        "?token=a\"hunter2",
        "?hunter2",
        "?hunter2==",
        "&token=hunter2",
        "#token=hunter2",
        ";token=hunter2",
    ] {
        let url = format!("http://h:1{query}");
        let (source, simulated) = (format!("trtllm-serve:{url}"), format!("sim:{query}"));
        std::fs::write(&file, format!("engines:\n- source: '{source}'\n")).unwrap();
        for (arguments, names_option) in [
            (&["--source", source.as_str()][..], true),
            (&["--source", source.as_str(), "--dry-run"], true),
            (&["--source", &format!("trtllm-disagg:{url}")], true),
            (&["--source", &format!("auto:{query}")], true),
            (&["--source", &format!("perf-metrics:/x{query}")], true),
            (&["--source", &simulated, "--dry-run"], true),
            (&["--source", url.as_str()], false),
            (&["--config.file", path], true),
            (&["check-config", path], true),
            (&["trtllm-doctor", "diagnose", "--source", &source], true),
            (&["trtllm-doctor", "diagnose", "--config.file", path], true),
            (&["trtllm-doctor", "diagnose", &url], false),
            (&["trtllm-doctor", "diagnose", "--prometheus", &url], false),
            (&["trtllm-doctor", "top", &url], false),
            (&["trtllm-doctor", "top", &url[7..]], false),
            (&["trtllm-doctor", "what-if", &url, "--rate", "2x"], false),
            (&["trtllm-doctor", "compare", &url, "h:2"], false),
            (&[&url], false),
        ] {
            // The commands share one parser, so only the first query is given to each of them.
            if query != "?token=hunter2" && !matches!(arguments, ["--source" | "--config.file", _] | [_, "top", _]) {
                continue;
            }
            // A path may contain these characters.
            if arguments.iter().any(|argument| argument.starts_with("perf-metrics:")) && !query.starts_with('?') {
                continue;
            }
            let output = either(arguments);
            let message = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
            assert!(!message.contains("hunter2"), "{arguments:?}: {message}");
            if names_option && query == "?token=hunter2" {
                assert!(message.contains("unknown option") && message.contains("token"), "{arguments:?}: {message}");
            }
        }
    }
}

/// A password may contain any character, including those that end the host of a URL.
#[test]
fn no_error_repeats_the_password_of_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    let path = file.to_str().unwrap();
    for password in ["hunter2", "hunter2/x", "x?hunter2", "a hunter2", "a@hunter2", "x:hunter2", "#hunter2"] {
        let url = format!("http://u:{password}@h:1");
        let source = format!("trtllm-serve:{url}");
        std::fs::write(&file, format!("engines:\n- source: '{source}'\n")).unwrap();
        for arguments in [
            &["--source", source.as_str()][..],
            &["--source", url.as_str()],
            &["--config.file", path],
            &["--web.listen-address", &url],
            &["--web.health-address", &url, "--gpu", "off", "--source", "sim:"],
            &["check-config", path],
            &["trtllm-doctor", "diagnose", &url],
            &["trtllm-doctor", "diagnose", "--source", &source],
            &["trtllm-doctor", "diagnose", "--config.file", path],
            &["trtllm-doctor", "top", &url],
            &["trtllm-doctor", "top", &url[7..]],
            &[&url],
        ] {
            if password != "hunter2" && !matches!(arguments, ["--source" | "--config.file", _] | [_, "top", _]) {
                continue;
            }
            let output = either(arguments);
            let message = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
            assert!(!message.contains("hunter2"), "{arguments:?}: {message}");
        }
    }
}
