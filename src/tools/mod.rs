//! Subcommands that print something and end. Nothing else writes to stdout.
#![allow(clippy::print_stdout)]

pub mod catalog;
pub mod check_config;
