//! What Kubernetes says of a pod whose engine cannot serve.

/// Why the container of an engine does not run, in words without addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodTrouble {
    /// It is scheduled, pulled or started.
    Loading(String),
    /// It has failed and was started again.
    Restarted(String),
    /// It has ended, or its node is lost.
    Down(String),
}

impl PodTrouble {
    #[must_use]
    pub fn why(&self) -> &str {
        let (Self::Loading(why) | Self::Restarted(why) | Self::Down(why)) = self;
        why
    }
}
