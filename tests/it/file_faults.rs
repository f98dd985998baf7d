//! Everything that the daemon writes, on a disk that fails and with files that somebody deletes or replaces. A failure is counted and
//! logged, what works goes on, and what failed begins again when it can.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::daemon::{Daemon, Launch};
use crate::support::ensure;

/// EIO, ENOSPC, EROFS and EDQUOT.
const ERRORS: [i32; 4] = [5, 28, 30, 122];

/// The preload that fails on request, built once.
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

/// What somebody does to a file.
type Change = fn(&Path);

/// A daemon that records, and a publisher.
struct Recording {
    folder: tempfile::TempDir,
    daemon: Daemon,
    publisher: UnixStream,
    sent: u64,
}

impl Recording {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let launch = Launch::new()
            .variable("LD_PRELOAD", preload().to_str().unwrap())
            .variable("FAIL_FILE", folder.path().join("fail").to_str().unwrap());
        let source = format!("socket:{}", socket.display());
        let directory = folder.path().join("kept");
        let daemon = launch.start(&["--source", &source, "--model", "m", "--record.dir", directory.to_str().unwrap()]);
        let mut recording = Self { publisher: UnixStream::connect(&socket).unwrap(), folder, daemon, sent: 0 };
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

    /// Sends records until `done`. All of them are counted, whatever the disk does.
    fn send_until(&mut self, mut done: impl FnMut(&Self) -> Result<(), String>) {
        crate::support::until(|| {
            self.send();
            done(self)
        });
        let sent = self.sent;
        self.daemon.until(|page| {
            let counted = page.count("nv_trt_llm_iterations_total", &[]);
            ensure(counted == sent, || format!("{counted} of {sent} records"))
        });
    }

    /// Until the newest segment has a frame that was not there.
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
        // Not each time: lines that repeat are limited.
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
    // Somebody else's directory in its place: it is used only while nobody records into it.
    let other = recording.folder.path().join("other");
    fs::rename(recording.kept(), &other).unwrap();
    recording.until_failed();
    recording.until_written();
    assert!(recording.daemon.terminate().success());
    assert!(!segments(&other).is_empty());
}

/// The port file and the sockets are written at the start. A start that cannot write them says which one.
#[test]
fn a_port_file_that_cannot_be_written_ends_the_start_with_its_name() {
    for error in ERRORS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fail"), format!("{error} the-port\n")).unwrap();
        let port = folder.path().join("the-port");
        let output = Launch::new()
            .variable("LD_PRELOAD", preload().to_str().unwrap())
            .variable("FAIL_FILE", folder.path().join("fail").to_str().unwrap())
            .run(&[
                "--source",
                &format!("socket:{}", folder.path().join("socket").display()),
                "--gpu=off",
                "--web.listen-address=127.0.0.1:0",
                &format!("--web.port-file={}", port.display()),
            ]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("--web.port-file"), "{error}: {message}");
    }
}
