//! The names of `/api/v1`, which are the public interface: the files in `tests/golden/api` have every field. A field that is renamed,
//! added or removed changes a file; `UPDATE_GOLDEN=1 cargo test --test it golden` rewrites them. A new field that may be absent is
//! null in the new file: give it a value.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use trtllm_http::views::API_VERSION;
use trtllm_http::views::answers::{Discovered, Findings, Gpus, History, Model};
use trtllm_http::views::engine::Engine;

use crate::support::daemon::{Daemon, Launch, doctor_prints};
use crate::support::golden::same_as_golden;
use crate::support::served::Served;
use crate::support::sessions::session;
use crate::support::standin::Standin;
use crate::support::{ensure, root, until};

fn golden(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(root().join(format!("tests/golden/api/{name}.json"))).unwrap()).unwrap()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

/// Calls `visit` with the path and the value of each member. The keys of these maps are not names of the API.
fn visit(value: &Value, path: &str, visitor: &mut impl FnMut(String, &Value)) {
    let is_map = ["labels", "configuration", "sides"].iter().any(|map| path.ends_with(&format!(".{map}")));
    match value {
        Value::Array(items) => items.iter().for_each(|item| visit(item, &format!("{path}[]"), visitor)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let path = format!("{path}.{}", if is_map { "*" } else { name });
            visit(member, &path, visitor);
            visitor(path, member);
        }),
        _ => {}
    }
}

/// The kind of each member: a number, a text, and so on.
fn names(value: &Value) -> BTreeMap<String, &'static str> {
    let mut names = BTreeMap::new();
    visit(value, "", &mut |path, member| {
        let kind = match member {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        names.insert(path, kind);
    });
    names
}

/// Removes the members for which `is_removed` is true.
fn remove(value: &mut Value, path: &str, is_removed: &impl Fn(&str) -> bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| remove(item, &format!("{path}[]"), is_removed)),
        Value::Object(members) => {
            members.retain(|name, _| !is_removed(&format!("{path}.{name}")));
            members.iter_mut().for_each(|(name, member)| remove(member, &format!("{path}.{name}"), is_removed));
        }
        _ => {}
    }
}

/// The file has every name with which the server writes `T`, and no other. Also returns the names without which `T` cannot be read.
fn needed<T: Serialize + DeserializeOwned>(name: &str) -> Vec<String> {
    let before = golden(name);
    let mut written = serde_json::to_value(serde_json::from_value::<T>(before.clone()).unwrap()).unwrap();
    if before.get("apiVersion").is_some() {
        written["apiVersion"] = json!(API_VERSION);
    }
    same_as_golden(&format!("tests/golden/api/{name}.json"), &pretty(&written));
    let missing: Vec<String> =
        names(&written).into_iter().filter_map(|(path, kind)| (kind == "null").then_some(path)).collect();
    assert!(missing.is_empty(), "tests/golden/api/{name}.json has no value of {missing:?}");
    let is_needed = |path: &String| {
        let mut older = before.clone();
        remove(&mut older, "", &|removed| removed == path);
        serde_json::from_value::<T>(older).is_err()
    };
    names(&before).into_keys().filter(is_needed).map(|path| format!("{name}{path}")).collect()
}

/// `doctor` and `top` of a release read an exporter of the release before. So a field that is added needs a default. The fields in
/// this list have none; they are in every release.
const NEEDED: &str = "
    verdict: cause confidence consequences evidence remedy says settings severity since
    evidence: name unit value
    blind: switchOn what why
    findings: evidence findings kind remedy rule says severity subject when
    engines: model version
    history: engines
    model: model present version
    prices: base contextToken error generationToken kvToken
    equalWork: contextTokens generationTokens iterations kvTokens seconds
    cache: blocks tokensPerBlock
    largest: contextTokens generationTokens
    drafts: accepted length
    requests: arrived cached ended firstToken output prompt
    discovery: address finding
    times: mean";

#[test]
fn the_golden_files_have_every_name_of_the_api_and_a_name_that_is_added_has_a_default() {
    let needed = [
        needed::<Vec<Engine>>("engines"),
        needed::<Findings>("findings"),
        needed::<Gpus>("gpus"),
        needed::<History>("history"),
        needed::<Model>("model"),
        needed::<Vec<Discovered>>("discovery"),
    ];
    for path in needed.concat() {
        let mut parts = path.rsplit('.').map(|part| part.trim_end_matches("[]"));
        let (name, parent) = (parts.next().unwrap(), parts.next().unwrap());
        let line = NEEDED.lines().find(|line| line.trim_start().starts_with(&format!("{parent}:")));
        let listed = line.is_some_and(|line| line.split(' ').any(|word| word == name));
        assert!(listed, "{path} has no default, so this release cannot read an exporter that lacks it");
    }
}

/// The answer of a server has only names of the golden file, with values of the same kind.
fn check(daemon: &Daemon, path: &str, name: &str) -> Value {
    let answer = daemon.get(path).json();
    let known = names(&golden(name));
    for (name, kind) in names(&answer) {
        assert_eq!(known.get(&name), Some(&kind), "{path}: {name} in {answer}");
    }
    answer
}

#[test]
fn a_server_writes_only_names_of_the_golden_files() {
    let standin = Standin::new(&format!("gpus=3\n{}", include_str!("../fixtures/busy_gpu.state")));
    let daemon = Launch::new().gpus(&standin).start(&["--source", "sim:?rate=20"]);
    until(|| {
        let history = check(&daemon, "/api/v1/history", "history");
        let is_full = |of: &str| history[of][0]["slots"].as_array().is_some_and(|slots| !slots.is_empty());
        ensure(is_full("engines") && is_full("gpus"), || history.to_string())
    });
    for name in ["engines", "findings", "gpus", "model", "discovery"] {
        let answer = check(&daemon, &format!("/api/v1/{name}"), name);
        assert!(name == "discovery" || answer.to_string().len() > 200, "{answer}");
    }
}

#[test]
fn the_records_of_a_session_equal_the_golden_file() {
    let records = session(&[]).get("/api/v1/iterations?last=128").json();
    same_as_golden("tests/golden/api/iterations.json", &pretty(&records));
}

fn served(answers: &[(&'static str, Value)]) -> Served {
    let leak = |(path, answer): &(&'static str, Value)| (*path, 200, &*answer.to_string().leak());
    Served::start(answers.iter().map(leak).collect::<Vec<_>>().leak())
}

#[test]
fn doctor_and_top_read_the_release_before_and_name_a_version_that_they_cannot_read() {
    // Without the names that have a default, except those that the test looks at.
    let kept = ["apiVersion", "verdict", "gpus", "uuid", "state"];
    let needed = NEEDED.replace(':', "");
    let is_kept = |name: &str| kept.contains(&name) || needed.split_whitespace().any(|needed| needed == name);
    let older = |name: &str| {
        let mut answer = golden(name);
        remove(&mut answer, "", &|path| !is_kept(path.rsplit('.').next().unwrap()));
        answer
    };
    let before = served(&[
        ("/api/v1/engines", older("engines")),
        ("/api/v1/findings", older("findings")),
        ("/api/v1/gpus", older("gpus")),
    ]);
    let newer = served(&[
        ("/api/v1/engines", json!({"engines": {}})),
        ("/api/v1/findings", json!({"apiVersion": 2, "all": []})),
        ("/api/v1/gpus", json!({"apiVersion": 2, "all": []})),
    ]);
    let version = "the exporter has version 2 of the API, and this program reads version 1";
    for (command, shows) in [("diagnose", "The batch is full."), ("top", "llama")] {
        let arguments = if command == "diagnose" { "--no-sources" } else { "--once" };
        let text = |served: &Served| doctor_prints(&[command, &served.target(), arguments]);
        let (before, newer) = (text(&before), text(&newer));
        assert!(before.contains(shows) && !before.contains("not read"), "{command}: {before}");
        assert!(newer.contains(version), "{command}: {newer}");
    }
}

/// A name in a struct that becomes JSON is a public name, so the struct says whose JSON it is.
#[test]
fn every_struct_that_is_written_as_json_says_so() {
    let mut unmarked = Vec::new();
    for folder in ["analysis", "engines", "fold", "http/src/views", "page", "verdict", "what-if"] {
        let mut folders = vec![root().join("crates").join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "rs") {
                    unmarked.extend(unmarked_in(&fs::read_to_string(&entry).unwrap(), &entry.display().to_string()));
                }
            }
        }
    }
    assert!(unmarked.is_empty(), "begin the comment with \"JSON of `/api/v1/…`\": {unmarked:#?}");
}

fn unmarked_in(source: &str, file: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let derives = |line: &str| line.starts_with("#[derive(") && line.contains(" Serialize");
    let is_marked = |at: usize| {
        let comment = lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
        comment.last().is_some_and(|line| line.starts_with("/// JSON of `"))
    };
    let found = lines.iter().enumerate().filter(|(at, line)| derives(line) && !is_marked(*at));
    found.map(|(at, _)| format!("{file}:{}", at + 1)).collect()
}
