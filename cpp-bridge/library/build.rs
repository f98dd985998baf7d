//! Sets the soname of the shared library, because without one, programs that link it would record the path of the build
//! folder.

// Cargo reads build script instructions from standard output.
#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtrtllm_exporter.so.0");
}
