//! Energy and time of GPUs by engine. Every value is compared with the counters of the stand-in for NVML.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use trtllm_gpu::usage::{EngineClaim, GpuUse, knows_processes};
use trtllm_records::gpu::{EngineGpus, GpuInventory, GpuState, NvmlState};

use super::monitor::{Monitor, UUID_0, UUID_1, gpu, is, monitor, readings, ready};
use crate::support::daemon::Launch;
use crate::support::ingest::{Ingest, send};
use crate::support::process::Process;
use crate::support::sessions::SESSION;
use crate::support::standin::Standin;
use crate::support::{ensure, page::Page};

/// The energy and GPU time of each engine after each inventory (a snapshot of all GPUs). Engine N has the GPUs in
/// `configured[N]`.
fn used(monitor: &Monitor, configured: &[&[&str]]) -> Vec<Vec<EngineGpus>> {
    let owned = |gpus: &&[&str]| gpus.iter().map(|gpu| (*gpu).to_owned()).collect::<Vec<String>>();
    let claim = |(gpus, id)| EngineClaim { id, configured: owned(gpus), ..EngineClaim::default() };
    let engines: Vec<EngineClaim> = configured.iter().zip(1..).map(claim).collect();
    let mut gpu_use = GpuUse::default();
    let absorbed = |(_, inventory): &(Instant, GpuInventory)| gpu_use.absorb(inventory, &engines);
    monitor.all().iter().map(absorbed).map(|each| each.into_iter().map(Option::unwrap).collect()).collect()
}

/// The energy and GPU time of each engine after the last inventory.
fn last(all: &[Vec<EngineGpus>]) -> &[EngineGpus] {
    all.last().unwrap()
}

/// Sets the energy counters in millijoules, and waits until every GPU was polled with them.
fn set(standin: &Standin, monitor: &Monitor, energy_mj: &[u64], more: &str) {
    standin.set(&state(energy_mj, more));
    monitor.until("the next poll of every GPU", |inventory| {
        (0..).zip(energy_mj).all(|(gpu, energy)| readings(inventory, gpu).energy_counter_mj == Some(*energy))
    });
}

fn state(energy_mj: &[u64], more: &str) -> String {
    let counters = (0..).zip(energy_mj).map(|(gpu, energy): (u32, _)| format!("gpu.{gpu}.energy_mj={energy}\n"));
    format!("gpus={}\n{}{more}", energy_mj.len(), counters.collect::<String>())
}

/// Regression: after a reset, the engine counted the new value of the counter but the GPU did not.
#[test]
fn an_engine_has_no_more_joules_than_its_gpus_after_a_reset_of_the_counter() {
    let standin = Standin::new(&state(&[7_000_000, 500], ""));
    let (mut monitor, _) = ready(&standin, 2);
    set(&standin, &monitor, &[7_002_500, 540], "");
    standin.set("init=9\nsession=9");
    monitor.until("the driver is unloaded", |inventory| inventory.init_errors > 0);
    set(&standin, &monitor, &[300, 20], "");
    set(&standin, &monitor, &[1300, 25], "");
    // Both counters decrease although the driver was not reloaded. One of them decreases only a little and soon returns, so
    // it was a wrong reading.
    set(&standin, &monitor, &[70, 24], "");
    set(&standin, &monitor, &[170, 34], "");
    // Monitoring closes NVML for a driver update (SIGUSR1) and resumes (SIGUSR2).
    monitor.handle.as_ref().unwrap().release();
    monitor.until("it is released", |inventory| inventory.nvml == NvmlState::Released);
    standin.set(&state(&[50, 10], ""));
    monitor.handle.as_ref().unwrap().resume();
    set(&standin, &monitor, &[50, 10], "");
    set(&standin, &monitor, &[80, 11], "");
    monitor.stop();
    let all = used(&monitor, &[&[UUID_0, UUID_1]]);
    for ((_, inventory), engines) in monitor.all().iter().zip(&all) {
        let shown: f64 = inventory.gpus.iter().filter_map(|gpu| gpu.readings.energy_joules).sum();
        let engine = engines[0].energy_joules.unwrap_or(0.0);
        assert!(engine <= shown + 1e-9, "the engine has {engine} J, its GPUs {shown} J");
    }
    assert_eq!(last(&all)[0].energy_joules, Some(3.685), "2.5 + 1.0 + 0.1 + 0.03 and 0.04 + 0.005 + 0.009 + 0.001");
    assert!(all.iter().map(|engines| engines[0].energy_joules).is_sorted());
    assert!(all.iter().map(|engines| engines[0].gpu_seconds).is_sorted());
}

#[test]
fn a_gpu_that_vanishes_and_comes_back_loses_no_joule_and_gains_no_time() {
    let began = Instant::now();
    let standin = Standin::new(&state(&[5000, 9000], ""));
    let (mut monitor, _) = ready(&standin, 2);
    set(&standin, &monitor, &[5100, 9010], "");
    standin.set(&state(&[5100, 9500], "gpu.1.lost=1"));
    monitor.until("GPU 1 is lost", |inventory| is(inventory, 1, GpuState::Lost));
    let (gone, first_gone) = (Instant::now(), monitor.published() - 1);
    // GPU 1 is lost for longer than it was present before, so that the test notices if this time is counted.
    let away = began.elapsed() * 2 + Duration::from_secs(1);
    monitor.until("GPU 0 is polled on", |_| gone.elapsed() > away);
    let last_gone = monitor.published() - 1;
    set(&standin, &monitor, &[5100, 9800], "");
    set(&standin, &monitor, &[5104, 9801], "");
    monitor.stop();

    let all = used(&monitor, &[&[UUID_0], &[UUID_1]]);
    assert_eq!(last(&all)[0].energy_joules, Some(0.104));
    assert_eq!(last(&all)[1].energy_joules, Some(0.801));
    // While GPU 1 was lost, its engine kept its energy and time.
    for engines in &all[first_gone..=last_gone] {
        assert_eq!((engines[1].energy_joules, engines[1].gpu_seconds), (Some(0.01), all[first_gone][1].gpu_seconds));
    }
    // The expected GPU time: between the first and the last poll of each period in which the GPU was present.
    let inventories = monitor.all();
    let between = |range: std::ops::Range<usize>, index: u32| {
        let polls = inventories[range].iter().filter(|(_, inventory)| is(inventory, index, GpuState::Ok));
        let polls: Vec<i64> =
            polls.filter_map(|(_, inventory)| Some(gpu(inventory, index)?.last_poll?.at_us)).collect();
        (polls[polls.len() - 1] - polls[0]) as f64 / 1e6
    };
    let expected =
        [between(0..inventories.len(), 0), between(0..first_gone, 1) + between(last_gone..inventories.len(), 1)];
    for (engine, expected) in last(&all).iter().zip(expected) {
        let seconds = engine.gpu_seconds.unwrap();
        assert!((seconds - expected).abs() < 0.2, "{seconds} instead of {expected}");
    }
    assert!(expected[0] > away.as_secs_f64() && expected[0] - expected[1] > away.as_secs_f64() / 2.0);
}

#[test]
fn an_engine_has_the_sum_of_its_gpus_and_an_engine_that_appears_starts_at_zero() {
    let standin = Standin::new(&state(&[1000, 20_000], ""));
    let (mut monitor, _) = ready(&standin, 2);
    set(&standin, &monitor, &[1010, 20_300], "");
    set(&standin, &monitor, &[1510, 20_700], "");
    monitor.stop();
    let all = used(&monitor, &[&[UUID_1, UUID_0]]);
    assert_eq!(last(&all)[0].uuids, [UUID_0, UUID_1]);
    assert_eq!(last(&all)[0].energy_joules, Some(1.21));
    // Now the same inventories with an engine that appears between two polls. It counts from the second poll on.
    let gpus = [UUID_0.to_owned()];
    let engine = EngineClaim { id: 7, configured: gpus.to_vec(), ..EngineClaim::default() };
    let (mut gpu_use, mut shown) = (GpuUse::default(), None);
    let has_polled = |(_, inventory): &(Instant, GpuInventory)| {
        gpu(inventory, 0).is_some_and(|gpu| gpu.readings.energy_counter_mj == Some(1010))
    };
    let appears = monitor.all().iter().position(has_polled).unwrap();
    for (at, (_, inventory)) in monitor.all().iter().enumerate() {
        let engines: &[EngineClaim] = if at < appears { &[] } else { std::slice::from_ref(&engine) };
        shown = gpu_use.absorb(inventory, engines).pop();
    }
    assert_eq!(shown.unwrap().unwrap().energy_joules, Some(0.5));
}

#[test]
fn a_gpu_with_mig_has_neither_energy_nor_time_also_while_it_is_lost() {
    const MIG: &str = "gpu.0.mig=on\ngpu.0.mig.0=MIG-a,1,0,3g.71gb,75161927680,1,40\n";
    let standin = Standin::new(&state(&[1000], MIG));
    let (mut monitor, _) = ready(&standin, 1);
    set(&standin, &monitor, &[1500], MIG);
    standin.set("gpu.0.lost=1");
    monitor.until("it is lost", |inventory| is(inventory, 0, GpuState::Lost));
    let lost = monitor.published();
    set(&standin, &monitor, &[2000], "");
    set(&standin, &monitor, &[2250], "");
    monitor.stop();
    let all = used(&monitor, &[&[UUID_0]]);
    for engines in &all[..lost] {
        assert_eq!((engines[0].energy_joules, engines[0].gpu_seconds), (None, None));
    }
    // MIG was disabled again before the last inventory, so the engine has energy.
    assert_eq!(last(&all)[0].energy_joules, Some(0.25));
}

#[test]
fn a_gpu_without_an_energy_counter_has_time_only_and_one_that_was_never_found_nothing() {
    let standin = Standin::new("gpu.0.energy_mj=none");
    let mut monitor = monitor(&standin);
    for power in [101.0, 102.0] {
        standin.set(&format!("gpu.0.energy_mj=none\ngpu.0.power_mw={}", power * 1000.0));
        monitor.until("a poll", |inventory| readings(inventory, 0).power_usage_watts == Some(power));
    }
    monitor.stop();
    let all = used(&monitor, &[&[UUID_0], &[UUID_1]]);
    assert_eq!(last(&all)[0].energy_joules, None);
    assert!(last(&all)[0].gpu_seconds.unwrap() > 0.0);
    assert_eq!(last(&all)[1], EngineGpus { uuids: vec![UUID_1.to_owned()], ..EngineGpus::default() });
}

const ENERGY: &str = "nv_trt_llm_gpu_energy_joules_total";
const SECONDS: &str = "nv_trt_llm_gpu_seconds_total";
const COST: &str = "nv_trt_llm_gpu_cost_total";
const INFO: &str = "nv_trt_llm_engine_gpu_info";

#[test]
fn the_page_has_the_gpus_of_each_configured_engine() {
    let standin = Standin::new(&state(&[8000, 3000], ""));
    let entry = |model: &str, more: &str| format!("- source: {SESSION}\n  model: {model}\n{more}");
    let engines =
        [entry("a", &format!("  gpus: [{UUID_0}]\n")), entry("b", &format!("  gpus:\n  - {UUID_1}\n")), entry("c", "")];
    let daemon = Launch::new().config(&engines.concat()).gpus(&standin).start(&[]);
    let energies = |page: &Page| ["model=a", "model=b"].map(|model| page.find(ENERGY, &[model]));
    let until = |expected: [f64; 2]| {
        daemon.until(|page| {
            let found = energies(page);
            ensure(found == expected.map(Some), || format!("{found:?} instead of {expected:?}"))
        })
    };
    let before = until([0.0, 0.0]);
    standin.set(&state(&[8250, 3004], ""));
    let page = until([0.25, 0.004]);
    page.never_below(&before);
    assert!(page.get(SECONDS, &["model=a"]) > 0.0);
    assert_eq!(page.get(INFO, &["model=a", &format!("gpu_uuid={UUID_0}")]), 1.0);
    assert_eq!(page.get(INFO, &["model=b", &format!("gpu_uuid={UUID_1}")]), 1.0);
    for family in [ENERGY, SECONDS, INFO] {
        assert_eq!(page.find(family, &["model=c"]), None, "{family}");
    }
    assert!(daemon.text("/metrics?collect[]=engine").contains(ENERGY));
    assert!(!daemon.text("/metrics?collect[]=gpu").contains("nv_trt_llm_"));
}

/// The tokens of an engine are those of all its nodes, so a cost per token from the GPUs of one node would be too low.
#[test]
fn an_engine_that_reports_more_gpus_than_it_has_here_shows_its_gpus_but_no_energy_time_or_cost() {
    let standin = Standin::new(&state(&[8000, 3000], ""));
    let socket = Ingest::new();
    let engine =
        format!("- source: {}\n  model: m\n  gpus: [{UUID_0}, {UUID_1}]\n  gpu_hour_cost: 2.5\n", socket.source());
    let daemon = Launch::new().config(&engine).gpus(&standin).start(&[]);
    let publish = |pid: u32, size: u32| {
        let config = format!("{{\"tensor_parallel_size\":{size},\"pipeline_parallel_size\":1}}");
        let mut stream = socket.publisher(&format!("{{\"model\":\"m\",\"pid\":{pid},\"config\":{config}}}"));
        send(&mut stream, 1..=1);
        stream
    };
    let until = |energy: Option<f64>| {
        let page = daemon.until(|page| {
            let found = page.find(ENERGY, &[]);
            ensure(found == energy, || format!("{found:?} instead of {energy:?}"))
        });
        for family in [SECONDS, COST] {
            assert_eq!(page.find(family, &[]).is_some(), energy.is_some(), "{family}");
        }
        for uuid in [UUID_0, UUID_1] {
            assert_eq!(page.get(INFO, &[&format!("gpu_uuid={uuid}")]), 1.0);
        }
        page
    };
    until(Some(0.0));
    standin.set(&state(&[8250, 3004], ""));
    let before = until(Some(0.254));
    let on_two_nodes = publish(1, 4);
    until(None);
    drop(on_two_nodes);
    let _on_this_node = publish(2, 2);
    until(Some(0.254)).never_below(&before);
}

/// The exporter takes this test process for an engine, because it publishes records. The stand-in for NVML lists this
/// process on GPU 0, and a child of it on GPU 1.
#[test]
fn the_gpus_of_an_engine_are_those_of_its_processes_unless_two_engines_have_them() {
    let child = Process::spawn(Command::new("sleep").arg("600"));
    let processes = format!("gpu.0.processes={}:1\ngpu.1.processes={}:1\n", std::process::id(), child.id());
    let standin = Standin::new(&state(&[8000, 3000], &processes));
    let socket = Ingest::new();
    let daemon = Launch::new().gpus(&standin).start(&["--source", &socket.source()]);
    let publish = |model: &str| {
        let mut stream = socket.publisher(&format!("{{\"model\":\"{model}\"}}"));
        send(&mut stream, 1..=1);
        stream
    };
    let infos = |page: &Page, model: &str| {
        [UUID_0, UUID_1].map(|uuid| page.find(INFO, &[&format!("model={model}"), &format!("gpu_uuid={uuid}")]))
    };
    let first = publish("p");
    if knows_processes(Path::new("/proc")) {
        daemon.until_is(ENERGY, &["model=p"], 0.0);
        standin.set(&state(&[8250, 3004], &processes));
        let page = daemon.until_is(ENERGY, &["model=p"], 0.254);
        assert_eq!(infos(&page, "p"), [Some(1.0); 2]);
        // With a second engine, the process could belong to either.
        let _second = publish("q");
        daemon.until(|page| {
            let found = (infos(page, "p"), infos(page, "q"), page.find(SECONDS, &["model=p"]));
            ensure(found == ([None; 2], [None; 2], None), || format!("{found:?}"))
        });
        drop(first);
        daemon.until_is(ENERGY, &["model=q"], 0.0);
        standin.set(&state(&[9250, 3004], &processes));
        daemon.until(|page| {
            let found = (page.find(ENERGY, &["model=p"]), page.find(ENERGY, &["model=q"]));
            ensure(found == (None, Some(1.0)), || format!("{found:?}"))
        });
    } else {
        let page = daemon.until_state(&["model=p"], "starting");
        assert_eq!(infos(&page, "p"), [None; 2]);
    }
    drop(child);
}
