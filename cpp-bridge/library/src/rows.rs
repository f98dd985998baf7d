//! Decodes the rows that `detail/rows.h` writes into the model's records. Header and library agree on the slot numbers in
//! `detail/members.h`, from which build.rs generates the decoder: a slot that an older header does not write is absent,
//! and a slot that a newer header adds is ignored.

use std::cell::Cell;

use exporter::model::iteration::{InflightBatchingStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats};
use exporter::model::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use exporter::model::request::{DisServingRequestStats, RequestStage, RequestStats};
use exporter::model::timestamp::parse_timestamp;
use exporter::model::{IterationStats, PerfMetricsEntry};

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Iteration,
    /// The start of one iteration's requests. A `Request` row follows for each of them.
    Requests,
    Request,
    Finished,
    /// A kind that a newer header added.
    Unknown,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) kind: Kind,
    count: usize,
    present: &'a [u8],
    values: &'a [u8],
    text: &'a [u8],
}

impl<'a> Row<'a> {
    /// Reads the first row and removes it from `rows`. None at the end, or if the row is truncated.
    pub(crate) fn next(rows: &mut &'a [u8]) -> Option<Self> {
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
        Some(Self { kind, count, present, values, text })
    }

    fn bits(&self, slot: usize) -> Option<[u8; 8]> {
        let words = self.present.as_chunks::<8>().0;
        let present = slot < self.count && u64::from_ne_bytes(*words.get(slot / 64)?) >> (slot % 64) & 1 == 1;
        present.then(|| self.values.as_chunks::<8>().0.get(slot).copied())?
    }

    pub(crate) fn count(&self, slot: usize) -> Option<u64> {
        self.bits(slot).map(u64::from_ne_bytes)
    }

    fn reader(&self) -> Reader<'_> {
        Reader { row: *self, found: Cell::new(false) }
    }

    pub(crate) fn iteration(&self) -> IterationStats {
        let timestamp = std::str::from_utf8(self.text).ok().and_then(parse_timestamp);
        IterationStats { timestamp, ..decode::decode_iteration_stats(&self.reader(), 0) }
    }

    pub(crate) fn request(&self) -> RequestStats {
        decode::decode_request_stats(&self.reader(), 0)
    }

    pub(crate) fn finished(&self) -> PerfMetricsEntry {
        PerfMetricsEntry {
            request_id: self.count(0),
            finish_reason: self.bits(1).map(i64::from_ne_bytes).map(|reason| match reason {
                0 | 1 => FinishReason::Stop,
                2 => FinishReason::Length,
                3 => FinishReason::Timeout,
                4 => FinishReason::Cancelled,
                _ => FinishReason::Other,
            }),
            perf_metrics: Some(decode::decode_request_perf_metrics(&self.reader(), 0)),
            ..PerfMetricsEntry::default()
        }
    }
}

/// Reads the slots of one struct, and notes whether any was present.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    row: Row<'a>,
    found: Cell<bool>,
}

impl Reader<'_> {
    fn get<T: Slot>(&self, slot: usize) -> Option<T> {
        let bits = self.row.bits(slot)?;
        self.found.set(true);
        Some(T::from_bits(bits))
    }

    /// A nested struct without a present slot is absent.
    fn nested<T>(&self, slot: usize, decode: fn(&Reader<'_>, usize) -> T) -> Option<T> {
        let reader = self.row.reader();
        let value = decode(&reader, slot);
        reader.found.get().then_some(value)
    }
}

/// A value that a slot can hold.
trait Slot {
    fn from_bits(bits: [u8; 8]) -> Self;
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

impl Slot for RequestStage {
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

mod decode {
    // A struct whose members are all in the list needs no default, and the first slot has the number 0.
    #![allow(clippy::identity_op, clippy::needless_update)]
    use super::{
        DisServingRequestStats, InflightBatchingStats, IterationStats, KvCacheStats, Reader, RequestKvCacheMetrics,
        RequestPerfMetrics, RequestStats, SpecDecodingStats, SpeculativeDecodingMetrics, StaticBatchingStats,
        TimingMetrics,
    };
    include!(concat!(env!("OUT_DIR"), "/decode.rs"));
}
