//! Finds the processes of trtllm-serve on this host, and the addresses in their command lines.

use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use super::USUAL_PORT;
use super::orchestrator_file::{OrchestratorAddress, read_address};
use crate::server::parse_port;

/// Bytes read of a command line.
const MAX_COMMAND: u64 = 16 << 10;
/// Bytes of the name of a host.
const MAX_HOST: usize = 253;

/// A server that a process names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedServer {
    /// `http://HOST:PORT`
    pub(super) target: String,
    /// The command line is that of an orchestrator of disaggregated serving.
    pub(super) orchestrator: bool,
}

/// The addresses of all processes of trtllm-serve that are visible and share our network.
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

/// The server in the command line of a trtllm-serve, whose arguments end with zero bytes. `read` reads the configuration file of an
/// orchestrator.
fn server_of(command: &[u8], read: impl Fn(&str) -> Option<OrchestratorAddress>) -> Option<NamedServer> {
    let text = String::from_utf8_lossy(command);
    let arguments: Vec<&str> = text.split('\0').filter(|argument| !argument.is_empty()).collect();
    // It may follow an interpreter and its options.
    let is_server = |argument: &&str| {
        argument.rsplit('/').next() == Some("trtllm-serve") || *argument == "tensorrt_llm.commands.serve"
    };
    let at = arguments.iter().take(4).position(is_server)?;
    let value = |option: &str| {
        let mut rest = arguments[at..].iter();
        while let Some(argument) = rest.next() {
            if argument == &option {
                return rest.next().copied();
            }
            if let Some(value) = argument.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    };
    match arguments.get(at + 1) {
        Some(&"disaggregated") => {
            let file = ["-c", "--config_file", "--config"].into_iter().find_map(value);
            let OrchestratorAddress { hostname, port } = file.and_then(read).unwrap_or_default();
            let port = port.unwrap_or(USUAL_PORT);
            let host = hostname.map_or(Some("127.0.0.1".to_owned()), |name| host(&name))?;
            let target = format!("http://{host}:{port}");
            return (port > 0).then_some(NamedServer { target, orchestrator: true });
        }
        // Workers of an orchestrator on several nodes. The orchestrator's file has their addresses.
        Some(&"disaggregated_mpi_worker") => return None,
        _ => {}
    }
    let port = value("--port").map_or(Some(USUAL_PORT), parse_port)?;
    let host = value("--host").map_or(Some("127.0.0.1".to_owned()), host)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(command: &[u8]) -> Option<String> {
        server_of(command, |_| None).map(|server| server.target)
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
        // A model with that name is served as an engine.
        assert_eq!(
            target_of(b"trtllm-serve\0serve\0disaggregated\0--port\09000"),
            Some("http://127.0.0.1:9000".to_owned())
        );
    }
}
