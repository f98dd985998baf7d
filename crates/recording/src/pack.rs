//! Lines that differ from an earlier line in numbers only are kept as the differences of these numbers: records repeat all of
//! their keys and most of their values. A packer and an unpacker see the same lines in the same order, and know no JSON.

use std::io::{Error, ErrorKind, Result, Write as _};

/// Lines that later ones may resemble. The one that was not used for longest is replaced.
const TEMPLATES: usize = 24;
/// Longer lines are stored unchanged, and no later line refers to them. So memory stays bounded.
const LONGEST: usize = 16 << 10;
/// Marks of numbers in a template. JSON has none of these bytes.
const WHOLE: u8 = 1;
const DECIMAL: u8 = 2;
const TEXT: u8 = 3;
/// Digits behind the point of a [`DECIMAL`], and all digits that are counted with.
const MICROS: usize = 6;
const DIGITS: usize = 15;

/// What a line consists of: its text with a mark for each number, and the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parts {
    marked: Vec<u8>,
    numbers: Vec<i64>,
    /// Numbers of other notations, such as exponents.
    texts: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Template {
    parts: Parts,
    /// Numbers that have ever changed, in the order of their first change.
    changing: Vec<usize>,
    is_changing: Vec<bool>,
    used: u64,
}

/// The lines until now.
#[derive(Debug, Default)]
struct Templates {
    all: Vec<Template>,
    lines: u64,
}

/// Packs the lines of one segment.
#[derive(Debug, Default)]
pub struct Packer {
    templates: Templates,
    parts: Parts,
}

/// Reads what a [`Packer`] wrote.
#[derive(Debug, Default)]
pub struct Unpacker {
    templates: Templates,
    parts: Parts,
}

impl Templates {
    fn used(&mut self, index: usize) -> &mut Template {
        self.lines += 1;
        let template = &mut self.all[index];
        template.used = self.lines;
        template
    }

    fn add(&mut self, parts: &Parts) {
        self.lines += 1;
        let is_changing = vec![false; parts.numbers.len()];
        let template = Template { parts: parts.clone(), changing: Vec::new(), is_changing, used: self.lines };
        if self.all.len() < TEMPLATES {
            return self.all.push(template);
        }
        if let Some(oldest) = self.all.iter_mut().min_by_key(|template| template.used) {
            *oldest = template;
        }
    }
}

impl Packer {
    /// Appends a line, which has no line feed.
    pub fn pack(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Self { templates, parts } = self;
        let is_short = line.len() <= LONGEST && !line.iter().any(|byte| *byte <= TEXT);
        if is_short {
            parts.read(line);
        }
        let known = templates.all.iter().position(|template| is_short && template.parts.marked == parts.marked);
        let Some(index) = known else {
            number(0, out);
            text(line, out);
            if is_short {
                templates.add(parts);
            }
            return;
        };
        let Template { parts: before, changing, is_changing, .. } = templates.used(index);
        number(1 + index as u64, out);
        let first_new = changing.len();
        for (at, (now, before)) in parts.numbers.iter().zip(&before.numbers).enumerate() {
            if now != before && !is_changing[at] {
                is_changing[at] = true;
                changing.push(at);
            }
        }
        number((changing.len() - first_new) as u64, out);
        changing[first_new..].iter().for_each(|at| number(*at as u64, out));
        for at in changing.iter() {
            let change = parts.numbers[*at].wrapping_sub(before.numbers[*at]);
            // Small ones of both signs become small numbers.
            number(((change << 1) ^ (change >> 63)).cast_unsigned(), out);
        }
        for (now, before) in parts.texts.iter().zip(&before.texts) {
            text(if now == before { b"" } else { now }, out);
        }
        std::mem::swap(before, parts);
    }
}

impl Unpacker {
    /// Replaces `line` by the next one, and removes what it was packed to.
    ///
    /// # Errors
    /// If no packer wrote it.
    pub fn unpack(&mut self, packed: &mut &[u8], line: &mut Vec<u8>) -> Result<()> {
        line.clear();
        let Self { templates, parts } = self;
        let Some(index) = take(packed)?.checked_sub(1) else {
            line.extend_from_slice(take_text(packed)?);
            if line.len() <= LONGEST && !line.iter().any(|byte| *byte <= TEXT) {
                parts.read(line);
                templates.add(parts);
            }
            return Ok(());
        };
        let index = usize::try_from(index).ok().filter(|index| *index < templates.all.len()).ok_or_else(invalid)?;
        let Template { parts, changing, is_changing, .. } = templates.used(index);
        for _ in 0..take(packed)? {
            let at = usize::try_from(take(packed)?).ok();
            let new = at.filter(|at| is_changing.get(*at) == Some(&false)).ok_or_else(invalid)?;
            is_changing[new] = true;
            changing.push(new);
        }
        for at in changing.iter() {
            let change = take(packed)?;
            let change = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
            parts.numbers[*at] = parts.numbers[*at].wrapping_add(change);
        }
        for kept in &mut parts.texts {
            let changed = take_text(packed)?;
            if !changed.is_empty() {
                changed.clone_into(kept);
            }
        }
        parts.write(line)
    }
}

impl Parts {
    fn read(&mut self, line: &[u8]) {
        self.marked.clear();
        self.numbers.clear();
        self.texts.clear();
        let (mut at, mut in_string) = (0, false);
        while at < line.len() {
            match line[at] {
                b'"' => in_string = !in_string,
                // What is escaped, also a quotation mark.
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

    /// A number of JSON. Returns its length.
    fn read_number(&mut self, rest: &[u8]) -> usize {
        let is_part = |byte: &&u8| byte.is_ascii_digit() || b".+-eE".contains(*byte);
        let length = rest.iter().take_while(is_part).count();
        let text = &rest[..length];
        let (mark, value) = match value(text) {
            Some(value) => value,
            None => {
                self.texts.push(text.to_owned());
                self.marked.push(TEXT);
                return length;
            }
        };
        self.marked.push(mark);
        self.numbers.push(value);
        length
    }

    /// Digits within a string, such as a time, with zeros in front. Their number is part of the template.
    fn read_in_string(&mut self, rest: &[u8]) -> usize {
        let length = rest.iter().take(DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
        self.marked.extend([WHOLE, length as u8]);
        self.numbers.push(digits(&rest[..length]));
        length
    }

    fn write(&self, line: &mut Vec<u8>) -> Result<()> {
        let (mut numbers, mut texts) = (self.numbers.iter(), self.texts.iter());
        let (mut marked, mut in_string) = (self.marked.iter().copied(), false);
        while let Some(byte) = marked.next() {
            match byte {
                WHOLE | DECIMAL => {
                    let number = *numbers.next().ok_or_else(invalid)?;
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
                    // Of an escaped digit the mark follows.
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
}

/// A number that is written in only one way, with its mark.
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
    // -0 has no other way to be kept.
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

/// Seven bits a byte, the low ones first.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(text: &[u8], out: &mut Vec<u8>) {
    number(text.len() as u64, out);
    out.extend_from_slice(text);
}

fn take(packed: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = packed.split_first().ok_or_else(invalid)?;
        *packed = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(invalid())
}

fn take_text<'a>(packed: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = usize::try_from(take(packed)?).map_err(|_| invalid())?;
    let (text, rest) = packed.split_at_checked(length).ok_or_else(invalid)?;
    *packed = rest;
    Ok(text)
}

fn invalid() -> Error {
    ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests;
