//! `top` in a real terminal (tmux) and in a pipe: its numbers, compared with the metrics page, its keys, exporters that
//! die and return, and the state of the terminal after `top`. promtool checks the quantiles.

mod terminal;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use trtllm_analysis::window::Distribution;
use trtllm_doctor::top::screen::Screen;
use trtllm_doctor::top::units::DisplayUnit;
use trtllm_fold::histogram::{FIRST_TOKEN_SECONDS, Histogram};

use crate::support;
use crate::support::daemon::{Daemon, Launch, doctor, doctor_binary};
use crate::support::lookalike::reserved_port;
use crate::support::served::Served;
use crate::support::sessions::SESSION;
use crate::support::standin::Standin;
use crate::support::{Random, ensure, until};
use terminal::Terminal;

const WIDE: (u16, u16) = (170, 40);
/// A short interval, so that no test waits long for a rate.
const FAST: [&str; 2] = ["--interval", "300ms"];

/// The words in the row of an engine, after its version.
fn row(pane: &str, model: &str) -> Result<Vec<String>, String> {
    let line = pane.lines().find(|line| line.trim_start_matches("[sim] ").starts_with(&format!("{model} 1 ")));
    let words = line.ok_or_else(|| format!("no row of {model}"))?.split_whitespace();
    Ok(words.skip_while(|word| *word != model).skip(2).map(str::to_owned).collect())
}

#[cfg(feature = "executor")]
#[test]
fn a_terminal_shows_the_numbers_of_the_metrics_page_and_obeys_keys() {
    // One engine serves requests, and the numbers of the others do not change.
    let engines = format!(
        "- {{source: \"sim:?rate=20\", model: live}}\n- {{source: \"{SESSION}\", model: replayed}}\n\
         - {{source: \"trtllm-serve:http://127.0.0.1:1\", model: nowhere}}\n"
    );
    let standin = Standin::new(&format!("gpus=3\n{}", include_str!("../fixtures/busy_gpu.state")));
    let daemon = Launch::new().config(&engines).gpus(&standin).start(&[]);
    daemon.until_state(&["model=live"], "busy");
    daemon.until_state(&["model=replayed"], "idle");
    let url = daemon.url();
    let terminal = Terminal::top(WIDE, "TERM=screen-256color", &[&[url.as_str()][..], &FAST].concat());

    // The numbers of a finished replay do not change, so they must be equal.
    let pane = terminal.until_pane(|pane| {
        // `top` shows the rates of an engine only when the exporter has judged the engine twice.
        let has_rates = row(pane, "live")?.get(5).is_some_and(|rate| rate != "-");
        ensure(has_rates && pane.contains("hw thermal slowdown"), || "not complete".to_owned())
    });
    let page = daemon.page();
    let replayed = row(&pane, "replayed").unwrap();
    let request =
        |kind: &str| page.get("nv_trt_llm_request_metrics", &["model=replayed", &format!("request_type={kind}")]);
    let fraction = page.get("nv_trt_llm_kv_cache_block_metrics", &["model=replayed", "kv_cache_block_type=fraction"]);
    assert_eq!(replayed[0], "idle");
    assert_eq!(replayed[1], DisplayUnit::Count.text(request("active")), "{pane}");
    assert_eq!(
        replayed[2],
        DisplayUnit::Count.text(page.get("nv_trt_llm_queued_requests", &["model=replayed"])),
        "{pane}"
    );
    assert_eq!(replayed[3], DisplayUnit::Count.text(request("waiting")), "{pane}");
    assert!(fraction > 0.0 && replayed.contains(&DisplayUnit::Share.text(fraction)), "{fraction}: {pane}");
    // GPU 1 has a different number for each value.
    let gpu = pane.lines().find(|line| line.starts_with("1 NVIDIA")).unwrap_or_else(|| panic!("no GPU 1:\n{pane}"));
    let of_gpu = |name: &str| page.get(name, &["gpu_uuid=GPU-b"]);
    let gib = |name: &str| format!("{:.1}", of_gpu(name) / f64::from(1_u32 << 30));
    for text in [
        DisplayUnit::Share.text(of_gpu("nv_gpu_utilization")),
        format!("{} of {}", gib("nv_gpu_memory_used_bytes"), gib("nv_gpu_memory_total_bytes")),
        format!("{:.0} of {:.0}", of_gpu("nv_gpu_power_usage"), of_gpu("nv_gpu_power_limit")),
        format!(" {} ", page.get("nv_gpu_temperature_celsius", &["gpu_uuid=GPU-b", "sensor=gpu"])),
        "sw power cap, hw thermal slowdown".to_owned(),
    ] {
        assert!(gpu.contains(&text), "{text} is missing in {gpu}");
    }

    assert!(terminal.pane().contains("[sim] live 1"), "a simulated engine is marked");

    // Sorts by name, by state, and by active requests.
    let order = |pane: &str| {
        let at = |model: &str| pane.lines().position(|line| line.trim_start_matches("[sim] ").starts_with(model));
        let mut models = ["live", "nowhere", "replayed"];
        models.sort_by_key(|model| at(&format!("{model} 1 ")));
        models
    };
    let by_trouble = terminal.until(&["STATE▼", "unavailable: Nothing answers for "]);
    let place = |model| order(&by_trouble).iter().position(|other| *other == model);
    assert!(place("nowhere") < place("replayed"), "engines in trouble are first: {by_trouble}");
    terminal.press(&["Left"]);
    assert_eq!(order(&terminal.until(&["ENGINE▲"])), ["live", "nowhere", "replayed"]);
    terminal.press(&["r"]);
    assert_eq!(order(&terminal.until(&["ENGINE▼"])), ["replayed", "nowhere", "live"]);
    terminal.press(&["Right", "l"]);
    assert_eq!(order(&terminal.until(&["▼ACTIVE"])), ["live", "replayed", "nowhere"], "unknown values are last");

    // Selects an engine, which shows its cause, and then shows its details.
    terminal.press(&["j", "Down"]);
    terminal.until(&["nowhere 1: starting: unavailable: Nothing answers for "]);
    terminal.press(&["k", "Enter"]);
    let completed = page.get("nv_trt_llm_requests_completed_total", &["model=replayed"]);
    let lost = page.get("nv_trt_llm_iterations_lost_total", &["model=replayed"]);
    let totals = [format!("completed {completed}"), format!("lost iterations {lost}")];
    terminal.until(&["replayed 1  replay", &totals[0], &totals[1], "Requests in the batch", "TPOT p50"]);
    terminal.press(&["Up"]);
    terminal.until(&["[sim] live 1  sim"]);
    // Wait after Escape: the terminal would read a key pressed right after it as a key with Alt.
    terminal.press(&["Escape"]);
    terminal.until(&["▼ACTIVE"]);
    terminal.press(&["?"]);
    terminal.until(&["┌ Help ─", "charts and ranks of the engine", "time per output token"]);
    terminal.press(&["?"]);
    terminal.until_pane(|pane| ensure(!pane.contains("Help") && pane.contains("▼ACTIVE"), || "help".to_owned()));

    // Resizes the terminal.
    terminal.resize(80, 24);
    let narrow = terminal.until_pane(|pane| {
        let fits = pane.lines().next().is_some_and(|line| line.ends_with("every 300ms"));
        ensure(fits && !pane.contains("WAITING") && pane.contains("? help  q quit"), || "not narrow".to_owned())
    });
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    terminal.resize(170, 60);
    terminal.until(&["WAITING", "Requests in the batch", "TPOT p50"]);

    // A paused screen does not change, and sends no requests.
    terminal.press(&["p"]);
    let is_paused = |pane: &str| pane.lines().next().is_some_and(|line| line.ends_with("PAUSED"));
    terminal.until_pane(|pane| ensure(is_paused(pane), || "not paused".to_owned()));
    std::thread::sleep(Duration::from_millis(400));
    let scrapes = || daemon.page().count("trtllm_exporter_scrapes_total", &[]);
    let (paused, before) = (terminal.pane(), scrapes());
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(terminal.pane(), paused);
    let more = scrapes() - before;
    assert!(more <= 1, "only this test reads the page: {more}");
    terminal.press(&["Space"]);
    terminal.until_pane(|pane| ensure(!is_paused(pane), || "paused".to_owned()));

    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn an_exporter_that_dies_stays_in_the_list_until_it_returns() {
    let (_reserved, port) = reserved_port();
    let address = format!("127.0.0.1:{port}");
    let start = || Daemon::start(&["--source", SESSION, "--model", "replayed", "--web.listen-address", &address]);
    let exporter = start();
    let (url, other) = (format!("http://{address}"), Daemon::start(&["--source", SESSION, "--model", "other"]));
    let urls = [url.as_str(), &other.url()];
    let terminal = Terminal::top(WIDE, "TERM=screen NO_COLOR=1", &[&urls[..], &FAST].concat());
    terminal.until(&["replayed 1", "2 exporters  ", "idle"]);
    // With NO_COLOR, only bold, underlined and reversed text is allowed.
    let coloured = terminal.coloured();
    let codes = coloured.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
    let allowed = ["0", "1", "4", "7", "22", "24", "27", "39", "49", ""];
    let wrong: Vec<&str> =
        codes.flat_map(|(codes, _)| codes.split(';')).filter(|code| !allowed.contains(code)).collect();
    assert!(wrong.is_empty(), "{wrong:?} in {coloured:?}");
    drop(exporter);
    terminal.until(&["2 exporters (1 down)", &format!("{url}: cannot connect: Connection refused"), "unknown"]);
    let _exporter = start();
    terminal.until_pane(|pane| {
        let state = row(pane, "replayed")?.swap_remove(1);
        ensure(!pane.contains("down") && state == "idle", || format!("not back: {state}"))
    });
    terminal.press(&["C-c"]);
    terminal.is_restored(0);
}

#[test]
fn the_terminal_is_restored_after_signals_and_panics() {
    for signal in ["TERM", "INT", "HUP"] {
        let terminal = Terminal::top((80, 40), "TERM=screen", &["http://127.0.0.1:1", "--interval", "100ms"]);
        terminal.until(&["No exporter answers."]);
        assert_eq!(terminal.says("alternate_on"), "1");
        terminal.signal(signal);
        terminal.is_restored(0);
    }
    let test = std::env::current_exe().unwrap();
    let line = format!("env TRTLLM_TEST_PANICS=1 {} --exact --nocapture top::a_panic_with_the_screen", test.display());
    let terminal = Terminal::run((100, 60), &line);
    // 101 is the exit code of a failed Rust test.
    terminal.is_restored(101);
    assert!(terminal.pane().contains("a planted panic"), "the message is on the restored screen:\n{}", terminal.pane());
}

/// Panics only if the test above runs it in a terminal. Otherwise it does nothing.
#[test]
fn a_panic_with_the_screen() {
    if std::env::var_os("TRTLLM_TEST_PANICS").is_some() {
        let _screen = Screen::enter().unwrap();
        panic!("a planted panic");
    }
}

#[test]
fn a_suspended_top_gives_the_terminal_to_the_shell_and_returns() {
    let terminal = Terminal::shell((100, 30));
    terminal.until(&["ready>"]);
    let binary = doctor_binary();
    let line = format!("{binary} top http://127.0.0.1:1 --interval 100ms");
    terminal.press(&[&line, "Enter"]);
    terminal.until(&["No exporter answers."]);
    terminal.press(&["C-z"]);
    terminal.until(&["Stopped"]);
    assert_eq!((terminal.says("alternate_on").as_str(), terminal.says("cursor_flag").as_str()), ("0", "1"));
    terminal.press(&["fg", "Enter"]);
    terminal.until(&["No exporter answers."]);
    assert_eq!(terminal.says("alternate_on"), "1");
    terminal.press(&["q"]);
    until(|| ensure(terminal.says("alternate_on") == "0", || "still on".to_owned()));
    assert!(terminal.folder().exists());
}

const NO_GPUS: &str = r#"{"apiVersion":1,"gpus":[]}"#;

#[test]
fn a_pipe_gets_one_reading_as_text() {
    let daemon = Daemon::start(&["--source", SESSION, "--model", "replayed"]);
    daemon.until_state(&["model=replayed"], "idle");
    let url = daemon.url();
    let output = doctor(&["top", &url, "--interval", "200ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{text}");
    let fraction = ["model=replayed", "kv_cache_block_type=fraction"];
    let fraction = daemon.page().get("nv_trt_llm_kv_cache_block_metrics", &fraction);
    let words = row(&text, "replayed").unwrap();
    assert_eq!((words[0].as_str(), &words[13]), ("idle", &DisplayUnit::Share.text(fraction)), "{text}");
    assert!(text.starts_with(&format!("{url}: engines: 1, GPUs: 0 (GPU metrics are switched off")), "{text}");

    let output = doctor(&["top", "http://127.0.0.1:1", &url, "--interval", "100ms", "--once"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "the code of doctor for the same");
    assert!(text.starts_with("http://127.0.0.1:1: not read: cannot connect: Connection refused"), "{text}");
    assert_eq!(row(&text, "replayed").unwrap()[1], "idle", "the other one is read:\n{text}");
}

#[test]
fn a_bearer_token_is_sent_and_nothing_is_asked_for_that_drains() {
    let proxy = Served::start(&[("/api/v1/gpus", 200, NO_GPUS), ("/api/v1/engines", 200, "[]")]);
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "a-token").unwrap();
    let file = token.path().to_str().unwrap();
    let output = doctor(&["top", &proxy.target(), "--interval", "100ms", "--bearer-token-file", file]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let (asked, tokens) = (proxy.asked(), proxy.tokens());
    assert!(asked.len() >= 2 && tokens.iter().all(|token| token == "Bearer a-token"), "{asked:?} {tokens:?}");
    let paths = ["GET /api/v1/gpus", "GET /api/v1/engines"];
    assert!(asked.iter().all(|request| paths.contains(&request.as_str())), "{asked:?}");
}

/// Compares `top`'s quantiles of the observations between two scrapes with promtool's quantiles of the same buckets. A
/// quantile in the first bucket is unknown.
#[test]
fn quantiles_equal_those_of_promql() {
    let (mut series, mut queries) = (String::new(), String::new());
    let mut random = Random(88_172_645_463_325_252);
    let exact: Vec<f64> = FIRST_TOKEN_SECONDS.iter().map(|bound| bound.value).collect();
    for at in 0..40 {
        let mut histogram = Histogram::new(FIRST_TOKEN_SECONDS);
        // The histograms have few or many observations, only in some buckets, and also above the last bound.
        let mut observe = |histogram: &mut Histogram, count: u64| {
            for _ in 0..count {
                let bucket = random.index(exact.len() + 1);
                let value = exact.get(bucket).map_or(1e6, |bound| bound * 0.999);
                histogram.observe(if random.below(3) == 0 { exact[exact.len() / 2] } else { value });
            }
        };
        observe(&mut histogram, at * 7 % 50);
        let before = histogram.clone();
        observe(&mut histogram, 1 + at * 13 % 60);
        let between = Distribution::of(&histogram).since(&Distribution::of(&before));
        let sums = |histogram: &Histogram| {
            histogram.counts().iter().scan(0, |sum, count| (*sum += count, Some(*sum)).1).collect::<Vec<u64>>()
        };
        let (before, after) = (sums(&before), sums(&histogram));
        for (place, (before, after)) in before.iter().zip(&after).enumerate().take(exact.len() + 1) {
            let bound = exact.get(place).map_or("+Inf".to_owned(), f64::to_string);
            writeln!(series, "  - {{series: 'h_bucket{{n=\"{at}\",le=\"{bound}\"}}', values: '{before} {after}'}}")
                .unwrap();
        }
        for quantile in [0.01, 0.5, 0.9, 0.95, 0.99, 1.0] {
            let query =
                format!("histogram_quantile({quantile}, h_bucket{{n=\"{at}\"}} - h_bucket{{n=\"{at}\"}} offset 1m)");
            // Both values are rounded, because the order of their computations differs.
            let (query, value) = match between.quantile(quantile) {
                Some(value) => (format!("round(1e9 * {query})"), (value * 1e9).round()),
                None => (format!("{query} <= bool {}", exact[0]), 1.0),
            };
            writeln!(
                queries,
                "  - {{expr: '{query}', eval_time: 1m, exp_samples: [{{labels: '{{n=\"{at}\"}}', value: {value}}}]}}"
            )
            .unwrap();
        }
    }
    let text = format!("tests:\n- interval: 1m\n  input_series:\n{series}  promql_expr_test:\n{queries}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.yaml"), text).unwrap();
    let mut promtool = Command::new(support::program("promtool"));
    let output = promtool.args(["test", "rules", "test.yaml"]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
