//! `check-config FILE`: checks a configuration file as the daemon does.

use std::path::Path;

use crate::config::{ConfigError, read_file};

use super::print;

/// Prints one line per engine.
///
/// # Errors
/// When the file is invalid.
pub fn run(path: &Path) -> Result<(), ConfigError> {
    let engines = read_file(path)?;
    for engine in &engines {
        let name = &engine.name;
        let labels: String = name.labels.iter().map(|(name, value)| format!(" {name}={value:?}")).collect();
        let objectives = match name.objectives.any() {
            true => format!(" objectives {}", name.objectives),
            false => String::new(),
        };
        match engine.names_its_engines {
            true => print(&format!("{} with engines that name themselves{labels}{objectives}\n", name.source)),
            false => {
                print(&format!("{} {:?} version {:?}{labels}{objectives}\n", name.source, name.model, name.version))
            }
        }
    }
    print(&format!("{}: ok, {} engine(s)\n", path.display(), engines.len()));
    Ok(())
}
