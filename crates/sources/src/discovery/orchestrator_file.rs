//! The configuration file of `trtllm-serve disaggregated`. It has the address of the orchestrator, which the command line lacks.

use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;
use trtllm_service::small_file;

/// Bytes of a file. It has a few KB.
const MAX_FILE: u64 = 256 << 10;

/// Where an orchestrator listens. A part that is absent has its default.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct OrchestratorAddress {
    pub(super) hostname: Option<String>,
    pub(super) port: Option<u16>,
}

/// The address in `file`, which is an argument of a process. `process` is the folder of that process in `/proc`. `None` if
/// the file cannot be read, for example because it belongs to another user or container.
pub(super) fn read_address(process: &Path, file: &str) -> Option<OrchestratorAddress> {
    let named = Path::new(file);
    let places = match named.strip_prefix("/") {
        // First the path as the process sees it: the process may have another root.
        Ok(inside) => vec![process.join("root").join(inside), named.to_owned()],
        Err(_) => vec![process.join("cwd").join(named)],
    };
    places.iter().find_map(|place| parse_address(&read(place).ok()?))
}

/// Anybody may start a process that names any file. A pipe must not block the search, and a device must not be opened.
fn read(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    small_file::open_regular(path, OFlags::NOCTTY)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn parse_address(text: &str) -> Option<OrchestratorAddress> {
    serde_saphyr::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_file_and_other_keys_do_not_matter() {
        let address =
            |hostname: Option<&str>, port| OrchestratorAddress { hostname: hostname.map(str::to_owned), port };
        let full = "hostname: 0.0.0.0\nport: 8333\nmodel: m\nbackend: pytorch\ncontext_servers:\n  num_instances: 1\n  urls: [\"localhost:8001\"]\n";
        assert_eq!(parse_address(full), Some(address(Some("0.0.0.0"), Some(8333))));
        assert_eq!(parse_address("port: 8333\n"), Some(address(None, Some(8333))));
        for other in ["port: 99999", "port: [1]", "- a", "{", "hostname: {a: b}"] {
            assert_eq!(parse_address(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_found_from_the_folder_and_the_root_of_its_process() {
        let process = tempfile::tempdir().unwrap();
        for (folder, port) in [("cwd", 1), ("root/etc", 2)] {
            std::fs::create_dir_all(process.path().join(folder)).unwrap();
            std::fs::write(process.path().join(folder).join("disagg.yaml"), format!("port: {port}")).unwrap();
        }
        let port = |file| read_address(process.path(), file).and_then(|address| address.port);
        assert_eq!((port("disagg.yaml"), port("/etc/disagg.yaml"), port("missing.yaml")), (Some(1), Some(2), None));
        // Without the rights to enter its root, the file at the same path.
        let file = process.path().join("cwd/disagg.yaml");
        assert_eq!(port(file.to_str().unwrap()), Some(1));
    }

    #[test]
    fn a_pipe_or_a_device_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success(), "no pipe");
        for path in [&*pipe, Path::new("/dev/zero"), folder.path()] {
            assert!(read(path).is_err(), "{}", path.display());
        }
    }
}
