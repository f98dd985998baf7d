//! Shows whether the tasks of the exporter make progress. Each task is checked once per second. Time is counted in checks,
//! so seconds in which the process does not run, and changes of the clock, do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// A task is stalled after this many checks without a beat. No step of a task takes that long.
const PATIENCE: u32 = 30;

/// All tasks that show a heartbeat.
#[derive(Debug, Default)]
pub struct Heartbeats(Mutex<Vec<WatchedTask>>);

#[derive(Debug)]
struct WatchedTask {
    task: String,
    beats: Arc<Beats>,
    /// The count at the last check.
    seen: u64,
    checks_without_beat: u32,
}

#[derive(Debug, Default)]
struct Beats {
    count: AtomicU64,
    ended: AtomicBool,
}

/// Held by a task. Dropping it means that the task has ended as intended, unless the thread panics.
#[derive(Debug)]
pub struct Heartbeat(Arc<Beats>);

impl Heartbeat {
    /// Shows progress. Called at least once per second.
    pub fn beat(&self) {
        self.0.count.fetch_add(1, Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.ended.store(!std::thread::panicking(), Relaxed);
    }
}

impl Heartbeats {
    /// The heartbeat of a new task. `task` is its name in messages.
    pub fn register(&self, task: String) -> Heartbeat {
        let beats = Arc::new(Beats::default());
        self.0.lock().push(WatchedTask { task, beats: Arc::clone(&beats), seen: 0, checks_without_beat: 0 });
        Heartbeat(beats)
    }

    /// Checks each task. Returns the tasks that have just become stalled.
    pub fn check(&self) -> Vec<String> {
        let mut stalled = Vec::new();
        self.0.lock().retain_mut(|watched| {
            let count = watched.beats.count.load(Relaxed);
            if count == watched.seen {
                watched.checks_without_beat = watched.checks_without_beat.saturating_add(1);
            } else {
                (watched.seen, watched.checks_without_beat) = (count, 0);
            }
            if watched.checks_without_beat == PATIENCE {
                stalled.push(watched.task.clone());
            }
            !watched.beats.ended.load(Relaxed)
        });
        stalled
    }

    /// The name of a task that makes no progress, if there is one.
    pub fn stalled(&self) -> Option<String> {
        let watched = self.0.lock();
        watched.iter().find(|watched| watched.checks_without_beat >= PATIENCE).map(|watched| watched.task.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_beat_for_thirty_checks_is_stalled_until_its_next_beat() {
        let heartbeats = Heartbeats::default();
        let beating = heartbeats.register("a".to_owned());
        let ended = heartbeats.register("b".to_owned());
        drop(ended);
        for check in 1..=40 {
            if check <= 10 {
                beating.beat();
            }
            assert_eq!(heartbeats.check(), if check == 40 { vec!["a".to_owned()] } else { Vec::new() }, "{check}");
        }
        assert_eq!(heartbeats.stalled().as_deref(), Some("a"));
        beating.beat();
        heartbeats.check();
        assert_eq!(heartbeats.stalled(), None);
    }

    #[test]
    fn a_task_that_panicked_is_stalled() {
        let heartbeats = Heartbeats::default();
        let heartbeat = heartbeats.register("a".to_owned());
        let ended = std::thread::spawn(move || {
            let _heartbeat = heartbeat;
            panic!("as a bug does");
        });
        assert!(ended.join().is_err());
        (0..PATIENCE).for_each(|_| _ = heartbeats.check());
        assert_eq!(heartbeats.stalled().as_deref(), Some("a"));
    }
}
