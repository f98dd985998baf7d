//! Tests the frames and texts that follow from readings and keys.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::app::{App, Focus, Update};
use super::columns::Column;
use super::draw;
use super::exporter::ExporterReading;
use super::numbers::Number;
use super::theme::Theme;
use crate::exporters::api::{self, Gpus};
use ratatui::crossterm::event::KeyCode;
use trtllm_engines::Engine;
use trtllm_fold::EngineState;
use trtllm_http::views::numbers::LoadJson;
use trtllm_records::IterationStats;

/// An engine as the API describes it.
fn engine(model: &str, state: &str) -> Value {
    let why = if state == "busy" { "requests are being served" } else { "no requests" };
    json!({"model": model, "version": "1", "state": state, "why": why, "source": "socket", "lastPoll": {"succeeded": true}})
}

/// An engine with its load and with the numbers of the last half minute.
fn working(model: &str, state: &str, active: u32, generated: f64) -> Value {
    let mut engine = engine(model, state);
    engine["load"] = json!({"active": active, "maxActive": 64, "queued": 0, "kvCacheUsedRatio": 0.25});
    engine["window"] = json!({"seconds": 30, "iterationsPerSecond": 100, "generationTokensPerSecond": generated});
    engine["totals"] = json!({"iterations": 7, "requestsCompleted": 5});
    engine
}

fn llama() -> Value {
    let mut engine = working("llama", "busy", 12, 250.0);
    engine["window"]["iterationSeconds"] = json!({"mean": 0.125, "p50": 0.1, "p95": 0.19, "p99": 0.198});
    engine["window"]["ttftSeconds"] = json!({"mean": 0.125, "p50": 0.1, "p95": 0.19});
    engine
}

fn limited(engine: Value, severity: &str, cause: &str) -> Value {
    let mut engine = engine;
    engine["verdict"] = json!({"cause": cause, "severity": severity, "confidence": "high", "says": "256 requests wait.", "evidence": [],
        "cost": null, "remedy": "Raise max_batch_size.", "settings": [], "consequences": [], "since": 0.0});
    engine
}

fn gpu() -> Value {
    json!({"uuid": "GPU-a", "index": 0, "name": "H100", "state": "ok", "utilizationRatio": 0.57, "powerWatts": 412,
        "clocksLimitedBy": ["sw_power_cap"]})
}

/// The JSON as `top` reads it from an exporter.
fn answer<T: serde::de::DeserializeOwned>(json: &Value) -> T {
    api::parse("/api", json.to_string().as_bytes(), true).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn reading(engines: &Value, gpus: &Value) -> ExporterReading {
    let slots = json!([{"ago": 5, "seconds": 5, "scheduled": 11}, {"ago": 0, "seconds": 5, "scheduled": 12}]);
    let Gpus { gpus, why, .. } = answer(gpus);
    let no_gpus = why.unwrap_or_default();
    let (engines, slots) = (answer(engines), answer(&slots));
    ExporterReading { engines, gpus, no_gpus, history: Some(("llama:1".to_owned(), slots)) }
}

struct Scene(App);

impl Scene {
    fn new(exporters: usize) -> Self {
        Self(App::new(&(0..exporters).map(|at| format!("http://node{at}:8002")).collect::<Vec<_>>()))
    }

    fn read(&mut self, exporter: usize, time: f64, engines: &Value) -> &mut Self {
        self.read_all(exporter, time, engines, &json!({"gpus": [], "why": "GPU metrics are switched off (--gpu off)."}))
    }

    fn read_all(&mut self, exporter: usize, time: f64, engines: &Value, gpus: &Value) -> &mut Self {
        self.0.absorb(Update { exporter, time, read: Ok(reading(engines, gpus)) });
        self
    }

    fn fail(&mut self, exporter: usize, time: f64) -> &mut Self {
        self.0.absorb(Update { exporter, time, read: Err("cannot connect: refused\x1b[2J".to_owned()) });
        self
    }

    fn keys(&mut self, keys: &[KeyCode]) -> &mut Self {
        keys.iter().for_each(|key| self.0.key(*key));
        self
    }

    fn names(&self) -> Vec<String> {
        self.0.rows().iter().map(|row| row.engine.model.clone()).collect()
    }

    fn selected(&self) -> String {
        self.names()[self.0.selected_row()].clone()
    }

    /// The lines of a frame, without spaces at their ends.
    fn frame(&self, width: u16, height: u16) -> Vec<String> {
        let buffer = self.buffer(width, height, Theme { colors: true });
        let lines = buffer.content.chunks(usize::from(width.max(1)));
        lines.map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
    }

    fn buffer(&self, width: u16, height: u16, theme: Theme) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw::draw(frame, &self.0, theme, Duration::from_secs(2))).unwrap();
        terminal.backend().buffer().clone()
    }
}

/// One read of two engines at the first of two exporters.
fn scene() -> Scene {
    let engines = json!([llama(), working("qwen", "idle", 0, 0.0)]);
    let mut scene = Scene::new(2);
    scene.read_all(0, 2.0, &engines, &json!({"gpus": [gpu()]})).fail(1, 2.0);
    scene
}

#[test]
fn the_engine_in_trouble_is_first_and_its_limit_is_the_reason() {
    let starting =
        json!({"model": "z", "version": "1", "state": "starting", "why": "the model loads", "source": "socket"});
    let engines = json!([
        working("a", "busy", 1, 1.0),
        limited(llama(), "warning", "batch_limit"),
        limited(working("stalled", "stalled", 3, 0.0), "critical", "unavailable"),
        limited(working("noted", "busy", 3, 0.0), "info", "load"),
        starting,
    ]);
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &engines);
    assert_eq!(scene.names(), ["stalled", "llama", "noted", "a", "z"]);
    let rows = scene.0.rows();
    assert_eq!(rows[1].why(), "batch_limit: 256 requests wait.");
    assert_eq!([Column::State.text(&rows[1]), Column::State.text(&rows[3])], ["batch_limit", "busy"]);
    assert_eq!(rows[4].why(), "the model loads");
    let tones = rows.iter().map(|row| super::draw::tone_of_state(row));
    use super::theme::Tone::{Bad, Good, Info, Warning};
    assert_eq!(tones.collect::<Vec<_>>(), [Bad, Warning, Info, Good, Info], "an engine in trouble is not green");
}

/// Before the first record, 0 would look like an idle engine.
#[test]
fn numbers_are_unknown_before_the_first_record() {
    let mut engine = working("new", "starting", 0, 0.0);
    engine["totals"]["iterations"] = json!(0);
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &json!([engine]));
    assert_eq!(Number::Generated.of(scene.0.rows()[0].engine), None);
}

#[test]
fn keys_sort_select_and_open() {
    let engines = |a, b| json!([working("a", "busy", a, 1.0), working("b", "busy", b, 1.0), engine("c", "starting")]);
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &engines(1, 2)).keys(&[KeyCode::Left]);
    assert_eq!((scene.names().join(" "), scene.selected()), ("a b c".to_owned(), "a".to_owned()));
    // Sort by active requests, the column right of the state: the largest number is first, an unknown one last.
    scene.keys(&[KeyCode::Right, KeyCode::Char('l')]);
    assert_eq!((scene.0.sort, scene.names().join(" ")), (Column::Number(Number::Active), "b a c".to_owned()));
    scene.keys(&[KeyCode::Char('r')]);
    assert_eq!(scene.names().join(" "), "a b c");
    // The selection follows its engine.
    scene.keys(&[KeyCode::Char('j')]).read(0, 1.0, &engines(9, 2));
    assert_eq!((scene.names().join(" "), scene.selected()), ("b a c".to_owned(), "b".to_owned()));
    scene.keys(&[KeyCode::End]);
    assert_eq!(scene.selected(), "c");
    scene.keys(&[KeyCode::PageUp, KeyCode::Enter]);
    assert_eq!((scene.0.detail, scene.0.charts_of()), (true, Some((0, "b:1".to_owned()))));
    scene.keys(&[KeyCode::Down, KeyCode::Char('?'), KeyCode::Down, KeyCode::Esc]);
    assert_eq!((scene.0.help, scene.0.charts_of()), (false, Some((0, "a:1".to_owned()))), "help hides the table");
    scene.keys(&[KeyCode::Esc, KeyCode::Tab, KeyCode::Char('q')]);
    assert_eq!((scene.0.detail, scene.0.focus, scene.0.quit), (false, Focus::Gpus, true));
    // When the selected engine disappears, the selection stays on its row.
    let mut rest = engines(9, 2);
    rest.as_array_mut().unwrap().remove(0);
    scene.read(0, 2.0, &rest);
    assert_eq!(scene.selected(), "c");
}

#[test]
fn a_frame_of_80_by_24() {
    let frame = scene().frame(80, 24);
    let expected = [
        " trtllm-doctor top  2 exporters (1 down)  2 engines  1 GPU  every 2s",
        "http://node1:8002: cannot connect: refused?[2J (for 0s)",
        "ENGINE         STATE▼           ACTIVE QUEUED  GEN/S ITER99 TTFT95 TPOT50     KV",
    ];
    assert_eq!(frame[..3], expected);
    let text = frame.join("\n");
    assert!(
        text.contains("llama 1        busy                 12      0    250  198ms  190ms      -  25.0%"),
        "{text}"
    );
    assert!(text.contains("qwen 1         idle                  0      0      0"), "{text}");
    assert!(text.contains("llama 1 at node0:8002: busy: requests are being served"), "{text}");
    assert!(text.contains("0 H100  node0:8002  ok     57.0%           -      412        -  sw power cap"), "{text}");
    assert!(frame[23].ends_with("? help  q quit"), "{}", frame[23]);
}

#[test]
fn every_size_has_a_frame_in_every_view() {
    let mut scene = scene();
    for keys in [&[][..], &[KeyCode::Enter], &[KeyCode::Char('?')], &[KeyCode::Esc, KeyCode::Esc, KeyCode::Tab]] {
        scene.keys(keys);
        for width in [1, 2, 10, 33, 79, 80, 132, 300] {
            for height in [1, 2, 3, 5, 9, 24, 70] {
                assert_eq!(scene.frame(width, height).len(), usize::from(height), "{width}x{height}");
            }
        }
    }
}

#[test]
fn ranks_are_listed_with_their_last_iteration() {
    for (has_rank, state) in [(false, EngineState::Busy), (true, EngineState::Busy), (true, EngineState::Idle)] {
        let record = |iter: u64, rank: i64, active: i64| {
            json!({"iter": iter, "attentionDpRank": if has_rank { 0 } else { rank }, "rank": has_rank.then_some(rank),
               "numActiveRequests": active, "inflightBatchingStats": {"numCtxTokens": 5, "numGenRequests": 3, "numScheduledRequests": 4},
               "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50}})
        };
        let records = json!([record(1, 0, 9), record(1, 1, 9), record(2, 0, 8), record(2, 1, 2)]);
        let records: Vec<IterationStats> = serde_json::from_value(records).unwrap();
        let mut engine = llama();
        let mut observed = Engine::starting();
        records.iter().for_each(|record| observed.observed.absorb(record, Instant::now(), 0).unwrap());
        observed.state = state;
        engine["load"] = json!(LoadJson::of(&observed));
        let mut scene = Scene::new(1);
        scene.read(0, 0.0, &json!([engine]));
        let frame = scene.keys(&[KeyCode::Enter]).frame(100, 30).join("\n");
        let [first, second] = match (state, has_rank) {
            (EngineState::Idle, _) => [
                "0       0          0           0             0    25.0%",
                "1       0          0           0             0    25.0%",
            ],
            (_, true) => [
                "0       8          4           5             3    25.0%",
                "1       2          4           5             3    25.0%",
            ],
            // Copies of rank 0's numbers are not shown.
            (_, false) => [
                "0       8          4           5             3    25.0%",
                "1       -          4           5             3        -",
            ],
        };
        assert!(frame.contains(&format!("\n   {first}")) && frame.contains(&format!("\n   {second}")), "{frame}");
    }
}

#[test]
fn texts_of_others_cannot_control_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}x";
    let mut engine = engine(evil, evil);
    for key in ["source", "backend", "engineVersion", "why"] {
        engine[key] = json!(evil);
    }
    engine["labels"] = json!({"pool": evil});
    let gpu = json!({"uuid": evil, "name": evil, "state": evil, "clocksLimitedBy": [evil]});
    let mut scene = Scene::new(2);
    scene.read_all(0, 0.0, &json!([engine]), &json!({"gpus": [gpu]})).fail(1, 0.0);
    let text = draw::text(&scene.0);
    assert!(text.contains("?[2J?]0;owned"), "{text}");
    let is_harmful = |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
    assert!(!text.contains(is_harmful), "{text:?}");
    assert_eq!(text.lines().count(), 2 + 1 + 2 + 1 + 2, "no text has more lines:\n{text}");
    for keys in [&[][..], &[KeyCode::Enter]] {
        scene.keys(keys);
        let frame = scene.frame(250, 50).join("");
        assert!(frame.contains("?[2J?]0;owned") && !frame.contains(is_harmful), "{frame:?}");
    }
}

#[test]
fn the_plain_text_has_aligned_columns() {
    let text = draw::text(&scene().0);
    let expected = "\
http://node0:8002: engines: 2, GPUs: 1
http://node1:8002: not read: cannot connect: refused?[2J

ENGINE   EXPORTER    STATE  ACTIVE  QUEUED  WAITING  PAUSED  GEN/S  CTX/S   ITER  ITER99  TTFT50  TTFT95  \
TPOT50  TPOT95     KV  KV-HIT  WHY
llama 1  node0:8002  busy       12       0        -       -    250      -  125ms   198ms   100ms   190ms  \
\x20    -       -  25.0%       -  requests are being served
qwen 1   node0:8002  idle        0       0        -       -      0      -      -       -       -       -  \
\x20    -       -  25.0%       -  no requests

GPU     EXPORTER    STATE    USE  MEMORY GiB  POWER W  TEMP °C  CLOCKS LIMITED BY
0 H100  node0:8002  ok     57.0%           -      412        -  sw power cap
";
    assert_eq!(text, expected);
}

#[test]
fn a_list_longer_than_the_screen_scrolls_to_the_selection() {
    let names: Vec<String> = (10..60).map(|at| format!("engine-{at}")).collect();
    let engines: Value = names.iter().map(|name| engine(name, "idle")).collect();
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &engines).keys(&[KeyCode::Left]);
    assert!(scene.frame(80, 24).join("\n").contains("engine-10"));
    let frame = scene.keys(&[KeyCode::End]).frame(80, 24).join("\n");
    assert!(frame.contains("engine-59") && !frame.contains("engine-10 "), "{frame}");
    assert!(frame.contains("engine-59 1 (50 of 50)") && frame.contains("GPU metrics are switched off"), "{frame}");
}

#[test]
fn an_orchestrator_has_its_sides_instead_of_charts() {
    let why = "the orchestrator is not ready; workers: 2 context, 0 of 1 generation";
    let side = |requests: f64, errors: f64| json!({"requestsPerSecond": requests, "errorRatio": errors, "retriesPerSecond": 0});
    let orchestrator = json!({
        "sides": {"context": {"readyWorkers": 2, "minimalWorkers": 1}, "generation": {"readyWorkers": 0, "minimalWorkers": 1}},
        "window": {"seconds": 30, "requestsPerSecond": 4, "sides": {"context": side(4.0, 0.0), "generation": side(4.0, 0.25)}},
    });
    let disagg = json!({"model": "disagg", "version": "1", "state": "busy", "why": why, "source": "trtllm-disagg",
        "orchestrator": orchestrator});
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &json!([disagg, engine("llama", "busy")])).keys(&[KeyCode::Left, KeyCode::Enter]);
    let frame = scene.frame(120, 30).join("\n");
    let expected = "SIDE        WORKERS  REQ/S  ERRORS  RETRIES/S  TIME-P50  TIME-P95  FIRST-P95\n\
                    context           2      4      0%          0         -         -          -\n\
                    generation   0 of 1      4   25.0%          0         -         -          -";
    assert!(frame.contains(why) && frame.contains("requests/s 4  errors -") && frame.contains(expected), "{frame}");
    assert!(!frame.contains("TTFT"), "{frame}");
    let text = draw::text(&scene.0);
    assert!(
        text.contains("\nORCHESTRATOR  SIDE        WORKERS  REQ/S")
            && text.contains("\ndisagg 1      generation   0 of 1      4"),
        "{text}"
    );
    // Draws all views in several sizes.
    for (width, height) in [(20, 5), (80, 24), (200, 60)] {
        scene.frame(width, height);
        scene.keys(&[KeyCode::Esc]).frame(width, height);
        scene.keys(&[KeyCode::Enter]);
    }
}
