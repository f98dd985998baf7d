//! The format of a recording, which the recorder writes and a replay reads. A recording is a directory of segments. A segment
//! belongs to one engine and is a sequence of zstd frames. A frame contains whole lines of JSON. Knows neither engines nor
//! sources.

pub mod directory;
pub mod frame;
pub mod line;
mod reader;

pub use line::{Header, Line, Moment, Settled};
pub use reader::{OpenRecordingError, Reader};
