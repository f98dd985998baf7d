//! Gives the linker what the C++ bridge needs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // trtllm-bridge sets it if TENSORRT_LLM_ROOT is set. LD_LIBRARY_PATH still has priority.
    if let Ok(lib) = std::env::var("DEP_TENSORRT_LLM_LIB") {
        println!("cargo::rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{lib}");
    }
    // trtllm-bridge links libstdc++ statically. That of GCC 11, which releases use, needs functions of libgcc.a.
    if std::env::var_os("CARGO_FEATURE_EXECUTOR").is_some() {
        println!("cargo::rustc-link-arg-bins=-lgcc");
    }
}
