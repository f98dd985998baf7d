//! The syntax of a YAML file: where each value begins, and what is wrong in words that a user knows.

use serde_saphyr::granit_parser::{ErrorKind, Event, Parser};

/// The first mistake of a file. `key` is the path of the key, or empty if the mistake is not about a key.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) line: u64,
    pub(super) key: String,
    pub(super) why: String,
}

impl Mistake {
    pub(super) fn new(line: u64, key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { line, key: key.into(), why: why.into() }
    }
}

/// The most keys and values of a file.
const MAX_NODES: usize = 100_000;
pub(super) const TOO_MANY: &str = "the file has too many values; shorten it";

/// A key or a value, or the start of a list or map.
pub(super) struct Node<'a> {
    pub(super) event: Event<'a>,
    /// Characters before it in the text.
    pub(super) offset: u64,
    /// Line and column, from 1.
    pub(super) line: u64,
    pub(super) column: u64,
}

impl Node<'_> {
    pub(super) fn text(&self) -> Option<&str> {
        if let Event::Scalar(text, ..) = &self.event { Some(text) } else { None }
    }
}

/// The nodes of the text, in its order. Fails if the text is not one YAML document.
pub(super) fn nodes(text: &str) -> Result<Vec<Node<'_>>, Mistake> {
    let (mut nodes, mut documents) = (Vec::new(), 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| in_words(text, error.kind(), error.marker().line() as u64))?;
        let line = span.start.line() as u64;
        match event {
            Event::DocumentStart(..) => documents += 1,
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) => {
                let (offset, column) = (span.start.index() as u64, span.start.col() as u64 + 1);
                nodes.push(Node { event, offset, line, column });
                if nodes.len() > MAX_NODES {
                    return Err(Mistake::new(line, "", TOO_MANY));
                }
            }
            _ => {}
        }
        if documents > 1 {
            return Err(Mistake::new(line, "", "a second document begins here; remove it, or the line ---"));
        }
    }
    Ok(nodes)
}

fn in_words(text: &str, kind: &ErrorKind, line: u64) -> Mistake {
    use ErrorKind as Kind;
    let why = match kind {
        Kind::TabNotAllowed
        | Kind::TabInBlockIndentation
        | Kind::TabInPlainScalar
        | Kind::TabInIndentation
        | Kind::TabAtBlockScalarStart => {
            let has_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t') && !line.trim().is_empty();
            let tab = (1..).zip(text.lines()).find(|(_, line)| has_tab(line));
            return Mistake::new(tab.map_or(line, |(line, _)| line), "", "a tab indents the line; use spaces");
        }
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
        Kind::UnclosedFlowCollection { open } => {
            return Mistake::new(line, "", format!("the bracket {open} is not closed; close it"));
        }
        Kind::MismatchedFlowCollectionEnd { open, close } => {
            return Mistake::new(line, "", format!("the bracket {open} is closed by {close}; use the same kind"));
        }
        Kind::MisplacedFlowCollectionEnd => {
            "a closing bracket has no opening one; remove it, or put the value in quotes"
        }
        Kind::UnexpectedCharacter { character } if character.is_control() => {
            "a character that is not text; remove it, or save the file as UTF-8 again"
        }
        Kind::UnexpectedCharacter { character } => {
            let why = format!("a value cannot begin with {character} or contain it here; put the value in quotes");
            return Mistake::new(line, "", why);
        }
        Kind::UnknownAnchor => "a value that begins with * is an alias without an anchor; put the value in quotes",
        Kind::UnclosedQuotedScalar | Kind::InvalidQuotedScalarIndent => {
            return Mistake::new(open_quote(text, line), "", "a quote is not closed on this line; close it");
        }
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "text follows the closing quote; put the whole value in quotes"
        }
        Kind::UnknownQuotedScalarEscape | Kind::InvalidQuotedScalarHexEscape => {
            "an unknown \\ in double quotes; use single quotes, or write \\\\"
        }
        Kind::ExpectedDocumentStart => "this does not continue the lines above; write one map with the key engines",
        Kind::RecursionLimitExceeded => "too many nested brackets; an engine needs two levels",
        _ => "this is not valid YAML; compare the file with examples/config.yaml",
    };
    Mistake::new(line, "", why)
}

/// The last line up to `line` that opens a quote and does not close it.
fn open_quote(text: &str, line: u64) -> u64 {
    let is_open = |line: &str| ['"', '\''].iter().any(|quote| line.matches(*quote).count() % 2 == 1);
    let open = (1..=line).zip(text.lines()).filter(|(_, text)| is_open(text)).last();
    open.map_or(line, |(line, _)| line)
}

/// The error for a text that a template engine should have replaced, such as `{{ .Values.model }}`.
pub(super) fn unrendered(text: &str) -> Option<&'static str> {
    let is_template = (text.contains("{{") && text.contains("}}")) || text.contains("${") || text.contains("$(");
    is_template.then_some("is a template that was not rendered; render it, or write the value itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_has_the_words_of_the_parser() {
        for broken in [
            "a: [",
            "a: b: c",
            "a:\n\t- b",
            "a: 'b",
            "a: @b",
            "- a\nb: c",
            "a\nb: c",
            "{a]",
            "a: \"\\q\"",
            "}",
            "--- a\n--- b",
        ] {
            let Mistake { why, .. } = nodes(broken).err().unwrap();
            assert!(why.contains("; "), "{broken:?}: {why}");
            for word in ["mapping", "sequence", "scalar", "flow", "block", "token", "expected"] {
                assert!(!why.contains(word), "{broken:?}: {why}");
            }
        }
    }
}
