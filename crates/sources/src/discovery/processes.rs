//! Finds the processes of trtllm-serve on this host, and the addresses in their command lines. The command line of an
//! orchestrator names the configuration file of `trtllm-serve disaggregated`, which contains the address.

use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;
use trtllm_service::small_file;

use super::command::ServeCommand;
use crate::server::{DEFAULT_PORT, parse_port};

/// Limit of the bytes that are read of a command line.
const MAX_COMMAND: u64 = 16 << 10;
/// Limit of the bytes that are read of an orchestrator's file. The file has a few KB.
const MAX_FILE: u64 = 256 << 10;
/// Longest host name, in bytes.
const MAX_HOST: usize = 253;

/// A server that a process names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedServer {
    /// `http://HOST:PORT`
    pub(super) target: String,
    /// The command line is that of an orchestrator of disaggregated serving.
    pub(super) orchestrator: bool,
}

/// The addresses of all processes of trtllm-serve that are visible and share our network namespace.
pub(super) fn processes(proc: &Path) -> Vec<NamedServer> {
    let network = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let ours = network(&proc.join("self"));
    let all = fs::read_dir(proc).into_iter().flatten().filter_map(Result::ok);
    let numbered = all.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let mut found: Vec<NamedServer> = numbered
        .filter_map(|entry| {
            let mut command = Vec::new();
            fs::File::open(entry.path().join("cmdline")).ok()?.take(MAX_COMMAND).read_to_end(&mut command).ok()?;
            let server = server_of(&command, |file| read_address(&entry.path(), file))?;
            // An address in a container's own network is not ours. The network of another user's process cannot be read; it
            // is most likely ours.
            let theirs = network(&entry.path());
            (theirs.is_none() || theirs == ours).then_some(server)
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The server in the command line of a trtllm-serve, whose arguments end with zero bytes. `read` reads the configuration
/// file of an orchestrator.
fn server_of(command: &[u8], read: impl Fn(&str) -> Option<OrchestratorAddress>) -> Option<NamedServer> {
    let text = String::from_utf8_lossy(command);
    let arguments: Vec<&str> = text.split('\0').filter(|argument| !argument.is_empty()).collect();
    let command = ServeCommand::find(&arguments, 4)?;
    if command.is_mpi_worker() {
        return None;
    }
    if command.is_orchestrator() {
        let file = ["-c", "--config_file", "--config"].into_iter().find_map(|option| command.value(option));
        let OrchestratorAddress { hostname, port } = file.and_then(read).unwrap_or_default();
        let port = port.unwrap_or(DEFAULT_PORT);
        let host = hostname.map_or(Some("127.0.0.1".to_owned()), |name| host(&name))?;
        let target = format!("http://{host}:{port}");
        return (port > 0).then_some(NamedServer { target, orchestrator: true });
    }
    let port = command.value("--port").map_or(Some(DEFAULT_PORT), parse_port)?;
    let host = command.value("--host").map_or(Some("127.0.0.1".to_owned()), host)?;
    Some(NamedServer { target: format!("http://{host}:{port}"), orchestrator: false })
}

/// An IP address or a DNS name, as in a URL; `None` for anything else, which could be a path or another port.
fn host(text: &str) -> Option<String> {
    let is_part = |part: &str| {
        let letters = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&part.len()) && letters && !part.starts_with('-') && !part.ends_with('-')
    };
    // A host that ends in a number is another spelling of an address.
    let ends_in_number = || text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    match text.parse() {
        Ok(address @ (IpAddr::V4(_) | IpAddr::V6(_))) if address.is_unspecified() => Some("127.0.0.1".to_owned()),
        Ok(IpAddr::V4(address)) => Some(address.to_string()),
        Ok(IpAddr::V6(address)) => Some(format!("[{address}]")),
        Err(_) if text == "localhost" => Some("127.0.0.1".to_owned()),
        Err(_) => {
            (text.len() <= MAX_HOST && text.split('.').all(is_part) && !ends_in_number()).then(|| text.to_owned())
        }
    }
}

/// The address on which an orchestrator listens. A missing value has its default.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct OrchestratorAddress {
    hostname: Option<String>,
    port: Option<u16>,
}

/// The address in `file`, which is an argument of a process. `process` is the folder of that process in `/proc`. `None` if
/// the file cannot be read, for example because it belongs to another user or container.
fn read_address(process: &Path, file: &str) -> Option<OrchestratorAddress> {
    let named = Path::new(file);
    let places = match named.strip_prefix("/") {
        // First the path as the process sees it: the process may have another root directory.
        Ok(inside) => vec![process.join("root").join(inside), named.to_owned()],
        Err(_) => vec![process.join("cwd").join(named)],
    };
    places.iter().find_map(|place| parse_address(&read(place).ok()?))
}

/// Anybody may start a process that names any file, so only regular files are opened. A pipe would block the search.
fn read(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    small_file::open_regular(path, OFlags::NOCTTY)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    // The beginning of a longer file may contain other values than the whole file.
    if text.len() as u64 > MAX_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

fn parse_address(text: &str) -> Option<OrchestratorAddress> {
    serde_saphyr::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(command: &[u8]) -> Option<String> {
        server_of(command, |_| None).map(|server| server.target)
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read_in_part() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let longest = MAX_FILE as usize;
        std::fs::write(file.path(), "#".repeat(longest)).unwrap();
        assert_eq!(read(file.path()).unwrap().len(), longest);
        std::fs::write(file.path(), "#".repeat(longest + 1)).unwrap();
        assert_eq!(read(file.path()).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn the_address_of_a_server_is_in_its_command_line() {
        let of = |arguments: &[&str]| target_of(arguments.join("\0").as_bytes());
        let at = |address: &str| Some(format!("http://{address}"));
        assert_eq!(of(&["trtllm-serve", "/models/llama"]), at("127.0.0.1:8000"));
        assert_eq!(
            of(&[
                "/usr/bin/python3",
                "/usr/local/bin/trtllm-serve",
                "serve",
                "m",
                "--port",
                "9000",
                "--host",
                "0.0.0.0"
            ]),
            at("127.0.0.1:9000")
        );
        assert_eq!(of(&["python3", "-m", "tensorrt_llm.commands.serve", "m", "--port=9001"]), at("127.0.0.1:9001"));
        assert_eq!(of(&["trtllm-serve", "m", "--host=10.0.0.7"]), at("10.0.0.7:8000"));
        assert_eq!(of(&["trtllm-serve", "m", "--host", "fd00::7"]), at("[fd00::7]:8000"));
        for other in [
            &["vllm", "serve", "m"][..],
            &["vim", "a", "b", "c", "trtllm-serve"],
            &["trtllm-serve", "--port", "x"],
            &[],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn arguments_of_a_process_that_are_not_a_host_and_a_port_are_no_address() {
        for host in [
            "127.0.0.1/admin/shutdown?x=",
            "127.0.0.1:80",
            "127.0.0.1#",
            "user@127.0.0.1",
            "[::1]:80",
            "fe80::1%eth0",
            "a b",
            "a\r\nX: y",
            "h\u{e9}",
            "-a",
            "a..b",
            ".",
            "",
            "2130706433",
            "127.1",
            &"a.".repeat(200),
            &"a".repeat(64),
        ] {
            let command = format!("trtllm-serve\0m\0--host={host}\0--port\08000");
            assert_eq!(target_of(command.as_bytes()), None, "{host:?}");
        }
        for port in ["0", "65536", "99999", "+80", "-1", "80/x", "80?", ""] {
            assert_eq!(target_of(format!("trtllm-serve\0--port={port}").as_bytes()), None, "{port:?}");
        }
        for (host, expected) in
            [("gpu_7.example-1.com", "gpu_7.example-1.com"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")]
        {
            let target = target_of(format!("trtllm-serve\0--host={host}\0--port=9").as_bytes());
            assert_eq!(target, Some(format!("http://{expected}:9")));
        }
    }

    #[test]
    fn the_address_of_an_orchestrator_is_in_its_file() {
        let of = |arguments: &[&str], hostname: Option<&str>, port: Option<u16>| {
            let command = [&["python3", "/usr/bin/trtllm-serve"][..], arguments].concat().join("\0");
            server_of(command.as_bytes(), |file| {
                assert_eq!(file, "d.yaml");
                Some(OrchestratorAddress { hostname: hostname.map(str::to_owned), port })
            })
        };
        let at = |address: &str| Some(NamedServer { target: format!("http://{address}"), orchestrator: true });
        for option in [
            &["-c", "d.yaml"][..],
            &["--config_file", "d.yaml"],
            &["--config_file=d.yaml"],
            &["-r", "9", "--config", "d.yaml"],
        ] {
            let arguments = [&["disaggregated"], option].concat();
            assert_eq!(of(&arguments, Some("0.0.0.0"), Some(8333)), at("127.0.0.1:8333"));
            assert_eq!(of(&arguments, Some("disagg-0.example"), None), at("disagg-0.example:8000"));
            assert_eq!(of(&arguments, None, None), at("127.0.0.1:8000"));
            assert_eq!(of(&arguments, Some("a/b"), None), None, "not a host");
            assert_eq!(of(&arguments, None, Some(0)), None);
        }
        let unreadable = server_of(b"trtllm-serve\0disaggregated\0-c\0d.yaml", |_| None);
        assert_eq!(unreadable, at("127.0.0.1:8000"));
        assert_eq!(of(&["disaggregated_mpi_worker", "-c", "d.yaml"], None, None), None);
        // A model named `disaggregated` is served as an engine.
        assert_eq!(
            target_of(b"trtllm-serve\0serve\0disaggregated\0--port\09000"),
            Some("http://127.0.0.1:9000".to_owned())
        );
    }

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
        // If the root of the process may not be entered, the file at the same path outside of it is read.
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
