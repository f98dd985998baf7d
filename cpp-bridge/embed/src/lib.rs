//! The exporter's page inside somebody else's C++ server, behind the C functions that `trtllm_exporter/exporter.h` calls.
//!
//! The header polls the Executor, because only code compiled against the host's TensorRT-LLM can, and hands over each
//! poll's records as MessagePack with TensorRT-LLM's own keys: no struct layout is shared, so that a host's header and
//! its library may be of different versions. Here they are folded and served.
//!
//! 1. `fold`: one engine's records to snapshots.
//! 2. `server`: the thread that serves them.
//! 3. `border`: C functions; the only unsafe code. Nothing panics across it.

mod border;
mod fold;
mod server;
