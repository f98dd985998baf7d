//! Runs the real binary, either as a daemon on a free port, which is killed when the test ends, or as a command that
//! exits by itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::built::built;
use super::http::{self, Response};
use super::page::Page;
use super::process::Process;
use super::standin::Standin;
use super::{TIMEOUT, ensure, until};

/// The exporter. `TRTLLM_TEST_BINARY` makes [`Launch`] start another build of it, for example a release build to
/// measure its memory.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_trtllm-exporter");

/// Starts the binary. Environment variables that set its flags are removed.
pub(crate) struct Launch {
    command: Command,
    has_gpus: bool,
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
        Self { command, has_gpus: false, folder }
    }

    /// A path in the folder of the daemon. `port` is its port file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Passes a configuration file with these entries of `engines`.
    pub(crate) fn config(mut self, engines: &str) -> Self {
        write_config(&self.folder, engines);
        let path = self.path(CONFIG);
        self.command.arg("--config.file").arg(path);
        self
    }

    /// Lets the daemon poll the GPUs of this stand-in ten times a second.
    pub(crate) fn gpus(mut self, standin: &Standin) -> Self {
        self.command.args(["--gpu.interval", "100ms", "--gpu.library"]).arg(standin.library());
        self.has_gpus = true;
        self
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
        let port = self.path("port");
        let Self { mut command, has_gpus, folder } = self;
        if !has_gpus && !arguments.iter().any(|argument| argument.starts_with("--gpu")) {
            command.args(["--gpu", "off"]);
        }
        command.args(["--web.listen-address", "127.0.0.1:0", "--web.port-file"]).arg(&port).args(arguments);
        let process = Process::spawn(&mut command);
        let mut daemon = Daemon { process, address: String::new(), folder };
        let address = until(|| {
            if let Some(status) = daemon.ended() {
                panic!("the daemon ended with {status}: {}", daemon.stderr());
            }
            // The test may have put a link or a pipe at this path. Then wait until the daemon has replaced it.
            let written = fs::symlink_metadata(&port).is_ok_and(|found| found.is_file() && found.len() > 0);
            ensure(written, || "no port file".to_owned())?;
            fs::read_to_string(&port).map_err(|error| error.to_string())
        });
        // The file has one line per address. The first is the address that this function added.
        daemon.address = address.lines().next().unwrap_or_default().to_owned();
        daemon
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

/// The name of the configuration file in the folder of a daemon.
const CONFIG: &str = "engines.yaml";

fn write_config(folder: &tempfile::TempDir, engines: &str) {
    fs::write(folder.path().join(CONFIG), format!("engines:\n{engines}")).unwrap();
}

/// Runs `trtllm-doctor` until it exits by itself.
pub(crate) fn doctor(arguments: &[&str]) -> Output {
    Launch::doctor().run(arguments)
}

/// What `trtllm-doctor` prints on its standard output.
pub(crate) fn doctor_prints(arguments: &[&str]) -> String {
    String::from_utf8(doctor(arguments).stdout).unwrap()
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

/// What the binary prints on its standard output, if it succeeds.
pub(crate) fn prints(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a program ends with this code, and with one message on stderr that has all these words. Adds a free port
/// if the arguments would start the exporter, so a taken port is never the reason.
pub(crate) fn refused(code: i32, arguments: &[&str], words: &[&str]) {
    let is_start = arguments.first().is_some_and(|first| first.starts_with("--"));
    let chooses_port =
        arguments.iter().any(|argument| argument.starts_with("--web.listen-address") || *argument == "check-config");
    let free_port: &[&str] = if is_start && !chooses_port { &["--web.listen-address", "127.0.0.1:0"] } else { &[] };
    let output = either(&[arguments, free_port].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(message.contains(word), "{arguments:?}: the message does not contain {word:?}: {message}");
    }
    let program = if arguments.first() == Some(&"trtllm-doctor") { "trtllm-doctor: " } else { "trtllm-exporter: " };
    let messages = message.matches(program).count() + message.matches("error: ").count();
    assert_eq!(messages, 1, "expected one message: {message}");
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

    /// Starts the daemon with these entries of `engines` in its configuration file.
    pub(crate) fn configured(engines: &str, arguments: &[&str]) -> Self {
        Launch::new().config(engines).start(arguments)
    }

    /// Replaces the entries of `engines` in its configuration file, and lets it read the file.
    pub(crate) fn reload(&self, engines: &str) {
        write_config(&self.folder, engines);
        self.signal("HUP");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
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

    /// The JSON of its first engine.
    pub(crate) fn engine(&self) -> Value {
        self.get("/api/v1/engines").json()[0].clone()
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

    /// Waits until the only series with this name and these labels has this value.
    pub(crate) fn until_is(&self, name: &str, labels: &[&str], value: f64) -> Page {
        self.until(|page| {
            let found = page.find(name, labels);
            ensure(found == Some(value), || format!("{name} {labels:?} is {found:?} instead of {value}"))
        })
    }

    /// Waits until the only series with this name and these labels has at least this value.
    pub(crate) fn until_at_least(&self, name: &str, labels: &[&str], value: f64) -> Page {
        self.until(|page| {
            let found = page.find(name, labels);
            ensure(found >= Some(value), || format!("{name} {labels:?} is {found:?}, not yet {value}"))
        })
    }

    /// Waits until the only series with this name and these labels is on the page, or until it is not.
    pub(crate) fn until_shown(&self, name: &str, labels: &[&str], is_shown: bool) -> Page {
        self.until(|page| {
            let found = page.find(name, labels);
            ensure(found.is_some() == is_shown, || format!("{name} {labels:?} is {found:?}"))
        })
    }

    /// Waits until the source of the engine with these labels answers.
    pub(crate) fn until_up(&self, labels: &[&str]) -> Page {
        self.until_is("trtllm_exporter_source_up", labels, 1.0)
    }

    /// Waits until the doctor's report about this exporter contains all of these texts. Line breaks count as spaces.
    pub(crate) fn until_diagnosed(&self, texts: &[&str]) {
        until(|| {
            let report = doctor_prints(&["diagnose", &self.address, "--no-sources"]);
            // Each report starts a process, so limit their rate.
            thread::sleep(Duration::from_millis(300));
            let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure(texts.iter().all(|text| report.contains(text)), || report.clone())
        });
    }

    /// Waits until the engine with these labels is in `state`.
    pub(crate) fn until_state(&self, labels: &[&str], state: &str) -> Page {
        self.until(|page| ensure(page.state(labels) == state, || format!("not {state}: {}", page.state(labels))))
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
