//! What a driver polls: a source, or a recording.

use std::time::Duration;

use trtllm_recording::Line;
use trtllm_sources::{Batch, Blocking, Presence, Source, SourceError};

use crate::playback::Playback;

/// A source delivers messages in a batch, a recording its lines.
#[derive(Debug)]
pub enum Feed {
    Source(Source),
    Recording(Blocking<Playback>),
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
            Self::Recording(playback) => playback.poll(batch).await,
        }
    }

    /// The lines of the last poll. A source has none.
    pub fn take_lines(&mut self) -> Vec<Line> {
        match self {
            Self::Source(_) => Vec::new(),
            Self::Recording(playback) => playback.source.as_mut().map(Playback::take_lines).unwrap_or_default(),
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
