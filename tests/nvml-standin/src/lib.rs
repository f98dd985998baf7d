//! A stand-in for `libnvidia-ml.so.1`: the same C symbols, answered from a control file that may change while a
//! client is running. It proves what a client does with NVML's answers; it proves nothing about NVIDIA's driver.
//! `state` and `defaults` are the file format, `session` finds and re-reads the file, `symbols` is the C ABI.
#![allow(unsafe_code)] // a C ABI takes raw pointers; each block says why it may follow them

mod defaults;
mod session;
mod state;
mod symbols;
