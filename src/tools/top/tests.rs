//! From pages and keys to frames and texts.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::super::exporters::page::Page;
use super::app::{App, Focus, Key, Update};
use super::columns::Column;
use super::numbers::Number;
use super::reading::Reading;
use super::theme::Theme;
use super::{draw, plain};

fn about(model: &str, state: &str) -> Value {
    let why = if state == "busy" { "requests are being served" } else { "no requests" };
    json!({"model": model, "version": "1", "state": state, "why": why, "source": "socket", "lastPoll": {"succeeded": true}})
}

fn reading(page: &str, engines: &Value) -> Reading {
    let abouts: Vec<_> = serde_json::from_value(engines.clone()).unwrap();
    Reading::new(&Page::parse(page.as_bytes()), &abouts, &BTreeMap::new())
}

/// Load gauges and totals of an engine.
fn engine(model: &str, active: u32, tokens: u32) -> String {
    let labels = format!("model=\"{model}\",version=\"1\"");
    format!(
        "nv_trt_llm_request_metrics{{{labels},request_type=\"active\"}} {active}\n\
         nv_trt_llm_request_metrics{{{labels},request_type=\"max\"}} 64\n\
         nv_trt_llm_queued_requests{{{labels}}} 0\n\
         nv_trt_llm_iterations_total{{{labels}}} {tokens}\n\
         nv_trt_llm_generation_tokens_total{{{labels}}} {tokens}\n\
         nv_trt_llm_kv_cache_block_metrics{{{labels},kv_cache_block_type=\"fraction\"}} 0.25\n"
    )
}

/// Buckets of a histogram with half of the observations up to 0.1 and all up to 0.2.
fn histogram(name: &str, model: &str, count: u32) -> String {
    let labels = format!("model=\"{model}\",version=\"1\"");
    let half = count / 2;
    format!(
        "{name}_bucket{{{labels},le=\"0.1\"}} {half}\n{name}_bucket{{{labels},le=\"0.2\"}} {count}\n\
         {name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {count}\n",
        f64::from(count) * 0.125
    )
}

struct Scene(App);

impl Scene {
    fn new(exporters: usize) -> Self {
        Self(App::new(&(0..exporters).map(|at| format!("http://node{at}:8002")).collect::<Vec<_>>()))
    }

    fn read(&mut self, exporter: usize, time: f64, page: &str, engines: &Value) -> &mut Self {
        self.0.absorb(Update { exporter, time, read: Ok(reading(page, engines)) });
        self
    }

    fn fail(&mut self, exporter: usize, time: f64) -> &mut Self {
        self.0.absorb(Update { exporter, time, read: Err("cannot connect: refused\x1b[2J".to_owned()) });
        self
    }

    fn keys(&mut self, keys: &[Key]) -> &mut Self {
        keys.iter().for_each(|key| self.0.key(*key));
        self
    }

    fn names(&self) -> Vec<String> {
        self.0.rows().iter().map(|row| row.engine.name.model.clone()).collect()
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

/// Two reads of two engines at the first of two exporters.
fn scene() -> Scene {
    let engines = json!([about("llama", "busy"), about("qwen", "idle")]);
    let page = |tokens: u32, count: u32| {
        engine("llama", 12, tokens)
            + &engine("qwen", 0, 7)
            + &histogram("nv_trt_llm_iteration_latency_seconds", "llama", count)
            + &histogram("nv_trt_llm_time_to_first_token_seconds", "llama", count)
            + "nv_gpu_info{gpu_uuid=\"GPU-a\",index=\"0\",name=\"H100\"} 1\nnv_gpu_state{gpu_uuid=\"GPU-a\",state=\"ok\"} 1\n\
               nv_gpu_utilization{gpu_uuid=\"GPU-a\"} 0.57\nnv_gpu_power_usage{gpu_uuid=\"GPU-a\"} 412\n\
               nv_gpu_clocks_event_active{gpu_uuid=\"GPU-a\",reason=\"sw_power_cap\"} 1\n\
               nv_gpu_clocks_event_active{gpu_uuid=\"GPU-a\",reason=\"hw_slowdown\"} 0\n"
    };
    let mut scene = Scene::new(2);
    scene.read(0, 0.0, &page(1000, 100), &engines).read(0, 2.0, &page(1500, 140), &engines).fail(1, 2.0);
    scene
}

#[test]
fn rates_and_quantiles_are_of_what_happened_between_two_reads() {
    let scene = scene();
    let rows = scene.0.rows();
    let numbers = &rows[0].engine.numbers;
    for (number, expected) in [
        (Number::Active, Some(12.0)),
        (Number::Generated, Some(250.0)),
        (Number::Iterations, Some(250.0)),
        (Number::LatencyMean, Some(0.125)),
        (Number::LatencyP99, Some(0.198)),
        (Number::FirstP50, Some(0.1)),
        (Number::FirstP95, Some(0.19)),
        (Number::OutputP50, None),
        (Number::Hits, None),
        (Number::KvUsed, Some(0.25)),
    ] {
        let value = numbers.get(number);
        let is_equal = match (value, expected) {
            (Some(value), Some(expected)) => (value - expected).abs() < 1e-9,
            (value, expected) => value == expected,
        };
        assert!(is_equal, "{number:?}: {value:?}, not {expected:?}");
    }
}

#[test]
fn quantiles_of_requests_are_of_the_last_30_seconds() {
    let engines = json!([about("llama", "busy")]);
    let page = |fast: u32, slow: u32| {
        let name = "nv_trt_llm_time_to_first_token_seconds";
        format!(
            "{name}_bucket{{model=\"llama\",version=\"1\",le=\"1\"}} {fast}\n\
             {name}_bucket{{model=\"llama\",version=\"1\",le=\"+Inf\"}} {}\n",
            fast + slow
        )
    };
    let mut scene = Scene::new(1);
    for second in 0..60_u32 {
        // One slow request at the beginning, then fast ones.
        scene.read(0, f64::from(second), &page(second, u32::from(second > 0) * 9), &engines);
    }
    let rows = scene.0.rows();
    // 30 fast ones in the last 30 seconds: the middle of the bucket up to 1.
    assert_eq!(rows[0].engine.numbers.get(Number::FirstP50), Some(0.5));
    assert_eq!(rows[0].engine.history.len(), 60);
}

#[test]
fn a_restart_is_no_negative_rate() {
    let engines = json!([about("llama", "busy")]);
    let page =
        |started: u32, tokens: u32| engine("llama", 1, tokens) + &format!("process_start_time_seconds {started}\n");
    let mut scene = Scene::new(1);
    let generated = |scene: &Scene| scene.0.rows()[0].engine.numbers.get(Number::Generated);
    scene.read(0, 0.0, &page(1, 1000), &engines).read(0, 1.0, &page(2, 5000), &engines);
    assert_eq!(generated(&scene), None, "the second process began at 0");
    scene.read(0, 2.0, &page(2, 5100), &engines);
    assert_eq!(generated(&scene), Some(100.0));
    scene.read(0, 3.0, &page(2, 50), &engines);
    assert_eq!(generated(&scene), None, "a counter fell");
}

#[test]
fn a_failure_withdraws_the_numbers_and_an_answer_brings_them_back() {
    let mut scene = scene();
    scene.fail(0, 4.0);
    let frame = scene.frame(160, 24).join("\n");
    assert!(frame.contains("2 exporters (2 down)  2 engines  0 GPUs"), "{frame}");
    assert!(frame.contains("http://node1:8002: cannot connect: refused?[2J (for 2s)"), "{frame}");
    assert!(frame.contains("llama 1          node0:8002            unknown          -      -"), "{frame}");
    let engines = json!([about("llama", "busy")]);
    scene.read(0, 6.0, &engine("llama", 3, 1700), &engines);
    assert_eq!(scene.names(), ["llama"], "the other engine is gone");
    assert_eq!(scene.0.rows()[0].engine.numbers.get(Number::Active), Some(3.0));
    assert!(scene.0.exporters[0].failure.is_none());
}

#[test]
fn keys_sort_select_and_open() {
    let engines = json!([about("a", "busy"), about("b", "busy"), about("c", "starting")]);
    let page = |a, b| engine("a", a, 1) + &engine("b", b, 1);
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &page(1, 2), &engines);
    assert_eq!((scene.names().join(" "), scene.selected()), ("a b c".to_owned(), "a".to_owned()));
    // State, then active requests: the largest first, the unknown last.
    scene.keys(&[Key::Right, Key::Char('l')]);
    assert_eq!((scene.0.sort, scene.names().join(" ")), (Column::Number(Number::Active), "b a c".to_owned()));
    scene.keys(&[Key::Char('r')]);
    assert_eq!(scene.names().join(" "), "a b c");
    // The selection follows its engine.
    scene.keys(&[Key::Char('j')]).read(0, 1.0, &page(9, 2), &engines);
    assert_eq!((scene.names().join(" "), scene.selected()), ("b a c".to_owned(), "b".to_owned()));
    scene.keys(&[Key::End]);
    assert_eq!(scene.selected(), "c");
    scene.keys(&[Key::PageUp, Key::Enter]);
    assert_eq!(scene.0.detail_of(), Some((0, "b:1".to_owned())));
    scene.keys(&[Key::Down, Key::Char('?'), Key::Down, Key::Escape]);
    assert_eq!((scene.0.help, scene.0.detail_of()), (false, Some((0, "a:1".to_owned()))), "help hides the table");
    scene.keys(&[Key::Escape, Key::Tab, Key::Char('q')]);
    assert_eq!((scene.0.detail_of(), scene.0.focus, scene.0.quit), (None, Focus::Gpus, true));
    // The selected engine goes: the selection stays at its row.
    let mut rest = engines;
    rest.as_array_mut().unwrap().remove(0);
    scene.read(0, 2.0, &page(9, 2), &rest);
    assert_eq!(scene.selected(), "c");
}

#[test]
fn a_paused_screen_stays_as_it_is() {
    let mut scene = scene();
    let before = scene.keys(&[Key::Char(' ')]).frame(120, 20);
    assert!(before[0].contains("PAUSED"), "{}", before[0]);
    assert_eq!(scene.read(0, 4.0, "", &json!([])).frame(120, 20), before);
    scene.keys(&[Key::Char('p')]).read(0, 6.0, "", &json!([]));
    assert!(scene.frame(120, 20).join("\n").contains("No engine yet."));
}

#[test]
fn a_frame_of_80_by_24() {
    let frame = scene().frame(80, 24);
    let expected = [
        " trtllm-exporter top  2 exporters (1 down)  2 engines  1 GPU  every 2s",
        "http://node1:8002: cannot connect: refused?[2J (for 0s)",
        "                               REQUESTS ───  TOK/S     KV   ITER   TTFT   TPOT",
        "",
    ];
    assert_eq!(frame[..2], expected[..2]);
    let text = frame.join("\n");
    assert!(text.contains("llama 1          busy            12      0    250  198ms  190ms      -  25.0%"), "{text}");
    assert!(text.contains("qwen 1           idle             0      0      0"), "{text}");
    assert!(text.contains("llama 1 at node0:8002: busy: requests are being served"), "{text}");
    assert!(text.contains("0 H100  node0:8002  ok     57.0%           -      412        -  sw power cap"), "{text}");
    assert!(frame[23].ends_with("? help  q quit"), "{}", frame[23]);
}

#[test]
fn every_size_has_a_frame_in_every_view() {
    let mut scene = scene();
    for keys in [&[][..], &[Key::Enter], &[Key::Char('?')], &[Key::Escape, Key::Escape, Key::Tab]] {
        scene.keys(keys);
        for width in [1, 2, 10, 33, 79, 80, 132, 300] {
            for height in [1, 2, 3, 5, 9, 24, 70] {
                assert_eq!(scene.frame(width, height).len(), usize::from(height), "{width}x{height}");
            }
        }
    }
}

#[test]
fn the_detail_has_the_cause_the_totals_and_the_charts() {
    let mut scene = scene();
    let frame = scene.keys(&[Key::Enter]).frame(120, 40).join("\n");
    for text in [
        "llama 1  socket  at node0:8002",
        "busy: requests are being served",
        "active 12 of 64",
        "Requests active 12 queued 0",
        "Iteration mean 125ms p99 198ms",
        "TTFT p50 100ms p95 190ms",
        "-60s",
    ] {
        assert!(frame.contains(text), "{text:?} is missing:\n{frame}");
    }
    assert!(frame.chars().any(|character| ('\u{2801}'..='\u{28ff}').contains(&character)), "no curve:\n{frame}");
}

#[test]
fn ranks_are_listed_with_their_last_iteration() {
    for has_rank in [false, true] {
        let record = |iter: u64, rank: i64, active: i64| {
            json!({"iter": iter, "attentionDpRank": if has_rank { 0 } else { rank }, "rank": has_rank.then_some(rank),
               "numActiveRequests": active, "inflightBatchingStats": {"numCtxTokens": 5, "numGenRequests": 3, "numScheduledRequests": 4},
               "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50}})
        };
        let records = json!([record(1, 0, 9), record(1, 1, 9), record(2, 0, 8), record(2, 1, 2)]);
        let records = BTreeMap::from([("llama:1".to_owned(), serde_json::from_value(records).unwrap())]);
        let abouts: Vec<_> = serde_json::from_value(json!([about("llama", "busy")])).unwrap();
        let read = Reading::new(&Page::parse(engine("llama", 10, 1).as_bytes()), &abouts, &records);
        let mut scene = Scene::new(1);
        scene.0.absorb(Update { exporter: 0, time: 0.0, read: Ok(read) });
        let frame = scene.keys(&[Key::Enter]).frame(100, 30).join("\n");
        assert!(frame.contains("     0       8          4           5             3    25.0%"), "{frame}");
        let second = match has_rank {
            true => "     1       2          4           5             3    25.0%",
            // Copies of rank 0's numbers are not shown.
            false => "     1       -          4           5             3        -",
        };
        assert!(frame.contains(second), "{frame}");
    }
}

#[test]
fn texts_of_others_cannot_control_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}x";
    let mut about = about(evil, evil);
    for key in ["source", "backend", "engineVersion", "why"] {
        about[key] = json!(evil);
    }
    about["labels"] = json!({"pool": evil});
    let escaped = evil.replace('\n', "\\n");
    let page = format!(
        "nv_gpu_info{{gpu_uuid=\"{escaped}\",index=\"{escaped}\",name=\"{escaped}\"}} 1\n\
         nv_gpu_state{{gpu_uuid=\"{escaped}\",state=\"{escaped}\"}} 1\n\
         nv_gpu_clocks_event_active{{gpu_uuid=\"{escaped}\",reason=\"{escaped}\"}} 1\n"
    );
    let mut scene = Scene::new(2);
    scene.read(0, 0.0, &page, &json!([about])).fail(1, 0.0);
    let text = plain::text(&scene.0);
    assert!(text.contains("?[2J?]0;owned"), "{text}");
    let is_harmful = |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
    assert!(!text.contains(is_harmful), "{text:?}");
    assert_eq!(text.lines().count(), 2 + 1 + 2 + 1 + 2, "no text has more lines:\n{text}");
    for keys in [&[][..], &[Key::Enter]] {
        scene.keys(keys);
        let frame = scene.frame(250, 50).join("");
        assert!(frame.contains("?[2J?]0;owned") && !frame.contains(is_harmful), "{frame:?}");
    }
}

#[test]
fn a_terminal_without_colours_gets_none() {
    let mut scene = scene();
    for keys in [&[][..], &[Key::Enter], &[Key::Char('?')]] {
        scene.keys(keys);
        let colours = |theme| {
            let buffer = scene.buffer(120, 40, theme);
            buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert_eq!(colours(Theme { colors: false }), 0);
        assert!(colours(Theme { colors: true }) > 0);
    }
}

#[test]
fn the_plain_text_has_aligned_columns() {
    let text = plain::text(&scene().0);
    let expected = "\
http://node0:8002: engines: 2, GPUs: 1
http://node1:8002: not read: cannot connect: refused?[2J

ENGINE   EXPORTER    STATE  ACTIVE  QUEUED  WAITING  PAUSED  GEN/S  CTX/S  ITER-MEAN  ITER-P99  TTFT-P50  TTFT-P95  \
TPOT-P50  TPOT-P95  KV-USED  KV-HIT  WHY
llama 1  node0:8002  busy       12       0        -       -    250      -      125ms     198ms     100ms     190ms  \
\x20      -         -    25.0%       -  requests are being served
qwen 1   node0:8002  idle        0       0        -       -      0      -          -         -         -         -  \
\x20      -         -    25.0%       -  no requests

GPU     EXPORTER    STATE    USE  MEMORY GiB  POWER W  TEMP °C  CLOCKS LIMITED BY
0 H100  node0:8002  ok     57.0%           -      412        -  sw power cap
";
    assert_eq!(text, expected);
}

#[test]
fn a_list_longer_than_the_screen_scrolls_to_the_selection() {
    let names: Vec<String> = (10..60).map(|at| format!("engine-{at}")).collect();
    let engines: Value = names.iter().map(|name| about(name, "idle")).collect();
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, "trtllm_exporter_nvml_state{state=\"off\"} 1\n", &engines);
    assert!(scene.frame(80, 24).join("\n").contains("engine-10"));
    let frame = scene.keys(&[Key::End]).frame(80, 24).join("\n");
    assert!(frame.contains("engine-59") && !frame.contains("engine-10 "), "{frame}");
    assert!(frame.contains("engine-59 1 (50 of 50)") && frame.contains("GPU metrics are switched off"), "{frame}");
}

#[test]
fn a_page_with_absurdly_many_series_is_bounded() {
    let gpus = (0..2000).map(|at| format!("nv_gpu_info{{gpu_uuid=\"{at}\",index=\"{at}\"}} 1\n"));
    let name = "nv_trt_llm_time_to_first_token_seconds_bucket{model=\"a\",version=\"1\"";
    let buckets = (0..20_000).map(|at| format!("{name},le=\"{at}\"}} 1\n"));
    let page: String = gpus.chain(buckets).collect();
    let engines = json!([about("a", "idle")]);
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &page, &engines).read(0, 1.0, &page, &engines);
    assert_eq!(scene.0.exporters[0].gpus.len(), 256);
    assert!(scene.frame(80, 24).join("\n").contains("a 1"));
}

#[test]
fn an_orchestrator_has_its_sides_instead_of_charts() {
    let why = "the orchestrator is not ready; workers: 2 context, 0 of 1 generation";
    let engines = json!([{"model": "disagg", "version": "1", "state": "busy", "why": why, "source": "trtllm-disagg"},
        about("llama", "busy")]);
    let page = |requests: u32| {
        let side = |side: &str, workers: u32, failed: u32| {
            let labels = format!("model=\"disagg\",version=\"1\",side=\"{side}\"");
            format!(
                "nv_trt_llm_disagg_ready_workers{{{labels}}} {workers}\nnv_trt_llm_disagg_minimal_workers{{{labels}}} 1\n\
                 nv_trt_llm_disagg_worker_requests_total{{{labels}}} {requests}\n\
                 nv_trt_llm_disagg_worker_errors_total{{{labels}}} {failed}\n\
                 nv_trt_llm_disagg_worker_retries_total{{{labels}}} 0\n"
            )
        };
        engine("llama", 3, 10)
            + &side("context", 2, 0)
            + &side("generation", 0, requests / 4)
            + &format!(
                "nv_trt_llm_disagg_requests_total{{model=\"disagg\",version=\"1\",mode=\"stream\"}} {requests}\n"
            )
    };
    let mut scene = Scene::new(1);
    scene.read(0, 0.0, &page(100), &engines).read(0, 10.0, &page(140), &engines);
    scene.keys(&[Key::Enter]);
    let frame = scene.frame(120, 30).join("\n");
    let expected = "SIDE        WORKERS  REQ/S  ERRORS  RETRIES/S  TIME-P50  TIME-P95  FIRST-P95\n\
                    context           2      4      0%          0         -         -          -\n\
                    generation   0 of 1      4   25.0%          0         -         -          -";
    assert!(frame.contains(why) && frame.contains("requests/s 4  errors -") && frame.contains(expected), "{frame}");
    assert!(!frame.contains("TTFT"), "{frame}");
    let text = plain::text(&scene.0);
    assert!(
        text.contains("\nORCHESTRATOR  SIDE        WORKERS  REQ/S")
            && text.contains("\ndisagg 1      generation   0 of 1      4"),
        "{text}"
    );
    // All sizes of all views.
    for (width, height) in [(20, 5), (80, 24), (200, 60)] {
        scene.frame(width, height);
        scene.keys(&[Key::Escape]).frame(width, height);
        scene.keys(&[Key::Enter]);
    }
}
