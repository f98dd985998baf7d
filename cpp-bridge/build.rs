//! Compiles the bridge against a TensorRT-LLM: the one under TENSORRT_LLM_ROOT (`include/`, `lib/`), or the simulated
//! SDK of this crate.

// Cargo listens on standard output.
#![allow(clippy::print_stdout)]

use std::env;
use std::path::{Path, PathBuf};

const ROOT: &str = "TENSORRT_LLM_ROOT";
const BRIDGE: &str = "cpp";
const SIMULATOR: &str = "sim/src";
/// What a translation unit that includes executor.h of a real release also needs.
const CUDA_HOMES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(simulated_sdk)");
    for name in [ROOT].iter().chain(&CUDA_HOMES) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "src/ffi.rs", "include", BRIDGE, "sim"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let root = env::var_os(ROOT).filter(|root| !root.is_empty()).map(PathBuf::from);
    if let Err(message) = root.map_or_else(compile_simulated, |root| compile_real(&root)) {
        // Fails the build, with nothing but this line.
        println!("cargo::error={message}");
    }
}

fn compile_simulated() -> Result<(), String> {
    println!("cargo::rustc-cfg=simulated_sdk");
    let include = Path::new("sim/include");
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    bridge.define("TRTLLM_BRIDGE_SIMULATED", None);
    finish(&mut bridge, BRIDGE, include, "trtllm_bridge_cpp")?;
    // After the bridge, because linkers resolve archives in order.
    finish(&mut cc::Build::new(), SIMULATOR, include, "tensorrt_llm_simulated")?;
    println!("cargo::rustc-link-lib=pthread");
    Ok(())
}

fn compile_real(root: &Path) -> Result<(), String> {
    let include = root.join("include");
    let header = include.join("tensorrt_llm/executor/executor.h");
    if !header.is_file() {
        return Err(format!("{ROOT} names {}, but {} is not there", root.display(), header.display()));
    }
    let lib = root.join("lib");
    if !lib.is_dir() {
        return Err(format!("{ROOT} names {}, but {} is not there", root.display(), lib.display()));
    }
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    for cuda in CUDA_HOMES.iter().filter_map(env::var_os) {
        bridge.flag(format!("-isystem{}", Path::new(&cuda).join("include").display()));
    }
    // Releases before 0.11 include the half-precision headers only then.
    bridge.define("ENABLE_BF16", None);
    finish(&mut bridge, BRIDGE, &include, "trtllm_bridge_cpp")?;
    println!("cargo::rustc-link-search=native={}", lib.display());
    println!("cargo::rustc-link-lib=dylib=tensorrt_llm");
    println!("cargo::rustc-link-lib=dylib=nvinfer_plugin_tensorrt_llm");
    // Reaches the tests of this crate; a program that links it brings its own rpath or LD_LIBRARY_PATH.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
    Ok(())
}

/// One archive from every source file of a folder. The SDK is a system folder: its warnings are not ours.
fn finish(build: &mut cc::Build, folder: &str, sdk: &Path, archive: &str) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {folder}: {error}"))?;
    let mut sources: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cc"))
        .collect();
    sources.sort();
    build
        .cpp(true)
        .files(&sources)
        .include("include")
        .std("c++17")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wpedantic")
        .flag(format!("-isystem{}", sdk.display()))
        .try_compile(archive)
        .map_err(|error| format!("compiling {folder} against {} failed: {error}", sdk.display()))
}
