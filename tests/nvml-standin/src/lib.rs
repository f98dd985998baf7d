//! A stand-in for `libnvidia-ml.so.1`: the same C symbols, with results from a control file that may change while a client
//! runs. It tests what a client does with NVML's results. It cannot test NVIDIA's driver.
//! `state` and `defaults` define the file format, `session` finds and rereads the file, `symbols` is the C ABI.
#![allow(unsafe_code)] // a C ABI takes raw pointers; each unsafe block states why it may dereference them

mod defaults;
mod session;
mod state;
mod symbols;
