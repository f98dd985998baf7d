//! `docs/errors.md` explains every error and every warning of the code, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Errors that only pass on the text of another one.
const PASSED_ON: [&str; 4] = ["…", "…: …", "… …: …", "… …"];

/// The first string literal of each `#[error(…)]`, `tracing::warn!(…)` and `tracing::error!(…)`, with `…` for each value, and
/// without the remedy after the semicolon if an error has one.
fn messages(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["#[error(", "tracing::warn!(", "tracing::error!("] {
        for (at, _) in source.match_indices(start) {
            let rest = &source[at + start.len()..];
            let Some(literal) = last_literal(rest, start == "#[error(") else { continue };
            let text = without_values(&literal);
            // The remedy is the page's own column. Warnings are short and whole.
            let short = match start {
                "#[error(" => text.split_once("; ").map_or(text.as_str(), |(what, _)| what).to_owned(),
                _ => text.clone(),
            };
            found.push(if PASSED_ON.contains(&short.as_str()) { text } else { short });
        }
    }
    found
}

/// An error's format is the first literal of the attribute, a log line's message the last one of the macro.
fn last_literal(arguments: &str, first: bool) -> Option<String> {
    let (mut depth, mut literal, mut current) = (1, None, None::<String>);
    let mut characters = arguments.chars();
    while let Some(character) = characters.next() {
        match (&mut current, character) {
            (Some(text), '\\') => match characters.next()? {
                // A line that continues: the indentation is not part of the text.
                '\n' => {
                    let rest = characters.as_str();
                    characters = rest.trim_start().chars();
                }
                escaped => text.push(escaped),
            },
            (Some(_), '"') => {
                literal = current.take();
                if first {
                    return literal;
                }
            }
            (Some(text), other) => text.push(other),
            (None, '"') => current = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return literal;
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn without_values(format: &str) -> String {
    let mut text = String::new();
    let mut parts = format.split('{');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push('…');
        text.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    text
}

fn all_messages(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_messages(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            found.extend(messages(source.split("#[cfg(test)]\nmod tests {").next().unwrap()));
        }
    }
    found
}

#[test]
fn every_error_and_warning_is_on_the_page_and_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/errors.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let explained: BTreeSet<String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 3, "three cells: {row}");
            assert!(cells.iter().all(|cell| !cell.is_empty()), "no cell is empty: {row}");
            cells[0].trim_matches('`').to_owned()
        })
        .collect();
    let mut in_code = all_messages(&root.join("src"));
    in_code.extend(all_messages(&root.join("crates/web-config/src")));
    in_code.retain(|message| !PASSED_ON.contains(&message.as_str()));
    let missing: Vec<&String> = in_code.difference(&explained).collect();
    let outdated: Vec<&String> = explained.difference(&in_code).collect();
    assert!(missing.is_empty(), "docs/errors.md does not explain {missing:#?}");
    assert!(outdated.is_empty(), "docs/errors.md explains what the code does not say: {outdated:#?}");
}

#[test]
fn messages_are_found_in_code() {
    let source = r#"
        #[error("cannot read {path}: {0:?}; check it")]
        #[error(transparent)]
        #[error(
            "a long \
             text {x}"
        )]
        tracing::warn!(model, error = f("x"), "source {failed}; retrying");
    "#;
    assert_eq!(messages(source), ["cannot read …: …", "a long text …", "source …; retrying"]);
}
