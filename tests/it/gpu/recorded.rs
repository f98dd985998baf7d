//! GPUs in the flight recorder: the lines, the trace and `doctor` must show the GPUs that a live exporter recorded.

use std::path::Path;

use serde_json::Value;
use trtllm_recording::Recording;

use super::monitor::UUID_0;
use crate::support::daemon::{Launch, doctor_prints};
use crate::support::standin::Standin;
use crate::support::{ensure, until};

/// The lines of a recording, also while it is written.
fn recorded_lines(directory: &Path) -> Vec<Value> {
    let Ok(recording) = Recording::open(directory) else { return Vec::new() };
    let (mut reader, mut lines) = (recording.read(None, "--engine", |_| i64::MIN).unwrap(), Vec::new());
    while let Some(line) = reader.next_line().unwrap() {
        lines.push(serde_json::from_slice(line).unwrap());
    }
    lines
}

#[test]
fn recorded_gpus_are_in_the_lines_the_trace_and_the_report_of_the_recording() {
    let standin = Standin::new("gpus=2\ngpu.0.power_mw=412500\ngpu.0.energy_mj=9000\n");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let mut daemon = Launch::new().gpus(&standin).start(&["--source", "sim:?rate=6", "--record.dir", directory]);
    let is_of = |line: &Value, uuid: &str| line["gpu"]["uuid"] == uuid;
    until(|| {
        let lines = recorded_lines(folder.path());
        let found = lines.iter().filter(|line| is_of(line, UUID_0)).count();
        ensure(found >= 2, || format!("{found} readings of the GPU in {} lines", lines.len()))?;
        let reading = &lines.iter().find(|line| is_of(line, UUID_0)).unwrap()["gpu"];
        assert_eq!((&reading["powerWatts"], &reading["energyJoules"]), (&Value::from(412.5), &Value::from(0.0)));
        assert_eq!((&reading["state"], &reading["serves"]), (&Value::from("ok"), &Value::from(false)), "{reading}");
        Ok(())
    });
    assert!(daemon.terminate().success());
    let trace = doctor_prints(&["export", directory]);
    assert!(trace.contains("412.5") && trace.contains(UUID_0), "no track of the GPU");
    let report = doctor_prints(&["diagnose", "--recording", directory]);
    let heading = report.lines().next().unwrap();
    assert!(heading.ends_with("engines: 1, GPUs: 2") && heading.matches("tensorrt_llm").count() == 1, "{report}");
}
