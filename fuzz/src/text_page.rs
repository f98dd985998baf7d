//! A strict parser of the two text formats. It panics on everything that the specifications do not allow. It shares no
//! code with the writer.

use std::borrow::Cow;

use trtllm_page::exposition::negotiate::Format;
use trtllm_page::metrics::catalog::{CATALOG, Metric, MetricKind};

use super::parsed_page::{LabelText, ParsedPage};

/// The family whose lines are being read.
struct Family {
    metric: &'static Metric,
    name: String,
    kind: String,
    help: String,
    samples: usize,
}

pub fn parse(text: &str, format: Format) -> ParsedPage {
    let openmetrics = format == Format::OpenMetrics;
    let body = if openmetrics { text.strip_suffix("# EOF\n").unwrap() } else { text };
    assert!(body.is_empty() || body.ends_with('\n'));
    let mut parsed = ParsedPage::default();
    let mut current: Option<Family> = None;
    // Do not use `lines`, which also removes a carriage return at the end of a line.
    for line in body.split_terminator('\n') {
        if let Some(header) = line.strip_prefix("# ") {
            let (keyword, rest) = header.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            match keyword {
                "HELP" => {
                    end(current.take(), &mut parsed);
                    let (metric, kind) = (metric(name, openmetrics), String::new());
                    current = Some(Family { metric, name: name.to_owned(), kind, help: value.to_owned(), samples: 0 });
                }
                "TYPE" => current.as_mut().filter(|family| family.name == name).unwrap().kind = value.to_owned(),
                "UNIT" => assert!(openmetrics && name.ends_with(&format!("_{value}")), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let family = current.as_mut().unwrap();
        family.samples += 1;
        sample(line, family, openmetrics, &mut parsed);
    }
    end(current, &mut parsed);
    parsed
}

/// In OpenMetrics, the family name of a counter has no `_total`.
fn metric(name: &str, openmetrics: bool) -> &'static Metric {
    let named = |metric: &&Metric| match metric.kind {
        MetricKind::Counter if openmetrics => metric.name.strip_suffix("_total") == Some(name),
        _ => metric.name == name,
    };
    CATALOG.iter().find(named).unwrap_or_else(|| panic!("{name} is not in the catalog"))
}

fn end(family: Option<Family>, parsed: &mut ParsedPage) {
    let Some(Family { metric, name, kind, help, samples }) = family else { return };
    assert!(samples > 0, "{name} has no samples");
    let kind = if kind == "unknown" && metric.kind == MetricKind::LegacyCounter { "counter" } else { &kind };
    parsed.family(metric.name, kind, &help);
}

fn sample(line: &str, family: &Family, openmetrics: bool, parsed: &mut ParsedPage) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
    let suffixes: &[&str] = match family.kind.as_str() {
        "histogram" => &["_bucket", "_sum", "_count"],
        "counter" if openmetrics => &["_total"],
        _ => &[""],
    };
    let suffix = name.strip_prefix(&family.name).unwrap_or_else(|| panic!("{line} under {}", family.name));
    assert!(suffixes.contains(&suffix), "{line}");
    let (mut pairs, rest) = labels(rest, line);
    let bound = pairs.pop_if(|(name, _)| *name == "le").map(|(_, bound)| number_of_bound(&bound));
    assert_eq!(bound.is_some(), suffix == "_bucket", "{line}");
    let labels = label_text(&pairs);
    let (number, exemplar) = match rest.split_once(" # ") {
        Some((number, exemplar)) if openmetrics && suffix == "_bucket" => (number, Some(exemplar)),
        _ => (rest, None),
    };
    // The name in the catalog already ends with `_total`. In OpenMetrics, samples have this suffix, but not the family.
    let suffix = if suffix == "_total" { "" } else { suffix };
    parsed.sample(family.metric.name, suffix, &labels, bound, number_of(number, line));
    if let Some((exemplar, bound)) = exemplar.zip(bound) {
        let (pairs, number) = self::labels(exemplar, line);
        let [("request_id", request)] = &pairs[..] else { panic!("{line}") };
        parsed.exemplar(family.metric.name, &labels, bound, request.to_string(), number_of(number, line));
    }
}

fn label_text(pairs: &[Pair<'_>]) -> LabelText {
    LabelText::new(pairs.iter().map(|(name, value)| (*name, &**value)))
}

fn number_of_bound(text: &str) -> f64 {
    if text == "+Inf" { f64::INFINITY } else { text.parse().unwrap() }
}

/// Parses a number. It must be digits with at most one point, because readers of Triton's page match only these.
fn number_of(text: &str, line: &str) -> f64 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    assert!(are_digits(whole) && are_digits(fraction), "{line}");
    text.parse().unwrap()
}

type Pair<'a> = (&'a str, Cow<'a, str>);

/// The labels, in their order, and the value after them.
fn labels<'a>(text: &'a str, line: &str) -> (Vec<Pair<'a>>, &'a str) {
    let mut labels = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text.strip_prefix(' ').unwrap()) };
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        assert!(
            !name.is_empty()
                && name.bytes().all(valid)
                && !name.as_bytes()[0].is_ascii_digit()
                && !name.starts_with("__"),
            "{line}"
        );
        let (value, after) = unquoted(after, line);
        labels.push((name, value));
        if let Some(value) = after.strip_prefix("} ") {
            return (labels, value);
        }
        rest = after.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
    }
}

/// The text up to the closing quote, without escapes, and the text after the quote.
fn unquoted<'a>(text: &'a str, line: &str) -> (Cow<'a, str>, &'a str) {
    let mut end = text.find(['"', '\\']).unwrap_or_else(|| panic!("{line}"));
    if text.as_bytes()[end] == b'"' {
        return (text[..end].into(), &text[end + 1..]);
    }
    let (mut value, mut rest) = (String::new(), text);
    loop {
        value.push_str(&rest[..end]);
        let escaped = rest[end..].strip_prefix('\\').map(|escaped| escaped.chars().next());
        match escaped {
            None => return (value.into(), &rest[end + 1..]),
            Some(Some('n')) => value.push('\n'),
            Some(Some(escaped @ ('"' | '\\'))) => value.push(escaped),
            Some(_) => panic!("{line}"),
        }
        rest = &rest[end + 2..];
        end = rest.find(['"', '\\']).unwrap_or_else(|| panic!("{line}"));
    }
}
