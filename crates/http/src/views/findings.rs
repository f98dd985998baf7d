//! `/api/v1/findings`: what limits each engine, by the rules of `doctor`. Two older pages are always kept, compressed, so that the
//! first request is answered at once. Records are kept while somebody asks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use trtllm_diagnosis::about::About;
use trtllm_diagnosis::judge::judge;
use trtllm_diagnosis::observation::{Exporter, Observation};
use trtllm_diagnosis::page::{Change, Page};
use trtllm_diagnosis::records::{Name, Records};
use trtllm_diagnosis::report::finding_json;
use trtllm_model::{IterationStats, RECENT_RECORDS};
use trtllm_page::pages::{KeptPage, Pages};
use trtllm_page::state::{EngineSlot, State};

use super::api;

/// The window is as long as this, and up to twice as long.
const WINDOW: Duration = Duration::from_secs(15);
/// A shorter window proves little, so it gives no findings.
const LEAST: Duration = Duration::from_secs(5);
/// Requests within this time get the same answer.
const FRESH: Duration = Duration::from_millis(1500);
/// After the last request, records are dropped.
const KEPT: Duration = Duration::from_secs(60);
/// Records kept of one engine, and of all engines.
const MAX_RECORDS: usize = 512;
const MAX_RECORDS_OF_ALL: usize = 8192;

/// Watches the exporter's own page.
#[derive(Debug, Default)]
struct Watch {
    /// At most two: where the window begins, and where the next one will.
    marks: VecDeque<Mark>,
    /// While somebody asks.
    asked: Option<Asked>,
}

/// The exporter at an earlier time.
#[derive(Debug)]
struct Mark {
    time: Instant,
    page: KeptPage,
    /// The newest record of each engine, by the id of its slot: later ones belong to the window.
    newest: Vec<(u64, Arc<IterationStats>)>,
}

#[derive(Debug)]
struct Asked {
    began: Instant,
    /// Their times are since `began`.
    records: Records<Arc<IterationStats>>,
    /// The last answer, and its time.
    answer: (Instant, Value),
}

/// The findings about this exporter's own page.
#[derive(Debug)]
pub struct LiveFindings {
    state: Arc<State>,
    pages: Arc<Pages>,
    watch: Arc<Mutex<Watch>>,
}

impl LiveFindings {
    /// Watches until it is dropped.
    #[must_use]
    pub fn start(state: Arc<State>, pages: Arc<Pages>) -> Arc<Self> {
        let findings = Arc::new(Self { state, pages, watch: Arc::default() });
        let watched = Arc::downgrade(&findings);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(WINDOW).await;
                let Some(findings) = watched.upgrade() else { return };
                let mark = Mark::now(&findings.state, findings.pages.keep(), Instant::now());
                findings.watch.lock().roll(mark);
            }
        });
        findings
    }

    /// `None` if a rule panicked.
    pub async fn look(self: Arc<Self>) -> Option<Value> {
        // A page of many engines takes milliseconds to parse.
        let look = move || {
            let mark = || Mark::now(&self.state, self.pages.keep(), Instant::now());
            self.watch.lock().look(&self.state, mark, || self.pages.text(), Instant::now())
        };
        tokio::task::spawn_blocking(look).await.ok()
    }
}

impl Mark {
    fn now(state: &State, page: KeptPage, time: Instant) -> Self {
        let newest = |slot: &Arc<EngineSlot>| Some((slot.id, slot.recent_records(1).pop()?));
        Self { time, page, newest: state.slots().iter().filter_map(newest).collect() }
    }

    /// How many of an engine's last records are from before this time.
    fn before(&self, slot: &EngineSlot, records: &[Arc<IterationStats>]) -> usize {
        let newest = self.newest.iter().find(|(id, _)| *id == slot.id);
        let at = newest.and_then(|(_, newest)| records.iter().rposition(|record| Arc::ptr_eq(record, newest)));
        at.map_or(0, |at| at + 1)
    }
}

impl Watch {
    /// Moves the window on.
    fn roll(&mut self, mark: Mark) {
        self.asked.take_if(|asked| mark.time.saturating_duration_since(asked.answer.0) >= KEPT);
        while self.marks.len() > 1 {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
        if let (Some(asked), Some(first)) = (&mut self.asked, self.marks.front()) {
            asked.records.forget_before(first.time.saturating_duration_since(asked.began));
        }
    }

    /// The findings about the time since the window began. `mark`: begins the first window. `page`: the metrics page as text.
    fn look(
        &mut self,
        state: &State,
        mark: impl FnOnce() -> Mark,
        page: impl FnOnce() -> Bytes,
        now: Instant,
    ) -> Value {
        if let Some(Asked { answer: (time, answer), .. }) = &self.asked
            && now.saturating_duration_since(*time) < FRESH
        {
            return answer.clone();
        }
        if self.marks.is_empty() {
            self.marks.push_back(mark());
        }
        let Some(first) = self.marks.front() else { return nothing_yet() };
        let asked = self.asked.get_or_insert_with(|| Asked::begin(state, first, now));
        asked.read(state, now);
        let window = now.saturating_duration_since(first.time);
        let answer = if window < LEAST {
            nothing_yet()
        } else {
            let change = Change { before: Page::parse(&first.page.text()), after: Page::parse(&page()) };
            let from = first.time.saturating_duration_since(asked.began);
            json!({"windowSeconds": window.as_secs_f64(), "findings": asked.judge(state, change, window, from)})
        };
        asked.answer = (now, answer.clone());
        answer
    }
}

fn nothing_yet() -> Value {
    json!({"windowSeconds": 0.0, "findings": []})
}

impl Asked {
    fn begin(state: &State, first: &Mark, now: Instant) -> Self {
        let mut asked = Self { began: first.time, records: Records::default(), answer: (now, nothing_yet()) };
        asked.add(state, Duration::ZERO, |slot, records| {
            let before = first.before(slot, &records);
            records.into_iter().take(before).collect()
        });
        asked
    }

    /// Keeps the records that are new.
    fn read(&mut self, state: &State, now: Instant) {
        self.add(state, now.saturating_duration_since(self.began), |_, records| records);
    }

    fn add(
        &mut self,
        state: &State,
        time: Duration,
        choose: impl Fn(&EngineSlot, Vec<Arc<IterationStats>>) -> Vec<Arc<IterationStats>>,
    ) {
        let slots = state.slots();
        let name = |slot: &EngineSlot| [slot.name.model.clone(), slot.name.version.clone()];
        let names: BTreeSet<Name> = slots.iter().map(|slot| name(slot)).collect();
        self.records.retain(&names);
        let most = MAX_RECORDS.min(MAX_RECORDS_OF_ALL / names.len().max(1));
        for slot in slots.iter() {
            self.records.add(name(slot), choose(slot, slot.recent_records(RECENT_RECORDS)), time, most);
        }
    }

    /// `from` is the beginning of the window, on the clock of the records.
    fn judge(&self, state: &State, change: Change, window: Duration, from: Duration) -> Value {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let abouts: Vec<About> = serde_json::from_value(api::engines(state)).unwrap_or_default();
        let of_window = |name: &Name| self.records.after(from, name);
        let exporter = Exporter::observed("this exporter".to_owned(), change, window, wall, abouts, of_window);
        let observation = Observation { exporters: vec![exporter], sources: Vec::new() };
        judge(&observation).iter().map(finding_json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_engine::EngineState;
    use trtllm_model::EngineName;

    fn page(second: u64, lost: u64) -> String {
        let engine = "model=\"m\",version=\"1\"";
        format!(
            "nv_trt_llm_iterations_total{{{engine}}} {second}00\nnv_trt_llm_iterations_lost_total{{{engine}}} {lost}\n\
             nv_trt_llm_iteration_latency_seconds_sum{{{engine}}} {second}\n\
             trtllm_exporter_log_lines_dropped_total {lost}\n"
        )
    }

    fn rules(answer: &Value) -> Vec<&str> {
        answer["findings"].as_array().unwrap().iter().filter_map(|finding| finding["rule"].as_str()).collect()
    }

    struct Scene {
        watch: Watch,
        state: State,
        start: Instant,
    }

    impl Scene {
        fn new(engines: Vec<EngineName>) -> Self {
            let state = State::new(engines);
            for slot in state.slots().iter() {
                slot.update(|engine| (engine.state, engine.source.ready) = (EngineState::Busy, true));
            }
            Self { watch: Watch::default(), state, start: Instant::now() }
        }

        fn mark(&self, second: u64, lost: u64) -> Mark {
            let page = KeptPage::new(page(second, lost).as_bytes());
            Mark::now(&self.state, page, self.start + Duration::from_secs(second))
        }

        fn roll(&mut self, second: u64, lost: u64) {
            let mark = self.mark(second, lost);
            self.watch.roll(mark);
        }

        fn look(&mut self, second: u64, lost: u64) -> Value {
            let mark = self.mark(second, lost);
            let now = self.start + Duration::from_secs(second);
            self.watch.look(&self.state, || mark, || page(second, lost).into(), now)
        }

        /// Records of a batch of 64 while 30 requests wait.
        fn run(&self, iterations: std::ops::Range<u64>, queued: i64) {
            let record = |iter| {
                let record = json!({"iter": iter, "iterLatencyMS": 10.0, "numActiveRequests": 64, "numQueuedRequests": queued,
                    "maxNumActiveRequests": 64, "inflightBatchingStats": {"numScheduledRequests": 64, "numGenRequests": 64}});
                serde_json::from_value(record).unwrap()
            };
            self.state.slots()[0].keep_records(iterations.map(|iter| Box::new(record(iter))).collect());
        }
    }

    #[test]
    fn the_first_request_to_an_overloaded_engine_is_answered_with_its_findings() {
        let mut scene = Scene::new(vec![EngineName::new("m", "1", "test")]);
        // An hour without requests, in which nobody asked.
        scene.run(0..60, 0);
        scene.roll(3600, 0);
        scene.run(60..100, 30);
        scene.roll(3615, 0);
        scene.run(100..120, 30);
        let answer = scene.look(3622, 0);
        assert_eq!((&answer["windowSeconds"], rules(&answer)), (&json!(22.0), vec!["queue-bound"]), "{answer}");
        let iterations = |watch: &Watch, from| {
            let asked = watch.asked.as_ref().unwrap();
            asked.records.after(Duration::from_secs(from), &["m".to_owned(), "1".to_owned()]).len()
        };
        assert_eq!(iterations(&scene.watch, 0), 60, "records from before the window are not judged");
        // Nobody asks for a minute.
        scene.roll(3683, 0);
        assert!(scene.watch.asked.is_none(), "records are not kept");
    }

    #[test]
    fn the_window_moves_on() {
        let mut scene = Scene::new(Vec::new());
        assert_eq!(scene.look(0, 5), nothing_yet());
        assert_eq!(scene.look(3, 6), nothing_yet());
        let answer = scene.look(6, 6);
        assert_eq!((rules(&answer), &answer["windowSeconds"]), (vec!["log-lines-dropped"], &json!(6.0)));
        assert_eq!(answer["findings"][0]["subject"], "this exporter");
        scene.roll(15, 6);
        for second in (16..30).step_by(2) {
            assert_eq!(rules(&scene.look(second, 6)), ["log-lines-dropped"], "{second}");
        }
        scene.roll(30, 6);
        let answer = scene.look(34, 6);
        assert_eq!((rules(&answer), &answer["windowSeconds"]), (vec![], &json!(19.0)));
        assert_eq!(scene.look(35, 7), answer, "within a moment, the answer is the same");
        assert_eq!(scene.watch.marks.len(), 2);
    }
}
