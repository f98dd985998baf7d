//! The exporter's page inside somebody else's C++ server, behind the C functions that `trtllm_exporter/exporter.h` calls.
//!
//! The header polls the Executor, because only code compiled against the host's TensorRT-LLM can, and hands over each
//! poll's records as rows of numbers, of which places alone are agreed on: a host's header and its library may be of
//! different versions. Here they are folded and served.
//!
//! 1. `rows`: what the header wrote, as the model's records.
//! 2. `fold`: one engine's records to snapshots.
//! 3. `server`: the thread that serves them.
//! 4. `border`: C functions; the only unsafe code. Nothing panics across it.

mod border;
mod fold;
mod rows;
mod server;
