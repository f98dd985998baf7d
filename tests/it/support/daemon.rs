//! Runs the real binary on a free port and kills it when the test ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use super::http::{self, Response};
use super::page::Page;
use super::{TIMEOUT, until};

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
        Self::start_as(command(), arguments)
    }

    /// The same behind another program, whose arguments end with the command to run. The program must replace itself by it.
    pub(crate) fn start_behind(program: &[&str], arguments: &[&str]) -> Self {
        Self::start_program(&[program, &[env!("CARGO_BIN_EXE_trtllm-exporter")]].concat(), arguments)
    }

    /// The same with a command of its own, which ends with a copy of the binary.
    pub(crate) fn start_program(program: &[&str], arguments: &[&str]) -> Self {
        let mut command = without_flags(Command::new(program[0]));
        command.args(&program[1..]);
        Self::start_as(command, arguments)
    }

    fn start_as(mut command: Command, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The program may start the daemon as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a folder of this process");
        let (port, log) = (folder.path().join("port"), folder.path().join("stderr"));
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

    pub(crate) fn get(&self, target: &str) -> Response {
        http::get(&self.address, target)
    }

    /// The body of a response with status 200.
    pub(crate) fn text(&self, target: &str) -> String {
        let response = self.get(target);
        assert_eq!(response.status, 200, "{target}: {}", response.text());
        response.text().to_owned()
    }

    /// `/metrics`
    pub(crate) fn page(&self) -> Page {
        Page::parse(&self.text("/metrics"))
    }

    /// Scrapes until `check` accepts the page. Its error says what is still wrong.
    pub(crate) fn until(&self, mut check: impl FnMut(&Page) -> Result<(), String>) -> Page {
        until(|| {
            let page = self.page();
            check(&page).map(|()| page).map_err(|error| format!("{error}; stderr:\n{}", self.stderr()))
        })
    }

    /// Waits until the engine with these labels is in `state`.
    pub(crate) fn until_state(&self, labels: &[&str], state: &str) -> Page {
        self.until(|page| super::ensure(page.state(labels) == state, || format!("not {state}: {}", page.state(labels))))
    }

    /// Waits for `more` further polls. Everything that the source had before is counted then.
    pub(crate) fn poll(&self, labels: &[&str], more: u64) -> Page {
        let polls = |page: &Page| page.count("trtllm_exporter_polls_total", labels);
        let before = polls(&self.page());
        self.until(|page| super::ensure(polls(page) >= before + more, || "no polls".to_owned()))
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).expect("the log file")
    }

    /// The number of log lines that contain all of these words.
    pub(crate) fn logged(&self, words: &[&str]) -> usize {
        self.stderr().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The peak resident memory in bytes, with the code of a release build: that of a debug build is several times as long.
    pub(crate) fn peak_memory(&self) -> u64 {
        const RELEASE_CODE: u64 = 14_000_000;
        let peak = self.memory("VmHWM:");
        if cfg!(debug_assertions) { peak - self.memory("RssFile:") + RELEASE_CODE } else { peak }
    }

    /// The resident memory in bytes.
    pub(crate) fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Resident memory in bytes that is not read from a file: heap and stacks. A debug build has nearly the same as a release build.
    pub(crate) fn own_memory(&self) -> u64 {
        self.memory("RssAnon:")
    }

    /// Bytes that were resident at the peak and are not resident now.
    pub(crate) fn given_back(&self) -> u64 {
        self.memory("VmHWM:").saturating_sub(self.memory("VmRSS:"))
    }

    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running daemon");
        let value = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
        let kib: u64 = value.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kib << 10
    }

    /// Sends SIGTERM and waits for the exit status.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    pub(crate) fn signal(&self, name: &str) {
        // The shell's built-in: a minimal Debian has no `kill` program.
        let kill = Command::new("sh").args(["-c", "kill -s $0 $1", name, &self.child.id().to_string()]).status();
        assert!(kill.expect("sh").success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let log = self.folder.path().join("stderr");
        until(|| {
            let ended = self.child.try_wait().expect("a child");
            ended
                .ok_or_else(|| format!("the daemon is still running: {}", fs::read_to_string(&log).unwrap_or_default()))
        })
    }

    /// A path in the daemon's temporary folder.
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

/// Runs the binary and waits until it exits by itself.
pub(crate) fn run(arguments: &[&str]) -> Output {
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{arguments:?} did not exit");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

/// The binary without the environment variables that set its flags.
fn command() -> Command {
    without_flags(Command::new(env!("CARGO_BIN_EXE_trtllm-exporter")))
}

fn without_flags(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRTLLM_EXPORTER_")) {
        command.env_remove(name);
    }
    command
}
