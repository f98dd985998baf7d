//! Tests the messages of the build script about a TensorRT-LLM installation. The tests install the simulated one.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "engines/archive.rs"]
mod archive;
#[path = "../build/probe.rs"]
mod probe;

use std::path::{Path, PathBuf};
use std::process::Command;

fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
    command.args(std::env::var("CXXFLAGS").unwrap_or_default().split_whitespace());
    command.arg(concat!("-DTRTLLM_SIM_RELEASE=", env!("TRTLLM_SIM_RELEASE_NUMBER")));
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Linker arguments for the step function. They hide its symbols, because the Rust test program has the same symbols.
fn hidden(step: &Path) -> [&std::ffi::OsStr; 2] {
    [step.as_ref(), "-Wl,--exclude-libs,ALL".as_ref()]
}

/// An installation whose library contains the objects of the simulated SDK for which `keep` returns true.
fn installed(name: &str, keep: impl Fn(&str) -> bool) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&root);
    let (lib, objects) = (root.join("lib"), root.join("objects"));
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::create_dir_all(&objects).unwrap();
    std::os::unix::fs::symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("sim/include"), root.join("include"))
        .unwrap();
    let [sdk, step] = archive::simulated_sdk();
    succeed(Command::new("ar").arg("x").arg(sdk).current_dir(&objects));
    let files = std::fs::read_dir(objects).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.filter(|path| keep(&path.file_name().unwrap().to_string_lossy()));
    succeed(compiler().args(["-shared", "-o"]).arg(lib.join("libtensorrt_llm.so")).args(kept).args(hidden(&step)));
    let plugin = lib.join("libnvinfer_plugin_tensorrt_llm.so");
    succeed(compiler().args(["-shared", "-o"]).arg(plugin).args(["-x", "c++", "/dev/null"]));
    root
}

fn examined(root: &Path) -> Result<probe::Installation, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build/probe.cc");
    probe::examine(root, &source, &compiler, &[], root)
}

#[test]
fn a_complete_installation_is_accepted() {
    let root = installed("whole", |_| true);
    let found = examined(&root).unwrap();
    assert_eq!(found.lib, root.join("lib"));
    assert_eq!(found.include, root.join("include"));
    assert!(found.summary().contains("building with TensorRT-LLM "), "{}", found.summary());
}

#[test]
fn a_library_without_the_executor_is_rejected_with_a_remedy() {
    let root = installed("gone", |object| !object.ends_with("-executor.o"));
    let message = examined(&root).unwrap_err();
    assert!(message.contains("the C++ Executor, but the library does not define it"), "{message}");
    assert!(
        message.contains("tensorrt_llm::executor::Executor::") && message.contains("1.3.0rc20 or older"),
        "{message}"
    );
    assert!(message.contains(&root.display().to_string()) && !message.contains('\n'), "{message}");
}

#[test]
fn a_library_with_the_old_cxx_abi_is_rejected_with_the_flag_to_set() {
    let root = installed("old-abi", |_| true);
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("sim");
    // One translation unit compiles in a fraction of the time.
    let sources = std::fs::read_dir(sdk.join("src")).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "cc"));
    let all: String = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    std::fs::write(root.join("sdk.cc"), all).unwrap();
    let mut build = compiler();
    build.args(["-std=c++17", "-w", "-D_GLIBCXX_USE_CXX11_ABI=0", "-fPIC", "-shared", "-pthread", "-o"]);
    build.arg(root.join("lib/libtensorrt_llm.so")).arg(root.join("sdk.cc"));
    build.args(["include", "src"].map(|folder| format!("-I{}", sdk.join(folder).display())));
    let [_, step] = archive::simulated_sdk();
    succeed(build.args(hidden(&step)));
    let message = examined(&root).unwrap_err();
    assert!(message.contains("the old C++ ABI"), "{message}");
    assert!(message.contains("set CXXFLAGS=-D_GLIBCXX_USE_CXX11_ABI=0"), "{message}");
    assert!(!message.contains("or older") && !message.contains('\n'), "{message}");
}

#[test]
fn a_library_of_another_release_is_distinguished_from_one_without_executor() {
    let root = installed("other", |object| !object.ends_with("-plugins.o"));
    let message = examined(&root).unwrap_err();
    assert!(message.contains("headers and library belong to different releases"), "{message}");
}

#[test]
fn a_missing_file_is_named() {
    let root = installed("parts", |_| true);
    std::fs::remove_file(root.join("lib/libnvinfer_plugin_tensorrt_llm.so")).unwrap();
    assert!(examined(&root).unwrap_err().contains("missing libnvinfer_plugin_tensorrt_llm.so in"));
    std::fs::remove_file(root.join("lib/libtensorrt_llm.so")).unwrap();
    assert!(examined(&root).unwrap_err().contains("missing libtensorrt_llm.so in lib, lib64, libs"));
    std::fs::remove_file(root.join("include")).unwrap();
    let message = examined(&root).unwrap_err();
    assert!(message.contains("executor.h does not exist") && message.contains("0.9 to 1.3.0rc20"), "{message}");
}

#[test]
fn headers_that_do_not_compile_are_rejected_with_the_first_compiler_error() {
    let root = installed("broken", |_| true);
    std::fs::remove_file(root.join("include")).unwrap();
    std::fs::create_dir_all(root.join("include/tensorrt_llm/executor")).unwrap();
    std::fs::write(root.join("include/tensorrt_llm/executor/executor.h"), "#include <cuda_fp16_missing.h>\n").unwrap();
    let message = examined(&root).unwrap_err();
    assert!(message.contains("cuda_fp16_missing.h") && message.contains("set CUDA_HOME"), "{message}");
}
