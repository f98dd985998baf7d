//! Reads the entries of `--config.file`: checks the keys, and whether each value is a text, a list or a map. Continues
//! after a mistake.

use std::collections::BTreeSet;
use std::path::Path;

use super::ConfigError;
use super::entry::{Entry, Origin, unrendered};
use super::mistakes::{Mistakes, remedy};
use super::value::ConfigValue;
use super::yaml::{self, Node, SyntaxError, YamlValue};

const KEYS: [&str; 8] = ["source", "model", "version", "labels", "objectives", "gpus", "bench_report", "gpu_hour_cost"];

/// The entries of the file at `path`, without those that cannot be parsed.
pub(super) fn entries(path: &Path, text: &str, mistakes: &mut Mistakes) -> Vec<Entry> {
    let mut file =
        Reader { path: path.display().to_string(), mistakes, explained: BTreeSet::new(), is_incomplete: false };
    for (index, line) in text.lines().enumerate() {
        let content = line.split(" #").next().unwrap_or_default();
        if let Some(why) = unrendered(content).filter(|_| !content.trim_start().starts_with('#')) {
            file.wrong(index + 1, "", format!("{:?} {why}", content.trim().trim_start_matches("- ")));
            file.explained.insert(index + 1);
        }
    }
    let document = file.document(text);
    document.map(|document| file.engines(document)).unwrap_or_default()
}

struct Reader<'a> {
    path: String,
    mistakes: &'a mut Mistakes,
    /// Lines with a reported mistake. It explains later errors on the same line, so these are not reported.
    explained: BTreeSet<usize>,
    /// A value of the current entry was left out, because its line is one of `explained`.
    is_incomplete: bool,
}

type Map = Vec<(Node, Node)>;

impl Reader<'_> {
    /// Adds a mistake. `key` is the path of the key, or empty if the mistake is not about a key.
    fn wrong(&mut self, line: usize, key: &str, why: impl Into<String>) {
        if self.explained.contains(&line) {
            return;
        }
        let separator = if key.is_empty() { "" } else { ", " };
        let at = format!("{} line {line}{separator}{key}", self.path);
        self.mistakes.add_at(line, ConfigError::Engine { at, why: why.into() });
    }

    /// Adds the error as a mistake, or returns the value.
    fn keep<T>(&mut self, line: usize, key: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|why| self.wrong(line, key, why)).ok()
    }

    /// Parses the text as YAML. An entry with a syntax error is emptied, so that the other entries are checked too.
    fn document(&mut self, text: &str) -> Option<Node> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut tabs = BTreeSet::new();
        loop {
            let SyntaxError { line, why, is_tab } = match yaml::parse(&lines.join("\n")) {
                Ok(document) => return Some(document),
                Err(error) => error,
            };
            if is_tab && tabs.is_empty() {
                for (index, line) in lines.iter_mut().enumerate() {
                    let content = line.trim_start();
                    let indentation = &line[..line.len() - content.len()];
                    if indentation.contains('\t') && !content.is_empty() {
                        tabs.insert(index);
                        self.wrong(index + 1, "", why.clone());
                        // A tab usually stands for one level of indentation.
                        *line = indentation.replace('\t', "  ") + content;
                    }
                }
                if !tabs.is_empty() {
                    continue;
                }
            }
            if lines.get(line.saturating_sub(1)).is_some_and(|text| text.starts_with("---")) {
                self.wrong(line, "", why);
                lines.truncate(line - 1);
                continue;
            }
            let entry = entry_around(&lines, line);
            let around = entry.clone().unwrap_or(line.saturating_sub(1)..line);
            // If a mistake is already reported for this entry, the error only follows from it and is not reported.
            if !around.clone().any(|index| tabs.contains(&index) || self.explained.contains(&(index + 1))) {
                self.wrong(line, "", why);
            }
            let entry = entry.filter(|entry| lines[entry.start].trim() != "-")?;
            self.explained.extend(entry.clone().map(|index| index + 1));
            let dash = lines[entry.start].find('-').unwrap_or(0);
            lines[entry.start].truncate(dash + 1);
            lines[entry.start + 1..entry.end].iter_mut().for_each(String::clear);
        }
    }

    fn engines(&mut self, document: Node) -> Vec<Entry> {
        const FORM: &str = "write the key engines: and below it one entry per engine, as in - source: auto";
        // If there are mistakes already, they explain a missing key or a wrong structure, which is then not reported.
        let before = self.mistakes.count();
        let first = document.line;
        let map = match document.value {
            YamlValue::Map(map) => Ok(map),
            _ if before > 0 => return Vec::new(),
            YamlValue::Nothing => Err(format!("the file is empty; {FORM}")),
            YamlValue::List(_) => Err(format!("the file is a list; {FORM}")),
            YamlValue::Text(_) => Err(format!("the file is a text without keys; {FORM}")),
        };
        let Some(map) = self.keep(first, "", map) else { return Vec::new() };
        let engines = self.keys(map, "", &["engines"]).pop();
        let has_mistakes = self.mistakes.count() > before;
        let Some((key, line, node)) = engines else {
            if !has_mistakes {
                self.wrong(first, "", format!("the key engines is missing; {FORM}"));
            }
            return Vec::new();
        };
        let list = match node.value {
            YamlValue::List(list) if !list.is_empty() => Ok(list),
            _ if has_mistakes => return Vec::new(),
            YamlValue::List(_) => Err("is empty; remove --config.file to serve GPU metrics only".to_owned()),
            YamlValue::Map(_) => {
                Err("is a map where a list belongs; begin each engine with \"- \", as in - source: auto".to_owned())
            }
            YamlValue::Nothing | YamlValue::Text(_) => Err(format!("has no entries; {FORM}")),
        };
        let list = self.keep(line, &key, list).unwrap_or_default();
        list.into_iter().enumerate().filter_map(|(index, entry)| self.entry(index, entry)).collect()
    }

    fn entry(&mut self, index: usize, entry: Node) -> Option<Entry> {
        let place = format!("engines[{index}]");
        let line = entry.line;
        let map = match entry.value {
            YamlValue::Map(map) => Ok(map),
            YamlValue::Nothing => Err("is empty; write source: and the source, or remove the line".to_owned()),
            YamlValue::List(_) => {
                Err("is a list where the keys of an engine belong; write \"- \" once per engine".to_owned())
            }
            YamlValue::Text(text) => {
                Err(format!("is the text {text:?}; write source: {text}, with a space after the colon"))
            }
        };
        let map = self.keep(line, &place, map)?;
        let before = self.mistakes.count();
        self.is_incomplete = false;
        let mut read = Entry { origin: Origin::File { path: self.path.clone(), index, line }, ..Entry::default() };
        let mut has_source = false;
        for (key, line, value) in self.keys(map, &place, &KEYS) {
            let path = format!("{place}.{key}");
            match key.as_str() {
                "source" => {
                    has_source = true;
                    read.source = self.text(&path, line, value, true);
                }
                "model" => read.model = self.text(&path, line, value, false),
                "version" => read.version = self.text(&path, line, value, false),
                "labels" => read.labels = self.map(&path, line, value, "team: search"),
                "objectives" => read.objectives = self.map(&path, line, value, "ttft: 500ms"),
                "gpus" => read.gpus = self.list(&path, line, value).map(|list| (line, list)),
                "gpu_hour_cost" => read.gpu_hour_cost = self.text(&path, line, value, false),
                _ => read.bench_report = self.text(&path, line, value, false),
            }
        }
        if !has_source {
            self.wrong(line, &place, "has no source; add source: and the source, or remove the entry");
        }
        read.is_incomplete = self.is_incomplete || self.mistakes.count() > before;
        Some(read)
    }

    /// The entries of a map whose keys are `known`. An unknown or repeated key is a mistake.
    fn keys(&mut self, map: Map, place: &str, known: &[&str]) -> Vec<(String, usize, Node)> {
        let mut found: Vec<(String, usize, Node)> = Vec::new();
        for (key, value) in map {
            let line = key.line;
            let YamlValue::Text(key) = key.value else {
                self.wrong(line, place, format!("a key is not a text; use {}", known.join(", ")));
                continue;
            };
            if let Some((_, first, _)) = found.iter().find(|(name, ..)| *name == key) {
                let why = format!("{key} is given twice, first on line {first}; remove one of them");
                self.wrong(line, place, why);
            } else if known.contains(&key.as_str()) {
                found.push((key, line, value));
            } else if place.is_empty() && KEYS.contains(&key.as_str()) {
                let why = "is a key of an engine; write it below engines:, in an entry that begins with \"- \"";
                self.wrong(line, place, format!("{key} {why}"));
            } else if let Some(name) = key.strip_prefix('-') {
                self.wrong(line, place, format!("unknown key {key:?}; write - {name}, with a space after the dash"));
            } else {
                self.wrong(line, place, format!("unknown key {key:?}; {}", remedy(&key, known)));
            }
        }
        found
    }

    /// Reads a text. A key without a value counts as not given, unless it is `required`.
    fn text(&mut self, key: &str, line: usize, node: Node, required: bool) -> Option<ConfigValue> {
        if self.explained.contains(&node.line) {
            self.is_incomplete = true;
            return None;
        }
        let why = match node.value {
            YamlValue::Text(text) if text.is_empty() && required => "is empty; write a value, or remove the entry",
            YamlValue::Text(text) => return Some(ConfigValue { text, line: node.line }),
            YamlValue::Nothing if required => "has no value; write one, or remove the entry",
            YamlValue::Nothing => return None,
            YamlValue::List(_) => "is a list where one value belongs; write the value without \"- \" and brackets",
            YamlValue::Map(_) => "is a map where one value belongs; write the value in quotes on the same line",
        };
        self.wrong(line, key, why);
        None
    }

    /// Reads a map of names and texts. Errors show `example`, which is a name and a text.
    fn map(&mut self, key: &str, line: usize, node: Node, example: &str) -> Vec<(String, ConfigValue)> {
        let map = match node.value {
            YamlValue::Map(map) => Ok(map),
            YamlValue::Nothing => Ok(Map::new()),
            YamlValue::List(_) => {
                Err(format!("is a list where a map belongs; write {example} without \"- \" and square brackets"))
            }
            YamlValue::Text(text) => {
                Err(format!("is the text {text:?} where a map belongs; write names and values, as in {example}"))
            }
        };
        let mut found: Vec<(String, ConfigValue)> = Vec::new();
        for (name, value) in self.keep(line, key, map).unwrap_or_default() {
            let line = name.line;
            let YamlValue::Text(name) = name.value else {
                self.wrong(line, key, format!("a name is not a text; write a name, as in {example}"));
                continue;
            };
            if let Some((_, first)) = found.iter().find(|(other, _)| *other == name) {
                let why = format!("{name} is given twice, first on line {}; remove one of them", first.line);
                self.wrong(line, key, why);
            } else if let Some(value) = self.text(&format!("{key}.{name}"), line, Node { line, ..value }, false) {
                found.push((name, value));
            }
        }
        found
    }

    /// Reads a list of texts.
    fn list(&mut self, key: &str, line: usize, node: Node) -> Option<Vec<ConfigValue>> {
        let list = match node.value {
            YamlValue::List(list) => Ok(list),
            YamlValue::Nothing => return None,
            YamlValue::Text(text) => {
                Err(format!("is the text {text:?} where a list belongs; write it in brackets, as in [{text}]"))
            }
            YamlValue::Map(_) => {
                Err("is a map where a list belongs; write one value per line, each after \"- \"".to_owned())
            }
        };
        let texts = self.keep(line, key, list)?.into_iter().enumerate().map(|(index, node)| {
            let line = node.line;
            self.text(&format!("{key}[{index}]"), line, node, true)
        });
        // Read all texts before the first mistake discards the list, so that all mistakes are found.
        texts.collect::<Vec<_>>().into_iter().collect()
    }
}

/// The entry of `engines:` that contains `line`, as a range of line indexes from 0.
fn entry_around(lines: &[String], line: usize) -> Option<std::ops::Range<usize>> {
    let dash = |text: &str| {
        let begins = text.trim_start().starts_with("- ") || text.trim() == "-" || text.trim_start().starts_with("-\t");
        begins.then(|| text.len() - text.trim_start().len())
    };
    let column = lines.iter().filter_map(|text| dash(text)).min()?;
    let at = line.clamp(1, lines.len()) - 1;
    let is_entry = |text: &String| dash(text) == Some(column);
    // The parser reports the line of the error, which may be after the first line of its entry.
    let start = lines[..=at].iter().rposition(&is_entry)?;
    let ends = |text: &String| is_entry(text) || text.starts_with(|letter: char| letter.is_alphabetic());
    let length = lines[start + 1..].iter().position(ends).unwrap_or(lines.len() - start - 1);
    Some(start..start + 1 + length)
}
