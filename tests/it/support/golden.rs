//! Golden files: the output of a program must equal them byte for byte.

use std::fs;

/// Compares `printed` with the file `path` of the repository. With `UPDATE_GOLDEN`, writes the file first.
pub(crate) fn same_as_golden(path: &str, printed: &str) {
    let file = super::root().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, printed).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap();
    let differing = printed.lines().zip(golden.lines()).find(|(printed, golden)| printed != golden);
    assert!(
        printed == golden,
        "{path} has changed (now, before): {differing:?}; to accept it: UPDATE_GOLDEN=1 cargo test --test it golden"
    );
}
