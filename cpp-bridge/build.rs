//! Compiles the bridge against the TensorRT-LLM under TENSORRT_LLM_ROOT (`include/`, `lib/`). Without this variable, it
//! compiles the bridge against the simulated SDK of this crate.

// Cargo reads build script instructions from standard output.
#![allow(clippy::print_stdout)]

#[path = "build/probe.rs"]
mod probe;

use std::env;
use std::path::{Path, PathBuf};

const ROOT: &str = "TENSORRT_LLM_ROOT";
const BRIDGE: &str = "cpp";
/// The headers of the publisher, which contain the list of the members of TensorRT-LLM's structs.
const MEMBERS: &str = "publisher/include";
const PROBE: &str = "build/probe.cc";
const SIMULATOR: &str = "sim/src";
/// Selects the release that the simulated SDK imitates. The table lists the supported releases.
const SIM_RELEASE: &str = "TRTLLM_SIM_RELEASE";
const SIM_RELEASES: [(&str, u32); 6] =
    [("0.9", 9), ("0.11", 11), ("0.13", 13), ("0.15", 15), ("1.0", 100), ("1.1", 101)];
/// Variables that name the CUDA toolkit. The executor.h of a real release includes CUDA headers.
const CUDA_HOMES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(simulated_sdk)");
    let known: Vec<String> = SIM_RELEASES.iter().map(|(name, _)| format!("{name:?}")).collect();
    println!("cargo::rustc-check-cfg=cfg(sim_since, values({}))", known.join(", "));
    for name in [ROOT, SIM_RELEASE].iter().chain(&CUDA_HOMES) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "build", "src/ffi.rs", "include", MEMBERS, BRIDGE, "sim"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let root = env::var_os(ROOT).filter(|root| !root.is_empty()).map(PathBuf::from);
    if let Err(message) = root.map_or_else(compile_simulated, |root| compile_real(&root)) {
        // Fails the build and prints only this line.
        println!("cargo::error={message}");
    }
}

fn compile_simulated() -> Result<(), String> {
    println!("cargo::rustc-cfg=simulated_sdk");
    let release = simulated_release()?;
    for (name, _) in SIM_RELEASES.iter().filter(|(_, number)| *number <= release) {
        println!("cargo::rustc-cfg=sim_since={name:?}");
    }
    // The tests compile C++ programs and need these values.
    println!("cargo::rustc-env=TRTLLM_SIM_RELEASE_NUMBER={release}");
    println!("cargo::rustc-env=TRTLLM_SIM_RELEASE_NAME={}.{}", release / 100, release % 100);
    let include = Path::new("sim/include");
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    bridge.define("TRTLLM_BRIDGE_SIMULATED", None);
    bridge.define(SIM_RELEASE, release.to_string().as_str());
    let mut simulator = cc::Build::new();
    simulator.define(SIM_RELEASE, release.to_string().as_str()).cargo_metadata(false);
    // Compiled in parallel, because these two take most of this crate's build time.
    let compiling = std::thread::spawn(move || finish(&mut simulator, SIMULATOR, include, "tensorrt_llm_simulated"));
    let compiled = finish(&mut bridge, BRIDGE, include, "trtllm_bridge_cpp");
    compiling.join().map_err(|_| "the thread that compiles the simulated SDK panicked".to_owned())??;
    compiled?;
    // Printed after the bridge, because linkers resolve archives in order.
    println!("cargo::rustc-link-lib=static=tensorrt_llm_simulated");
    println!("cargo::rustc-link-lib=pthread");
    prefer_static_cxx_runtime(&bridge);
    Ok(())
}

/// Links libstdc++ and libgcc statically if the compiler has the archives. The shared libraries take a tenth of the
/// exporter's memory and start-up time, and small images do not contain them. Only for the simulated SDK: a real SDK
/// loads the shared libraries, and exceptions do not work across two copies in one process. Sanitizers need the shared
/// libraries, too.
fn prefer_static_cxx_runtime(build: &cc::Build) {
    const ARCHIVES: [(&str, &str); 2] = [("libstdc++.a", "libstdc++.a"), ("libgcc_eh.a", "libgcc_s.a")];
    let (Ok(compiler), Some(out)) = (build.try_get_compiler(), env::var_os("OUT_DIR")) else { return };
    if compiler.args().iter().any(|flag| flag.to_string_lossy().starts_with("-fsanitize")) {
        return;
    }
    let folder = Path::new(&out).join("static-cxx-runtime");
    let found = ARCHIVES.map(|(name, link_name)| {
        let output = compiler.to_command().arg(format!("-print-file-name={name}")).output().ok()?;
        let archive = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        // A compiler without the archive prints the name without a path.
        (archive.is_absolute() && archive.is_file()).then_some((archive, link_name))
    });
    let [Some(library), Some(unwinder)] = found else { return };
    let copied = std::fs::create_dir_all(&folder).and_then(|()| {
        [library, unwinder].into_iter().try_for_each(|(from, to)| std::fs::copy(from, folder.join(to)).map(drop))
    });
    if copied.is_ok() {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
}

fn simulated_release() -> Result<u32, String> {
    let value = env::var(SIM_RELEASE).unwrap_or_default();
    let newest = SIM_RELEASES[SIM_RELEASES.len() - 1];
    let found = if value.is_empty() { Some(&newest) } else { SIM_RELEASES.iter().find(|(name, _)| *name == value) };
    found.map(|(_, number)| *number).ok_or_else(|| {
        let names: Vec<&str> = SIM_RELEASES.iter().map(|(name, _)| *name).collect();
        format!("{SIM_RELEASE}={value}: unsupported release; use one of {}", names.join(", "))
    })
}

fn compile_real(root: &Path) -> Result<(), String> {
    // Releases before 0.11 include the half-precision headers only if this is defined.
    let mut flags = vec!["-DENABLE_BF16".to_owned()];
    for cuda in CUDA_HOMES.iter().filter_map(env::var_os).filter(|home| !home.is_empty()) {
        flags.push(format!("-isystem{}", Path::new(&cuda).join("include").display()));
    }
    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).try_get_compiler();
    let compiler = compiler.map_err(|error| format!("no C++ compiler found; install g++ or set CXX: {error}"))?;
    let scratch = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let found = probe::examine(root, Path::new(PROBE), &|| compiler.to_command(), &flags, &scratch)?;
    // Cargo shows only warnings when a build script succeeds.
    println!("cargo::warning={}", found.summary());
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    for flag in &flags {
        bridge.flag(flag);
    }
    finish(&mut bridge, BRIDGE, &found.include, "trtllm_bridge_cpp")?;
    println!("cargo::rustc-link-search=native={}", found.lib.display());
    println!("cargo::rustc-link-lib=dylib=tensorrt_llm");
    println!("cargo::rustc-link-lib=dylib=nvinfer_plugin_tensorrt_llm");
    // The rpath is for the tests of this crate. Programs that link this crate set their own from `lib`.
    println!("cargo::metadata=lib={}", found.lib.display());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", found.lib.display());
    Ok(())
}

/// Compiles all source files of a folder into one archive. The SDK is a system include folder, which silences warnings
/// of its headers.
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
        .include(MEMBERS)
        .std("c++17")
        // Level 2 does not inline all functions that fill a record.
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wpedantic")
        .flag(format!("-isystem{}", sdk.display()))
        .try_compile(archive)
        .map_err(|error| format!("compiling {folder} against {} failed: {error}", sdk.display()))
}
