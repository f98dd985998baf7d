//! Prometheus exporter for NVIDIA TensorRT-LLM engines and the GPUs they run on.
#![forbid(unsafe_code)]

pub mod model;
