//! Serves the exporter's page inside a C++ server. The header `trtllm_exporter/exporter.h` polls the Executor, because
//! only code compiled against the host's TensorRT-LLM can do that, and passes the records as rows of numbers. Header
//! and library may have different versions, so they agree on slot numbers only. `fold` turns the rows into snapshots,
//! `server` serves the snapshots on a thread, and `border` holds the C functions and all unsafe code.

mod border;
mod fold;
mod server;
