//! The worker threads: at most one per NVML index, even if one hangs while the driver is reloaded.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::config::GpuConfig;
use super::event::Event;
use super::gpu_filter::GpuFilter;
use super::nvml::Session;
use super::probe::CurrentCall;
use super::threads::{self, ThreadHandle};
use super::worker::{Intervals, Worker};

#[derive(Debug)]
pub(super) struct WorkerPool {
    config: GpuConfig,
    filter: Arc<GpuFilter>,
    events: mpsc::Sender<Event>,
    workers: Vec<WorkerHandle>,
}

#[derive(Debug)]
struct WorkerHandle {
    index: u32,
    session: u64,
    current_call: CurrentCall,
    thread: ThreadHandle,
}

impl WorkerPool {
    pub(super) fn new(config: GpuConfig, filter: Arc<GpuFilter>, events: mpsc::Sender<Event>) -> Self {
        Self { config, filter, events, workers: Vec::new() }
    }

    /// Spawns one worker per index, once per session; `spawned` keeps the indexes that have had theirs. While a worker of
    /// an earlier session hangs, its index has to wait. Returns the indexes whose thread could not be started.
    pub(super) fn spawn_missing(
        &mut self,
        session: &Session,
        number: u64,
        registrations: &mpsc::Sender<u32>,
        spawned: &mut BTreeSet<u32>,
    ) -> Vec<u32> {
        let mut failed = Vec::new();
        for index in 0..session.gpus {
            if spawned.contains(&index) || self.workers.iter().any(|worker| worker.index == index) {
                continue;
            }
            match self.spawn(self.worker(session, number, registrations, index)) {
                Ok(()) => drop(spawned.insert(index)),
                Err(_) => failed.push(index),
            }
        }
        failed
    }

    fn worker(&self, session: &Session, number: u64, registrations: &mpsc::Sender<u32>, index: u32) -> Worker {
        let GpuConfig { interval, timing, per_process, .. } = &self.config;
        Worker {
            nvml: Arc::clone(&session.nvml),
            session: number,
            index,
            driver_version: session.driver_version.clone(),
            intervals: Intervals {
                poll: *interval,
                slow_poll: timing.slow_interval.max(*interval),
                reprobe: timing.reprobe_interval,
                unsupported_retry: timing.unsupported_retry,
                max_poll_time: (*interval).max(Duration::from_secs(1)).min(timing.call_deadline),
            },
            per_process: *per_process,
            filter: Arc::clone(&self.filter),
            current_call: CurrentCall::default(),
            events: self.events.clone(),
            registrations: registrations.clone(),
        }
    }

    fn spawn(&mut self, worker: Worker) -> io::Result<()> {
        let Worker { index, session, .. } = worker;
        let current_call = worker.current_call.clone();
        let thread = threads::spawn(&format!("gpu-{index}"), move |stop| worker.run(stop))?;
        self.workers.push(WorkerHandle { index, session, current_call, thread });
        Ok(())
    }

    /// Removes the workers that have ended. Returns the indexes of those that belonged to `session`.
    pub(super) fn remove_ended(&mut self, session: u64) -> Vec<u32> {
        let ended = self.workers.extract_if(.., |worker| !worker.thread.is_running());
        ended.filter(|worker| worker.session == session).map(|worker| worker.index).collect()
    }

    /// Index and call of each worker whose NVML call exceeds the deadline.
    pub(super) fn overdue(&self) -> Vec<(u32, &'static str)> {
        let deadline = self.config.timing.call_deadline;
        let overdue = |worker: &WorkerHandle| Some((worker.index, worker.overdue(deadline)?));
        self.workers.iter().filter_map(overdue).collect()
    }

    pub(super) fn request_stop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.thread.request_stop());
    }

    pub(super) fn any_running(&self) -> bool {
        self.workers.iter().any(|worker| worker.thread.is_running())
    }

    /// The threads that can be waited for: those without an overdue call.
    pub(super) fn responsive(&self) -> impl Iterator<Item = &ThreadHandle> {
        let deadline = self.config.timing.call_deadline;
        let responsive = self.workers.iter().filter(move |worker| worker.overdue(deadline).is_none());
        responsive.map(|worker| &worker.thread)
    }
}

impl WorkerHandle {
    /// The call that has not returned within `deadline`.
    fn overdue(&self, deadline: Duration) -> Option<&'static str> {
        self.current_call.get().filter(|(_, since)| since.elapsed() >= deadline).map(|(call, _)| call)
    }
}
