//! `check-config FILE`: checks a configuration file as the daemon does.

use std::path::Path;

use crate::config::{ConfigError, read_file};

/// Prints one line per engine.
///
/// # Errors
/// When the file is invalid.
pub fn run(path: &Path) -> Result<(), ConfigError> {
    let engines = read_file(path)?;
    for engine in &engines {
        let name = &engine.name;
        let labels: String = name.labels.iter().map(|(name, value)| format!(" {name}={value:?}")).collect();
        println!("{} {:?} version {:?}{labels}", name.source, name.model, name.version);
    }
    println!("{}: ok, {} engine(s)", path.display(), engines.len());
    Ok(())
}
