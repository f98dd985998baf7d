//! Reads the YAML of the file. Continues after a mistake, and describes mistakes without the terms of the library.

use serde::de::DeserializeOwned;

use crate::error::{Problem, Problems};

/// Reads the text. A line that does not match the schema is left out with the lines that belong to it, so that the mistakes after it
/// are found, too.
pub(crate) fn read<File: DeserializeOwned + Default>(text: &str) -> (File, Problems) {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut problems = Vec::new();
    loop {
        let error = match serde_saphyr::from_str::<Option<File>>(&lines.join("\n")) {
            Ok(file) => return (file.unwrap_or_default(), problems.into_iter().collect()),
            Err(error) => error,
        };
        let line = error.location().and_then(|at| usize::try_from(at.line()).ok()?.checked_sub(1));
        let known = line.and_then(|at| lines.get(at).filter(|line| !line.trim().is_empty()).map(|line| (at, *line)));
        problems.push(malformed(&error, known));
        let Some((at, wrong)) = known.filter(|_| problems.len() < MOST_PROBLEMS) else {
            return (File::default(), problems.into_iter().collect());
        };
        let indentation = |line: &str| line.len() - line.trim_start().len();
        lines[at] = "";
        for line in &mut lines[at + 1..] {
            if !line.trim().is_empty() && indentation(line) <= indentation(wrong) {
                break;
            }
            *line = "";
        }
    }
}

/// Maximum number of mistakes of the schema that are listed.
const MOST_PROBLEMS: usize = 20;

/// The mistake in one line, with the key. The value is left out because it may be a secret.
fn malformed(error: &serde_saphyr::Error, known: Option<(usize, &str)>) -> Problem {
    let is_template = known.is_some_and(|(_, line)| line.contains("{{"));
    let why = match is_template {
        true => "is a template that nothing has filled in; give the file that comes out of it".to_owned(),
        false => in_words(error.without_snippet()),
    };
    let Some((at, line)) = known else { return Problem::without_key(why) };
    let problem = match line.split_once(':') {
        Some((key, _)) => Problem::new(key.trim(), why),
        None if why == NO_SECTION && !line.trim_start().starts_with('-') => Problem::without_key(SECTIONS.to_owned()),
        None => Problem::without_key(why),
    };
    problem.at(at + 1)
}

fn in_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::SerdeUnknownField { expected, .. } => {
            format!("is not a key of this section; use one of {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { .. } => "is written twice; remove one".to_owned(),
        Error::MultipleDocuments { .. } => "a second document begins here; remove it, or the line ---".to_owned(),
        Error::InvalidScalar { ty: "boolean" | "bool", .. } => "is not true or false; write one of them".to_owned(),
        Error::InvalidScalar { .. } => "is not a whole number of 0 or more; write one".to_owned(),
        Error::Unexpected { expected, .. } if expected.contains("string") => {
            "is not a single value; write one text, in quotes if it has special characters".to_owned()
        }
        Error::Unexpected { expected, .. } if expected.contains("sequence") => {
            "is not a list; write [VALUE, VALUE], or a line with - for each value".to_owned()
        }
        Error::Unexpected { expected, .. } if expected.contains("mapping") => NO_SECTION.to_owned(),
        Error::NullIntoString { .. } => "has no value; write one, or remove the key".to_owned(),
        // Errors of the syntax, and of durations.
        error => {
            let text = error.to_string().lines().collect::<Vec<_>>().join(" ");
            let what = text.split(" at line ").next().unwrap_or_default();
            if what.contains("; ") { what.to_owned() } else { format!("{what}; {FORM}") }
        }
    }
}

const FORM: &str =
    "write KEY: VALUE, keys of a section below it and indented by spaces, and special characters in quotes";
const NO_SECTION: &str = "is not a section; write its keys below it, indented by two spaces";
const SECTIONS: &str = "the text is not a map; its keys are tls_server_config, http_server_config, basic_auth_users and rate_limit, as \
                        those of the exporter-toolkit";
