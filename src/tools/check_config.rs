//! `check-config FILE`: what it prints for a valid file. The checks are those of a start.

use std::path::Path;

use crate::config::EngineConfig;

use super::print;

/// Prints one line per engine.
pub fn print_engines(path: &Path, engines: &[EngineConfig]) {
    for engine in engines {
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
}
