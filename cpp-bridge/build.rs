//! Compiles the bridge against a TensorRT-LLM: the one under TENSORRT_LLM_ROOT (`include/`, `lib/`), or the simulated
//! SDK of this crate.

// Cargo listens on standard output.
#![allow(clippy::print_stdout)]

#[path = "build/probe.rs"]
mod probe;

use std::env;
use std::path::{Path, PathBuf};

const ROOT: &str = "TENSORRT_LLM_ROOT";
const BRIDGE: &str = "cpp";
const PROBE: &str = "build/probe.cc";
const SIMULATOR: &str = "sim/src";
/// Which release the simulated SDK presents itself as, and the releases it knows.
const SIM_RELEASE: &str = "TRTLLM_SIM_RELEASE";
const SIM_RELEASES: [(&str, u32); 6] =
    [("0.9", 9), ("0.11", 11), ("0.13", 13), ("0.15", 15), ("1.0", 100), ("1.1", 101)];
/// What a translation unit that includes executor.h of a real release also needs.
const CUDA_HOMES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(simulated_sdk)");
    let known: Vec<String> = SIM_RELEASES.iter().map(|(name, _)| format!("{name:?}")).collect();
    println!("cargo::rustc-check-cfg=cfg(sim_since, values({}))", known.join(", "));
    for name in [ROOT, SIM_RELEASE].iter().chain(&CUDA_HOMES) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "build", "src/ffi.rs", "include", BRIDGE, "sim"] {
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
    let release = simulated_release()?;
    for (name, _) in SIM_RELEASES.iter().filter(|(_, number)| *number <= release) {
        println!("cargo::rustc-cfg=sim_since={name:?}");
    }
    // For the programs that the tests compile.
    println!("cargo::rustc-env=TRTLLM_SIM_RELEASE_NUMBER={release}");
    println!("cargo::rustc-env=TRTLLM_SIM_RELEASE_NAME={}.{}", release / 100, release % 100);
    let include = Path::new("sim/include");
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    bridge.define("TRTLLM_BRIDGE_SIMULATED", None);
    bridge.define(SIM_RELEASE, release.to_string().as_str());
    let mut simulator = cc::Build::new();
    simulator.define(SIM_RELEASE, release.to_string().as_str()).cargo_metadata(false);
    // Side by side: they are most of this crate's build.
    let compiling = std::thread::spawn(move || finish(&mut simulator, SIMULATOR, include, "tensorrt_llm_simulated"));
    let compiled = finish(&mut bridge, BRIDGE, include, "trtllm_bridge_cpp");
    compiling.join().map_err(|_| "the thread that compiles the simulated SDK ended".to_owned())??;
    compiled?;
    // After the bridge, because linkers resolve archives in order.
    println!("cargo::rustc-link-lib=static=tensorrt_llm_simulated");
    println!("cargo::rustc-link-lib=pthread");
    prefer_static_cxx_runtime(&bridge);
    Ok(())
}

/// Lets `-lstdc++` and `-lgcc_s` find archives first, where the compiler has them: the shared libraries are a tenth of the
/// exporter's memory and of its start, and small images lack them. Only with the simulated SDK, since a real one brings
/// the shared libraries along, and two of a kind in one process would not know of each other's exceptions; and not under
/// a sanitizer, which watches the shared ones.
fn prefer_static_cxx_runtime(build: &cc::Build) {
    const ARCHIVES: [(&str, &str); 2] = [("libstdc++.a", "libstdc++.a"), ("libgcc_eh.a", "libgcc_s.a")];
    let (Ok(compiler), Some(out)) = (build.try_get_compiler(), env::var_os("OUT_DIR")) else { return };
    if compiler.args().iter().any(|flag| flag.to_string_lossy().starts_with("-fsanitize")) {
        return;
    }
    let folder = Path::new(&out).join("static-cxx-runtime");
    let found = ARCHIVES.map(|(name, wanted_as)| {
        let answer = compiler.to_command().arg(format!("-print-file-name={name}")).output().ok()?;
        let archive = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
        // A compiler that has none answers the bare name.
        (archive.is_absolute() && archive.is_file()).then_some((archive, wanted_as))
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
    let asked = env::var(SIM_RELEASE).unwrap_or_default();
    let newest = SIM_RELEASES[SIM_RELEASES.len() - 1];
    let found = if asked.is_empty() { Some(&newest) } else { SIM_RELEASES.iter().find(|(name, _)| *name == asked) };
    found.map(|(_, number)| *number).ok_or_else(|| {
        let names: Vec<&str> = SIM_RELEASES.iter().map(|(name, _)| *name).collect();
        format!("{SIM_RELEASE} is {asked}: accepted are {}", names.join(", "))
    })
}

fn compile_real(root: &Path) -> Result<(), String> {
    // Releases before 0.11 include the half-precision headers only with this.
    let mut flags = vec!["-DENABLE_BF16".to_owned()];
    for cuda in CUDA_HOMES.iter().filter_map(env::var_os).filter(|home| !home.is_empty()) {
        flags.push(format!("-isystem{}", Path::new(&cuda).join("include").display()));
    }
    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).try_get_compiler();
    let compiler = compiler.map_err(|error| format!("no C++ compiler: {error}"))?;
    let scratch = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let found = probe::examine(root, Path::new(PROBE), &|| compiler.to_command(), &flags, &scratch)?;
    // A warning is the only line that cargo shows of a build that succeeds.
    println!("cargo::warning={}", found.summary());
    let mut bridge = cxx_build::bridge("src/ffi.rs");
    for flag in &flags {
        bridge.flag(flag);
    }
    finish(&mut bridge, BRIDGE, &found.include, "trtllm_bridge_cpp")?;
    println!("cargo::rustc-link-search=native={}", found.lib.display());
    println!("cargo::rustc-link-lib=dylib=tensorrt_llm");
    println!("cargo::rustc-link-lib=dylib=nvinfer_plugin_tensorrt_llm");
    // Reaches the tests of this crate; a program that links it makes its own of what it is told here.
    println!("cargo::metadata=lib={}", found.lib.display());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", found.lib.display());
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
