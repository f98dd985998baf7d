//! Separates a line into its text and its numbers, and joins them again.

use std::io::{Result, Write as _};

use super::invalid;

/// Marks that stand for numbers in a template. JSON has none of these bytes.
const WHOLE: u8 = 1;
const DECIMAL: u8 = 2;
pub(super) const TEXT: u8 = 3;
/// Maximum number of digits after the point of a [`DECIMAL`], and of all digits of a number that a mark replaces.
const MICROS: usize = 6;
const DIGITS: usize = 15;

/// The parts of a line: its text, with a mark in place of each number, and the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) marked: Vec<u8>,
    pub(super) numbers: Vec<i64>,
    /// Numbers in other notations, such as with an exponent.
    pub(super) texts: Vec<Vec<u8>>,
}

impl Parts {
    pub(super) fn read(&mut self, line: &[u8]) {
        self.marked.clear();
        self.numbers.clear();
        self.texts.clear();
        let (mut at, mut in_string) = (0, false);
        while at < line.len() {
            match line[at] {
                b'"' => in_string = !in_string,
                // The escaped character may be a quotation mark, which does not end the string.
                b'\\' if at + 1 < line.len() && !line[at + 1].is_ascii_digit() => {
                    self.marked.push(b'\\');
                    at += 1;
                }
                b'0'..=b'9' => {
                    at += if in_string { self.read_in_string(&line[at..]) } else { self.read_number(&line[at..]) };
                    continue;
                }
                b'-' if !in_string && line.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                    at += self.read_number(&line[at..]);
                    continue;
                }
                _ => {}
            }
            self.marked.push(line[at]);
            at += 1;
        }
    }

    /// Reads a number of JSON. Returns its length.
    fn read_number(&mut self, rest: &[u8]) -> usize {
        let is_part = |byte: &&u8| byte.is_ascii_digit() || b".+-eE".contains(*byte);
        let length = rest.iter().take_while(is_part).count();
        let text = &rest[..length];
        let Some((mark, value)) = value(text) else {
            self.texts.push(text.to_owned());
            self.marked.push(TEXT);
            return length;
        };
        self.marked.push(mark);
        self.numbers.push(value);
        length
    }

    /// Reads digits within a string, such as those of a time. They can begin with zeros, so the template contains how many
    /// digits there are.
    fn read_in_string(&mut self, rest: &[u8]) -> usize {
        let length = rest.iter().take(DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
        self.marked.extend([WHOLE, length as u8]);
        self.numbers.push(digits(&rest[..length]));
        length
    }
}

/// Appends the line that was read as `marked`, with these numbers and texts.
pub(super) fn write(
    marked: &[u8],
    mut numbers: impl Iterator<Item = i64>,
    texts: &[Vec<u8>],
    line: &mut Vec<u8>,
) -> Result<()> {
    let mut texts = texts.iter();
    let (mut marked, mut in_string) = (marked.iter().copied(), false);
    while let Some(byte) = marked.next() {
        match byte {
            WHOLE | DECIMAL => {
                let number = numbers.next().ok_or_else(invalid)?;
                match byte {
                    WHOLE if in_string => {
                        let width = usize::from(marked.next().ok_or_else(invalid)?);
                        write!(line, "{number:0width$}")?;
                    }
                    WHOLE => write!(line, "{number}")?,
                    _ => write_decimal(number, line)?,
                }
            }
            TEXT => line.extend_from_slice(texts.next().ok_or_else(invalid)?),
            b'\\' => {
                line.push(byte);
                // If the escaped character is a digit, a mark follows the backslash.
                if let Some(next) = marked.clone().next().filter(|next| *next > TEXT) {
                    line.push(next);
                    marked.next();
                }
            }
            _ => {
                in_string ^= byte == b'"';
                line.push(byte);
            }
        }
    }
    Ok(())
}

/// The mark and the value of a number, if [`write`] would write it in the same way.
fn value(text: &[u8]) -> Option<(u8, i64)> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, part) = match unsigned.iter().position(|byte| *byte == b'.') {
        Some(point) => (&unsigned[..point], Some(&unsigned[point + 1..])),
        None => (unsigned, None),
    };
    let part_digits = part.unwrap_or_default();
    let is_plain = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let is_shortest = whole == b"0" || !whole.starts_with(b"0");
    let places = if part.is_some() { MICROS } else { 0 };
    if whole.is_empty() || !is_shortest || whole.len() + places > DIGITS || !is_plain(whole) || !is_plain(part_digits) {
        return None;
    }
    let mut value = digits(whole);
    if part.is_some() {
        let is_shortest = part_digits == b"0" || !part_digits.ends_with(b"0");
        if part_digits.is_empty() || part_digits.len() > MICROS || !is_shortest {
            return None;
        }
        value =
            (0..MICROS).fold(value, |value, at| value * 10 + part_digits.get(at).map_or(0, |digit| digit_of(*digit)));
    }
    // -0 would be written as 0, so it stays a text.
    if value == 0 && unsigned.len() < text.len() {
        return None;
    }
    let value = if unsigned.len() < text.len() { -value } else { value };
    Some((if part.is_some() { DECIMAL } else { WHOLE }, value))
}

fn write_decimal(micros: i64, line: &mut Vec<u8>) -> Result<()> {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    write!(line, "{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)?;
    let zeros = line.iter().rev().take(MICROS - 1).take_while(|byte| **byte == b'0').count();
    line.truncate(line.len() - zeros);
    Ok(())
}

fn digit_of(digit: u8) -> i64 {
    i64::from(digit - b'0')
}

fn digits(text: &[u8]) -> i64 {
    text.iter().fold(0, |value, digit| value * 10 + digit_of(*digit))
}
