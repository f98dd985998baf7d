//! Tells the binary which compiler made it, for `trtllm_exporter_build_info`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    // "rustc 1.95.0 (59807616e 2026-04-14)": the number is what a bug report needs.
    if let Some(number) = version.as_deref().and_then(|text| text.split_whitespace().nth(1)) {
        println!("cargo::rustc-env=TRTLLM_EXPORTER_RUSTC={number}");
    }
}
