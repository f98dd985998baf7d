//! Mistakes in flags and files that need more than a row in the table of `mistakes`: what check-config accepts and refuses, and
//! what no message shows.

use std::os::unix::net::UnixListener;

use crate::support::daemon::{either, prints, refused};

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
        prints(&["check-config", file.to_str().unwrap()]);
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
            prints(&["check-config", file.to_str().unwrap()]);
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
        prints(&["check-config", file.to_str().unwrap()])
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
    prints(&["check-config", file]);
    refused(2, &["check-config", file, "--poll.interval", "0s"], &["--poll.interval", "between"]);
    refused(2, &["check-config", "--poll.interval=0s", file, "--gpu", "off"], &["--poll.interval", "between"]);
    refused(2, &["--gpu", "off", "check-config", file, "--stale-after", "1ms"], &["--stale-after", "between"]);
    prints(&["--gpu", "off", "check-config", file, "--gpu", "auto"]);
}

/// A token and a password belong into a file. If one is typed by mistake, no error repeats it. (The unit tests of the
/// configuration have the characters that may be in them.)
#[test]
fn no_error_repeats_a_token_or_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    let path = file.to_str().unwrap();
    let hidden = |arguments: &[&str]| {
        let output = either(arguments);
        let message = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(!message.contains("hunter2"), "{arguments:?}: {message}");
        message
    };
    for (url, words) in [("http://h:1?token=hunter2", &["unknown option", "token"][..]), ("http://u:hunter2@h:1", &[])]
    {
        let source = format!("trtllm-serve:{url}");
        std::fs::write(&file, format!("engines:\n- source: '{source}'\n")).unwrap();
        for arguments in [
            &["--source", source.as_str()][..],
            &["--source", &source, "--dry-run"],
            &["--source", &format!("trtllm-disagg:{url}")],
            &["--config.file", path],
            &["check-config", path],
            &["trtllm-doctor", "diagnose", "--source", &source],
            &["trtllm-doctor", "diagnose", "--config.file", path],
        ] {
            let message = hidden(arguments);
            assert!(words.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
        }
        for arguments in [
            &["--source", url][..],
            &["--web.listen-address", url],
            &["--web.health-address", url, "--gpu", "off", "--source", "sim:"],
            &["trtllm-doctor", "diagnose", url],
            &["trtllm-doctor", "diagnose", "--prometheus", url],
            &["trtllm-doctor", "top", url],
            &["trtllm-doctor", "top", &url[7..]],
            &["trtllm-doctor", "what-if", url, "--rate", "2x"],
            &["trtllm-doctor", "compare", url, "h:2"],
            &[url],
        ] {
            hidden(arguments);
        }
    }
    for source in ["auto:?token=hunter2", "perf-metrics:/x?token=hunter2", "sim:?token=hunter2"] {
        let message = hidden(&["--source", source, "--dry-run"]);
        assert!(message.contains("unknown option") && message.contains("token"), "{source}: {message}");
    }
}
