//! A mistake in the configuration.

use std::fmt::Display;
use std::path::PathBuf;

use super::secrets::{hide_secrets, hide_secrets_of_url};

/// An invalid configuration. The text names the flag or key and the remedy. It hides what may be secret in a URL.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{at}: {}", hide_secrets(why))]
    Engine { at: String, why: String },
    #[error("--config.file {}: {}", path.display(), hide_secrets(cause))]
    File { path: PathBuf, cause: String },
    #[error("cannot read the recording {path}: {why}")]
    Recording { path: PathBuf, why: String },
    /// A command cannot write its output. All other variants are mistakes in the configuration.
    #[error("{0}")]
    Output(String),
    #[error("{flag} {}: {}", hide_secrets_of_url(value), hide_secrets(why))]
    Flag { flag: &'static str, value: String, why: String },
    /// Any other mistake, with its remedy.
    #[error("{0}")]
    Other(String),
}

impl ConfigError {
    /// A flag or an argument with an invalid value.
    #[must_use]
    pub fn flag(flag: &'static str, value: impl Display, why: impl Into<String>) -> Self {
        Self::Flag { flag, value: value.to_string(), why: why.into() }
    }

    /// The exit code of a program that ends with this error: 2 for a mistake, 1 if an output cannot be written.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        if matches!(self, Self::Output(_)) { 1 } else { 2 }
    }
}
