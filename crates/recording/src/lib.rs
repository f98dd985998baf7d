//! Recordings of what the engines sent. The [`recorder`] keeps them on disk, and a replay reads them. A recording is a
//! directory of segments. A segment belongs to one engine and is a sequence of zstd frames. A frame contains whole lines of
//! JSON ([`Line`]), so `zstdcat` prints a recording.
#![forbid(unsafe_code)]

pub mod directory;
pub mod frame;
pub mod line;
mod reader;
pub mod recorder;

pub use line::{Entry, FORMAT, Header, Line, LineWriter, RecordedMoment, Settled};
pub use reader::{OpenRecordingError, OtherFormats, Reader, Recording, utc};
