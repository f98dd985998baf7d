//! How statistics of an engine get into the exporter: [`poll`] polls a source, or replays a recording, on its schedule. An
//! [`Intake`] folds the messages and publishes the result.
#![forbid(unsafe_code)]

mod feed;
mod intake;
pub mod past;
mod playback;
pub mod poll;
#[cfg(test)]
mod simulation;
mod source_log;

pub use feed::Feed;
pub use intake::{Intake, Moment, UnknownKeyFilter};
pub use playback::Playback;
