//! How statistics of an engine get into the exporter: [`poll`] polls a source on its schedule, and an [`Intake`] folds the
//! items and publishes the result.
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
pub use intake::{Intake, Moment, Unread};
pub use playback::Playback;
