//! GPUs as samples: what a GPU did not answer is absent, what it counted stays.

use std::sync::Arc;

use crate::model::gpu::{GpuInventory, GpuSnapshot, GpuState, NvmlState};

use super::catalog::Id;
use super::page::{Labels, Page, Value};

/// The GPUs and NVML itself, in NVML's order.
#[must_use]
pub fn gpu_page(inventory: &GpuInventory) -> Page {
    let mut page = Page::default();
    for gpu in &inventory.gpus {
        one_gpu(gpu, inventory, &mut page);
    }
    let none = Arc::new(Labels::default());
    page.push(Id::NvmlUp, &none, inventory.nvml == NvmlState::Up);
    for (name, state) in NVML_STATES {
        page.push(Id::NvmlState, &Arc::new(Labels::new([("state", name)])), state == inventory.nvml);
    }
    if inventory.nvml != NvmlState::Off {
        page.push(Id::NvmlInitErrors, &none, inventory.init_errors);
        page.push(Id::NvmlGpus, &none, inventory.gpus.iter().filter(|gpu| gpu.state != GpuState::Lost).count() as u64);
        page.push(Id::NvmlGpusExpected, &none, u64::from(inventory.expected));
    }
    for error in &inventory.read_errors {
        let labels = Labels::new([("call", error.call), ("error", error.error)]);
        page.push(Id::NvmlReadErrors, &Arc::new(labels), error.count);
    }
    page
}

fn one_gpu(gpu: &GpuSnapshot, inventory: &GpuInventory, page: &mut Page) {
    let labels = Labels::new([("gpu_uuid", gpu.identity.uuid.as_str())]);
    let shared = Arc::new(labels.clone());
    let readings = &gpu.readings;
    let mut put = |id: Id, value: Option<Value>| {
        if let Some(value) = value {
            page.push(id, &shared, value);
        }
    };
    put(Id::GpuUtilization, readings.utilization_ratio.map(Value::from));
    put(Id::GpuMemoryTotal, readings.memory_total_bytes.map(Value::from));
    put(Id::GpuMemoryUsed, readings.memory_used_bytes.map(Value::from));
    put(Id::GpuPowerUsage, readings.power_usage_watts.map(Value::from));
    put(Id::GpuPowerLimit, readings.power_limit_watts.map(Value::from));
    put(Id::EnergyConsumption, readings.energy_joules.map(Value::from));
    put(Id::GpuTemperature, readings.temperature_celsius.map(Value::from));
    put(Id::GpuUp, Some(Value::from(gpu.state == GpuState::Ok)));
    for (name, state) in GPU_STATES {
        page.push(Id::GpuState, &Arc::new(labels.with("state", name)), state == gpu.state);
    }
    let identity = &gpu.identity;
    let about = [
        ("driver_version", inventory.driver_version.as_deref()),
        ("index", Some(&*identity.index.to_string())),
        ("name", identity.name.as_deref()),
        ("pci_bus_id", identity.pci_bus_id.as_deref()),
    ]
    .map(|(name, value)| (name.to_owned(), value.unwrap_or("").to_owned()));
    let info = Labels::new(labels.pairs().iter().cloned().chain(about));
    page.push(Id::GpuInfo, &Arc::new(info), 1_u64);
}

const GPU_STATES: [(&str, GpuState); 5] = [
    ("ok", GpuState::Ok),
    ("lost", GpuState::Lost),
    ("stalled", GpuState::Stalled),
    ("reset_required", GpuState::ResetRequired),
    ("no_permission", GpuState::NoPermission),
];

const NVML_STATES: [(&str, NvmlState); 8] = [
    ("off", NvmlState::Off),
    ("starting", NvmlState::Starting),
    ("up", NvmlState::Up),
    ("library_not_found", NvmlState::LibraryNotFound),
    ("driver_not_loaded", NvmlState::DriverNotLoaded),
    ("version_mismatch", NvmlState::VersionMismatch),
    ("no_permission", NvmlState::NoPermission),
    ("failed", NvmlState::Failed),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_are_the_catalogs() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::GpuState), GPU_STATES.map(|(name, _)| name));
        assert_eq!(values(Id::NvmlState), NVML_STATES.map(|(name, _)| name));
    }
}
