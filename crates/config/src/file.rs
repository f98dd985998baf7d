//! Reads `--config.file`, and says its first mistake in words that a user knows.

use std::path::Path;

use serde::Deserialize;
use serde_path_to_error::Track;
use serde_saphyr::granit_parser::Event;
use serde_saphyr::{Error, Location, Spanned};

use super::entry::{Entry, Origin};
use super::error::ConfigError;
use super::nearest::remedy;
use super::syntax::{Mistake, Node, TOO_MANY, nodes, unrendered};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    engines: Spanned<Option<Vec<Spanned<Entry>>>>,
}

const FORM: &str = "write the key engines: and below it one entry per engine, as in - source: auto";

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
    let nodes = nodes(text)?;
    let mut track = Track::new();
    // Any number of engines may share the keys of one. The other limits keep aliases from filling the memory.
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { enforce_alias_anchor_ratio: false } };
    let file = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        Option::<ConfigFile>::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
    });
    let file = file.map_err(|error| schema(error.without_snippet(), &track.path().to_string(), &nodes))?;
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

/// The mistake behind an error of the schema at `path`, which has the path of the key with a `value` for each [`Spanned`].
fn schema(error: &Error, path: &str, nodes: &[Node<'_>]) -> Mistake {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let line = location.line();
    // The error of a value that an alias repeats: its own location is where the value was given.
    let error = if let Error::AliasError { error, .. } = error { error } else { error };
    // A mistake in a key is a mistake of the map that has it.
    let name = if let Error::SerdeUnknownField { field, .. } = error { field } else { "?" };
    let key = path.strip_suffix(name).map_or(path, |map| map.trim_end_matches('.'));
    let key = key.replace("engines.value", "engines").replace("].value", "]").replace(".gpus.value", ".gpus");
    let key = key.strip_suffix(".value").unwrap_or(&key).trim_start_matches('.');
    match error {
        Error::SerdeUnknownField { field, expected, .. } => Mistake::new(line, key, unknown(field, key, expected)),
        Error::DuplicateMappingKey { key: Some(name), .. } => {
            let is_first = |node: &&Node<'_>| {
                node.text() == Some(name) && node.column == location.column() && node.line < location.line()
            };
            let first = nodes.iter().rfind(is_first).map_or(line, |node| node.line);
            Mistake::new(line, key, format!("{name} is given twice, first on line {first}; remove one of them"))
        }
        Error::SerdeMissingField { field: "engines", .. } => {
            Mistake::new(line, "", format!("the key engines is missing; {FORM}"))
        }
        Error::SerdeMissingField { .. } => {
            Mistake::new(line, key, "has no source; add source: and the source, or remove the entry")
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            Mistake::new(line, key, "<< does not name a map; write << and an alias, as in <<: *base")
        }
        Error::Unexpected { .. } if path.ends_with('?') => {
            Mistake::new(line, key, "a key is not a text; write a name before the colon")
        }
        Error::Unexpected { .. } => {
            let at = |location: Location| position(key, location, nodes).unwrap_or(nodes.len());
            let found = nodes.get(at(error.location().unwrap_or(location))).map(|node| &node.event);
            // A list or a map may begin below its key, so the line is that of the key.
            let has_name = !key.is_empty() && !key.ends_with(']');
            let name = at(location).checked_sub(1).and_then(|before| nodes.get(before)).filter(|_| has_name);
            Mistake::new(name.map_or(line, |name| name.line), key, shape(key, found))
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            Mistake::new(line, key, "an alias repeats the value that contains it; remove it")
        }
        Error::NullIntoString { .. } => Mistake::new(line, key, "has no value; write one, or remove the entry"),
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => Mistake::new(line, "", TOO_MANY),
        _ => Mistake::new(line, key, "is not valid; compare the file with examples/config.yaml"),
    }
}

fn unknown(name: &str, map: &str, known: &[&str]) -> String {
    if map.is_empty() && Entry::KEYS.contains(&name) {
        format!("{name} is a key of an engine; write it below engines:, in an entry that begins with \"- \"")
    } else if let Some(name) = name.strip_prefix('-') {
        format!("unknown key {:?}; write - {name}, with a space after the dash", format!("-{name}"))
    } else {
        format!("unknown key {name:?}; {}", remedy(name, known))
    }
}

/// The position of the value of `key`, which begins at `location`.
fn position(key: &str, location: Location, nodes: &[Node<'_>]) -> Option<usize> {
    let is_here = |node: &Node<'_>| node.offset == location.span().offset();
    let at = nodes.iter().position(is_here)?;
    // The first entry of a list may begin where the list does.
    let is_list = matches!(nodes[at].event, Event::SequenceStart(..));
    let is_entry = is_list && key.ends_with("[0]") && nodes.get(at + 1).is_some_and(is_here);
    Some(if is_entry { at + 1 } else { at })
}

/// What is wrong with the kind of a value, and what to write instead.
fn shape(key: &str, found: Option<&Event<'_>>) -> String {
    let is_list = matches!(found, Some(Event::SequenceStart(..)));
    let text = if let Some(Event::Scalar(text, ..)) = found { Some(&**text) } else { None };
    match (key.split('.').collect::<Vec<_>>().as_slice(), text) {
        ([""], _) if is_list => format!("the file is a list; {FORM}"),
        ([""], _) => format!("the file is a text without keys; {FORM}"),
        (["engines"], None) => {
            "is a map where a list belongs; begin each engine with \"- \", as in - source: auto".to_owned()
        }
        (["engines"], Some(_)) => format!("has no entries; {FORM}"),
        ([_], Some("" | "~" | "null")) => "is empty; write source: and the source, or remove the line".to_owned(),
        ([_], Some(text)) => format!("is the text {text:?}; write source: {text}, with a space after the colon"),
        ([_], None) => "is a list where the keys of an engine belong; write \"- \" once per engine".to_owned(),
        ([_, map @ ("labels" | "objectives")], text) => {
            let example = if *map == "labels" { "team: search" } else { "ttft: 500ms" };
            match text {
                Some(text) => {
                    format!("is the text {text:?} where a map belongs; write names and values, as in {example}")
                }
                None => format!("is a list where a map belongs; write {example} without \"- \" and square brackets"),
            }
        }
        ([_, "gpus"], Some(text)) => {
            format!("is the text {text:?} where a list belongs; write it in brackets, as in [{text}]")
        }
        ([_, "gpus"], None) => "is a map where a list belongs; write one value per line, each after \"- \"".to_owned(),
        _ if is_list => "is a list where one value belongs; write the value without \"- \" and brackets".to_owned(),
        _ => "is a map where one value belongs; write the value in quotes on the same line".to_owned(),
    }
}
