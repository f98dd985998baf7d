//! Subcommands that print and end. The only place that writes to stdout.
#![allow(clippy::print_stdout)]

pub mod catalog;
pub mod check_config;
