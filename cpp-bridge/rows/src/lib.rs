//! Reads the rows of numbers in which the bridge and `libtrtllm_exporter` pass TensorRT-LLM's records to Rust. C++ writes
//! them (`detail/rows.h`). Both sides use the slot numbers of one list (`detail/members.h`), from which build.rs generates
//! the decoder: a slot that an older header does not write is absent, and a slot that a newer header adds is ignored.

use std::cell::Cell;

use trtllm_model::request::RequestStage;

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An `IterationStats`.
    Iteration,
    /// The start of one iteration's requests; slot 0 is its number. A `Request` row follows for each of them.
    Requests,
    /// A `RequestStats`.
    Request,
    /// The result of a request; see [`finished`].
    Finished,
    /// A kind that a newer header added.
    Unknown,
}

/// The slots of a `Finished` row that do not belong to its `RequestPerfMetrics`.
pub mod finished {
    pub const REQUEST: usize = 0;
    /// A position in the list `FinishReasons` of `detail/values.h`. Any other number is another reason, or an error.
    pub const REASON: usize = 1;
    pub const PROMPT_TOKENS: usize = 20;
    pub const OUTPUT_TOKENS: usize = 21;
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub kind: Kind,
    /// One bit for each slot.
    present: &'a [[u8; 8]],
    values: &'a [[u8; 8]],
    text: &'a [u8],
}

impl<'a> Row<'a> {
    /// Reads the first row and removes it from `rows`. None at the end, or if the row is truncated.
    pub fn next(rows: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = rows.split_first()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (text, rest) = rest.split_first_chunk()?;
        let (count, text) = (usize::from(u16::from_ne_bytes(*count)), usize::from(u16::from_ne_bytes(*text)));
        let (present, rest) = rest.split_at_checked(count.div_ceil(64) * 8)?;
        let (values, rest) = rest.split_at_checked(count * 8)?;
        let (text, rest) = rest.split_at_checked(text)?;
        *rows = rest;
        let kind = match kind {
            b'i' => Kind::Iteration,
            b'r' => Kind::Requests,
            b'q' => Kind::Request,
            b'p' => Kind::Finished,
            _ => Kind::Unknown,
        };
        Some(Self { kind, present: present.as_chunks().0, values: values.as_chunks().0, text })
    }

    /// The value of this slot. None if it is absent.
    pub fn get<T: Slot>(&self, slot: usize) -> Option<T> {
        let value = *self.values.get(slot)?;
        let present = u64::from_ne_bytes(*self.present.get(slot / 64)?) >> (slot % 64) & 1 == 1;
        present.then(|| T::from_bits(value))
    }

    /// The timestamp of an iteration. Empty if the engine wrote none, or no UTF-8.
    #[must_use]
    pub fn text(&self) -> &'a str {
        std::str::from_utf8(self.text).unwrap_or_default()
    }

    #[must_use]
    pub fn reader(&self) -> Reader<'a> {
        Reader { row: *self, found: Cell::new(false) }
    }
}

/// Reads the slots of one struct, and notes whether any was present.
#[derive(Debug)]
pub struct Reader<'a> {
    row: Row<'a>,
    found: Cell<bool>,
}

impl<'a> Reader<'a> {
    pub fn get<T: Slot>(&self, slot: usize) -> Option<T> {
        let value = self.row.get(slot);
        self.found.set(self.found.get() || value.is_some());
        value
    }

    /// A nested struct without a present slot is absent.
    pub fn nested<T>(&self, slot: usize, decode: fn(&Reader<'a>, usize) -> T) -> Option<T> {
        let reader = self.row.reader();
        let value = decode(&reader, slot);
        reader.found.get().then_some(value)
    }
}

/// A value that a slot can hold.
pub trait Slot {
    fn from_bits(bits: [u8; 8]) -> Self;
}

impl Slot for RequestStage {
    /// A position in the list `Stages` of `detail/values.h`.
    fn from_bits(bits: [u8; 8]) -> Self {
        match i64::from_ne_bytes(bits) {
            0 => Self::Queued,
            1 => Self::Encoder,
            2 => Self::Context,
            3 => Self::Generation,
            4 => Self::Complete,
            _ => Self::Unknown,
        }
    }
}

impl Slot for i64 {
    fn from_bits(bits: [u8; 8]) -> Self {
        Self::from_ne_bytes(bits)
    }
}

impl Slot for u64 {
    fn from_bits(bits: [u8; 8]) -> Self {
        Self::from_ne_bytes(bits)
    }
}

impl Slot for f64 {
    fn from_bits(bits: [u8; 8]) -> Self {
        Self::from_ne_bytes(bits)
    }
}

impl Slot for bool {
    fn from_bits(bits: [u8; 8]) -> Self {
        u64::from_ne_bytes(bits) != 0
    }
}

include!(concat!(env!("OUT_DIR"), "/generated.rs"));
