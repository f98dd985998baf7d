//! The table: one entry a family, in page order. A new metric is a new entry in the file of its area; each file hands
//! its entries and those before it to the next, and the last one to `catalog!`.

use super::{Group, Kind, Metric, Variant};

const ENGINE: &[&str] = &["model", "version"];
const SOURCE: &[&str] = &["model", "source", "version"];
const GPU: &[&str] = &["gpu_uuid"];
const TRTLLM: &[&str] = &["engine_type", "model_name"];
const DCGM: &[&str] =
    &["DCGM_FI_DRIVER_VERSION", "Hostname", "UUID", "device", "gpu", "hostname", "modelName", "pci_bus_id"];
const NONE: &[&str] = &[];
const ENGINE_INFO: &[&str] = &["backend", "engine_version", "model", "simulated", "source", "version"];
const BENCH_INFO: &[&str] = &["bench_model", "bench_timestamp", "gpu_name", "model", "scheduler_policy", "version"];
const GPU_INFO: &[&str] =
    &["architecture", "driver_version", "gpu_uuid", "index", "minor", "name", "pci_bus_id", "serial", "vbios_version"];
const GPU_ECC: &[&str] = &["error", "gpu_uuid", "persistence"];
const GPU_ECC_LOCATION: &[&str] = &["error", "gpu_uuid", "location", "persistence"];
const GPU_FAN: &[&str] = &["fan", "gpu_uuid"];
const GPU_LINK: &[&str] = &["gpu_uuid", "link"];
const GPU_XID: &[&str] = &["gpu_uuid", "xid"];
const GPU_PROCESS: &[&str] = &["gpu_uuid", "name", "pid"];
const GPU_POD: &[&str] = &["container", "gpu_uuid", "mig_uuid", "namespace", "pod"];
const MIG: &[&str] = &["gpu_uuid", "mig_uuid"];
const MIG_INFO: &[&str] = &["compute_instance_id", "gpu_instance_id", "gpu_uuid", "mig_profile", "mig_uuid"];
const DRIVER: &[&str] = &["cuda_version", "driver_version", "nvml_version"];
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
mod dcgm;
#[macro_use]
mod compat;
#[macro_use]
mod engine;
#[macro_use]
mod triton;

triton! {}
