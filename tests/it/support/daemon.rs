//! Runs the real binary, either as a daemon on a free port, which is killed when the test ends, or as a command that
//! exits by itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{OnceLock, mpsc};

use super::built::built;
use super::http::{self, Response};
use super::page::Page;
use super::process::Process;
use super::{TIMEOUT, ensure, until};

/// The exporter. `TRTLLM_TEST_BINARY` makes [`Launch`] start another build of it, for example a release build to
/// measure its memory.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_trtllm-exporter");

/// Starts the binary. Environment variables that set its flags are removed.
pub(crate) struct Launch {
    command: Command,
    folder: tempfile::TempDir,
}

impl Launch {
    /// Starts the binary itself.
    pub(crate) fn new() -> Self {
        Self::behind::<&str>(&[])
    }

    /// Starts `trtllm-doctor`.
    pub(crate) fn doctor() -> Self {
        Self::program(&[doctor_binary()])
    }

    /// Starts another program with the exporter's command as its last arguments. The program must replace itself with
    /// this command.
    pub(crate) fn behind<S: AsRef<str>>(program: &[S]) -> Self {
        let binary = std::env::var("TRTLLM_TEST_BINARY").unwrap_or_else(|_| BINARY.to_owned());
        let program = program.iter().map(AsRef::as_ref);
        Self::program(&program.chain([&*binary]).collect::<Vec<_>>())
    }

    /// Runs a command that ends with a copy of the binary.
    pub(crate) fn program<S: AsRef<str>>(program: &[S]) -> Self {
        let mut program = program.iter().map(AsRef::as_ref);
        let mut command = Command::new(program.next().expect("a program"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRTLLM_EXPORTER_"))
        {
            command.env_remove(name);
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The program may start the daemon as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a folder of this process");
        let log = fs::File::create(folder.path().join("stderr")).expect("a log file");
        command.args(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { command, folder }
    }

    /// A path in the folder of the daemon. `port` is its port file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Sends the log to `stderr` instead of a file, so that the test can read it itself.
    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Starts the daemon on a free port, with the full page unless the arguments name its profile, and without GPUs
    /// unless they name them.
    pub(crate) fn start(self, arguments: &[&str]) -> Daemon {
        self.try_start(arguments).unwrap_or_else(|(status, log)| panic!("the daemon ended with {status}: {log}"))
    }

    /// Like [`Launch::start`], but returns the exit status and the log if the daemon ends.
    pub(crate) fn try_start(self, arguments: &[&str]) -> Result<Daemon, (ExitStatus, String)> {
        let port = self.path("port");
        let Self { mut command, folder } = self;
        if !arguments.iter().any(|argument| argument.starts_with("--gpu")) {
            command.args(["--gpu", "off"]);
        }
        command.args(["--web.listen-address", "127.0.0.1:0", "--web.port-file"]).arg(&port).args(arguments);
        let process = Process::spawn(&mut command);
        let mut daemon = Daemon { process, address: String::new(), folder };
        let address = until(|| {
            if let Some(status) = daemon.ended() {
                return Ok(Err((status, daemon.stderr())));
            }
            // The test may have put a link or a pipe at this path. Then wait until the daemon has replaced it.
            let written = fs::symlink_metadata(&port).is_ok_and(|found| found.is_file() && found.len() > 0);
            ensure(written, || "no port file".to_owned())?;
            fs::read_to_string(&port).map(Ok).map_err(|error| error.to_string())
        });
        // The file has one line per address. The first is the address that this function added.
        daemon.address = address?.lines().next().unwrap_or_default().to_owned();
        Ok(daemon)
    }

    /// Runs the binary until it exits by itself.
    pub(crate) fn run(mut self, arguments: &[&str]) -> Output {
        let child =
            self.command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
        let id = child.id();
        let (ended, output) = mpsc::channel();
        std::thread::spawn(move || ended.send(child.wait_with_output()));
        let output = output.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
            signal(id, "KILL");
            panic!("{arguments:?} did not exit");
        });
        output.expect("its output")
    }
}

/// Runs `trtllm-doctor` until it exits by itself.
pub(crate) fn doctor(arguments: &[&str]) -> Output {
    Launch::doctor().run(arguments)
}

/// Runs the binary, or `trtllm-doctor` if this is the first argument.
pub(crate) fn either(arguments: &[&str]) -> Output {
    match arguments {
        ["trtllm-doctor", arguments @ ..] => doctor(arguments),
        _ => run(arguments),
    }
}

/// The path of `trtllm-doctor`, which is built once. Here, it has the features of the whole workspace: for those of its own
/// package, cargo would build most dependencies again.
pub(crate) fn doctor_binary() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| built(&["--workspace", "--bin", "trtllm-doctor"], "trtllm-doctor").display().to_string())
}

/// Runs the binary until it exits by itself.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Launch::new().run(arguments)
}

fn signal(process: u32, name: &str) {
    // Uses the shell's built-in, because a minimal Debian has no `kill` program.
    let kill = Command::new("sh").args(["-c", "kill -s $0 $1", name, &process.to_string()]).status();
    assert!(kill.expect("sh").success());
}

#[derive(Debug)]
pub(crate) struct Daemon {
    process: Process,
    /// `HOST:PORT`
    pub(crate) address: String,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// As [`Launch::start`].
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Launch::new().start(arguments)
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

    /// Scrapes `/metrics`.
    pub(crate) fn page(&self) -> Page {
        Page::parse(&self.text("/metrics"))
    }

    /// Scrapes until `check` accepts the page. The error of `check` states what is still wrong.
    pub(crate) fn until(&self, mut check: impl FnMut(&Page) -> Result<(), String>) -> Page {
        until(|| {
            let page = self.page();
            check(&page).map(|()| page).map_err(|error| format!("{error}; stderr:\n{}", self.stderr()))
        })
    }

    /// Waits until the engine with these labels is in `state`.
    pub(crate) fn until_state(&self, labels: &[&str], state: &str) -> Page {
        self.until(|page| ensure(page.state(labels) == state, || format!("not {state}: {}", page.state(labels))))
    }

    /// Waits until `/api/v1/engines` shows the first engine in this state.
    pub(crate) fn until_state_of_api(&self, state: &str) {
        until(|| {
            let found = self.get("/api/v1/engines").json()[0]["state"].clone();
            ensure(found == state, || format!("it is {found}"))
        });
    }

    /// Waits for `more` further polls. With at least two, everything that the source had before is then counted.
    pub(crate) fn poll(&self, labels: &[&str], more: u64) -> Page {
        let polls = |page: &Page| page.count("trtllm_exporter_polls_total", labels);
        let before = polls(&self.page());
        self.until(|page| ensure(polls(page) >= before + more, || "no polls".to_owned()))
    }

    /// The log. Empty if the test reads the log itself.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// The number of log lines that contain all of these words.
    pub(crate) fn logged(&self, words: &[&str]) -> usize {
        self.stderr().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Waits until one log line contains all of these words.
    pub(crate) fn until_logged(&self, words: &[&str]) {
        until(|| ensure(self.logged(words) == 1, || format!("not logged once: {words:?}\n{}", self.stderr())));
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Peak resident memory of a release build in bytes. In a debug build, the code is several times as large, so this
    /// function replaces the size of the code with a fixed size.
    pub(crate) fn peak_memory(&self) -> u64 {
        const RELEASE_CODE: u64 = 14_000_000;
        let peak = self.memory("VmHWM:");
        if cfg!(debug_assertions) { peak - self.memory("RssFile:") + RELEASE_CODE } else { peak }
    }

    /// The resident memory in bytes.
    pub(crate) fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Resident memory in bytes that is not mapped from a file: heap and stacks. A debug build has nearly the same as a
    /// release build.
    pub(crate) fn own_memory(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a running daemon");
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
        signal(self.process.id(), name);
    }

    /// The exit status, if the daemon has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("a child")
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until(|| self.ended().ok_or_else(|| format!("the daemon is still running: {}", self.stderr())))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon's stderr\n{}---", self.stderr());
        }
    }
}
