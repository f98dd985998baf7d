//! The wall clock changes while the daemon runs. In practice, an administrator changes it, or NTP does so when a
//! suspended machine wakes up.

use super::scene::{HEALTHY, SOCKET, Scene, VICTIM};
use crate::support::ensure;

/// Debian's libfaketime, which changes the wall clock that a process sees. A time namespace cannot do that.
fn faketime() -> Option<String> {
    let library = |folder: std::fs::DirEntry| folder.path().join("faketime/libfaketimeMT.so.1");
    let mut found = std::fs::read_dir("/usr/lib").unwrap().flatten().map(library).filter(|path| path.is_file());
    found.next().map(|path| path.display().to_string())
}

#[test]
fn a_step_of_the_wall_clock_changes_no_total_and_makes_nothing_stale() {
    let Some(library) = faketime() else {
        assert!(std::env::var_os("CI").is_none(), "libfaketime is missing, and CI must run every test");
        println!("skipped: libfaketime is not installed (apt-get install libfaketime)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let offset = folder.path().join("offset");
    let set = |seconds: i64| {
        // Renaming a complete file ensures that the daemon never reads an incomplete one.
        let part = folder.path().join("part");
        std::fs::write(&part, format!("{seconds:+}")).unwrap();
        std::fs::rename(&part, &offset).unwrap();
    };
    set(0);
    let file = format!("FAKETIME_TIMESTAMP_FILE={}", offset.display());
    let preload = format!("LD_PRELOAD={library}");
    let program = ["env", &preload, &file, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    let scene = Scene::start_behind(&program, &["--stale-after", "2s"]);
    let wall_clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let mut shown = 0;
    for (name, step) in [
        ("a day forward", 86_400),
        ("and back", 0),
        ("a day back", -86_400),
        ("and forward", 0),
        ("ten years forward", 315_360_000),
        ("to 1970", -(wall_clock() as i64) + 1000),
        ("and to the present", 0),
    ] {
        // The engines continue during the change, and every record must count once.
        let exact = |counted: &str, more: u64| counted.is_empty() && more == 0;
        scene.fault("clock", name, &exact, |scene| {
            scene.resume();
            set(step);
            // Waits until the daemon has seen the change and polled each engine after it.
            let page = scene.daemon.until(|page| {
                let offset = page.get("trtllm_exporter_last_success_timestamp_seconds", VICTIM) - wall_clock();
                ensure((offset - step as f64).abs() < 1000.0, || format!("the clock is off by {offset} s"))
            });
            shown += 1;
            for engine in [VICTIM, HEALTHY, SOCKET] {
                assert_eq!(page.state(engine), "busy", "{name}");
                let load = page.find("nv_trt_llm_request_metrics", &[engine, &["request_type=active"]].concat());
                assert!(load.is_some(), "{name}: the load has left the page");
            }
            assert_eq!(scene.daemon.get("/healthz").status, 200, "{name}");
        });
    }
    assert_eq!(shown, 7);
    scene.finish();
}
