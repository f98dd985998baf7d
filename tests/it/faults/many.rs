//! Sixty-four engines. Half of them misbehave, each in its own way, all the time.

use super::engine::{Answer, End, Engine};
use super::scene::MOST_MEMORY;
use crate::support;
use crate::support::daemon::Daemon;
use crate::support::ensure;

/// The answers of the broken engines, which never recover.
fn answers() -> Vec<Answer> {
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    vec![
        Answer::Body(b"not JSON".to_vec()),
        Answer::Body(format!("[{}{{}}]", "{},".repeat(99_999)).into_bytes()),
        Answer::Body(vec![b' '; 17 << 20]),
        Answer::Raw(Vec::new(), End::Close),
        Answer::Raw(head("content-length: 100\r\n"), End::Hang),
        Answer::Raw(head(""), End::Endless(vec![b' '; 4096])),
        Answer::Raw(head("content-length: 1000\r\n"), End::Slow(vec![b' '; 1000])),
        Answer::Raw(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_vec(), End::Close),
    ]
}

#[test]
fn thirty_two_broken_engines_change_nothing_for_thirty_two_healthy_ones() {
    let (healthy, broken): (Vec<Engine>, Vec<Engine>) = (0..32).map(|_| (Engine::start(), Engine::start())).unzip();
    for (index, engine) in broken.iter().enumerate() {
        let answers = answers();
        engine.break_for_ever("/metrics", answers[index % answers.len()].clone());
    }
    // The default page is enough, and a test of 64 engines spends most of its time on pages.
    let mut arguments = ["--poll.timeout", "10s", "--metrics.profile", "default"].map(str::to_owned).to_vec();
    for (kind, engines) in [("healthy", &healthy), ("broken", &broken)] {
        for (index, engine) in engines.iter().enumerate() {
            arguments.extend(["--source".to_owned(), engine.source(), "--model".to_owned(), format!("{kind}-{index}")]);
        }
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = Daemon::start(&arguments);
    let name = |index: usize| format!("model=healthy-{index}");
    let counted = |page: &support::page::Page, index: usize| {
        page.find("nv_trt_llm_iterations_total", &[&name(index)]).unwrap_or_default()
    };
    // After 50 iterations of each healthy engine, each broken engine has failed several times.
    daemon.until(|page| {
        let least = (0..32).map(|index| counted(page, index)).fold(f64::INFINITY, f64::min);
        ensure(least >= 50.0, || format!("a healthy engine has {least} iterations"))
    });
    healthy.iter().for_each(|engine| engine.pause(true));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let page = daemon.until(|page| {
        let behind =
            healthy.iter().enumerate().find(|(index, engine)| counted(page, *index) < engine.handed_out() as f64);
        ensure(behind.is_none(), || format!("{behind:?} is behind"))
    });
    for (index, engine) in healthy.iter().enumerate() {
        assert_eq!(counted(&page, index), engine.handed_out() as f64, "engine {index}");
        assert_eq!(page.get("nv_trt_llm_iterations_lost_total", &[&name(index)]), 0.0, "engine {index}");
        assert_eq!(page.get("trtllm_exporter_source_up", &[&name(index)]), 1.0, "engine {index}");
    }
    let lines = daemon.stderr().lines().count();
    println!("64 engines: {} MB at most, {lines} log lines", daemon.peak_memory() / 1_000_000);
    assert!(daemon.peak_memory() <= MOST_MEMORY, "{} bytes", daemon.peak_memory());
    assert!(lines < 64 * 4, "{}", daemon.stderr());
}
