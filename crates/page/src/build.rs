//! What this program was built from. The build script sets the values; "unknown" if it does not know them.

/// The version of the crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit. The release script adds `-modified` if the source had changes.
pub const REVISION: &str = env!("TRTLLM_EXPORTER_REVISION");
/// The day of the commit, as `2026-11-22`. Not the day of the build: the same source gives the same program.
pub const COMMIT_DATE: &str = env!("TRTLLM_EXPORTER_COMMIT_DATE");
/// The version of the Rust compiler.
pub const COMPILER: &str = env!("TRTLLM_EXPORTER_RUSTC");
/// All of these values, for `--version`.
pub const LINE: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (revision ",
    env!("TRTLLM_EXPORTER_REVISION"),
    " of ",
    env!("TRTLLM_EXPORTER_COMMIT_DATE"),
    ", rustc ",
    env!("TRTLLM_EXPORTER_RUSTC"),
    ")"
);
