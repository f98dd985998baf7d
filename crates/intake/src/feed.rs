//! What a driver polls: a source, or a recording.

use std::time::Duration;

use trtllm_recording::Line;
use trtllm_sources::{Batch, Presence, Source, SourceError};

use crate::playback::Playback;

/// A source delivers messages in a batch, a recording its lines.
#[derive(Debug)]
pub enum Feed {
    Source(Source),
    Recording(Playback),
}

impl From<Source> for Feed {
    fn from(source: Source) -> Self {
        Self::Source(source)
    }
}

impl Feed {
    /// Fills `batch`, or reads the lines that [`Self::take_lines`] returns.
    ///
    /// # Errors
    /// As [`Source::poll`].
    pub async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        match self {
            Self::Source(source) => source.poll(batch).await,
            // A read from a network file system may hang. Other tasks then move to another thread.
            Self::Recording(playback) => tokio::task::block_in_place(|| playback.poll(batch)),
        }
    }

    /// The lines of the last poll. A source has none.
    pub fn take_lines(&mut self) -> Vec<Line> {
        match self {
            Self::Source(_) => Vec::new(),
            Self::Recording(playback) => playback.take_lines(),
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        if let Self::Source(source) = self { source.interval() } else { Duration::ZERO }
    }

    pub(crate) fn take_partial(&mut self, batch: &mut Batch) -> bool {
        if let Self::Source(source) = self { source.take_partial(batch) } else { false }
    }

    pub(crate) fn is_loading(&self) -> bool {
        if let Self::Source(source) = self { source.is_loading() } else { false }
    }

    pub(crate) async fn close(self) {
        if let Self::Source(source) = self {
            source.close().await;
        }
    }

    pub(crate) fn target(&self) -> String {
        match self {
            Self::Source(source) => source.target(),
            Self::Recording(playback) => playback.target.clone(),
        }
    }
}
