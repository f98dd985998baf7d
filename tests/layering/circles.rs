//! Finds circles of imports between the files of one room, a folder or file right under `src/`.
//! A file is a node, also a parent (`x/mod.rs`, or `x.rs` beside `x/`) that defines items: a child that imports such an
//! item imports the parent, and a parent that uses an item of its child imports the child. `mod child;` and a re-export
//! (`pub use child::Item;`) are not imports: a file that imports the re-exported item imports the child. So a parent
//! that only declares and re-exports is never part of a circle.

use std::collections::{BTreeMap, BTreeSet};

/// A module path without `crate`, for example `["gpu", "event"]`.
type Module = Vec<String>;

/// The files of a circle, sorted.
pub(crate) type Circle = Vec<String>;

struct File {
    name: String,
    module: Module,
    /// What follows each `use`, and every other path.
    imports: Vec<Module>,
    /// Name and origin of each re-export.
    exports: BTreeMap<String, Module>,
}

/// `sources`: path below `src` and text of every file.
pub(crate) fn circles(sources: &[(String, String)]) -> BTreeSet<Circle> {
    let modules: BTreeSet<Module> = sources.iter().map(|(name, _)| module_of(name)).collect();
    let files: Vec<File> = sources.iter().map(|(name, text)| File::parse(name, text, &modules)).collect();
    let by_module: BTreeMap<&Module, &File> = files.iter().map(|file| (&file.module, file)).collect();
    let edges: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|file| {
            let targets = file.imports.iter().filter_map(|path| resolve(path, &by_module, 0));
            let in_room = targets.filter(|target| target.module[0] == file.module[0] && target.name != file.name);
            (file.name.as_str(), in_room.map(|target| target.name.as_str()).collect())
        })
        .collect();
    let reachable: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|file| (*file, reachable(file, &edges))).collect();
    let circle = |file: &&str| -> Circle {
        let back = reachable[file].iter().filter(|other| reachable[*other].contains(file));
        back.map(|file| (*file).to_owned()).collect()
    };
    edges.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

fn reachable<'a>(from: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&'a str> = vec![from];
    while let Some(file) = open.pop() {
        open.extend(edges[file].iter().copied().filter(|next| found.insert(*next)));
    }
    found
}

/// The file with the item at the end of a path: that of the longest module in it, or where that one re-exports it from.
fn resolve<'a>(path: &Module, files: &BTreeMap<&Module, &'a File>, depth: usize) -> Option<&'a File> {
    let length = (1..=path.len()).rev().find(|length| files.contains_key(&path[..*length].to_vec()))?;
    let file = files[&path[..length].to_vec()];
    match path.get(length).and_then(|item| file.exports.get(item)) {
        Some(origin) if depth < 8 => resolve(&[origin, &path[length + 1..]].concat(), files, depth + 1),
        _ => Some(file),
    }
}

fn module_of(name: &str) -> Module {
    let path = name.strip_suffix(".rs").unwrap();
    path.strip_suffix("/mod").unwrap_or(path).split('/').map(str::to_owned).collect()
}

impl File {
    fn parse(name: &str, text: &str, modules: &BTreeSet<Module>) -> Self {
        let tokens = tokens(text);
        let word = |at: usize| tokens.get(at).map_or("", |token| token.as_str());
        let mut file =
            Self { name: name.to_owned(), module: module_of(name), imports: Vec::new(), exports: BTreeMap::new() };
        let mut is_export = false;
        let mut at = 0;
        while at < tokens.len() {
            match word(at) {
                "use" => is_export = at > 0 && matches!(word(at - 1), "pub" | ")"),
                ";" => is_export = false,
                _ => {}
            }
            let begins_path = word(at + 1) == "::" && (at == 0 || word(at - 1) != "::");
            let Some(base) = file.base(word(at), modules).filter(|_| begins_path) else {
                at += 1;
                continue;
            };
            let mut paths = Vec::new();
            at = parse_tree(&tokens, at + 1, base, &mut paths);
            for (path, name) in paths {
                if is_export {
                    file.exports.insert(name, path);
                } else {
                    file.imports.push(path);
                }
            }
        }
        file
    }

    /// The module that a path begins with, if this is the first word of a path into the crate.
    fn base(&self, word: &str, modules: &BTreeSet<Module>) -> Option<Module> {
        let child = [&self.module[..], &[word.to_owned()]].concat();
        match word {
            "crate" => Some(Vec::new()),
            "super" => Some(self.module[..self.module.len() - 1].to_vec()),
            "self" => Some(self.module.clone()),
            _ => modules.contains(&child).then_some(child),
        }
    }
}

/// Collects the paths (each with the name that it gets) of the tree that continues `base`. Returns the position after it.
fn parse_tree(tokens: &[String], mut at: usize, mut base: Module, paths: &mut Vec<(Module, String)>) -> usize {
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    while word(at) == "::" {
        at += 1;
        match word(at) {
            "super" => {
                base.pop();
            }
            "{" => {
                at += 1;
                while !matches!(word(at), "}" | "") {
                    match word(at) {
                        "," => at += 1,
                        "self" => at = parse_tree(tokens, at + 1, base.clone(), paths),
                        name => at = parse_tree(tokens, at + 1, [&base[..], &[name.to_owned()]].concat(), paths),
                    }
                }
                return at + 1;
            }
            "*" => {
                at += 1;
                break;
            }
            // Generic arguments of an expression.
            name if !is_word(name) => break,
            name => base.push(name.to_owned()),
        }
        at += 1;
    }
    let name = if word(at) == "as" {
        at += 2;
        word(at - 1).to_owned()
    } else {
        base.last().cloned().unwrap_or_default()
    };
    paths.push((base, name));
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters, without comments, literals and all that follows `#[cfg(test)]`.
fn tokens(text: &str) -> Vec<String> {
    let mut rest = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let hashes = rest[word..].chars().take_while(|c| *c == '#').count();
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if matches!(&rest[..word], "r" | "br") && rest[word + hashes..].starts_with('"') => {
                let open = word + hashes + 1;
                let end = format!("\"{}", "#".repeat(hashes));
                open + rest[open..].find(&end).map_or(rest.len() - open, |at| at + end.len())
            }
            '"' => literal_length(rest, '"'),
            // A character, not a lifetime.
            '\'' if rest[1..].starts_with('\\') || rest[1..].chars().nth(1) == Some('\'') => literal_length(rest, '\''),
            _ if word > 0 => word,
            _ if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let is_literal = word == 0 && matches!(first, '"' | '\'') || rest[..length].ends_with('"');
        if !first.is_whitespace() && !rest.starts_with("//") && !is_literal {
            found.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    found
}

/// Length of the literal at the beginning, with both quotation marks.
fn literal_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}
