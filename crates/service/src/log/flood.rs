//! The last protection of the log: no log statement writes more lines than a person could read. A statement that
//! outside events can repeat should have a stricter limit of its own, which logs how many lines were left out. This
//! limit covers all statements.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::LogLimit;

/// Lines that one log statement may write at once. Many engines may cause one line each.
const BURST: u32 = 100;
/// One more line is allowed after this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lines that were left out.
pub(super) static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// The limits, by log statement.
#[derive(Debug, Default)]
pub(super) struct FloodLimit(Mutex<HashMap<Identifier, LogLimit>>);

impl FloodLimit {
    fn allow(&self, place: Identifier, now: Instant) -> bool {
        let mut places = self.0.lock();
        let allowed = places.entry(place).or_insert(LogLimit::new(BURST, INTERVAL)).allow(now).is_some();
        LEFT_OUT.fetch_add(u64::from(!allowed), Relaxed);
        allowed
    }
}

impl<S: Subscriber> Layer<S> for FloodLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.allow(event.metadata().callsite(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_line_that_is_repeated_is_limited_and_others_are_not() {
        let written = Arc::new(AtomicUsize::new(0));
        let log = tracing_subscriber::registry().with(FloodLimit::default()).with(Count(Arc::clone(&written)));
        let before = LEFT_OUT.load(Relaxed);
        let began = Instant::now();
        tracing::subscriber::with_default(log, || {
            (0..5000).for_each(|number| tracing::warn!(number, "the same line"));
            let more = began.elapsed().as_secs() as usize;
            let repeated = written.load(Relaxed);
            assert!((BURST as usize..=BURST as usize + more).contains(&repeated), "{repeated}");
            tracing::warn!("another line");
            assert_eq!(written.load(Relaxed), repeated + 1);
            assert_eq!(LEFT_OUT.load(Relaxed) - before, 5000 - repeated as u64);
        });
    }
}
