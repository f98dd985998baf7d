//! The real binary on a free port of its own, killed when the test ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use super::http::{self, Answer};
use super::page::Page;
use super::{PATIENCE, until};

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// `HOST:PORT`
    pub(crate) address: String,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Serves on a free port; without GPUs unless the arguments name them.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (port, log) = (folder.path().join("port"), folder.path().join("stderr"));
        let mut command = command();
        if !arguments.iter().any(|argument| argument.starts_with("--gpu")) {
            command.args(["--gpu", "off"]);
        }
        command.args(["--web.listen-address", "127.0.0.1:0", "--web.port-file"]).arg(&port).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).expect("a log file"));
        let mut child = command.spawn().expect("the daemon's binary");
        let address = until(|| {
            if let Some(status) = child.try_wait().expect("a child") {
                panic!("the daemon ended with {status}: {}", fs::read_to_string(&log).unwrap_or_default());
            }
            fs::read_to_string(&port).map_err(|error| format!("no port file: {error}"))
        });
        Self { child, address: address.trim().to_owned(), folder }
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        http::get(&self.address, target)
    }

    /// The text of a page that must be there.
    pub(crate) fn text(&self, target: &str) -> String {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.text().to_owned()
    }

    /// `/metrics`
    pub(crate) fn page(&self) -> Page {
        Page::parse(&self.text("/metrics"))
    }

    /// Scrapes until the page is as asked; `asked` says what is missing.
    pub(crate) fn until(&self, mut asked: impl FnMut(&Page) -> Result<(), String>) -> Page {
        until(|| {
            let page = self.page();
            asked(&page).map(|()| page).map_err(|missing| format!("{missing}; stderr:\n{}", self.stderr()))
        })
    }

    /// Waits until the first engine of `labels` is in `state`.
    pub(crate) fn until_state(&self, labels: &[&str], state: &str) -> Page {
        self.until(|page| {
            super::missing(page.state(labels) == state, || format!("not {state}: {}", page.state(labels)))
        })
    }

    /// Waits for `more` further polls: whatever the source had said before has then been counted.
    pub(crate) fn poll(&self, labels: &[&str], more: u64) -> Page {
        let polls = |page: &Page| page.count("trtllm_exporter_polls_total", labels);
        let before = polls(&self.page());
        self.until(|page| super::missing(polls(page) >= before + more, || "no polls".to_owned()))
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).expect("the log file")
    }

    /// Lines of the log in which all of these words stand.
    pub(crate) fn logged(&self, words: &[&str]) -> usize {
        self.stderr().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// The most memory that was ever resident, bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running daemon");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kib << 10
    }

    /// SIGTERM, then its end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    pub(crate) fn signal(&self, name: &str) {
        // The shell's own: not every Debian has a program of this name.
        let kill = Command::new("sh").args(["-c", "kill -s $0 $1", name, &self.child.id().to_string()]).status();
        assert!(kill.expect("sh").success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let log = self.folder.path().join("stderr");
        until(|| {
            let ended = self.child.try_wait().expect("a child");
            ended.ok_or_else(|| format!("it runs: {}", fs::read_to_string(&log).unwrap_or_default()))
        })
    }

    /// A path in the daemon's own folder, gone with it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the daemon's stderr\n{}---", self.stderr());
        }
    }
}

/// Runs the binary to its end, which must come by itself.
pub(crate) fn run(arguments: &[&str]) -> Output {
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{arguments:?} runs on");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

/// The binary in an environment that sets none of its flags.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtllm-exporter"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRTLLM_EXPORTER_")) {
        command.env_remove(name);
    }
    command
}
