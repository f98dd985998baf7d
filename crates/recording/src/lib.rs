//! Recordings of what the engines sent. The [`recorder`] keeps them on disk, and a replay reads them. A recording is a
//! directory of segments. A segment belongs to one engine and is a sequence of zstd frames. A frame contains whole lines of
//! JSON, one for each [`Item`], which are packed ([`pack`]).
#![forbid(unsafe_code)]

pub mod directory;
pub mod frame;
pub mod gpu;
pub mod item;
pub mod pack;
mod reader;
pub mod recorder;
mod rounding;

pub use item::{FORMAT, Header, Item, Line, RecordedFailure, RecordedMoment, Settled, Stamp};
pub use reader::{OpenRecordingError, Reader, engines, other_formats, utc};
