//! GPUs in the flight recorder: `record export` and `doctor` must show the GPUs that a live exporter recorded.

use serde_json::Value;

use super::monitor::UUID_0;
use crate::support::daemon::{Daemon, run};
use crate::support::standin::Standin;
use crate::support::{ensure, until};

#[test]
fn recorded_gpus_are_in_the_export_and_in_the_report_of_the_recording() {
    let standin = Standin::new("gpus=2\ngpu.0.power_mw=412500\ngpu.0.energy_mj=9000\n");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let library = standin.library();
    let gpus = ["--gpu.interval", "100ms", "--gpu.library", library.to_str().unwrap()];
    let mut daemon = Daemon::start(&[&["--source", "sim:?rate=6", "--record.dir", directory], &gpus[..]].concat());
    let export = |format: &str| run(&["record", "export", directory, "--format", format]).stdout;
    let is_of = |line: &Value, uuid: &str| line["gpu"]["uuid"] == uuid;
    until(|| {
        let lines = String::from_utf8(export("json")).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let found = lines.iter().filter(|line| is_of(line, UUID_0)).count();
        ensure(found >= 2, || format!("{found} readings of the GPU in {} lines", lines.len()))?;
        let reading = &lines.iter().find(|line| is_of(line, UUID_0)).unwrap()["gpu"];
        assert_eq!((&reading["power_watts"], &reading["energy_joules"]), (&Value::from(412.5), &Value::from(0.0)));
        assert_eq!((&reading["state"], &reading["serves"]), (&Value::from("ok"), &Value::from(false)), "{reading}");
        Ok(())
    });
    assert!(daemon.terminate().success());
    let trace = String::from_utf8(export("trace")).unwrap();
    assert!(trace.contains("412.5") && trace.contains(UUID_0), "no track of the GPU");
    let report = String::from_utf8(run(&["doctor", "--recording", directory]).stdout).unwrap();
    let heading = report.lines().next().unwrap();
    assert!(heading.ends_with("engines: 1, GPUs: 2") && heading.matches("tensorrt_llm").count() == 1, "{report}");
}
