//! The worker threads: at most one per NVML index, even if one hangs while the driver is reloaded.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::config::GpuConfig;
use super::event::Event;
use super::gpu_filter::GpuFilter;
use super::nvml::Session;
use super::probe::CurrentCall;
use super::threads::{self, ThreadHandle};
use super::worker::Worker;

#[derive(Debug)]
pub(super) struct WorkerPool {
    config: Arc<GpuConfig>,
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
    pub(super) fn new(config: Arc<GpuConfig>, filter: Arc<GpuFilter>, events: mpsc::Sender<Event>) -> Self {
        Self { config, filter, events, workers: Vec::new() }
    }

    /// Spawns one worker per index and session. While a worker of an earlier session hangs, its index has to wait. Returns
    /// the indexes whose thread could not be started.
    pub(super) fn spawn_missing(&mut self, session: &Arc<Session>) -> Vec<u32> {
        self.workers.retain(|worker| worker.session == session.number || worker.thread.is_running());
        let mut failed = Vec::new();
        for index in 0..session.gpus {
            if self.workers.iter().any(|worker| worker.index == index) {
                continue;
            }
            let worker = Worker {
                session: Arc::clone(session),
                index,
                config: Arc::clone(&self.config),
                filter: Arc::clone(&self.filter),
                current_call: CurrentCall::default(),
                events: self.events.clone(),
            };
            let current_call = worker.current_call.clone();
            match threads::spawn(&format!("gpu-{index}"), move |stop| worker.run(stop)) {
                Ok(thread) => {
                    self.workers.push(WorkerHandle { index, session: session.number, current_call, thread });
                }
                Err(_) => failed.push(index),
            }
        }
        failed
    }

    /// The indexes of this session's workers that have ended.
    pub(super) fn ended(&self, session: &Session) -> Vec<u32> {
        let ended =
            self.workers.iter().filter(|worker| !worker.thread.is_running() && worker.session == session.number);
        ended.map(|worker| worker.index).collect()
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
