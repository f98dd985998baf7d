//! `check-config FILE`: what it prints for a valid file. The checks are those of a start.

use std::path::Path;

use crate::config::EngineConfig;

use super::{dry_run, print};

/// Prints one line per engine.
pub fn print_engines(path: &Path, engines: &[EngineConfig]) {
    for engine in engines {
        print(&format!("{} {}\n", engine.name.source, dry_run::names(engine)));
    }
    print(&format!("{}: ok, {} engine(s)\n", path.display(), engines.len()));
}
