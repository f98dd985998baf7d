//! Looks at an installation of TensorRT-LLM before the bridge is built against it: what is there, which release's
//! members it has, and whether the Executor that its headers declare can be linked. Nothing of it is run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an installation keeps its libraries: a build, a distribution, a Python wheel.
const LIB_FOLDERS: [&str; 3] = ["lib", "lib64", "libs"];
const LIBRARIES: [&str; 2] = ["tensorrt_llm", "nvinfer_plugin_tensorrt_llm"];
/// A member that came with a release, oldest first.
const MARKS: [(&str, &str); 5] = [
    ("0.11", "IterationStats::iterLatencyMS"),
    ("0.13", "IterationStats::newActiveRequestsQueueLatencyMS"),
    ("0.15", "IterationStats::numNewActiveRequests"),
    ("1.0", "IterationStats::maxNumTokensRuntime"),
    ("1.1", "RequestStats::missedBlocksPerRequest"),
];

/// An installation that can be built against.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) include: PathBuf,
    pub(crate) lib: PathBuf,
    /// As it says itself; releases before 0.12 do not.
    pub(crate) version: Option<String>,
    /// The newest release whose members it has.
    pub(crate) members_of: &'static str,
    /// What its records lack of all that the bridge can read.
    pub(crate) missing: Vec<String>,
}

impl Installation {
    /// One line for the builder.
    pub(crate) fn summary(&self) -> String {
        let version = self.version.as_deref().unwrap_or("of an unnamed version");
        let members = self.members_of;
        let lib = self.lib.display();
        if self.missing.is_empty() {
            format!("TensorRT-LLM {version} in {lib} links and has all members known (release {members} or newer)")
        } else {
            let missing = self.missing.join(", ");
            format!(
                "TensorRT-LLM {version} in {lib} links and has the members of release {members}; metrics made of the \
                 following will be absent, which a newer release would change: {missing}"
            )
        }
    }
}

/// Finds, compiles and links against the installation under `root`. `compiler` starts a C++ compiler, `flags` make
/// CUDA's headers known to it, `scratch` is a folder for what it writes.
///
/// # Errors
/// One line that says what was found, what is wrong and what to do.
pub(crate) fn examine(
    root: &Path,
    source: &Path,
    compiler: &dyn Fn() -> Command,
    flags: &[String],
    scratch: &Path,
) -> Result<Installation, String> {
    let named = format!("TENSORRT_LLM_ROOT names {}", root.display());
    let include = root.join("include");
    let header = include.join("tensorrt_llm/executor/executor.h");
    if !header.is_file() {
        return Err(format!(
            "{named}, but {} is not there: name the folder that holds include/ and lib/ of a TensorRT-LLM from 0.9 to \
             1.2, or unset it for the simulated one",
            header.display()
        ));
    }
    let lib = find_libraries(root).map_err(|missing| format!("{named}, with headers but without {missing}"))?;
    let version = version_of(&include);
    let described = format!("{named} (TensorRT-LLM {})", version.as_deref().unwrap_or("of an unnamed version"));

    let object = scratch.join("probe.o");
    let mut compile = compiler();
    compile.args(["-std=c++17", "-w", "-c", "-o"]).arg(&object).arg(source);
    compile.arg(format!("-isystem{}", include.display())).args(flags);
    if let Err(report) = run(&mut compile) {
        let first = report.lines().find(|line| line.contains("error:")).unwrap_or("the compiler gave no reason");
        return Err(format!(
            "{described}: its headers do not compile: {first}; set CUDA_HOME to the CUDA toolkit it was built with, \
             or unset TENSORRT_LLM_ROOT for the simulated one"
        ));
    }

    let mut link = compiler();
    link.arg("-o").arg(scratch.join("probe")).arg(&object).arg(format!("-L{}", lib.display()));
    link.args(LIBRARIES.map(|name| format!("-l{name}")));
    // CUDA, TensorRT and MPI, which it needs to run, may be missing here.
    link.arg("-Wl,--unresolved-symbols=ignore-in-shared-libs");
    if let Err(report) = run(&mut link) {
        return Err(format!("{described}: {}", unlinked(&report)));
    }

    let told = std::fs::read(&object).map_err(|error| format!("cannot read {}: {error}", object.display()))?;
    let (there, missing) = members(&told);
    let newest = MARKS.iter().take_while(|(_, mark)| there.iter().any(|name| name == mark)).last();
    Ok(Installation { include, lib, version, members_of: newest.map_or("0.9", |(release, _)| release), missing })
}

fn find_libraries(root: &Path) -> Result<PathBuf, String> {
    let file = |name: &str| format!("lib{name}.so");
    let folder = LIB_FOLDERS.iter().map(|name| root.join(name)).find(|lib| lib.join(file(LIBRARIES[0])).is_file());
    let Some(folder) = folder else {
        let tried = LIB_FOLDERS.join(", ");
        return Err(format!("{} in any of {tried}: a source tree must be built first", file(LIBRARIES[0])));
    };
    for name in LIBRARIES {
        if !folder.join(file(name)).is_file() {
            return Err(format!("{} in {}: reinstall it whole", file(name), folder.display()));
        }
    }
    Ok(folder)
}

/// `kTensorRtLlmVersion = "1.0.0"`
fn version_of(include: &Path) -> Option<String> {
    let text = std::fs::read_to_string(include.join("tensorrt_llm/executor/version.h")).ok()?;
    text.lines().find_map(|line| Some(line.split_once("kTensorRtLlmVersion")?.1.split('"').nth(1)?.to_owned()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.env("LC_ALL", "C").output().map_err(|error| format!("error: {command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// What a failed link means.
fn unlinked(report: &str) -> String {
    let mut symbols: Vec<&str> = report.lines().filter_map(undefined).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let Some(first) = symbols.first() else {
        let reason = report.lines().find(|line| line.contains("ld")).unwrap_or("the linker gave no reason");
        return format!("its libraries do not link: {reason}");
    };
    let missing = format!("{first} and {} more", symbols.len() - 1);
    if symbols.iter().any(|symbol| symbol.contains("executor::Executor::")) {
        format!(
            "its headers declare the C++ Executor, but its library has it no more ({missing}): TensorRT-LLM removed it \
             in 2026; install 1.2 or older, or unset TENSORRT_LLM_ROOT and watch trtllm-serve or a socket instead"
        )
    } else {
        format!("its library lacks {missing}: headers and library belong to different releases; reinstall it whole")
    }
}

/// The symbol that a linker's line misses: GNU's own, or the way in which gold's successors say it.
fn undefined(line: &str) -> Option<&str> {
    if let Some((_, symbol)) = line.split_once("undefined reference to `") {
        return symbol.strip_suffix('\'');
    }
    Some(line.split_once("undefined symbol: ")?.1.trim())
}

/// The members that the object file tells to be there, and not to be.
fn members(object: &[u8]) -> (Vec<String>, Vec<String>) {
    let text = String::from_utf8_lossy(object);
    let told = text.split("TRTLLM_PROBE ").skip(1).filter_map(|rest| rest.split_once('\n')).map(|(line, _)| line);
    let (there, missing): (Vec<&str>, Vec<&str>) =
        told.filter(|line| line.ends_with(['+', '-'])).partition(|line| line.ends_with('+'));
    let named = |lines: Vec<&str>| lines.iter().map(|line| line[..line.len() - 1].to_owned()).collect();
    (named(there), named(missing))
}
