//! Every error and every warning in the code says what to do.

use std::fs;
use std::path::{Path, PathBuf};

/// Causes, which are parts of another error. That error states the remedy. `{0}` is a value.
const CAUSES: [&str; 5] = [
    "cannot read the file: {0}",
    "this is not a report of trtllm-bench",
    "a value of the report is invalid: {0}",
    "the text ends inside a record",
    "no line is a Prometheus series",
];

/// Messages without a remedy after a semicolon, and why they need none.
const WITHOUT: [(&str, &str); 10] = [
    ("cannot find pods for --source kubernetes: {cause}", "the reason contains it"),
    ("--config.file {}: {}", "the reason contains it"),
    ("cannot read the recording {path}: {why}", "the reason contains it"),
    ("cannot start the engine {engine} of --source: {cause}", "the cause is TensorRT-LLM's own, or names the option"),
    ("source failed", "the error of the line contains it"),
    ("publisher refused: {refused}", "the reason contains it"),
    ("kubelet request failed; pods of GPUs are unknown or outdated", "the error of the line contains it"),
    ("systemd passed a socket for the metrics page", "the line has it as `remedy`"),
    ("some GPU identity fields are unavailable", "nothing needs to be done"),
    ("records were lost: {cause}", "it names the two causes and the settings"),
];

/// The format of each `#[error(…)]`, and the message of each `tracing::warn!(…)` and `tracing::error!(…)`.
fn messages(source: &str) -> Vec<String> {
    // rustfmt may break the line after the parenthesis.
    let source = &source.split("line!(").map(str::trim_start).collect::<Vec<_>>().join("line!(");
    let starts = [("#[error(", true), ("tracing::warn!(", false), ("tracing::error!(", false), ("line!(warn, ", false)];
    let places = starts.iter().flat_map(|(start, first)| source.match_indices(start).map(move |found| (found, first)));
    places.filter_map(|((at, start), first)| literal(&source[at + start.len()..], *first)).collect()
}

/// The format of an error is the first literal of the attribute. The message of a log line is the last literal of the
/// macro.
fn literal(arguments: &str, first: bool) -> Option<String> {
    let (mut depth, mut last, mut current) = (1, None, None::<String>);
    let mut characters = arguments.chars();
    while let Some(character) = characters.next() {
        match (&mut current, character) {
            (Some(text), '\\') => match characters.next()? {
                // The string continues on the next line, whose indentation is not part of the text.
                '\n' => characters = characters.as_str().trim_start().chars(),
                escaped => text.push(escaped),
            },
            (Some(_), '"') => {
                last = current.take();
                if first {
                    return last;
                }
            }
            (Some(text), other) => text.push(other),
            (None, '"') => current = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') if depth == 1 => return last,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// True if the message consists only of values, such as `{key}: {why}`. The values contain the text.
fn passes_on(message: &str) -> bool {
    let fixed = message.split('{').flat_map(|part| part.rsplit('}').next());
    fixed.collect::<String>().trim_matches([' ', ':']).is_empty()
}

#[test]
fn every_error_and_warning_says_what_to_do() {
    assert!(!passes_on("cannot read {path}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src", "crates"].iter().flat_map(|folder| sources(&root.join(folder)));
    let texts = files.map(|path| fs::read_to_string(path).unwrap());
    let found: Vec<String> =
        texts.flat_map(|text| messages(text.split("#[cfg(test)]\nmod tests {").next().unwrap())).collect();
    assert!(found.len() > 80, "{}", found.len());
    let excused: Vec<&str> = CAUSES.into_iter().chain(WITHOUT.map(|(message, _)| message)).collect();
    for message in &excused {
        assert!(found.iter().any(|text| text == message), "not in the code: {message}");
    }
    let silent = |text: &&String| !text.contains("; ") && !passes_on(text) && !excused.contains(&text.as_str());
    let silent: Vec<&String> = found.iter().filter(silent).collect();
    assert!(silent.is_empty(), "these messages do not say what to do, after a semicolon: {silent:#?}");
}
