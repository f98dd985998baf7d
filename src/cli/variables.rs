//! The environment variables of the flags. A misspelt one is a mistake: otherwise `TRTLLM_EXPORTER_SORCE` would be ignored without
//! a message.

use clap::{Command, CommandFactory as _};

use trtllm_config::command_line::{self, PREFIX, nearest};

use super::Cli;

/// Variables with the prefix that set no flag: the preload library, the Python package and the build read them.
const OF_OTHERS: [&str; 5] = ["SOCKET", "REQUEST_STATS", "REVISION", "COMMIT_DATE", "RUSTC"];

/// The command line with the variable of each flag: `TRTLLM_EXPORTER_GPU_UUID` for `--gpu.uuid`.
#[must_use]
pub fn command() -> Command {
    with_variables(|_| true)
}

/// The command line with the variables that are not empty.
pub(super) fn without_empty() -> Command {
    with_variables(command_line::is_not_empty)
}

fn with_variables(counts: fn(&str) -> bool) -> Command {
    Cli::command().mut_args(|argument| match argument.get_long() {
        Some("dry-run") => argument,
        _ => command_line::with_variable(argument, counts),
    })
}

/// Fails if a variable looks like the variable of a flag but is not.
pub(super) fn check() -> Result<(), String> {
    let command = command();
    let known: Vec<&str> = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
    let set = std::env::vars_os().map(|(name, value)| [name, value].map(|text| text.to_string_lossy().into_owned()));
    match set.filter_map(|[name, value]| mistake(&name, &value, &known)).min() {
        Some(mistake) => Err(mistake),
        None => Ok(()),
    }
}

fn mistake(name: &str, value: &str, known: &[&str]) -> Option<String> {
    let (begin, part) = name.split_once("EXPORTER_")?;
    let is_of_others = begin == "TRTLLM_" && OF_OTHERS.contains(&part) || is_of_kubernetes(name, value);
    if !begin.starts_with("TRT") || known.contains(&name) || is_of_others {
        return None;
    }
    // Compare names without the prefix, because it makes all names similar.
    Some(match nearest(part, known.iter().filter_map(|known| known.strip_prefix(PREFIX))) {
        Some(meant) => format!("{name}: unknown variable; did you mean {PREFIX}{meant}?"),
        None => format!(
            "{name}: unknown variable; the variable of --some.flag is {PREFIX}SOME_FLAG. Correct it or remove it"
        ),
    })
}

/// True for a variable that Kubernetes sets in each container if there is a Service with the name trtllm-exporter.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let protocol = ["tcp://", "udp://", "sctp://"].iter().any(|protocol| value.starts_with(protocol));
    let port =
        name.rsplit_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(|letter: char| letter.is_ascii_digit()));
    name.contains("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || (protocol && name.ends_with("_PORT")) || port
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] =
        ["TRTLLM_EXPORTER_SOURCE", "TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS", "TRTLLM_EXPORTER_POLL_INTERVAL"];

    #[test]
    fn the_nearest_right_variable_is_named() {
        for (name, meant) in [
            ("TRTLLM_EXPORTER_SORCE", "TRTLLM_EXPORTER_SOURCE"),
            ("TRTLLM_EXPORTER_SOURCES", "TRTLLM_EXPORTER_SOURCE"),
            ("TRTLLM_EXPORTER_POLL_INTERVALL", "TRTLLM_EXPORTER_POLL_INTERVAL"),
            ("TRTLLM_EXPORTER_WEB_LISTEN_ADRESS", "TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS"),
            ("TRTLLM_EXPORTER_WEB_LISTENADDRESS", "TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS"),
            ("TRT_LLM_EXPORTER_SOURCE", "TRTLLM_EXPORTER_SOURCE"),
        ] {
            let mistake = mistake(name, "x", &KNOWN).unwrap();
            assert!(mistake.starts_with(name) && mistake.ends_with(&format!("did you mean {meant}?")), "{mistake}");
        }
        for name in ["TRTLLM_EXPORTER_ZZZ", "TRT_EXPORTER_REVISION"] {
            let far = mistake(name, "x", &KNOWN).unwrap();
            assert!(far.contains("SOME_FLAG"), "{far}");
        }
    }

    #[test]
    fn variables_of_others_are_no_mistakes() {
        for (name, value) in [
            ("TRTLLM_EXPORTER_SOURCE", "auto"),
            ("TRTLLM_EXPORTER_SOCKET", "/run/x"),
            ("TRTLLM_EXPORTER_SERVICE_HOST", "10.0.0.1"),
            ("TRTLLM_EXPORTER_SERVICE_PORT_METRICS", "8002"),
            ("TRTLLM_EXPORTER_PORT", "tcp://10.0.0.1:8002"),
            ("TRTLLM_EXPORTER_PORT_8002_TCP_ADDR", "10.0.0.1"),
            ("TRTLLM_EXPORTER_NODE_SERVICE_HOST", "10.0.0.1"),
            ("PATH", "/bin"),
            ("TRTLLM_MODEL", "x"),
            ("TRTLLM_METRICS_EXPORTER", "on"),
        ] {
            assert_eq!(mistake(name, value, &KNOWN), None, "{name}");
        }
    }
}
