//! Serves the exporter's page inside a C++ server. The header `trtllm_exporter/exporter.h` polls the Executor, because
//! only code compiled against the host's TensorRT-LLM can do that, and passes the records as lines of JSON: the protocol
//! of the ingest socket, which headers and libraries of different versions share. `engine` folds the lines of one engine,
//! `page` serves the page of all engines on a thread, and `border` holds the C functions and all unsafe code.

mod border;
mod engine;
mod page;
