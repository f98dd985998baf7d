//! A trtllm-serve with several frontends behind one port: what cannot be known is absent and has a reason, and nothing is counted
//! twice.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::daemon::{Daemon, run};
use crate::support::page::Page;
use crate::support::process::Process;
use crate::support::{ensure, http, program, root, until};

struct Frontends {
    _process: Process,
    address: String,
}

impl Frontends {
    /// The modes are described in the program.
    fn start(mode: &str) -> Self {
        let mut command = Command::new(program("python3"));
        command.arg(root().join("tests/judges/frontends.py")).arg(mode);
        let mut process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut port).expect("a port");
        Self { _process: process, address: format!("127.0.0.1:{}", port.trim()) }
    }

    fn daemon(&self) -> Daemon {
        let source = format!("trtllm-serve:http://{}", self.address);
        let daemon = Daemon::start(&["--source", &source, "--poll.interval", "100ms", "--metrics.compat", "trtllm"]);
        daemon.poll(&[], 10);
        daemon
    }

    fn begin(&self) {
        http::get(&self.address, "/test/start");
    }

    /// What was really done.
    fn end(&self, what: &str) -> u64 {
        http::get(&self.address, "/test/stop").json()[what].as_u64().expect("a number")
    }
}

fn notice(daemon: &Daemon) -> Option<String> {
    let engines: Value = http::get(&daemon.address, "/api/v1/engines").json();
    engines[0]["notice"].as_str().map(str::to_owned)
}

fn until_noticed(daemon: &Daemon) {
    until(|| {
        let notice = notice(daemon).unwrap_or_default();
        ensure(notice.starts_with("several frontends"), || format!("notice: {notice:?}"))
    });
}

/// What would come from the page of one frontend or another.
fn has_no_numbers_of_the_server(page: &Page) {
    for family in ["nv_trt_llm_requests_finished_total", "trtllm_prompt_tokens_total", "trtllm_request_success_total"] {
        assert_eq!(page.find(family, &[]), None, "{family}");
    }
    assert_eq!(page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]), 0);
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 0);
}

#[test]
fn frontends_with_a_page_each_are_noticed_and_named_by_doctor() {
    let server = Frontends::start("own");
    let daemon = server.daemon();
    until_noticed(&daemon);
    server.begin();
    until(|| {
        let read = daemon.page().count("nv_trt_llm_iterations_total", &[]);
        ensure(read >= 50, || format!("{read} iterations were read"))
    });
    has_no_numbers_of_the_server(&daemon.page());
    until(|| {
        let doctor = String::from_utf8(run(&["doctor", &daemon.address, "--no-sources"]).stdout).expect("text");
        std::thread::sleep(std::time::Duration::from_millis(300));
        ensure(doctor.contains("Several frontends answer for this engine"), || doctor.clone())
    });
    // Records that another frontend took are lost, or come late. None is counted twice.
    let made = server.end("records");
    let page = daemon.poll(&[], 10);
    let read = page.count("nv_trt_llm_iterations_total", &[]);
    assert!(read <= made, "{read} of {made} iterations");
}

#[test]
fn frontends_that_forward_to_the_first_one_lose_no_record() {
    let server = Frontends::start("forwarded");
    let daemon = server.daemon();
    until_noticed(&daemon);
    server.begin();
    until(|| ensure(daemon.page().count("nv_trt_llm_iterations_total", &[]) >= 50, || "few iterations".to_owned()));
    let made = server.end("records");
    until(|| {
        let read = daemon.page().count("nv_trt_llm_iterations_total", &[]);
        ensure(read == made, || format!("{read} of {made} iterations were read"))
    });
    let page = daemon.page();
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 0);
    has_no_numbers_of_the_server(&page);
}

#[test]
fn frontends_that_share_their_counts_are_counted_exactly() {
    let server = Frontends::start("multiproc");
    let before = 6 + 7 + 8 + 10;
    let daemon = server.daemon();
    until(|| {
        let known = daemon.page().find("trtllm_prompt_tokens_total", &[]).is_some();
        ensure(known, || "the page of the server was not read".to_owned())
    });
    server.begin();
    until(|| ensure(daemon.page().count("trtllm_prompt_tokens_total", &[]) > 0, || "no requests".to_owned()));
    let finished = server.end("finished") - before;
    until(|| {
        let counted = daemon.page().count("trtllm_prompt_tokens_total", &[]);
        ensure(counted == 100 * finished, || format!("{counted} tokens of {finished} requests"))
    });
    assert_eq!(notice(&daemon), None);
}

#[test]
fn frontends_whose_launcher_is_gone_are_unavailable_and_do_not_load() {
    let server = Frontends::start("forwarded");
    let daemon = server.daemon();
    http::get(&server.address, "/test/lose");
    daemon.until(|page| {
        ensure(page.get("trtllm_exporter_source_up", &[]) == 0.0, || "a frontend has records".to_owned())
    });
    until(|| {
        let doctor = String::from_utf8(run(&["doctor", &daemon.address, "--no-sources"]).stdout).expect("text");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let says = "the process with the engine does not answer it";
        ensure(doctor.contains("Nothing answers") && doctor.contains(says), || doctor.clone())
    });
}
