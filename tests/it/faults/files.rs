//! Somebody changes or deletes files of a running daemon: its recordings, and its web configuration.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::scene::Scene;
use crate::support::{ensure, until};

type Change = fn(&Path);

fn segments(kept: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(kept).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| path.to_string_lossy().ends_with(".rec.zst")).collect()
}

fn each(kept: &Path, change: impl Fn(&Path)) {
    segments(kept).iter().for_each(|file| change(file));
}

/// Ignores errors: the daemon may have deleted the file, or an earlier fault may have replaced it.
fn append(file: &Path, bytes: &[u8]) {
    _ = fs::OpenOptions::new().append(true).open(file).and_then(|mut file| file.write_all(bytes));
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

const RECORDINGS: [(&str, Change); 12] = [
    ("all files deleted", |kept| each(kept, |file| _ = fs::remove_file(file))),
    ("the directory deleted", |kept| _ = fs::remove_dir_all(kept)),
    ("the directory renamed", |kept| _ = fs::rename(kept, kept.with_extension("old"))),
    ("a file in the place of the directory", |kept| {
        // Retries, because the daemon may create the directory again between the two calls.
        until(|| {
            _ = fs::remove_dir_all(kept);
            fs::write(kept, "not a directory").map_err(|error| error.to_string())
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        fs::remove_file(kept).unwrap();
    }),
    ("all files cut to nothing", |kept| each(kept, |file| _ = fs::write(file, ""))),
    ("all files cut in the middle", |kept| {
        each(kept, |file| {
            let opened = fs::OpenOptions::new().write(true).open(file);
            _ = opened.and_then(|file| file.set_len(file.metadata()?.len() / 2));
        });
    }),
    ("text after the last frame", |kept| each(kept, |file| append(file, b"text"))),
    ("a megabyte of zero bytes after the last frame", |kept| each(kept, |file| append(file, &vec![0; 1 << 20]))),
    ("links to a full device", |kept| {
        each(kept, |file| {
            _ = fs::remove_file(file);
            _ = symlink("/dev/full", file);
        });
    }),
    ("directories in the places of files", |kept| {
        each(kept, |file| {
            _ = fs::remove_file(file);
            _ = fs::create_dir(file);
        });
    }),
    ("pipes in the places of files", |kept| {
        each(kept, |file| {
            _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
            pipe(file);
        });
    }),
    ("a thousand foreign files", |kept| {
        (0..1000).for_each(|file| _ = fs::write(kept.join(format!("{file}.rec.zst")), "text"));
    }),
];

/// The engines must not be affected, and the recorder must start again by itself.
pub(super) fn broken_recordings(scene: &Scene, kept: &Path) {
    let harmless = |counted: &str, more: u64| counted.is_empty() && more == 0;
    for (name, change) in RECORDINGS {
        scene.fault("recordings", name, &harmless, |_| change(kept));
    }
    scene.fault("recordings", "none: they go on", &harmless, |scene| {
        // After the last fault, new frames must be written, to an old file or to a new one.
        let length = |file: &PathBuf| fs::metadata(file).map_or(0, |file| file.len());
        let before: BTreeMap<PathBuf, u64> =
            segments(kept).into_iter().map(|file| (file.clone(), length(&file))).collect();
        scene.resume();
        until(|| {
            let grows = |file: &PathBuf| length(file) > before.get(file).copied().unwrap_or_default();
            ensure(segments(kept).iter().any(grows), || scene.daemon.stderr())
        });
    });
}

const CONFIGURATIONS: [(&str, Change); 12] = [
    ("no file", |file| fs::remove_file(file).unwrap()),
    ("a directory", |file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }),
    ("a pipe", |file| {
        fs::remove_file(file).unwrap();
        pipe(file);
    }),
    ("a link to itself", |file| {
        fs::remove_file(file).unwrap();
        symlink(file, file).unwrap();
    }),
    ("a device without an end", |file| {
        fs::remove_file(file).unwrap();
        symlink("/dev/zero", file).unwrap();
    }),
    ("text", |file| fs::write(file, "hello\n").unwrap()),
    ("bytes that are not UTF-8", |file| fs::write(file, b"\xff\xfe: 1\n").unwrap()),
    ("an unknown key", |file| fs::write(file, "tls: {}\n").unwrap()),
    ("a key twice", |file| fs::write(file, "basic_auth_users: {}\nbasic_auth_users: {}\n").unwrap()),
    ("10,000 open lists", |file| fs::write(file, "[".repeat(10_000)).unwrap()),
    ("a certificate that does not exist", |file| {
        fs::write(file, "tls_server_config: {cert_file: none.pem, key_file: none.pem}\n").unwrap();
    }),
    ("a password that is not a hash", |file| fs::write(file, "basic_auth_users: {a: b}\n").unwrap()),
];

/// While the file is invalid, all requests to the exporter fail. It must continue to read the engines.
pub(super) fn broken_configurations(scene: &Scene, file: &Path) {
    let harmless = |counted: &str, more: u64| counted.is_empty() && more == 0;
    for (name, change) in CONFIGURATIONS {
        scene.fault("web configuration", name, &harmless, |scene| {
            let status = |wanted: bool| {
                until(|| {
                    let status = scene.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                    ensure((status == 200) == wanted, || format!("{name}: status {status}"))
                });
            };
            change(file);
            status(false);
            _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
            fs::write(file, "").unwrap();
            status(true);
        });
    }
}
