//! Names the shared library, so that what links it finds it by name and not by the path it was built at.

// Cargo listens on standard output.
#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtrtllm_exporter.so.0");
}
