//! `init` writes a configuration with the engines that `auto` finds now, and comments about the other settings.

use std::collections::HashMap;
use std::io::Write as _;

use crate::cli::InitArgs;
use trtllm_config::{ConfigError, ORCHESTRATOR_MODEL};
use trtllm_sources::discovery::{FoundServer, Identity, search};

use trtllm_config::command_line::{print, print_note, runtime};

const HEAD: &str = "\
# Engines for trtllm-exporter, written by `trtllm-exporter init`.
# Check it:           trtllm-exporter check-config {file}
# Use it:             trtllm-exporter --config.file={file}
# After a change:     send SIGHUP to the exporter. Engines that stay the same keep their totals.

engines:
";

const OPTIONAL: &str = "
    # version: \"1\"                                  # engines of one model need different versions
    # labels: {team: search}                        # more labels on every series of this engine
    # objectives: {ttft: 500ms, tpot: 50ms, e2e: 30s}  # times that are promised to users
    # gpus: [GPU-...]                               # UUIDs of its GPUs (nvidia-smi -L), for its energy
    # bench_report: report.json                     # a report of trtllm-bench to compare it with
    # gpu_hour_cost: 2.5                            # the price of a GPU for an hour
    # otlp_endpoint: http://otel-collector:4318     # send the spans that the source receives on
";

const NOTHING_FOUND: &str = "
  # No trtllm-serve was found. This finds each that starts later on this host or in this pod.
  # For one on another port: trtllm-exporter init --ports PORT, or write its URL here.
  - source: auto
";

const TAIL: &str = "
  # Engines of other kinds. A process that writes JSON lines (the Python package, the C++ header):
  # - source: socket:/run/trtllm-exporter/ingest.sock
  # A trtllm-serve on another host, with TLS:
  # - source: trtllm-serve:https://gpu-7:8000?ca_file=/etc/ssl/own-ca.pem
  #   model: llama-3-8b
";

/// Writes the file, or prints the configuration if no file is named. Fails if the file exists or cannot be written.
pub fn run(arguments: &InitArgs) -> Result<(), ConfigError> {
    let found = runtime("init")?.block_on(search(arguments.ports.clone(), Vec::new()));
    if let Some(note) = nothing_found(&found, &arguments.ports) {
        print_note(&note);
    }
    let text = configuration(&found);
    let Some(path) = &arguments.file else {
        print(&text.replacen("{file}", "FILE", 2));
        return Ok(());
    };
    let text = text.replacen("{file}", &path.display().to_string(), 2);
    let failed = |error: std::io::Error| {
        let why = format!("cannot write the file: {error}; choose a path in a writable directory where no file is");
        ConfigError::flag("FILE", path.display(), why)
    };
    // An existing file is never replaced: somebody may have edited it.
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    if let Err(error) = file.write_all(text.as_bytes()) {
        let _ = std::fs::remove_file(path);
        return Err(failed(error));
    }
    print(&format!("wrote {}; check it with: trtllm-exporter check-config {0}\n", path.display()));
    Ok(())
}

/// What to do if no engine was found.
fn nothing_found(found: &[FoundServer], ports: &[u16]) -> Option<String> {
    let is_engine = |server: &FoundServer| matches!(server.identity, Identity::Engine(_) | Identity::Orchestrator);
    if found.iter().any(is_engine) {
        return None;
    }
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let others = if found.is_empty() { "" } else { " The comments in the configuration say what answered instead." };
    Some(format!(
        "trtllm-exporter: no trtllm-serve was found on port {} of this host, so the configuration has only \"source: auto\", \
         which finds one that starts later.{others} If it listens on another port, name it with --ports PORT\n",
        ports.join(", ")
    ))
}

fn configuration(found: &[FoundServer]) -> String {
    let (mut text, mut versions, mut notes) = (HEAD.to_owned(), HashMap::<&str, usize>::new(), String::new());
    for FoundServer { target, identity, .. } in found {
        let (scheme, model) = match identity {
            Identity::Engine(model) => ("trtllm-serve", model.as_str()),
            Identity::Orchestrator => ("trtllm-disagg", ORCHESTRATOR_MODEL),
            Identity::NotReady(why) => {
                notes +=
                    &comment(&format!("{target} is a trtllm-serve that was not ready ({why}). Add it when it is."));
                continue;
            }
            Identity::Other(what) | Identity::Left(what) | Identity::Unknown(what) => {
                notes += &comment(&format!("{target} is not a trtllm-serve: {what}"));
                continue;
            }
        };
        let version = versions.entry(model).or_default();
        *version += 1;
        // Every JSON string is also a YAML string, so any name of a model is valid.
        let quoted = |text: String| serde_json::Value::String(text).to_string();
        text +=
            &format!("  - source: {}\n    model: {}", quoted(format!("{scheme}:{target}")), quoted(model.to_owned()));
        text += &match version {
            1 => OPTIONAL.to_owned(),
            version => OPTIONAL.replacen("# version: \"1\" ", &format!("version: \"{version}\"   "), 1),
        };
    }
    if versions.is_empty() {
        text += NOTHING_FOUND;
    }
    text + &notes + TAIL
}

/// A comment of one line. Line breaks in the answer of a server could otherwise add keys to the file.
fn comment(text: &str) -> String {
    format!("\n  # {}\n", text.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_config::read_file;

    fn server(port: u16, identity: Identity) -> FoundServer {
        FoundServer { target: format!("http://127.0.0.1:{port}"), configured: true, identity, pod: None }
    }

    #[test]
    fn a_search_without_an_engine_says_what_to_do() {
        let other = server(6, Identity::Other("something".to_owned()));
        let note = nothing_found(&[], &[8000, 9000]).unwrap();
        assert!(note.contains("on port 8000, 9000 of this host") && note.contains("--ports PORT"), "{note}");
        assert!(nothing_found(std::slice::from_ref(&other), &[8000]).unwrap().contains("what answered instead"));
        let engine = server(1, Identity::Engine("llama".to_owned()));
        assert_eq!(nothing_found(&[other, engine], &[8000]), None);
    }

    #[test]
    fn what_is_written_is_a_valid_configuration() {
        let model = "a \"b\": {{x}}\n- c".replace("{{x}}", "#");
        let found = [
            server(1, Identity::Engine("llama".to_owned())),
            server(2, Identity::Engine("llama".to_owned())),
            server(3, Identity::Engine(model.clone())),
            server(4, Identity::Orchestrator),
            server(5, Identity::NotReady("status 503\n- source: sim:".to_owned())),
            server(6, Identity::Other("something".to_owned())),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        for (found, expected) in [
            (&found[..], vec![("llama", "1"), ("llama", "2"), (model.as_str(), "1"), ("disaggregated", "1")]),
            (&found[4..], vec![("tensorrt_llm", "1")]),
        ] {
            std::fs::write(&path, configuration(found)).unwrap();
            let engines = read_file(&path).unwrap();
            let names: Vec<(&str, &str)> =
                engines.iter().map(|engine| (engine.name.model.as_str(), engine.name.version.as_str())).collect();
            assert_eq!(names, expected, "{}", configuration(found));
        }
    }
}
