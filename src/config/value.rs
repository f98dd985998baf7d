//! A value of the configuration, with its place in the file.

/// A value and its line. Values of flags have line 0.
#[derive(Debug, Clone, Default)]
pub(super) struct ConfigValue {
    pub(super) text: String,
    pub(super) line: usize,
}
