//! Finds the archives that C++ programs need to link the simulated SDK.

use std::path::{Path, PathBuf};

/// The archive of the SDK, and the archive of the step function that the SDK calls. Cargo puts the latter beside this
/// program and adds a hash to its name.
pub(crate) fn simulated_sdk() -> [PathBuf; 2] {
    let program = std::env::current_exe().unwrap();
    let beside = std::fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = beside.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libtrtllm_sim_c") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    [Path::new(env!("OUT_DIR")).join("libtensorrt_llm_simulated.a"), newest.unwrap()]
}
