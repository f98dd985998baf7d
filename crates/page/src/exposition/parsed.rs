//! Reads OpenMetrics text for tests, so that the meaning of two writers' output can be compared. The order of labels
//! and families, the spelling of numbers, and exemplars do not count.

use std::collections::BTreeMap;

/// A page of OpenMetrics text. Exemplars are left out.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// For each family name, its HELP, TYPE and UNIT lines without the name.
    pub(crate) families: BTreeMap<String, BTreeMap<String, String>>,
    /// For each name with labels, the value in its shortest form. Floats are kept as text, so that assertions print
    /// them.
    pub(crate) samples: BTreeMap<(String, BTreeMap<String, String>), String>,
}

pub(crate) fn parse(page: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(header) = line.strip_prefix("# ") {
            let (kind, rest) = header.split_once(' ').unwrap();
            let (name, text) = rest.split_once(' ').unwrap();
            let family = parsed.families.entry(name.to_owned()).or_default();
            assert_eq!(family.insert(kind.to_owned(), text.to_owned()), None, "duplicate line: {line}");
            continue;
        }
        let end = line.find(['{', ' ']).unwrap();
        let (name, mut rest) = line.split_at(end);
        let mut labels = BTreeMap::new();
        if rest.starts_with('{') {
            rest = &rest[1..];
            while !rest.starts_with('}') {
                let (label, quoted) = rest.trim_start_matches(',').split_once("=\"").unwrap();
                let (value, after) = unquote(quoted);
                let value = if label == "le" { shortest(&value) } else { value };
                assert_eq!(labels.insert(label.to_owned(), value), None, "duplicate label: {line}");
                rest = after;
            }
            rest = &rest[1..];
        }
        let value = shortest(rest.trim_start().split(' ').next().unwrap());
        let duplicate = parsed.samples.insert((name.to_owned(), labels), value);
        assert_eq!(duplicate, None, "duplicate series: {line}");
    }
    parsed
}

/// The text up to the closing quote, and what follows the quote.
fn unquote(text: &str) -> (String, &str) {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped => escaped,
            }),
            plain => value.push(plain),
        }
    }
    panic!("a quote is missing: {text}");
}

fn shortest(number: &str) -> String {
    number.parse::<f64>().unwrap().to_string()
}
