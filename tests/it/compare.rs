//! Tests `compare` with two exporters, and with two recordings.

use serde_json::Value;

use crate::support::daemon::{Daemon, doctor, doctor_prints, refused};
use crate::support::{ensure, until};

/// The simulated engine runs 50 times as fast as real time.
const BEFORE: &str = "sim:?speed=20&rate=6&seed=9101";
/// Each iteration takes 20 % longer, and more requests arrive.
const AFTER: &str = "sim:?speed=20&rate=9&seed=9102&iter_base_ms=9.6&ctx_token_us=14.4&gen_request_us=72";

fn model(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.text("/api/v1/model")).unwrap()
}

/// Waits until the exporter knows the engine's costs and has judged the engine for a minute of simulated time.
fn settled(daemon: &Daemon) {
    until(|| {
        let model = model(daemon);
        let works = model["present"]["equalWork"].as_array().map_or(0, Vec::len);
        ensure(works >= 20 && model["present"]["workload"].is_object(), || format!("{works} kinds of work"))
    });
}

fn compare(arguments: &[&str]) -> Value {
    let output = doctor(&[&["compare", "--format", "json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn is_slower(comparison: &Value) {
    let slowdown = comparison["engine"]["slowdown"]["value"].as_f64().unwrap();
    assert!((slowdown / 1.2 - 1.0).abs() < 0.05, "{comparison}");
    assert!(comparison["says"].as_str().unwrap().contains("longer in the second"), "{comparison}");
}

#[test]
fn two_exporters_and_two_recordings_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let past = tempfile::tempdir().unwrap();
    let past = past.path().to_str().unwrap();
    let mut before = Daemon::start(&["--source", BEFORE, "--record.dir", past]);
    settled(&before);
    let mut after = Daemon::start(&["--source", AFTER, "--record.dir", directory]);
    settled(&after);
    let comparison = compare(&[&before.address, &after.address]);
    is_slower(&comparison);
    let rate = comparison["workload"]["requestsPerSecond"].as_f64().unwrap();
    // On a busy machine, an engine may fall behind its speed.
    assert!((1.1..2.2).contains(&rate), "{comparison}");
    assert_eq!(comparison["second"]["at"], Value::Null);
    let text = doctor_prints(&["compare", &before.address, &after.address]);
    assert!(text.contains("time of equal work") && text.contains("longer in the second"), "{text}");

    // If a comparison is not possible, the error states the reason.
    let address = &after.address;
    for (sides, why) in [
        ([address.clone(), address.clone()], "both are the same"),
        ([format!("{address}@-2h"), address.clone()], "write DIR@TIME with the directory of its --record.dir"),
        (["http://user:word@127.0.0.1:1".to_owned(), address.clone()], "use --user-file"),
        ([format!("{directory}@noon"), address.clone()], "not a time"),
    ] {
        refused(2, &["trtllm-doctor", "compare", &sides[0], &sides[1]], &[why]);
    }

    // When both exporters have stopped, `compare` gives the same answer from their recordings.
    assert!(before.terminate().success() && after.terminate().success());
    is_slower(&compare(&[past, directory]));
    let outside = format!("{past}@2001-01-01T00:00:00Z");
    refused(2, &["trtllm-doctor", "compare", &outside, directory], &["it begins at"]);
}
