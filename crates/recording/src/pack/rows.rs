//! Packs the rows of requests in a line. Most rows change as they changed before, such as by one more token. So a row is stored
//! as its difference from the row that is expected for the same request. A run of rows that are as expected is stored as one
//! number.

use std::io::Result;
use std::sync::Arc;

use super::parts::{self, Parts};
use super::{changed_texts, invalid, number, signed, take_changed_texts, take_length, take_signed, take_text, text};

/// A line with more rows, or with a row of more bytes, is packed like a line without rows. This bounds the memory.
const MOST: usize = 1024;
const LONGEST: usize = 1 << 10;
/// Number of remembered kinds of rows. Rows of one kind differ only in numbers; waiting and decoding requests differ in kind.
const KINDS: usize = 16;
/// The beginning of the first row, which has the id of its request as its first number.
const START: &[u8] = b"[{\"id\":";

/// The remembered rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The last rows of each rank. The list that was used last is at the end.
    lists: Vec<Vec<Row>>,
    /// The last unexpected row of each kind. The kind that was used last is at the beginning.
    kinds: Vec<Row>,
    parts: Parts,
}

#[derive(Debug, Clone, Default)]
struct Row {
    marked: Arc<[u8]>,
    numbers: Vec<Number>,
    texts: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Number {
    value: i64,
    /// By how much the number is expected to change next.
    change: i64,
    /// By how much the number changed last. It becomes the expected change if it happens twice in a row.
    /// A new KV cache block, for example, changes a number only once.
    last: i64,
}

/// The rows of a line, which are separated by commas, and the byte at which they begin. `None` if the line has no rows.
pub(super) fn find(line: &[u8]) -> Option<(usize, Vec<&[u8]>)> {
    let brackets = line.iter().enumerate().filter(|(_, byte)| **byte == b'[').map(|(at, _)| at);
    let begin = brackets.into_iter().find(|at| line[*at..].starts_with(START))? + 1;
    let (mut rest, mut rows) = (&line[begin..], Vec::new());
    while rows.len() < MOST {
        let (row, after) = rest.split_at(object_length(rest)?);
        rows.push(row);
        match after.split_first()? {
            (b',', after) => rest = after,
            (b']', _) => return Some((begin, rows)),
            _ => return None,
        }
    }
    None
}

fn object_length(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string) = (0, false);
    let mut bytes = text.iter().enumerate().take(LONGEST);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (at > 0).then_some(at + 1);
        }
    }
    None
}

impl Rows {
    pub(super) fn pack(&mut self, rows: &[&[u8]], out: &mut Vec<u8>) {
        let ids = [rows.first(), rows.last()].into_iter().flatten().filter_map(|row| {
            self.parts.read(row);
            self.parts.numbers.first().copied()
        });
        let lists = &self.lists;
        let list = ids.into_iter().find_map(|id| lists.iter().rposition(|rows| rows.iter().any(|row| row.has_id(id))));
        // Counts the lists from the end, because then the rows of a rank always have the same number.
        number(list.map_or(0, |at| self.lists.len() - at) as u64, out);
        number(rows.len() as u64, out);
        let mut before = list.map(|at| self.lists.remove(at)).unwrap_or_default();
        let (mut now, mut next, mut run) = (Vec::with_capacity(rows.len()), 0, 0);
        for row in rows {
            self.parts.read(row);
            if let Some(row) = before.get_mut(next).filter(|row| row.is_expected(&self.parts)) {
                now.push(std::mem::take(row).expected());
                (next, run) = (next + 1, run + 1);
                continue;
            }
            number(std::mem::take(&mut run), out);
            let id = self.parts.numbers.first();
            let distance = (0..before.len())
                .find(|distance| id.is_some_and(|id| before[(next + distance) % before.len()].has_id(*id)));
            number(distance.map_or(0, |distance| 1 + distance as u64), out);
            let found = distance.map(|distance| (next + distance) % before.len());
            let of_request = found.map(|found| std::mem::take(&mut before[found]));
            next = found.map_or(next, |found| found + 1);
            now.push(self.pack_row(of_request, row, out));
        }
        if run > 0 {
            number(run, out);
        }
        self.keep(now);
    }

    /// Packs the row that is in `parts`.
    fn pack_row(&mut self, of_request: Option<Row>, row: &[u8], out: &mut Vec<u8>) -> Row {
        let Some(kind) = self.kinds.iter().position(|kind| *kind.marked == *self.parts.marked) else {
            number(0, out);
            text(row, out);
            return self.add_kind();
        };
        number(1 + kind as u64, out);
        let mut row = self.begin_row(kind, of_request);
        let is_other = |(number, value): (&Number, &i64)| number.expected() != *value;
        let others = row.numbers.iter().zip(&self.parts.numbers).filter(|both| is_other(*both)).count();
        number(others as u64, out);
        for (at, (number_before, value)) in row.numbers.iter_mut().zip(&self.parts.numbers).enumerate() {
            let expected = number_before.expected();
            if expected != *value {
                number(at as u64, out);
                signed(value.wrapping_sub(expected), out);
            }
            number_before.advance(*value);
        }
        changed_texts(&row.texts, &self.parts.texts, out);
        row.texts.clone_from(&self.parts.texts);
        self.kinds[0].clone_from(&row);
        row
    }

    /// Appends the rows to the line.
    pub(super) fn unpack(&mut self, packed: &mut &[u8], line: &mut Vec<u8>) -> Result<()> {
        let list = take_length(packed, self.lists.len())?;
        let count = take_length(packed, MOST)?;
        let mut before = if list > 0 { self.lists.remove(self.lists.len() - list) } else { Vec::new() };
        let (mut now, mut next) = (Vec::new(), 0);
        while now.len() < count {
            for _ in 0..take_length(packed, count - now.len())? {
                let row = before.get_mut(next).ok_or_else(invalid)?;
                now.push(std::mem::take(row).expected());
                next += 1;
            }
            if now.len() == count {
                break;
            }
            let distance = take_length(packed, before.len())?;
            let found = distance.checked_sub(1).map(|distance| (next + distance) % before.len());
            let of_request = found.map(|found| std::mem::take(&mut before[found]));
            next = found.map_or(next, |found| found + 1);
            now.push(self.unpack_row(of_request, packed)?);
        }
        for (at, row) in now.iter().enumerate() {
            if at > 0 {
                line.push(b',');
            }
            parts::write(&row.marked, row.numbers.iter().map(|number| number.value), &row.texts, line)?;
        }
        self.keep(now);
        Ok(())
    }

    fn unpack_row(&mut self, of_request: Option<Row>, packed: &mut &[u8]) -> Result<Row> {
        let Some(kind) = take_length(packed, self.kinds.len())?.checked_sub(1) else {
            self.parts.read(take_text(packed)?);
            return Ok(self.add_kind());
        };
        let mut row = self.begin_row(kind, of_request);
        let mut values: Vec<i64> = row.numbers.iter().map(|number| number.expected()).collect();
        for _ in 0..take_length(packed, values.len())? {
            let at = take_length(packed, values.len())?;
            let value = values.get_mut(at).ok_or_else(invalid)?;
            *value = value.wrapping_add(take_signed(packed)?);
        }
        row.numbers.iter_mut().zip(values).for_each(|(number, value)| number.advance(value));
        take_changed_texts(packed, &mut row.texts)?;
        self.kinds[0].clone_from(&row);
        Ok(row)
    }

    /// Makes the row that is in `parts` the first one of a new kind.
    fn add_kind(&mut self) -> Row {
        let Parts { marked, numbers, texts } = &self.parts;
        let numbers = numbers.iter().map(|value| Number { value: *value, ..Number::default() }).collect();
        let row = Row { marked: marked.as_slice().into(), numbers, texts: texts.clone() };
        self.kinds.insert(0, row.clone());
        self.kinds.truncate(KINDS);
        row
    }

    /// The row from which the expected numbers of a row are computed: the last row of its request if it is known and similar, else
    /// the last row of its kind. Moves the kind to the beginning.
    fn begin_row(&mut self, kind: usize, of_request: Option<Row>) -> Row {
        self.kinds[..=kind].rotate_right(1);
        let kind = &self.kinds[0];
        match of_request {
            Some(row) if row.marked == kind.marked => row,
            Some(row) if row.numbers.len() == kind.numbers.len() => {
                // When a request begins to decode, its values stay, but their expected changes come from the new kind.
                let numbers = row.numbers.iter().zip(&kind.numbers);
                let numbers = numbers.map(|(row, kind)| Number { value: row.value, ..*kind }).collect();
                Row { numbers, ..kind.clone() }
            }
            _ => kind.clone(),
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.lists.iter().chain([&self.kinds]).map(Vec::len).sum()
    }

    fn keep(&mut self, rows: Vec<Row>) {
        self.lists.extend(Some(rows).filter(|rows| !rows.is_empty()));
        while self.lists.iter().map(Vec::len).sum::<usize>() > MOST {
            self.lists.remove(0);
        }
    }
}

impl Row {
    fn has_id(&self, id: i64) -> bool {
        self.numbers.first().is_some_and(|number| number.value == id)
    }

    fn is_expected(&self, now: &Parts) -> bool {
        *self.marked == *now.marked
            && self.texts == now.texts
            && self.numbers.iter().zip(&now.numbers).all(|(number, now)| number.expected() == *now)
    }

    fn expected(mut self) -> Self {
        self.numbers.iter_mut().for_each(|number| number.advance(number.expected()));
        self
    }
}

impl Number {
    fn expected(self) -> i64 {
        self.value.wrapping_add(self.change)
    }

    fn advance(&mut self, value: i64) {
        let change = value.wrapping_sub(self.value);
        if change == self.last {
            self.change = change;
        }
        (self.value, self.last) = (value, change);
    }
}
