//! Subcommands that print to stdout and exit.

pub mod catalog;
pub mod dry_run;
pub mod init;
mod unjudged;
