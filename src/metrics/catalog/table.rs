//! The table: one entry a family, in page order. A new metric is a new entry in the file of its area; each file hands
//! its entries and those before it to the next, and the last one to `catalog!`.

use super::{Group, Kind, Metric, Variant};

const ENGINE: &[&str] = &["model", "version"];
const SOURCE: &[&str] = &["model", "source", "version"];
const GPU: &[&str] = &["gpu_uuid"];
const TRTLLM: &[&str] = &["engine_type", "model_name"];
const DCGM: &[&str] = &["Hostname", "UUID", "device", "gpu", "hostname", "modelName", "pci_bus_id"];
const NONE: &[&str] = &[];
const ENGINE_INFO: &[&str] = &["backend", "engine_version", "model", "simulated", "source", "version"];
const BENCH_INFO: &[&str] = &["bench_model", "bench_timestamp", "gpu_name", "model", "scheduler_policy", "version"];
const GPU_INFO: &[&str] = &["driver_version", "gpu_uuid", "index", "name", "pci_bus_id"];
const BUILD: &[&str] = &["rustversion", "version"];
const CALL: &[&str] = &["call", "error"];

macro_rules! catalog {
    ($($id:ident = $name:literal $kind:ident $group:ident $labels:ident $([$label:literal: $($value:literal)|+])? $(unit $unit:literal)?
        $help:literal from $origin:literal;)*) => {
        /// Index of a family in [`CATALOG`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Id { $($id),* }

        /// All families in page order.
        pub static CATALOG: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            group: Group::$group,
            unit: catalog!(@optional $($unit)?),
            labels: $labels,
            variant: catalog!(@variant $($label: $($value)|+)?),
            help: $help,
            origin: $origin,
        }),*];
    };
    (@optional) => { None };
    (@optional $value:literal) => { Some($value) };
    (@variant) => { None };
    (@variant $label:literal: $($value:literal)|+) => { Some(Variant { label: $label, values: &[$($value),+] }) };
}

#[macro_use]
mod exporter;
#[macro_use]
mod gpu;
#[macro_use]
mod compat;
#[macro_use]
mod engine;
#[macro_use]
mod triton;

triton! {}
