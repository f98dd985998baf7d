//! Checks an installation of TensorRT-LLM before the bridge is built against it: that its files exist, and that the
//! library defines the Executor that the headers declare. Runs no code of the installation.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library folders of a build, a distribution and a Python wheel.
const LIB_FOLDERS: [&str; 3] = ["lib", "lib64", "libs"];
const LIBRARIES: [&str; 2] = ["tensorrt_llm", "nvinfer_plugin_tensorrt_llm"];
/// The values of `_GLIBCXX_USE_CXX11_ABI`. Many images of releases before 0.17 have the old ABI.
const ABIS: [(u8, &str); 2] = [(0, "old"), (1, "new")];

/// A usable installation.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) include: PathBuf,
    pub(crate) lib: PathBuf,
    /// The version that the headers state. Releases before 0.12 state none.
    pub(crate) version: Option<String>,
}

impl Installation {
    /// One line for the person who builds the exporter.
    pub(crate) fn summary(&self) -> String {
        let version = self.version.as_deref().unwrap_or("(unknown version)");
        format!("building with TensorRT-LLM {version} in {}", self.lib.display())
    }
}

/// Finds the installation under `root`, then compiles and links a probe against it. `compiler` starts a C++ compiler,
/// `flags` add the CUDA headers, and `scratch` is a folder for temporary files.
///
/// # Errors
/// One line that names the installation, the problem and the remedy.
pub(crate) fn examine(
    root: &Path,
    source: &Path,
    compiler: &dyn Fn() -> Command,
    flags: &[String],
    scratch: &Path,
) -> Result<Installation, String> {
    let named = format!("TENSORRT_LLM_ROOT={}", root.display());
    let include = root.join("include");
    let header = include.join("tensorrt_llm/executor/executor.h");
    if !header.is_file() {
        return Err(format!(
            "{named}: {} does not exist; set the variable to the folder that holds include/ and lib/ of a TensorRT-LLM \
             from 0.9 to 1.3.0rc20, or unset it to build with the simulated TensorRT-LLM",
            header.display()
        ));
    }
    let lib = find_libraries(root).map_err(|missing| format!("{named}: missing {missing}"))?;
    let version = version_of(&include);
    let described = format!("{named} (TensorRT-LLM {})", version.as_deref().unwrap_or("of unknown version"));

    let object = scratch.join("probe.o");
    let compile = |abi: &[String]| {
        let mut compile = compiler();
        compile.args(["-std=c++17", "-w", "-c", "-o"]).arg(&object).arg(source);
        run(compile.arg(format!("-isystem{}", include.display())).args(flags).args(abi))
    };
    let link = || {
        let mut link = compiler();
        link.arg("-o").arg(scratch.join("probe")).arg(&object).arg(format!("-L{}", lib.display()));
        link.args(LIBRARIES.map(|name| format!("-l{name}")));
        // CUDA, TensorRT and MPI are needed only at run time and may be missing on this machine.
        run(link.arg("-Wl,--unresolved-symbols=ignore-in-shared-libs"))
    };
    if let Err(report) = compile(&[]) {
        let first = report.lines().find(|line| line.contains("error:")).unwrap_or("the compiler gave no reason");
        return Err(format!(
            "{described}: the headers do not compile: {first}; set CUDA_HOME to the CUDA toolkit that TensorRT-LLM was \
             built with, or unset TENSORRT_LLM_ROOT to build with the simulated TensorRT-LLM"
        ));
    }
    if let Err(report) = link() {
        // The library may use the other C++ ABI. The flag must reach the cxx crate too, which only CXXFLAGS does.
        let other = ABIS
            .map(|(value, name)| (format!("-D_GLIBCXX_USE_CXX11_ABI={value}"), name))
            .into_iter()
            .find(|(flag, _)| compile(std::slice::from_ref(flag)).and_then(|()| link()).is_ok());
        return Err(match other {
            Some((flag, name)) => format!(
                "{described}: the library uses the {name} C++ ABI, and the compiler's flags select the other one; set \
                 CXXFLAGS={flag} and build again"
            ),
            None => format!("{described}: {}", link_error(&report)),
        });
    }

    Ok(Installation { include, lib, version })
}

fn find_libraries(root: &Path) -> Result<PathBuf, String> {
    let file = |name: &str| format!("lib{name}.so");
    let folder = LIB_FOLDERS.iter().map(|name| root.join(name)).find(|lib| lib.join(file(LIBRARIES[0])).is_file());
    let Some(folder) = folder else {
        let tried = LIB_FOLDERS.join(", ");
        return Err(format!("{} in {tried}; if this is a source tree, build it first", file(LIBRARIES[0])));
    };
    for name in LIBRARIES {
        if !folder.join(file(name)).is_file() {
            return Err(format!("{} in {}; reinstall TensorRT-LLM", file(name), folder.display()));
        }
    }
    Ok(folder)
}

/// The version in `kTensorRtLlmVersion = "1.0.0"`.
fn version_of(include: &Path) -> Option<String> {
    let text = std::fs::read_to_string(include.join("tensorrt_llm/executor/version.h")).ok()?;
    text.lines().find_map(|line| Some(line.split_once("kTensorRtLlmVersion")?.1.split('"').nth(1)?.to_owned()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.env("LC_ALL", "C").output().map_err(|error| format!("error: {command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Explains a failed link from the linker's output.
fn link_error(report: &str) -> String {
    let mut symbols: Vec<&str> = report.lines().filter_map(undefined_symbol).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let Some(first) = symbols.first() else {
        let reason = report
            .lines()
            .find(|line| line.contains("ld: ") || line.contains("error:"))
            .unwrap_or("the linker gave no reason");
        return format!("the libraries do not link: {reason}");
    };
    let missing = match symbols.len() - 1 {
        0 => (*first).to_owned(),
        others => format!("{first} and {others} more"),
    };
    if symbols.iter().any(|symbol| symbol.contains("executor::Executor::")) {
        format!(
            "the headers declare the C++ Executor, but the library does not define it ({missing}); TensorRT-LLM removed \
             it in 2026; install 1.3.0rc20 or older, or unset TENSORRT_LLM_ROOT and use a trtllm-serve or socket source"
        )
    } else {
        format!(
            "the library does not define {missing}; headers and library belong to different releases; reinstall \
             TensorRT-LLM"
        )
    }
}

/// The symbol in a linker's error line about an undefined symbol, in the format of GNU ld or of lld and mold.
fn undefined_symbol(line: &str) -> Option<&str> {
    if let Some((_, symbol)) = line.split_once("undefined reference to `") {
        return symbol.strip_suffix('\'');
    }
    Some(line.split_once("undefined symbol: ")?.1.trim())
}
