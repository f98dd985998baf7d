//! Recordings: what the engines sent, kept on disk by the [`recorder`] and read by a replay. A recording is a directory of
//! segments. A segment belongs to one engine and is a sequence of zstd frames. A frame contains whole lines of JSON, one for each
//! [`Item`], packed ([`pack`]).
#![forbid(unsafe_code)]

pub mod directory;
pub mod frame;
pub mod gpu;
pub mod item;
pub mod pack;
mod reader;
pub mod recorder;
mod rounding;

pub use item::{FORMAT, Failure, Header, Item, Line, RecordedMoment, Settled, Stamp};
pub use reader::{OpenRecordingError, Reader, engines, utc};
