use std::collections::HashSet;

use trtllm_records::iteration::SchedulerMode;
use trtllm_records::orchestrator::Side;

use super::feeds::{origin_of, origins};
use super::*;

#[test]
fn names_are_distinct_and_well_formed() {
    let mut names = HashSet::new();
    for metric in CATALOG.iter() {
        let shared = metric.name.starts_with("nv_trt_llm_") && metric.group == Group::Compat;
        assert!(names.insert(metric.name) || shared, "{} is in the catalog twice", metric.name);
        if metric.name.starts_with("DCGM_FI_") {
            continue;
        }
        assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
        assert!(!metric.name.contains("uptime") && !metric.name.ends_with("_created"), "{}", metric.name);
        let name = metric.name.strip_prefix("vllm:").unwrap_or(metric.name);
        assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit()));
    }
}

#[test]
fn a_name_ends_in_its_unit() {
    for metric in CATALOG.iter() {
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        if let Some(unit) = metric.unit {
            assert!(name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_')), "{}", metric.name);
        }
    }
}

#[test]
fn every_family_has_a_help_text_that_needs_no_escaping_and_an_origin() {
    for metric in CATALOG.iter() {
        for help in [Some(metric.help), metric.gateway_help].into_iter().flatten() {
            assert!(!help.contains(['\\', '\n', '"']) && help.len() > 10, "{}", metric.name);
        }
        assert!(!origin_of(metric).is_empty(), "{}: add a line to origins.md, or `feeds`", metric.name);
    }
    let names: Vec<_> = CATALOG.iter().map(|metric| (metric.group.name(), metric.name)).collect();
    for (group, name, _) in origins() {
        assert!(names.contains(&(group, name)), "origins.md: {group} has no {name}");
    }
}

#[test]
fn texts_name_only_families_that_exist() {
    let names: HashSet<&str> = CATALOG.iter().map(|metric| metric.name).collect();
    for metric in CATALOG.iter() {
        let texts = [metric.help, &origin_of(metric)];
        let words = texts.into_iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        for word in words.filter(|word| word.starts_with("nv_trt_llm_") || word.starts_with("trtllm_exporter_")) {
            assert!(names.contains(word), "{} names {word}", metric.name);
        }
    }
}

#[test]
fn only_inherited_counters_lack_total() {
    let legacy: Vec<&str> = CATALOG
        .iter()
        .filter(|metric| metric.kind == MetricKind::LegacyCounter && metric.group != Group::Compat)
        .map(|metric| metric.name)
        .collect();
    assert_eq!(legacy, ["nv_trt_llm_disaggregated_serving_metrics", "nv_energy_consumption"]);
}

#[test]
fn no_family_outside_the_dcgm_set_has_a_label_called_gpu() {
    for metric in CATALOG.iter() {
        let dcgm = metric.name.starts_with("DCGM_FI_");
        assert_eq!(metric.labels.contains(&"gpu"), dcgm, "{}", metric.name);
    }
}

/// The reference page names the exceptions, each with a reason.
#[test]
fn the_dcgm_set_has_what_dcgm_exporter_has_by_default() {
    const DEVICE: &str = "SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER \
                          GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED \
                          UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE";
    const PROFILING: &str = "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES";
    let device = DEVICE.split(' ').map(|name| format!("DCGM_FI_DEV_{name}"));
    let profiling = PROFILING.split(' ').map(|name| format!("DCGM_FI_PROF_{name}"));
    for name in device.chain(profiling) {
        let metric = CATALOG.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is missing"));
        // Each GPU's driver is a label of every sample, as in dcgm-exporter.
        assert!(metric.labels.contains(&"DCGM_FI_DRIVER_VERSION"), "{name}");
    }
}

/// The page is written section by section (`metrics::page_builder`): engines, GPUs, exporter.
#[test]
fn the_families_of_a_section_are_contiguous_and_sections_are_in_page_order() {
    let section = |metric: &Metric| match metric.group {
        Group::Compat if metric.name.starts_with("DCGM_FI_") => 1,
        Group::Triton | Group::Engine | Group::Compat => 0,
        Group::Gpu => 1,
        Group::Exporter => 2,
    };
    for (one, next) in CATALOG.iter().zip(CATALOG.iter().skip(1)) {
        assert!(section(one) <= section(next), "{} before {}", one.name, next.name);
        assert!(one.name != next.name || section(one) == section(next), "{} is in two sections", one.name);
    }
}

#[test]
fn an_id_names_its_family_and_ids_are_in_page_order() {
    assert_eq!(Id::RequestMetrics.metric().name, "nv_trt_llm_request_metrics");
    assert_eq!(Id::GpuUp.metric().name, "nv_gpu_up");
    let ids = TABLES.concat();
    assert!(ids.is_sorted_by_key(|id| id.place) && ids.last() == Some(&Id::ProcessThreads));
    assert!(ids.iter().map(|id| id.metric()).eq(CATALOG.iter()));
}

/// A value is written at the index of its variant.
#[test]
fn label_values_are_in_the_order_of_the_variants() {
    let values = |id: Id| id.metric().variant.unwrap().values;
    assert_eq!(values(Id::SchedulerInfo)[SchedulerMode::Overlap as usize], "overlap");
    assert_eq!(values(Id::SchedulerInfo)[SchedulerMode::NonOverlap as usize], "non_overlap");
    assert_eq!(values(Id::DisaggWorkers), [Side::Context.name(), Side::Generation.name()]);
}

#[test]
fn families_of_other_projects_are_inherited_and_ours_have_a_level_of_their_own() {
    const TRITONS_OF_GPUS: [&str; 6] = [
        "nv_gpu_utilization",
        "nv_gpu_memory_total_bytes",
        "nv_gpu_memory_used_bytes",
        "nv_gpu_power_usage",
        "nv_gpu_power_limit",
        "nv_energy_consumption",
    ];
    for metric in CATALOG.iter() {
        let theirs =
            ["DCGM_FI_", "nv_inference_", "process_", "vllm:"].iter().any(|prefix| metric.name.starts_with(prefix))
                || metric.name.starts_with("trtllm_") && metric.group == Group::Compat
                || metric.group == Group::Triton
                || TRITONS_OF_GPUS.contains(&metric.name);
        assert_eq!(metric.stability == Stability::Inherited, theirs, "{}", metric.name);
    }
}

#[test]
fn our_help_is_one_noun_phrase_with_a_period() {
    for metric in
        CATALOG.iter().filter(|metric| metric.stability != Stability::Inherited && metric.group != Group::Compat)
    {
        assert!(metric.help.ends_with('.') && !metric.help.trim_end_matches('.').contains(". "), "{}", metric.name);
        assert!(!metric.help.starts_with("Whether") && !metric.help.starts_with("When"), "{}", metric.name);
    }
}

/// With `UPDATE_GOLDEN`, writes the catalog's HELP into these files. This takes a few seconds, and is enough after a
/// change of a HELP. Values come from tests of the whole exporter.
#[test]
fn the_golden_pages_and_the_reference_have_the_catalogs_help() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let help_of = |name: &str, file: &str| {
        let is = |metric: &&Metric| metric.name == name || metric.name.strip_suffix("_total") == Some(name);
        let metric = CATALOG.iter().find(is).unwrap_or_else(|| panic!("{file}: {name} is not in the catalog"));
        metric.gateway_help.filter(|_| file.ends_with("gateway.txt")).unwrap_or(metric.help)
    };
    let golden = ["session.txt", "session.openmetrics.txt", "default.txt", "gateway.txt", "gpu.txt", "dcgm.txt"];
    for file in golden.map(|name| format!("tests/golden/{name}")).into_iter().chain(["docs/METRICS.md".to_owned()]) {
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        let line = |line: &str| {
            if let Some((name, _)) = line.strip_prefix("# HELP ").and_then(|header| header.split_once(' ')) {
                return format!("# HELP {name} {}", help_of(name, &file));
            }
            // A row of the reference: name, type, stability, labels, HELP, origin and more.
            let mut cells: Vec<&str> = line.split(" | ").collect();
            let name = cells[0].strip_prefix("| `").and_then(|name| name.strip_suffix('`'));
            match name.filter(|_| cells.len() > 5 && ["inherited", "stable", "experimental"].contains(&cells[2])) {
                Some(name) => cells[4] = help_of(name, &file),
                None => return line.to_owned(),
            }
            cells.join(" | ")
        };
        let updated: String = text.split_inclusive('\n').map(|with| line(with.trim_end_matches('\n')) + "\n").collect();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(root.join(&file), &updated).unwrap();
        } else {
            let differ = updated.lines().zip(text.lines()).find(|(now, before)| now != before);
            assert!(
                differ.is_none(),
                "{file} (now, before): {differ:?}; to accept: UPDATE_GOLDEN=1 cargo test -p trtllm-page"
            );
        }
    }
}
