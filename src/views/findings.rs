//! `/api/v1/findings`: what limits each engine, by the rules of `doctor`. The numbers of the last half minute are kept while somebody
//! asks, and dropped a minute after the last request.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::diagnosis::about::About;
use crate::diagnosis::judge::judge;
use crate::diagnosis::observation::{Exporter, Observation};
use crate::diagnosis::page::{Change, Page};
use crate::diagnosis::records::{Name, Records};
use crate::diagnosis::report::finding_json;
use crate::model::{IterationStats, RECENT_RECORDS};
use crate::pages::Pages;
use crate::state::{EngineSlot, State};

use super::api;

/// The window is as long as this, and up to twice as long.
const WINDOW: Duration = Duration::from_secs(15);
/// A shorter window proves little, so it gives no findings.
const LEAST: Duration = Duration::from_secs(5);
/// Requests within this time get the same answer.
const FRESH: Duration = Duration::from_millis(1500);
/// After a longer pause, a new window begins.
const PAUSE: Duration = Duration::from_secs(20);
/// After the last request, the numbers are dropped.
const KEPT: Duration = Duration::from_secs(60);
/// Records kept of one engine, and of all engines.
const MAX_RECORDS: usize = 512;
const MAX_RECORDS_OF_ALL: usize = 8192;

/// Watches the exporter's own page while somebody asks.
#[derive(Debug, Default)]
struct Findings(Mutex<Option<Watch>>);

#[derive(Debug)]
struct Watch {
    began: Instant,
    /// Where the window begins.
    start: (Instant, Page),
    /// Where the next window begins.
    next: Option<(Instant, Page)>,
    records: Records<Arc<IterationStats>>,
    /// The last answer, and its time.
    answer: (Instant, Value),
}

/// The findings about this exporter's own page.
#[derive(Debug)]
pub struct LiveFindings {
    state: Arc<State>,
    pages: Arc<Pages>,
    findings: Arc<Findings>,
}

impl LiveFindings {
    #[must_use]
    pub fn new(state: Arc<State>, pages: Arc<Pages>) -> Self {
        Self { state, pages, findings: Arc::default() }
    }

    /// `None` if a rule panicked.
    pub async fn look(self: Arc<Self>) -> Option<Value> {
        if self.findings.is_empty() {
            tokio::spawn(Findings::forget(Arc::downgrade(&self.findings)));
        }
        // A page of many engines takes milliseconds to parse.
        let look = move || self.findings.look(&self.state, || self.pages.text(), Instant::now());
        tokio::task::spawn_blocking(look).await.ok()
    }
}

impl Findings {
    /// The findings about the time since the window began. `page`: the metrics page as text.
    fn look(&self, state: &State, page: impl FnOnce() -> Bytes, now: Instant) -> Value {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = current.take().filter(|watch| now.saturating_duration_since(watch.answer.0) < PAUSE);
        let watch = match kept {
            Some(watch) if now.saturating_duration_since(watch.answer.0) < FRESH => watch,
            Some(mut watch) => {
                watch.roll(now);
                watch.read(state, now);
                watch.judge(state, Page::parse(&page()), now);
                watch
            }
            None => Watch::begin(state, Page::parse(&page()), now),
        };
        let answer = watch.answer.1.clone();
        *current = Some(watch);
        answer
    }

    /// Drops the numbers if nobody has asked for a minute. `false` if there are none any more.
    fn keep(&self, now: Instant) -> bool {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|watch| now.saturating_duration_since(watch.answer.0) >= KEPT) {
            *current = None;
        }
        current.is_some()
    }

    /// Whether nobody has asked yet, or not for a while.
    #[must_use]
    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Ends when nobody asks any more.
    async fn forget(findings: Weak<Self>) {
        loop {
            tokio::time::sleep(KEPT).await;
            let kept = findings.upgrade().is_some_and(|findings| findings.keep(Instant::now()));
            if !kept {
                break;
            }
        }
    }
}

impl Watch {
    fn begin(state: &State, page: Page, now: Instant) -> Self {
        let answer = (now, json!({"windowSeconds": 0.0, "findings": []}));
        let mut watch = Self { began: now, start: (now, page), next: None, records: Records::default(), answer };
        watch.read(state, now);
        watch
    }

    /// Keeps the records that are new.
    fn read(&mut self, state: &State, now: Instant) {
        let time = now.saturating_duration_since(self.began);
        let slots = state.slots();
        let name = |slot: &EngineSlot| [slot.name.model.clone(), slot.name.version.clone()];
        let names: BTreeSet<Name> = slots.iter().map(|slot| name(slot)).collect();
        self.records.retain(&names);
        let most = MAX_RECORDS.min(MAX_RECORDS_OF_ALL / names.len().max(1));
        for slot in slots.iter() {
            self.records.add(name(slot), slot.recent_records(RECENT_RECORDS), time, most);
        }
    }

    fn judge(&mut self, state: &State, after: Page, now: Instant) {
        let (start, before) = (self.start.0, mem::take(&mut self.start.1));
        let window = now.saturating_duration_since(start);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let abouts: Vec<About> = serde_json::from_value(api::engines(state)).unwrap_or_default();
        let from = start.saturating_duration_since(self.began);
        let of_window = |name: &Name| self.records.after(from, name);
        let exporter =
            Exporter::observed("this exporter".to_owned(), Change { before, after }, window, wall, abouts, of_window);
        let mut observation = Observation { exporters: vec![exporter], sources: Vec::new() };
        let findings: Value = judge(&observation).iter().map(finding_json).collect();
        self.answer.0 = now;
        if window >= LEAST {
            self.answer.1 = json!({"windowSeconds": window.as_secs_f64(), "findings": findings});
        }
        let Change { before, after } = observation.exporters.pop().unwrap_or_default().page;
        self.start.1 = before;
        if self.next.is_none() && window >= WINDOW {
            self.next = Some((now, after));
        }
    }

    /// Starts the next window once it is long enough.
    fn roll(&mut self, now: Instant) {
        let is_long = |(start, _): &mut (Instant, Page)| now.saturating_duration_since(*start) >= WINDOW;
        if let Some(next) = self.next.take_if(is_long) {
            self.records.forget_before(next.0.saturating_duration_since(self.began));
            self.start = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, lost: u64) -> Bytes {
        let engine = "model=\"m\",version=\"1\"";
        format!(
            "nv_trt_llm_iterations_total{{{engine}}} {second}00\nnv_trt_llm_iterations_lost_total{{{engine}}} {lost}\n\
                 trtllm_exporter_log_lines_dropped_total {lost}\n"
        )
        .into()
    }

    fn rules(answer: &Value) -> Vec<&str> {
        answer["findings"].as_array().unwrap().iter().filter_map(|finding| finding["rule"].as_str()).collect()
    }

    #[test]
    fn the_window_moves_on_while_somebody_asks() {
        let (findings, state, start) = (Findings::default(), State::new(Vec::new()), Instant::now());
        let look =
            |second: u64, lost: u64| findings.look(&state, || at(second, lost), start + Duration::from_secs(second));
        assert_eq!(look(0, 5), json!({"windowSeconds": 0.0, "findings": []}));
        assert_eq!(look(3, 6), json!({"windowSeconds": 0.0, "findings": []}));
        let answer = look(6, 6);
        assert_eq!((rules(&answer), &answer["windowSeconds"]), (vec!["log-lines-dropped"], &json!(6.0)));
        assert_eq!(answer["findings"][0]["subject"], "this exporter");
        for second in (8..=30).step_by(2) {
            assert_eq!(rules(&look(second, 6)), ["log-lines-dropped"], "{second}");
        }
        // The window began at 16 s.
        let answer = look(34, 6);
        assert_eq!((rules(&answer), &answer["windowSeconds"]), (vec![], &json!(18.0)));
        assert_eq!(look(35, 7), answer, "within a moment, the answer is the same");
        // A pause in which the numbers were not kept up.
        assert_eq!(look(60, 99), json!({"windowSeconds": 0.0, "findings": []}));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_when_nobody_asks() {
        let (findings, state) = (Arc::new(Findings::default()), State::new(Vec::new()));
        assert!(findings.is_empty());
        let long_ago = Instant::now().checked_sub(KEPT).unwrap();
        findings.look(&state, || at(0, 0), long_ago);
        assert!(!findings.is_empty());
        Findings::forget(Arc::downgrade(&findings)).await;
        assert!(findings.is_empty());
    }
}
