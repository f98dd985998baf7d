//! Parses the kubelet's answer to `PodResourcesLister/List`, finds the GPUs of its pods, and renders them on a page.

use trtllm_gpu::pods_of_answer;
use trtllm_page::exposition::negotiate::Format;
use trtllm_page::metrics::gpu::{LabelCache, gpu_page};
use trtllm_page::metrics::page::Page;
use trtllm_records::gpu::{Gpu, GpuIdentity, GpuInventory, GpuReadings, GpuState, MigInstance};

use super::page_text;

/// The input is used as an answer, and also as the message inside an answer.
pub fn run(data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    check(data);
    check(&[&[0], &length[..], data].concat());
}

fn check(answer: &[u8]) {
    let gpus = vec![gpu("GPU-a", 0, Vec::new()), gpu("GPU-b", 1, vec![instance("MIG-c", 1), instance("MIG-d", 2)])];
    let Ok(pods) = pods_of_answer(answer, &gpus) else { return };
    assert!(pods.is_sorted());
    for pod in &pods {
        let known = |gpu: &Gpu| {
            gpu.identity.uuid == pod.gpu_uuid
                && (pod.mig_uuid.is_empty() || gpu.readings.mig.iter().any(|instance| instance.uuid == pod.mig_uuid))
        };
        assert!(gpus.iter().any(known), "{pod:?}");
    }
    let inventory = GpuInventory { gpus, pods, ..GpuInventory::default() };
    let mut page = Page::default();
    gpu_page(&inventory, &mut LabelCache::default(), &mut page);
    page.sort();
    for format in [Format::Text, Format::OpenMetrics] {
        page_text::check(&page, format);
    }
}

fn instance(uuid: &str, id: u32) -> MigInstance {
    MigInstance {
        uuid: uuid.to_owned(),
        gpu_instance_id: Some(id),
        compute_instance_id: Some(0),
        profile: Some("1g.18gb".to_owned()),
        ..MigInstance::default()
    }
}

fn gpu(uuid: &str, minor: u32, mig: Vec<MigInstance>) -> Gpu {
    Gpu {
        identity: GpuIdentity { uuid: uuid.to_owned(), minor: Some(minor), ..GpuIdentity::default() },
        state: GpuState::Ok,
        readings: GpuReadings { mig, ..GpuReadings::default() },
        ..Gpu::default()
    }
}
