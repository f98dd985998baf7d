//! Subcommands that print to stdout and exit. No other code writes to stdout.
#![allow(clippy::print_stdout)] // their output is their purpose

pub mod catalog;
pub mod check_config;
