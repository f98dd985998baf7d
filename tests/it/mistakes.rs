//! Mistakes in a file, on the command line and in the environment, and their messages. Each mistake is reported once,
//! with its place, the key and the remedy, in words that a user knows. `cargo test --test it mistakes:: -- --nocapture`
//! prints the table.

mod table;

use crate::support::daemon::{Launch, either};
use table::{COMMAND_LINES, ENVIRONMENT, FILES};

/// Words of YAML's grammar and of libraries. No message may contain them, because users need not know them.
const FOREIGN: [&str; 16] = [
    "sequence",
    "mapping",
    "scalar",
    "flow ",
    "block ",
    "token",
    "DuplicateKeyPolicy",
    "serde",
    "deserialize",
    "struct",
    "invalid type",
    "missing field",
    "unknown field",
    "ParseIntError",
    "invalid digit",
    "expected number",
];

/// Exit code and message of the exporter with these arguments and variables.
fn said(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let launch = variables.iter().fold(Launch::new(), |launch, (name, value)| launch.variable(name, value));
    let output = if variables.is_empty() { either(arguments) } else { launch.run(arguments) };
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Checks that the message states one mistake and contains all these words. Prints a row of the table of mistakes.
fn judge(given: &str, (code, message): (Option<i32>, String), words: &[&str]) -> Vec<String> {
    let shown = given.replace('\n', "⏎").replace('\t', "⇥");
    println!("| `{shown}` | {} |", message.trim().trim_start_matches("trtllm-exporter: "));
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend((code != Some(2)).then(|| format!("exit code {code:?}")));
    wrong.extend((message.trim().lines().count() != 1).then(|| "not one mistake".to_owned()));
    let has_remedy = ["; ", "did you mean", ": use "].iter().any(|words| message.contains(words));
    wrong.extend((!has_remedy).then(|| "no remedy".to_owned()));
    wrong.extend(words.iter().filter(|word| !message.contains(**word)).map(|word| format!("{word:?} is not said")));
    let own = message.replace("bearer_token_file", "");
    let foreign = FOREIGN.iter().filter(|word| own.contains(**word) && !given.contains(**word));
    wrong.extend(foreign.map(|word| format!("{word:?} is said")));
    wrong.iter().map(|wrong| format!("{given:?}: {wrong}: {message}")).collect()
}

#[test]
fn each_mistake_of_a_file_is_named_with_its_line_and_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.yaml");
    let file = path.to_str().unwrap();
    let mut wrong = Vec::new();
    for (row, (text, line, words)) in FILES.iter().enumerate() {
        std::fs::write(&path, text).unwrap();
        let said = |arguments: &[&str]| {
            let (code, message) = said(arguments, &[]);
            (code, message.replace(file, "x.yaml"))
        };
        let checked = said(&["check-config", file]);
        // Each run starts a process, so only some rows are given to the daemon, too.
        if row % 8 == 0 {
            assert_eq!(said(&["--config.file", file]), checked, "a start says the same");
        }
        let place = format!("x.yaml line {line}");
        wrong.extend(judge(text, checked, &[&[place.as_str()], *words].concat()));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_mistake_on_the_command_line_is_named_with_its_flag_and_its_remedy() {
    let judged =
        COMMAND_LINES.iter().flat_map(|(arguments, words)| judge(&arguments.join(" "), said(arguments, &[]), words));
    let wrong: Vec<String> = judged.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_mistake_in_the_environment_is_named_with_its_variable_and_its_remedy() {
    let judged = ENVIRONMENT.iter().flat_map(|(name, value, words)| {
        judge(&format!("{name}={value}"), said(&["--gpu", "off"], &[(name, value)]), &[&[*name], *words].concat())
    });
    let wrong: Vec<String> = judged.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn there_are_many_mistakes_of_each_kind() {
    assert!(FILES.len() + COMMAND_LINES.len() + ENVIRONMENT.len() >= 120);
}
