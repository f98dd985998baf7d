//! Every file that the daemon writes, on a disk that fails, and when somebody deletes or replaces the file. The daemon
//! counts and logs each failure. Everything else continues, and writing starts again when the disk works.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::daemon::{Daemon, Launch};
use crate::support::ensure;
use crate::support::ingest::Ingest;

/// EIO, ENOSPC, EROFS and EDQUOT.
const ERRORS: [i32; 4] = [5, 28, 30, 122];

/// The library for LD_PRELOAD that makes calls fail on request. It is built once.
fn preload() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("fail.so");
        let source = crate::support::root().join("tests/it/file_faults/fail.c");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(built.unwrap().success());
        (folder, library)
    });
    library
}

type Change = fn(&Path);

/// A daemon that records, and a publisher.
struct Recording {
    folder: tempfile::TempDir,
    daemon: Daemon,
    publisher: UnixStream,
    _socket: Ingest,
    sent: u64,
}

impl Recording {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = Ingest::new();
        let launch = failing(Launch::new(), folder.path(), 0, "nothing");
        let directory = folder.path().join("kept");
        let daemon =
            launch.start(&["--source", &socket.source(), "--model", "m", "--record.dir", directory.to_str().unwrap()]);
        let mut recording = Self { publisher: socket.connect(), _socket: socket, folder, daemon, sent: 0 };
        recording.heal();
        recording.until_written();
        recording
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    fn fail(&self, error: i32, part: &str) {
        fs::write(self.folder.path().join("draft"), format!("{error} {part}\n")).unwrap();
        fs::rename(self.folder.path().join("draft"), self.folder.path().join("fail")).unwrap();
    }

    fn heal(&self) {
        fs::remove_file(self.folder.path().join("fail")).unwrap();
    }

    fn send(&mut self) {
        self.sent += 1;
        writeln!(self.publisher, "{{\"iter\":{},\"numActiveRequests\":1}}", self.sent).unwrap();
    }

    fn errors(&self) -> u64 {
        self.daemon.page().count("trtllm_exporter_recorder_errors_total", &[])
    }

    /// Sends records until `done` returns Ok. The daemon must count all of them, even if the disk fails.
    fn send_until(&mut self, mut done: impl FnMut(&Self) -> Result<(), String>) {
        crate::support::until(|| {
            self.send();
            done(self)
        });
        self.daemon.until_is("nv_trt_llm_iterations_total", &[], self.sent as f64);
    }

    /// Sends records until a new frame is written.
    fn until_written(&mut self) {
        let size = |kept: &Path| -> u64 {
            let files = fs::read_dir(kept).into_iter().flatten().flatten();
            files
                .filter(|file| file.path().extension().is_some_and(|ending| ending == "zst"))
                .filter_map(|file| file.metadata().ok())
                .map(|file| file.len())
                .sum()
        };
        let before = size(&self.kept());
        self.send_until(|recording| ensure(size(&recording.kept()) > before, || "nothing is written".to_owned()));
    }

    fn until_failed(&mut self) {
        let before = self.errors();
        self.send_until(|recording| ensure(recording.errors() > before, || "no error is counted".to_owned()));
        // Wait for only one line in total: the daemon limits repeated lines.
        let logged = || self.daemon.logged(&["recording failed; trying again every second"]);
        crate::support::until(|| ensure(logged() > 0, || "not logged".to_owned()));
    }
}

#[test]
fn a_recording_survives_each_error_of_the_disk() {
    let mut recording = Recording::start();
    for error in ERRORS {
        recording.fail(error, ".rec.zst");
        recording.until_failed();
        recording.heal();
        recording.until_written();
    }
    assert!(recording.daemon.terminate().success());
}

#[test]
fn a_recording_begins_again_when_its_files_are_deleted_or_replaced() {
    let mut recording = Recording::start();
    let segments = |kept: &Path| -> Vec<PathBuf> {
        let files = fs::read_dir(kept).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|ending| ending == "zst")).collect()
    };
    let changes: [(&str, Change); 4] = [
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("moved", |path| fs::rename(path, path.with_extension("moved")).unwrap()),
        ("replaced", |path| {
            fs::write(path.with_extension("draft"), "another").unwrap();
            fs::rename(path.with_extension("draft"), path).unwrap();
        }),
        ("replaced by a link", |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/null", path).unwrap();
        }),
    ];
    for (what, change) in changes {
        segments(&recording.kept()).iter().for_each(|path| change(path));
        recording.until_failed();
        recording.until_written();
        println!("{what}: {} errors", recording.errors());
    }
    fs::remove_dir_all(recording.kept()).unwrap();
    recording.until_failed();
    recording.until_written();
    // The new directory, or its lock, cannot be created.
    for part in ["kept", "recorder.lock"] {
        recording.fail(5, part);
        fs::remove_dir_all(recording.kept()).unwrap();
        recording.until_failed();
        recording.heal();
        recording.until_written();
    }
    // The directory is renamed. The recorder must report an error, create a new directory, and leave the renamed one
    // alone.
    let other = recording.folder.path().join("other");
    fs::rename(recording.kept(), &other).unwrap();
    recording.until_failed();
    recording.until_written();
    assert!(recording.daemon.terminate().success());
    assert!(!segments(&other).is_empty());
}

/// Starts the exporter on a disk that fails with this error at paths that contain `part`.
fn failing(launch: Launch, folder: &Path, error: i32, part: &str) -> Launch {
    fs::write(folder.join("fail"), format!("{error} {part}\n")).unwrap();
    launch
        .variable("LD_PRELOAD", preload().to_str().unwrap())
        .variable("FAIL_FILE", folder.join("fail").to_str().unwrap())
}

#[test]
fn what_cannot_be_written_at_the_start_ends_it_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (source, page) = (format!("socket:{}", path("the-ingest")), format!("unix:{}", path("the-page")));
    let (port, kept) = (path("the-port"), path("the-directory"));
    for error in ERRORS {
        for (part, flag) in [
            ("the-port", "--web.port-file"),
            // The draft of the file can be created, but not written.
            ("the-port b", "--web.port-file"),
            ("the-ingest", "ingest socket"),
            ("the-page", "--web.listen-address"),
            ("the-directory", "--record.dir"),
            ("recorder.lock", "--record.dir"),
        ] {
            let arguments = ["--source", &source, "--gpu=off", "--web.listen-address", &page, "--web.port-file", &port];
            let output = failing(Launch::new(), folder.path(), error, part)
                .run(&[&arguments[..], &["--record.dir", &kept][..]].concat());
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{part} {error}: {message}");
            assert!(message.contains(flag) && !message.contains("panic"), "{part} {error}: {message}");
            assert!(!Path::new(&port).exists(), "{part}: a port file without a server");
            let mut left = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
            assert!(left.all(|file| file.extension().is_none_or(|ending| ending != "part")), "{part}: a draft is left");
        }
    }
}

#[test]
fn a_tool_that_cannot_write_says_which_file_and_leaves_no_empty_one() {
    let mut recording = Recording::start();
    recording.until_written();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (kept, address) = (recording.kept(), recording.daemon.address.clone());
    for error in ERRORS {
        for (arguments, output) in [
            (&["trtllm-doctor", "export", kept.to_str().unwrap(), "--output"][..], "the-export"),
            (&["trtllm-doctor", "diagnose", address.as_str(), "--bundle"][..], "the-bundle"),
            (&["init", "--ports", "1"][..], "the-configuration"),
        ] {
            let output = path(output);
            // First the file cannot be created. Then it can be created, but not written.
            for part in [output.clone(), format!("{output} b")] {
                let (launch, arguments) = match arguments {
                    ["trtllm-doctor", arguments @ ..] => (Launch::doctor(), arguments),
                    _ => (Launch::new(), arguments),
                };
                let launch = failing(launch, folder.path(), error, &part);
                let ended = launch.run(&[arguments, &[output.as_str()][..]].concat());
                let message = String::from_utf8_lossy(&ended.stderr).into_owned();
                assert!(!ended.status.success(), "{arguments:?}: {message}");
                assert!(message.contains(&output) && !message.contains("panic"), "{arguments:?} {error}: {message}");
                if arguments[0] == "export" {
                    assert_eq!(ended.status.code(), Some(1), "the recording and the flags are right: {message}");
                    assert!(!message.contains("cannot read"), "{message}");
                }
            }
        }
        assert!(!Path::new(&path("the-configuration")).exists(), "it would be taken for one that somebody wrote");
    }
    assert!(recording.daemon.terminate().success());
}

/// A request reloads a web configuration that has changed. While reading it fails, the daemon refuses all requests, but
/// still reads the engines.
#[test]
fn a_web_configuration_that_cannot_be_read_lets_nobody_in_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("the-web.yml");
    fs::write(&configuration, "").unwrap();
    let launch = failing(Launch::new(), folder.path(), 5, "nothing-has-this-name");
    let daemon = launch.start(&["--source", "sim:", "--web.config.file", configuration.to_str().unwrap()]);
    for (number, error) in ERRORS.into_iter().enumerate() {
        fs::write(folder.path().join("fail"), format!("{error} the-web.yml r\n")).unwrap();
        // The daemon reads the file again only when it changes.
        fs::write(&configuration, "\n".repeat(number + 1)).unwrap();
        let until_status = |wanted: u16| {
            crate::support::until(|| {
                let status = daemon.get("/metrics").status;
                ensure(status == wanted, || format!("{error}: status {status}"))
            });
        };
        until_status(500);
        fs::remove_file(folder.path().join("fail")).unwrap();
        until_status(200);
        daemon.until_up(&[]);
    }
}

/// At most one thread per engine waits for a disk: the one that reads its token.
#[test]
fn a_disk_that_hangs_keeps_few_threads() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("the-token");
    fs::write(&token, "secret").unwrap();
    let port = crate::support::server::serve(|_| Some((401, Vec::new())));
    let refused = format!("trtllm-serve:http://127.0.0.1:{port}?bearer_token_file={}", token.display());
    let launch = failing(Launch::new(), folder.path(), 0, "nothing");
    let engines = ["--source", "sim:", "--source", &refused, "--model", "a", "--model", "b"];
    let daemon = launch.start(&[&engines[..], &["--poll.timeout", "100ms"]].concat());
    daemon.until_up(&["model=a"]);
    let threads = || fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap().count();
    let before = threads();

    fs::write(folder.path().join("draft"), "-1 the- r\n").unwrap();
    fs::rename(folder.path().join("draft"), folder.path().join("fail")).unwrap();
    daemon.until_at_least("trtllm_exporter_poll_errors_total", &["model=b", "kind=timeout"], 20.0);
    assert!(threads() <= before + 2, "{} threads, {before} before: each poll has one", threads());
    daemon.until_up(&["model=a"]);
}
