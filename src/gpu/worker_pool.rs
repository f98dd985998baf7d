//! The worker threads: at most one per NVML index, even if one hangs while the driver is reloaded.

use std::io;
use std::time::Duration;

use super::probe::CurrentCall;
use super::threads::{self, ThreadHandle};
use super::worker::Worker;

#[derive(Debug)]
pub(super) struct WorkerPool {
    workers: Vec<WorkerHandle>,
    call_deadline: Duration,
}

#[derive(Debug)]
struct WorkerHandle {
    index: u32,
    session: u64,
    current_call: CurrentCall,
    thread: ThreadHandle,
}

impl WorkerPool {
    pub(super) fn new(call_deadline: Duration) -> Self {
        Self { workers: Vec::new(), call_deadline }
    }

    pub(super) fn spawn(&mut self, worker: Worker) -> io::Result<()> {
        let Worker { index, session, .. } = worker;
        let current_call = worker.current_call.clone();
        let thread = threads::spawn(&format!("gpu-{index}"), move |stop| worker.run(stop))?;
        self.workers.push(WorkerHandle { index, session, current_call, thread });
        Ok(())
    }

    /// Whether the GPU at this index has a worker, of whichever session.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.workers.iter().any(|worker| worker.index == index)
    }

    /// Removes the workers that have ended. Returns the indexes of those that belonged to `session`.
    pub(super) fn remove_ended(&mut self, session: u64) -> Vec<u32> {
        let ended = self.workers.extract_if(.., |worker| !worker.thread.is_running());
        ended.filter(|worker| worker.session == session).map(|worker| worker.index).collect()
    }

    /// Index and call of each worker whose NVML call exceeds the deadline.
    pub(super) fn overdue(&self) -> Vec<(u32, &'static str)> {
        let overdue = |worker: &WorkerHandle| Some((worker.index, worker.overdue(self.call_deadline)?));
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
        self.workers.iter().filter(|worker| worker.overdue(self.call_deadline).is_none()).map(|worker| &worker.thread)
    }
}

impl WorkerHandle {
    /// The call that has not returned within `deadline`.
    fn overdue(&self, deadline: Duration) -> Option<&'static str> {
        self.current_call.get().filter(|(_, since)| since.elapsed() >= deadline).map(|(call, _)| call)
    }
}
