//! Parses YAML into a tree in which each value has its line, and describes syntax errors in plain words. serde is not
//! used, because it stops at the first value of a wrong type.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle};

/// The most values in a file. A value that aliases repeat counts each time.
const MAX_NODES: usize = 100_000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Line number, from 1.
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum YamlValue {
    Nothing,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// Why a text is not YAML.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) why: String,
    /// The line has a tab where spaces belong.
    pub(super) is_tab: bool,
}

impl SyntaxError {
    fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into(), is_tab: false }
    }
}

/// A list or map whose end was not read yet.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<Node>,
}

/// The document; [`YamlValue::Nothing`] if the text is empty.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let (mut open, mut anchors) = (Vec::<Open>::new(), HashMap::new());
    let (mut document, mut nodes) = (None, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| syntax_error(text, error.kind(), error.marker().line()))?;
        let line = span.start.line();
        let node = |value| Node { line, value };
        let (node, anchor) = match event {
            Event::DocumentStart(..) if document.is_some() => {
                return Err(SyntaxError::new(line, "a second document begins here; remove it, or the line ---"));
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_nothing = style == ScalarStyle::Plain && ["", "~", "null", "Null", "NULL"].contains(&&*text);
                (node(if is_nothing { YamlValue::Nothing } else { YamlValue::Text(text.into_owned()) }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                open.push(Open { node: node(YamlValue::List(Vec::new())), anchor, key: None });
                continue;
            }
            Event::MappingStart(_, anchor, _) => {
                open.push(Open { node: node(YamlValue::Map(Vec::new())), anchor, key: None });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open { node, anchor, .. }) => (merged(node), anchor),
                None => continue,
            },
            // A copy of the value at the anchor, with the line of the alias.
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(Node { value, .. }) => (node(YamlValue::clone(value)), 0),
                None => return Err(SyntaxError::new(line, "an alias repeats the value that contains it; remove it")),
            },
            _ => continue,
        };
        nodes += count(&node);
        if nodes > MAX_NODES {
            return Err(SyntaxError::new(line, format!("more than {MAX_NODES} values; shorten the file")));
        }
        if anchor > 0 {
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            None => document = Some(node),
            Some(Open { node: Node { value: YamlValue::List(list), .. }, .. }) => list.push(node),
            Some(Open { node: Node { value: YamlValue::Map(map), .. }, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(key) => map.push((key, node)),
            },
            Some(_) => {}
        }
    }
    Ok(document.unwrap_or(Node { line: 1, value: YamlValue::Nothing }))
}

fn count(node: &Node) -> usize {
    match &node.value {
        YamlValue::Nothing | YamlValue::Text(_) => 1,
        YamlValue::List(list) => list.iter().map(count).sum::<usize>() + 1,
        YamlValue::Map(map) => map.iter().map(|(_, value)| count(value) + 1).sum::<usize>() + 1,
    }
}

/// The map together with the entries of the maps that its key `<<` names. Its own keys take precedence.
fn merged(mut node: Node) -> Node {
    let YamlValue::Map(map) = &mut node.value else { return node };
    let is_merge = |(key, _): &(Node, Node)| key.value == YamlValue::Text("<<".to_owned());
    let Some(at) = map.iter().position(is_merge) else { return node };
    let from = match map.remove(at).1.value {
        YamlValue::List(list) => list,
        value => vec![Node { line: node.line, value }],
    };
    for (key, value) in from
        .into_iter()
        .filter_map(|from| if let YamlValue::Map(from) = from.value { Some(from) } else { None })
        .flatten()
    {
        if map.iter().all(|(own, _)| own.value != key.value) {
            map.push((key, value));
        }
    }
    node
}

fn syntax_error(text: &str, kind: &ErrorKind, line: usize) -> SyntaxError {
    use ErrorKind as Kind;
    let is_tab = matches!(
        kind,
        Kind::TabNotAllowed
            | Kind::TabInBlockIndentation
            | Kind::TabInPlainScalar
            | Kind::TabInIndentation
            | Kind::TabAtBlockScalarStart
    );
    let why = match kind {
        _ if is_tab => "a tab indents the line; use spaces".to_owned(),
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => {
            "a colon is at a wrong place; put a value that contains or ends in a colon in quotes, as in source: \"sim:\", and give \
             all keys of an entry the same indentation"
                .to_owned()
        }
        Kind::ExpectedBlockMappingKey | Kind::ExpectedBlockSequenceEntry | Kind::InvalidIndentation | Kind::BlockSequenceEntryNotAllowed => {
            "the indentation does not match the lines above; begin each entry with \"- \" at one column, and its keys at one column".to_owned()
        }
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => "no key and colon; write key: value, with a space after the colon".to_owned(),
        Kind::UnclosedFlowCollection { open } => format!("the bracket {open} is not closed; close it"),
        Kind::MismatchedFlowCollectionEnd { open, close } => format!("the bracket {open} is closed by {close}; use the same kind"),
        Kind::MisplacedFlowCollectionEnd => "a closing bracket has no opening one; remove it, or put the value in quotes".to_owned(),
        Kind::UnexpectedCharacter { character } if character.is_control() => {
            "a character that is not text; remove it, or save the file as UTF-8 again".to_owned()
        }
        Kind::UnexpectedCharacter { character } => {
            format!("a value cannot begin with {character} or contain it here; put the value in quotes")
        }
        Kind::UnknownAnchor => "a value that begins with * is an alias without an anchor; put the value in quotes".to_owned(),
        Kind::UnclosedQuotedScalar | Kind::InvalidQuotedScalarIndent => {
            return SyntaxError::new(open_quote(text, line), "a quote is not closed on this line; close it");
        }
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "text follows the closing quote; put the whole value in quotes".to_owned()
        }
        Kind::UnknownQuotedScalarEscape | Kind::InvalidQuotedScalarHexEscape => {
            "an unknown \\ in double quotes; use single quotes, or write \\\\".to_owned()
        }
        Kind::ExpectedDocumentStart => "this does not continue the lines above; write one map with the key engines".to_owned(),
        Kind::RecursionLimitExceeded => "too many nested brackets; an engine needs two levels".to_owned(),
        _ => "this is not valid YAML; compare the file with examples/config.yaml".to_owned(),
    };
    SyntaxError { line, why, is_tab }
}

/// The last line up to `line` that opens a quote and does not close it.
fn open_quote(text: &str, line: usize) -> usize {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let is_open = |line: &&str| ['"', '\''].iter().any(|quote| line.matches(*quote).count() % 2 == 1);
    lines.iter().rposition(is_open).map_or(line, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: usize, text: &str) -> Node {
        Node { line, value: YamlValue::Text(text.to_owned()) }
    }

    #[test]
    fn each_value_has_its_line() {
        let read = parse("a:\n- x # comment\n- 'null'\n\nb: {c: 1.0}\nd:\n").unwrap();
        let list = Node { line: 2, value: YamlValue::List(vec![text(2, "x"), text(3, "null")]) };
        let map = Node { line: 5, value: YamlValue::Map(vec![(text(5, "c"), text(5, "1.0"))]) };
        let YamlValue::Map(entries) = read.value else { panic!("not a map") };
        assert_eq!(entries[..2], [(text(1, "a"), list), (text(5, "b"), map)]);
        assert_eq!(entries[2].1.value, YamlValue::Nothing);
    }

    #[test]
    fn a_merge_adds_the_keys_that_the_map_lacks() {
        let read = parse("- &base {a: 1, b: 2}\n- <<: *base\n  b: 3\n").unwrap();
        let YamlValue::List(list) = read.value else { panic!("not a list") };
        assert_eq!(list[1].value, YamlValue::Map(vec![(text(3, "b"), text(3, "3")), (text(1, "a"), text(1, "1"))]));
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let levels: String = (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let error = parse(&format!("- &a0 x\n{levels}")).unwrap_err();
        assert!(error.why.contains("more than 100000 values"), "{error:?}");
        assert!(parse("&a [*a]").unwrap_err().why.contains("alias"));
    }

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
            let SyntaxError { why, .. } = parse(broken).unwrap_err();
            assert!(why.contains("; "), "{broken:?}: {why}");
            for word in ["mapping", "sequence", "scalar", "flow", "block", "token", "expected"] {
                assert!(!why.contains(word), "{broken:?}: {why}");
            }
        }
    }
}
