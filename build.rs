//! Gives the binary the version of its compiler, for `trtllm_exporter_build_info`, and the path of the TensorRT-LLM that it
//! was built against.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // trtllm-bridge sets it if TENSORRT_LLM_ROOT is set. LD_LIBRARY_PATH still has priority.
    if let Ok(lib) = std::env::var("DEP_TENSORRT_LLM_LIB") {
        println!("cargo::rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{lib}");
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    // "rustc 1.95.0 (59807616e 2026-04-14)": a bug report needs the number only.
    if let Some(number) = version.as_deref().and_then(|text| text.split_whitespace().nth(1)) {
        println!("cargo::rustc-env=TRTLLM_EXPORTER_RUSTC={number}");
    }
}
