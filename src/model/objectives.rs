//! What is promised to the users of an engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest times that are promised to users. Absent ones are not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Objectives {
    /// From the arrival to the first token.
    pub ttft: Option<Duration>,
    /// Per output token after the first.
    pub tpot: Option<Duration>,
    /// From the arrival to the last token.
    pub e2e: Option<Duration>,
}

impl Objectives {
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Each with its name.
    #[must_use]
    pub fn limits(&self) -> [(&'static str, Option<Duration>); 3] {
        [("ttft", self.ttft), ("tpot", self.tpot), ("e2e", self.e2e)]
    }
}
