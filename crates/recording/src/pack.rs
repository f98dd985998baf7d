//! If a line differs from an earlier line only in its numbers, stores just the differences of these numbers. Records repeat all
//! of their keys and most of their values. The packer and the unpacker remember the same lines, because both process all
//! lines in the same order. Neither parses JSON.

use std::io::{Error, ErrorKind, Result};

use parts::{Parts, TEXT};
use rows::Rows;

mod parts;
mod rows;

/// Number of earlier lines that are remembered. A new line replaces the least recently used one.
const TEMPLATES: usize = 24;
/// A longer line is stored unchanged, and no later line refers to it. This bounds the memory.
const LONGEST: usize = 16 << 10;
/// This byte replaces the rows of requests in a line, which are packed after the rest of it. JSON has no such byte.
const ROWS: u8 = TEXT + 1;
/// A packed line begins with one of these numbers if the line is stored unchanged, or unchanged except for its rows. Otherwise
/// it begins with the index of its template, which is a remembered line, plus [`FIRST`].
const UNCHANGED: u64 = 0;
const WITH_ROWS: u64 = 1;
const FIRST: u64 = 2;

#[derive(Debug, Default)]
struct Template {
    parts: Parts,
    /// Indexes of the numbers that have ever changed, in the order of their first change.
    changing: Vec<usize>,
    is_changing: Vec<bool>,
    used: u64,
}

/// The remembered lines.
#[derive(Debug, Default)]
struct Templates {
    all: Vec<Template>,
    lines: u64,
}

/// Packs the lines of one segment.
#[derive(Debug, Default)]
pub struct Packer {
    templates: Templates,
    rows: Rows,
    parts: Parts,
    /// The line that is being packed, without its rows.
    rest: Vec<u8>,
}

/// Reads what a [`Packer`] wrote.
#[derive(Debug, Default)]
pub struct Unpacker {
    templates: Templates,
    rows: Rows,
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
    /// Packs a line, which has no line feed, and appends it to `out`.
    pub fn pack(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let is_plain = !line.iter().any(|byte| *byte <= ROWS);
        match rows::find(line).filter(|_| is_plain) {
            Some((begin, rows)) => {
                let length = rows.iter().map(|row| row.len() + 1).sum::<usize>() - 1;
                let mut rest = std::mem::take(&mut self.rest);
                rest.clear();
                rest.extend_from_slice(&line[..begin]);
                rest.push(ROWS);
                rest.extend_from_slice(&line[begin + length..]);
                self.pack_text(&rest, true, WITH_ROWS, out);
                self.rest = rest;
                self.rows.pack(&rows, out);
            }
            None => self.pack_text(line, is_plain, UNCHANGED, out),
        }
    }

    fn pack_text(&mut self, line: &[u8], is_plain: bool, unchanged: u64, out: &mut Vec<u8>) {
        let Self { templates, parts, .. } = self;
        let is_short = is_plain && line.len() <= LONGEST;
        if is_short {
            parts.read(line);
        }
        let known = templates.all.iter().position(|template| is_short && template.parts.marked == parts.marked);
        let Some(index) = known else {
            number(unchanged, out);
            text(line, out);
            if is_short {
                templates.add(parts);
            }
            return;
        };
        let Template { parts: before, changing, is_changing, .. } = templates.used(index);
        number(FIRST + index as u64, out);
        let first_new = changing.len();
        for (at, (now, before)) in parts.numbers.iter().zip(&before.numbers).enumerate() {
            if now != before && !is_changing[at] {
                is_changing[at] = true;
                changing.push(at);
            }
        }
        number((changing.len() - first_new) as u64, out);
        changing[first_new..].iter().for_each(|at| number(*at as u64, out));
        changing.iter().for_each(|at| signed(parts.numbers[*at].wrapping_sub(before.numbers[*at]), out));
        changed_texts(&before.texts, &parts.texts, out);
        std::mem::swap(before, parts);
    }
}

impl Unpacker {
    /// Replaces `line` by the next line of `packed`, and removes that line from `packed`.
    ///
    /// # Errors
    /// If no packer wrote `packed`.
    pub fn unpack(&mut self, packed: &mut &[u8], line: &mut Vec<u8>) -> Result<()> {
        line.clear();
        let kind = take(packed)?;
        self.unpack_text(kind, packed, line)?;
        let rows = line.iter().position(|byte| *byte == ROWS).filter(|_| kind != UNCHANGED);
        if let Some(at) = rows {
            let after = line.split_off(at + 1);
            line.pop();
            self.rows.unpack(packed, line)?;
            line.extend_from_slice(&after);
        }
        Ok(())
    }

    fn unpack_text(&mut self, kind: u64, packed: &mut &[u8], line: &mut Vec<u8>) -> Result<()> {
        let Self { templates, parts, .. } = self;
        let Some(index) = kind.checked_sub(FIRST) else {
            line.extend_from_slice(take_text(packed)?);
            let is_plain = |byte: &u8| *byte > ROWS || (*byte == ROWS && kind == WITH_ROWS);
            if line.len() <= LONGEST && line.iter().all(is_plain) {
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
            parts.numbers[*at] = parts.numbers[*at].wrapping_add(take_signed(packed)?);
        }
        take_changed_texts(packed, &mut parts.texts)?;
        parts::write(&parts.marked, parts.numbers.iter().copied(), &parts.texts, line)
    }
}

/// Appends a number with seven bits per byte, the low bits first.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a number, so that small numbers of both signs take few bytes.
fn signed(value: i64, out: &mut Vec<u8>) {
    number(((value << 1) ^ (value >> 63)).cast_unsigned(), out);
}

fn text(text: &[u8], out: &mut Vec<u8>) {
    number(text.len() as u64, out);
    out.extend_from_slice(text);
}

/// Appends the texts that differ between two lines with the same template. An empty text means that it has not changed.
fn changed_texts(before: &[Vec<u8>], now: &[Vec<u8>], out: &mut Vec<u8>) {
    before.iter().zip(now).for_each(|(before, now)| text(if now == before { b"" } else { now }, out));
}

fn take_changed_texts(packed: &mut &[u8], texts: &mut [Vec<u8>]) -> Result<()> {
    for kept in texts {
        let changed = take_text(packed)?;
        if !changed.is_empty() {
            changed.clone_into(kept);
        }
    }
    Ok(())
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

fn take_signed(packed: &mut &[u8]) -> Result<i64> {
    let value = take(packed)?;
    Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

/// Takes a number that must not be above `most`.
fn take_length(packed: &mut &[u8], most: usize) -> Result<usize> {
    usize::try_from(take(packed)?).ok().filter(|length| *length <= most).ok_or_else(invalid)
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
