//! Reads `--config.file`, and says its first mistake in words that a user knows.

use std::path::Path;

use serde::Deserialize;
use serde_path_to_error::Track;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{Error, ExternalMessageSource, Spanned};

use super::entry::{Entry, Origin};
use super::error::ConfigError;
use super::nearest::remedy;
use super::source::unrendered;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    engines: Spanned<Option<Vec<Spanned<Entry>>>>,
}

const FORM: &str = "write the key engines: and below it one entry per engine, as in - source: auto";

/// The first mistake of a file. `key` is the path of the key, or empty if the mistake is not about a key.
struct Mistake {
    line: u64,
    key: String,
    why: String,
}

impl Mistake {
    fn new(line: u64, key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { line, key: key.into(), why: why.into() }
    }
}

/// The entries of the text of the file at `path`, each with its place.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<(Origin, Entry)>, ConfigError> {
    let path = path.display().to_string();
    let entries = parse(text).map_err(|Mistake { line, key, why }| {
        let separator = if key.is_empty() { "" } else { ", " };
        ConfigError::Engine { at: format!("{path} line {line}{separator}{key}"), why }
    })?;
    let place = |(index, Spanned { value, referenced, .. }): (usize, Spanned<Entry>)| {
        (Origin::file(path.clone(), index, referenced.line(), &value), value)
    };
    Ok(entries.into_iter().enumerate().map(place).collect())
}

fn parse(text: &str) -> Result<Vec<Spanned<Entry>>, Mistake> {
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split(" #").next().unwrap_or_default().trim().trim_start_matches("- ");
        if let Some(why) = unrendered(content).filter(|_| !content.starts_with('#')) {
            return Err(Mistake::new(line, "", format!("{content:?} {why}")));
        }
    }
    let mut track = Track::new();
    // Any number of engines may share the keys of one. The other limits keep a file from filling the memory.
    let budget = serde_saphyr::budget! { enforce_alias_anchor_ratio: false, max_nodes: 100_000 };
    let options = serde_saphyr::options! { budget: budget };
    let file = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        Option::<ConfigFile>::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
    });
    let file = file.map_err(|error| in_words(error.without_snippet(), &track.path().to_string(), text))?;
    let Some(ConfigFile { engines }) = file else {
        return Err(Mistake::new(1, "", format!("the file is empty; {FORM}")));
    };
    let why = match engines.value {
        Some(entries) if !entries.is_empty() => return entries.into_iter().enumerate().map(with_source).collect(),
        Some(_) => "is empty; remove --config.file to serve GPU metrics only".to_owned(),
        None => format!("has no entries; {FORM}"),
    };
    Err(Mistake::new(engines.referenced.line(), "engines", why))
}

/// The entry, if its source has a value.
fn with_source((index, entry): (usize, Spanned<Entry>)) -> Result<Spanned<Entry>, Mistake> {
    let why = match entry.value.source.value.as_deref() {
        None => "has no value; write one, or remove the entry",
        Some("") => "is empty; write a value, or remove the entry",
        Some(_) => return Ok(entry),
    };
    Err(Mistake::new(entry.value.source.referenced.line(), format!("engines[{index}].source"), why))
}

/// The mistake behind an error at `path`, which has the path of the key with a `value` for each [`Spanned`].
fn in_words(error: &Error, path: &str, text: &str) -> Mistake {
    let line = error.location().map_or(1, |at| at.line());
    // The error of a value that an alias repeats: its own location is where the value was given.
    let error = if let Error::AliasError { error, .. } = error { error } else { error };
    if let Error::ExternalMessage { source, .. } = error
        && let ExternalMessageSource::Parser(error) = &**source
    {
        let why = syntax(error.kind());
        return Mistake::new(line_of(why, line, text), "", why);
    }
    // A mistake in a key is a mistake of the map that has it.
    let name = if let Error::SerdeUnknownField { field, .. } = error { field } else { "?" };
    let key = path.strip_suffix(name).map_or(path, |map| map.trim_end_matches('.'));
    let key = key.replace("engines.value", "engines").replace("].value", "]").replace(".gpus.value", ".gpus");
    let key = key.strip_suffix(".value").unwrap_or(&key).trim_start_matches('.');
    let why = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            return Mistake::new(line, key, unknown(field, key, expected));
        }
        Error::DuplicateMappingKey { key: Some(name), .. } => {
            return Mistake::new(line, key, format!("{name} is given twice; remove one of them"));
        }
        Error::SerdeMissingField { field: "engines", .. } => {
            return Mistake::new(line, "", format!("the key engines is missing; {FORM}"));
        }
        Error::SerdeMissingField { .. } => "has no source; add source: and the source, or remove the entry",
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "<< does not name a map; write << and an alias, as in <<: *base",
        Error::Unexpected { .. } if path.ends_with('?') => "a key is not a text; write a name before the colon",
        Error::Unexpected { .. } => match key.split('.').collect::<Vec<_>>().as_slice() {
            [""] => return Mistake::new(line, "", format!("the file is not a map; {FORM}")),
            ["engines"] => "is not a list; begin each engine with \"- \", as in - source: auto",
            [_] => "is not a map; write source: and the source, with a space after the colon, or remove the line",
            [_, "labels"] => "is not a map; write names and values, as in team: search",
            [_, "objectives"] => "is not a map; write names and values, as in ttft: 500ms",
            [_, "gpus"] => "is not a list; write one UUID per line, each after \"- \"",
            _ => "is not one value; write the value in quotes on the same line, without \"- \" and brackets",
        },
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an alias repeats the value that contains it; remove it",
        Error::NullIntoString { .. } => "has no value; write one, or remove the entry",
        Error::UnknownAnchor { .. } => {
            "a value that begins with * is an alias without an anchor; put the value in quotes"
        }
        Error::MultipleDocuments { .. } => "a second document begins here; remove it, or the line ---",
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => "the file has too many values; shorten it",
        _ => "is not valid; compare the file with examples/config.yaml",
    };
    Mistake::new(line, key, why)
}

fn unknown(name: &str, map: &str, known: &[&str]) -> String {
    if let Some(name) = name.strip_prefix('-') {
        format!("unknown key {:?}; write - {name}, with a space after the dash", format!("-{name}"))
    } else if map.is_empty() {
        format!("unknown key {name:?}; the only key is engines, with the keys of each engine below it, after \"- \"")
    } else {
        format!("unknown key {name:?}; {}", remedy(name, known))
    }
}

const TAB: &str = "a tab indents this line; use spaces";
const OPEN_QUOTE: &str = "a quote is not closed on this line; close it";

/// The line of a mistake that the parser reports at `line`. A quote is open before that line, and a tab may be after it.
fn line_of(why: &str, line: u64, text: &str) -> u64 {
    let has_tab = |content: &str| content.trim_start_matches(' ').starts_with('\t') && !content.trim().is_empty();
    let is_open = |content: &str| ['"', '\''].iter().any(|quote| content.matches(*quote).count() % 2 == 1);
    let mut lines = (1..).zip(text.lines());
    let found = match why {
        TAB => lines.find(|(at, content)| *at >= line && has_tab(content)),
        OPEN_QUOTE => lines.take_while(|(at, _)| *at <= line).filter(|(_, content)| is_open(content)).last(),
        _ => None,
    };
    found.map_or(line, |(at, _)| at)
}

/// What is wrong with the syntax, and what to do. The parser's own texts have words of YAML's grammar.
fn syntax(kind: &ErrorKind) -> &'static str {
    use ErrorKind as Kind;
    match kind {
        Kind::TabNotAllowed
        | Kind::TabInBlockIndentation
        | Kind::TabInPlainScalar
        | Kind::TabInIndentation
        | Kind::TabAtBlockScalarStart => TAB,
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => {
            "a colon is at a wrong place; put a value that contains or ends in a colon in quotes, as in source: \"sim:\", \
             and give all keys of an entry the same indentation"
        }
        Kind::ExpectedBlockMappingKey
        | Kind::ExpectedBlockSequenceEntry
        | Kind::InvalidIndentation
        | Kind::BlockSequenceEntryNotAllowed => {
            "the indentation does not match the lines above; begin each entry with \"- \" at one column, and its keys at \
             one column"
        }
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => {
            "no key and colon; write key: value, with a space after the colon"
        }
        Kind::UnclosedFlowCollection { .. }
        | Kind::MismatchedFlowCollectionEnd { .. }
        | Kind::MisplacedFlowCollectionEnd => {
            "a bracket is not closed, or closed by one of another kind; correct it, or put the value in quotes"
        }
        Kind::UnexpectedCharacter { .. } => {
            "a value has a character that it cannot contain here or begin with; put the value in quotes, or save the file as UTF-8"
        }
        Kind::UnclosedQuotedScalar | Kind::InvalidQuotedScalarIndent => OPEN_QUOTE,
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "text follows a closing quote; put the whole value in quotes"
        }
        Kind::UnknownQuotedScalarEscape | Kind::InvalidQuotedScalarHexEscape => {
            "an unknown \\ in double quotes; use single quotes, or write \\\\"
        }
        Kind::ExpectedDocumentStart => "this does not continue the lines above; write one map with the key engines",
        _ => "this is not valid YAML; compare the file with examples/config.yaml",
    }
}
