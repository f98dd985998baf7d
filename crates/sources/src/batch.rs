//! What one poll of a source returns.

use std::collections::BTreeSet;

use trtllm_recording::Line;
use trtllm_records::{
    EngineAbout, EngineSettings, ForwardedSpans, Message, RejectCounts, RejectReason, SpanDropCounts,
};

/// The messages of one poll, in the order in which the engine sent them, and what else the poll found.
#[derive(Debug, Default)]
pub struct Batch {
    pub messages: Vec<Message>,
    /// The lines of a replayed recording, instead of messages.
    pub lines: Vec<Line>,
    /// Approximate memory of the messages and lines that were pushed.
    weight: usize,
    pub rejected: RejectCounts,
    /// Totals since the source was opened, for a source that receives spans.
    pub spans_dropped: Option<SpanDropCounts>,
    /// `None` if spans are not forwarded.
    pub spans_forwarded: Option<ForwardedSpans>,
    /// Facts about the engine, if any is new.
    pub about: Option<EngineAbout>,
    /// Connected publishers, for sources that listen.
    pub connections: Option<u64>,
    /// PIDs of the publishers, if all of them are visible here.
    pub processes: Vec<u32>,
    /// True if the poll has more to read once these messages have been folded.
    pub more: bool,
    /// True if the records are the content of an engine's ring, which drops its oldest records when it is full.
    pub from_ring: bool,
    /// True if the poll has taken records from the engine that it could not read.
    pub drained_unparsed: bool,
    /// Names that show whether the server is newer than this exporter: keys of its messages and families of its page,
    /// collected now and then, and paths whose answers have an unknown structure.
    pub keys: BTreeSet<String>,
    /// Endpoints that the server does not have; `None` if no endpoint was requested.
    pub missing_endpoints: Option<Vec<&'static str>>,
    /// Why an endpoint besides the records cannot be read although the server has it, and what to do. It may name an
    /// address. Only known if `missing_endpoints` is.
    pub endpoint_error: Option<String>,
    /// The records come from an iteration log.
    pub only_log: bool,
    /// What the user should change, because statistics are missing although the poll succeeds.
    pub notice: Option<&'static str>,
    /// The source has delivered its last message (the end of a replay).
    pub ended: bool,
}

impl Batch {
    /// Limit for the memory of the messages that wait to be folded: thousands of records with request rows.
    const MAX_WEIGHT: usize = 16 << 20;

    /// If the messages take this much memory, they should be folded before more are parsed.
    pub const ENOUGH: usize = 256 << 10;

    /// Whether more messages may be parsed before these are folded.
    pub fn has_room(&self) -> bool {
        self.weight < Self::ENOUGH
    }

    /// Adds a message, or counts it as rejected if the messages before it take too much memory.
    pub fn push(&mut self, message: Message) {
        self.weight += message.weight();
        if self.weight <= Self::MAX_WEIGHT {
            self.messages.push(message);
        } else {
            self.reject(RejectReason::TooMany);
        }
    }

    pub(super) fn push_line(&mut self, line: Line) {
        self.weight += line.weight();
        self.lines.push(line);
    }

    /// Adds what another reading of the same poll found.
    pub(super) fn append(&mut self, mut other: Self) {
        self.keys.append(&mut other.keys);
        other.messages.into_iter().for_each(|message| self.push(message));
        for (total, rejected) in self.rejected.iter_mut().zip(other.rejected) {
            *total += rejected;
        }
    }

    /// Empties the batch for the next poll. The memory of an unusually large poll is freed.
    pub fn clear(&mut self) {
        const KEEP: usize = 4096;
        self.messages.clear();
        self.messages.shrink_to(KEEP);
        *self = Self { messages: std::mem::take(&mut self.messages), ..Self::default() };
    }

    /// Replaces the settings of the engine. A publisher without settings changes nothing.
    pub(super) fn update_settings(&mut self, settings: EngineSettings) {
        if !settings.is_empty() {
            self.about = Some(EngineAbout { settings, ..EngineAbout::default() });
        }
    }

    /// Takes the messages to fold them, maybe before the poll ends.
    pub fn drain(&mut self) -> impl Iterator<Item = Message> {
        (self.weight, self.more) = (0, false);
        self.messages.drain(..)
    }

    pub fn reject(&mut self, reason: RejectReason) {
        self.rejected[reason as usize] += 1;
    }
}

/// Whether the source has an engine. None of these values is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The engine or its publisher answered, with or without messages.
    Present,
    /// The source listens, and no publisher is connected.
    Disconnected,
    /// The publisher of this engine disconnected so long ago that the engine is removed.
    Forgotten,
    /// The engine is still loading its model; it has no statistics yet.
    Loading,
}
