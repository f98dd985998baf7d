//! The page as others read it: promtool, the Python client's two parsers, scripts that match bytes. And what a reader may
//! ask for: groups, the gateway's page, formats, compression.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod e2e;
#[path = "nvml-standin/harness.rs"]
mod standin;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use e2e::daemon::Daemon;
use e2e::http::{self, ask};
use e2e::lookalike::Lookalike;
use e2e::page::{Page, name_of};
use e2e::{missing, until};
use standin::Standin;
use trtllm_exporter::metrics::catalog::{CATALOG, Group, Kind};

const OPENMETRICS: &[(&str, &str)] = &[("Accept", "application/openmetrics-text; version=1.0.0")];
/// What a finished replay always says in the same bytes: the exporter's own numbers move.
const STILL: &str = "/metrics?collect[]=triton&collect[]=engine";

/// Beside the look-alike's records: what it does not send. The first is a request from another instance.
const FURTHER: &str = r#"{"iter":999999,"requestStats":[{"id":1,"stage":"GENERATION_COMPLETE","contextPrefillPosition":120,"numGeneratedTokens":40,"scheduled":true,"paused":false,"disServingStats":{"kvCacheTransferMS":12.25,"kvCacheSize":1048576}}]}
{"perf_metrics":{"timing_metrics":{"arrival_time":10.0,"first_scheduled_time":10.25,"first_token_time":10.5,"last_token_time":12.0,"kv_cache_size":1048576,"kv_cache_transfer_start":10.0,"kv_cache_transfer_end":10.125},"kv_cache_metrics":{"num_reused_blocks":1,"num_missed_blocks":3}}}
"#;

/// A thousand records of each backend, as the look-alike served them, as NDJSON: of the C++ executor and of PyTorch.
fn recordings() -> &'static (tempfile::TempDir, PathBuf, PathBuf) {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf, PathBuf)> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (cpp, pytorch) = (folder.path().join("cpp.ndjson"), folder.path().join("pytorch.ndjson"));
        for (file, backend) in [(&cpp, "tensorrt"), (&pytorch, "pytorch")] {
            std::fs::write(file, record(backend) + FURTHER).unwrap();
        }
        (folder, cpp, pytorch)
    })
}

fn record(backend: &str) -> String {
    let engine = Lookalike::start(&["--rate", "1000", "--ring", "100000", "--backend", backend]);
    until(|| {
        let count = engine.truth().count("records");
        missing(count >= 1000, || format!("{count} records"))
    });
    let mut lines = String::new();
    for path in ["/metrics", "/perf_metrics"] {
        for record in http::get(&engine.address(), path).json().as_array().unwrap() {
            writeln!(lines, "{record}").unwrap();
        }
    }
    lines
}

/// Waits until both engines of [`two_engines`], or one, have been replayed to the end.
fn replayed(daemon: Daemon) -> Daemon {
    let done = r#"state="idle""#;
    daemon.until(|page| {
        let states: Vec<&(String, f64)> =
            page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_engine_state{")).collect();
        let idle = states.iter().filter(|(series, value)| series.contains(done) && *value == 1.0).count();
        missing(!states.is_empty() && idle == states.len() / 5, || "the replay goes on".to_owned())
    });
    daemon
}

/// Two engines after their work; the second has names that need escaping and a label of its own that sorts after `le`.
fn two_engines(more: &[&str]) -> Daemon {
    let (folder, cpp, pytorch) = recordings();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile_in(folder).unwrap();
    let config = format!(
        "engines:\n- source: 'replay:{}?speed=max'\n- source: 'replay:{}?speed=max'\n  model: 'odd \"name\" \\ é {{a=1}}, # b'\n  \
         version: '2,\"3\"'\n  labels: {{zone: 'eu \"1\"'}}\n",
        cpp.display(),
        pytorch.display()
    );
    std::fs::write(file.path(), config).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    replayed(Daemon::start(&[&["--config.file", &path], more].concat()))
}

/// With the stand-in's GPUs beside.
fn two_engines_and_two_gpus() -> (Daemon, Standin) {
    let gpus = Standin::new("gpus=2\ngpu.0.utilization_percent=57\ngpu.1.energy_mj=123456789");
    let daemon = two_engines(&["--gpu", "required", "--gpu.library", gpus.library().to_str().unwrap()]);
    daemon.until(|page| {
        let up = page.series.iter().filter(|(series, value)| series.starts_with("nv_gpu_up") && *value == 1.0).count();
        missing(up == 2, || format!("{up} GPUs"))
    });
    (daemon, gpus)
}

/// Runs a tool on a page; its exit code and what it said.
fn judge(command: &mut Command, page: &str) -> (Option<i32>, String, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let page = page.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(page.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// promtool finds nothing wrong but the names that Triton gave: exit code 3, and one complaint for each.
fn only_inherited_names_are_complained_of(promtool: &Path) {
    let (with_gpus, _gpus) = two_engines_and_two_gpus();
    let without = two_engines(&[]);
    for (daemon, inherited) in [
        (&with_gpus, vec!["nv_energy_consumption", "nv_trt_llm_disaggregated_serving_metrics"]),
        (&without, vec!["nv_trt_llm_disaggregated_serving_metrics"]),
    ] {
        let text = daemon.text("/metrics");
        let (code, stdout, complaints) = judge(Command::new(promtool).args(["check", "metrics"]), &text);
        assert_eq!(code, Some(3), "{stdout}{complaints}");
        let wanted: String =
            inherited.iter().map(|n| format!("{n} counter metrics should have \"_total\" suffix\n")).collect();
        let mut lines: Vec<&str> = complaints.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n") + "\n", wanted, "{stdout}");
    }
}

#[test]
fn promtool_complains_of_the_inherited_names_and_of_nothing_else() {
    only_inherited_names_are_complained_of(&e2e::program("promtool"));
}

#[test]
fn promtool_3_complains_of_the_inherited_names_and_of_nothing_else() {
    let prometheus = e2e::tool("TRTLLM_TEST_PROMETHEUS3", "prometheus3/usr/bin/prometheus");
    only_inherited_names_are_complained_of(&prometheus.with_file_name("promtool"));
}

/// A family as prometheus_client reads it.
#[derive(Debug)]
struct Family {
    name: String,
    kind: String,
    /// By name and labels, `le` as a number.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

fn parsed(format: &str, page: &str) -> Vec<Family> {
    let script = e2e::root().join("tests/e2e/parse_page.py");
    let (code, stdout, stderr) = judge(Command::new(e2e::python()).arg(script).arg(format), page);
    assert_eq!(code, Some(0), "the {format} parser: {stderr}");
    let families: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let family = |family: &serde_json::Value| {
        let samples = family["samples"].as_array().unwrap().iter().map(|sample| {
            let labels = sample[1].as_object().unwrap().iter().map(|(name, value)| {
                let value = text(value);
                let number = value.parse().map(|bound: f64| bound.to_string());
                (name.clone(), if name == "le" { number.unwrap() } else { value })
            });
            ((text(&sample[0]), labels.collect()), sample[2].as_f64().unwrap())
        });
        let count = family["samples"].as_array().unwrap().len();
        let family = Family { name: text(&family["name"]), kind: text(&family["type"]), samples: samples.collect() };
        assert_eq!(family.samples.len(), count, "{} has a series twice", family.name);
        family
    };
    families.as_array().unwrap().iter().map(family).collect()
}

#[test]
fn the_python_clients_two_parsers_read_the_same_families_and_values() {
    let (daemon, _gpus) = two_engines_and_two_gpus();
    let path = format!("{STILL}&collect[]=gpu");
    let openmetrics = ask("GET", &daemon.address, &path, OPENMETRICS, b"").unwrap();
    let (mut text, openmetrics) = (parsed("text", &daemon.text(&path)), parsed("openmetrics", openmetrics.text()));

    for family in &mut text {
        let catalog = CATALOG.iter().find(|metric| metric.name == family.name);
        if catalog.is_some_and(|metric| metric.kind == Kind::LegacyCounter) {
            // To the client every counter ends in _total; it appends that to what it read.
            assert_eq!(family.kind, "counter");
            let bare = |name: String| name.strip_suffix("_total").unwrap().to_owned();
            let samples = std::mem::take(&mut family.samples);
            family.samples = samples.into_iter().map(|((name, labels), value)| ((bare(name), labels), value)).collect();
        }
    }
    let names = |families: &[Family]| families.iter().map(|family| family.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&text), names(&openmetrics));
    for (text, openmetrics) in text.iter().zip(&openmetrics) {
        assert_eq!(text.samples, openmetrics.samples, "{}", text.name);
        assert!(!text.samples.is_empty(), "{}", text.name);
        let metric =
            CATALOG.iter().find(|metric| metric.name.strip_suffix("_total").unwrap_or(metric.name) == text.name);
        let wanted = match metric.unwrap_or_else(|| panic!("{} is not in the catalog", text.name)).kind {
            Kind::Gauge => ("gauge", "gauge"),
            Kind::Counter => ("counter", "counter"),
            Kind::LegacyCounter => ("counter", "unknown"),
            Kind::Histogram => ("histogram", "histogram"),
        };
        assert_eq!((text.kind.as_str(), openmetrics.kind.as_str()), wanted, "{}", text.name);
    }
    // The names that need escaping arrived as they were meant.
    let model =
        |family: &Family| family.samples.keys().any(|(_, labels)| labels["model"] == r#"odd "name" \ é {a=1}, # b"#);
    assert!(model(&text[0]) && model(&openmetrics[0]));
    let transfer = text.iter().find(|family| family.name == "nv_trt_llm_disaggregated_serving_metrics").unwrap();
    assert_eq!(transfer.samples.values().sum::<f64>(), 2.0 * (12.25 + 1.0));
}

#[test]
fn the_whole_page_is_read_by_both_parsers_and_has_every_family_in_both() {
    let (daemon, _gpus) = two_engines_and_two_gpus();
    let openmetrics = ask("GET", &daemon.address, "/metrics", OPENMETRICS, b"").unwrap();
    let (text, openmetrics) = (parsed("text", &daemon.text("/metrics")), parsed("openmetrics", openmetrics.text()));
    let names = |families: &[Family]| families.iter().map(|family| family.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&text), names(&openmetrics));
    for expected in ["trtllm_exporter_build_info", "process_resident_memory_bytes", "nv_gpu_utilization"] {
        assert!(names(&text).iter().any(|name| name == expected), "{expected}");
    }
}

/// The names of a raw series' labels, in order.
fn label_names(series: &str) -> Vec<&str> {
    let Some((_, mut rest)) = series.split_once('{') else { return Vec::new() };
    let mut names = Vec::new();
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name);
        let mut escaped = false;
        let end = value.bytes().position(|byte| {
            let end = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            end
        });
        rest = value[end.unwrap() + 1..].trim_start_matches(',');
    }
    assert_eq!(rest, "}", "{series}");
    names
}

#[test]
fn labels_are_alphabetical_with_le_last_and_numbers_are_plain() {
    let (daemon, _gpus) = two_engines_and_two_gpus();
    let openmetrics = ask("GET", &daemon.address, "/metrics", OPENMETRICS, b"").unwrap();
    assert!(openmetrics.text().ends_with("\n# EOF\n"));
    let legacy = ["nv_trt_llm_disaggregated_serving_metrics", "nv_energy_consumption"];
    for text in [&daemon.text("/metrics"), openmetrics.text()] {
        assert!(text.ends_with('\n') && !text.contains('\r'));
        let page = Page::parse(text);
        let mut seen = BTreeSet::new();
        for (series, value) in &page.series {
            assert!(seen.insert(series), "{series} stands twice");
            assert!(value.is_finite(), "{series} is {value}");
            let mut names = label_names(series);
            assert_eq!(names.contains(&"le"), name_of(series).ends_with("_bucket"), "{series}");
            if text.ends_with("# EOF\n") {
                // Its writer puts `le` first. Nobody matches these bytes.
                names.retain(|name| *name != "le");
            }
            if names.last() == Some(&"le") {
                names.pop();
            }
            assert!(names.is_sorted(), "{series}");
            assert!(!names.contains(&"le") && !names.contains(&"gpu"), "{series}");
            assert!(!name_of(series).ends_with("_created"), "{series}");
        }
        for name in legacy {
            assert!(page.series.iter().any(|(series, _)| name_of(series) == name), "{name}");
            let twin = format!("{name}_total");
            assert!(!page.series.iter().any(|(series, _)| name_of(series) == twin), "{twin}");
        }
        let families: BTreeSet<&String> = page.families.iter().map(|(name, _)| name).collect();
        assert_eq!(families.len(), page.families.len(), "a family stands twice");
    }
    // Triton's readers match digits with at most one point: no exponent, no sign.
    for line in daemon.text("/metrics").lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
    }
}

#[test]
fn scripts_that_match_tritons_bytes_find_their_lines() {
    let text = two_engines(&[]).text("/metrics");
    for (start, digits) in [
        (r#"nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} "#, true),
        (r#"nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} "#, true),
        (r#"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} "#, true),
        (
            r#"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} "#,
            false,
        ),
        (r#"nv_trt_llm_general_metrics{general_type="timestamp",model="tensorrt_llm",version="1"} "#, true),
        (
            r#"nv_llm_input_token_len_bucket{model="tensorrt_llm",response_metric_type="total_input_tokens",version="1",le="10"} "#,
            true,
        ),
        (
            r#"nv_llm_output_token_len_bucket{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1",le="+Inf"} "#,
            true,
        ),
    ] {
        let values: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(start)).collect();
        assert_eq!(values.len(), 1, "{start}");
        assert!(
            values[0].bytes().all(|byte| byte.is_ascii_digit() || (!digits && byte == b'.')),
            "{start}{}",
            values[0]
        );
    }
}

#[test]
fn the_gateways_page_is_five_series_of_each_engine_the_first_engine_first() {
    let daemon = two_engines(&[]);
    let text = daemon.text("/metrics/gateway");
    let page = Page::parse(&text);
    let series: Vec<&str> = page.series.iter().map(|(series, _)| series.as_str()).collect();
    let first = |name: &str, label: &str, kind: &str| match label < "model" {
        true => format!(r#"{name}{{{label}="{kind}",model="tensorrt_llm",version="1"}}"#),
        false => format!(r#"{name}{{model="tensorrt_llm",{label}="{kind}",version="1"}}"#),
    };
    let odd = |name: &str, label: &str, kind: &str| {
        let model = r#"model="odd \"name\" \\ é {a=1}, # b""#;
        let rest = r#"version="2,\"3\"",zone="eu \"1\"""#;
        match label < "model" {
            true => format!(r#"{name}{{{label}="{kind}",{model},{rest}}}"#),
            false => format!(r#"{name}{{{model},{label}="{kind}",{rest}}}"#),
        }
    };
    let (requests, blocks) = ("nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics");
    let (by_type, by_block) = (["scheduled", "waiting"], ["max", "tokens_per", "fraction"]);
    let mut wanted = Vec::new();
    wanted.extend(by_type.map(|kind| first(requests, "request_type", kind)));
    wanted.extend(by_type.map(|kind| odd(requests, "request_type", kind)));
    wanted.extend(by_block.map(|kind| first(blocks, "kv_cache_block_type", kind)));
    wanted.extend(by_block.map(|kind| odd(blocks, "kv_cache_block_type", kind)));
    assert_eq!(series, wanted);
    assert_eq!(page.families, [(requests.to_owned(), "gauge".to_owned()), (blocks.to_owned(), "gauge".to_owned())]);
    let fraction = page.get(blocks, &["kv_cache_block_type=fraction", "model=tensorrt_llm"]);
    assert!((0.0..=1.0).contains(&fraction));
    // The same values as on the whole page.
    let whole: BTreeMap<String, f64> = daemon.page().series.into_iter().collect();
    for (series, value) in &page.series {
        assert_eq!(whole.get(series), Some(value), "{series}");
    }
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    let daemon = two_engines(&[]);
    for headers in [&[][..], OPENMETRICS, &[("Accept-Encoding", "gzip")]] {
        for path in [STILL, "/metrics/gateway", "/healthz", "/readyz"] {
            let get = ask("GET", &daemon.address, path, headers, b"").unwrap();
            let head = ask("HEAD", &daemon.address, path, headers, b"").unwrap();
            assert_eq!(head.status, 200);
            assert_eq!(head.body, b"", "{path}");
            let but_date = |answer: &http::Answer| {
                answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect::<Vec<_>>()
            };
            assert_eq!(but_date(&head), but_date(&get), "{path}");
            assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()), "{path}");
        }
    }
}

/// The catalog's families on a page, by group.
fn families(page: &Page) -> BTreeSet<&'static str> {
    let catalog = |(name, _): &(String, String)| {
        let metric = CATALOG.iter().find(|metric| metric.name == name);
        metric.unwrap_or_else(|| panic!("{name} is not in the catalog")).name
    };
    page.families.iter().map(catalog).collect()
}

#[test]
fn collect_gives_the_groups_asked_for_and_nothing_else() {
    let (daemon, _gpus) = two_engines_and_two_gpus();
    let whole = families(&daemon.page());
    // A name set on request may spell other labels under an older family's name: the family is the older one's.
    let group_of = |name: &str| CATALOG.iter().find(|metric| metric.name == name).map(|metric| metric.group);
    let of = |groups: &[Group]| {
        let wanted = |name: &&&str| group_of(name).is_some_and(|group| groups.contains(&group));
        whole.iter().filter(wanted).copied().collect::<BTreeSet<_>>()
    };
    for group in Group::ALL {
        let page = Page::parse(&daemon.text(&format!("/metrics?collect[]={}", group.name())));
        assert_eq!(families(&page), of(&[group]), "{}", group.name());
        assert_eq!(page.series.is_empty(), group == Group::Compat);
    }
    // What a browser or Prometheus makes of the brackets.
    let page = Page::parse(&daemon.text("/metrics?collect%5B%5D=gpu&collect%5B%5D=triton&collect[]=gpu"));
    assert_eq!(families(&page), of(&[Group::Gpu, Group::Triton]));
    let all: Vec<String> = Group::ALL.iter().map(|group| format!("collect[]={}", group.name())).collect();
    assert_eq!(families(&Page::parse(&daemon.text(&format!("/metrics?{}", all.join("&"))))), whole);
    // Other parameters are a scraper's own affair.
    assert_eq!(families(&Page::parse(&daemon.text("/metrics?target=x"))), whole);
    assert_eq!(families(&Page::parse(&daemon.text("/metrics?collect[]=compat"))), BTreeSet::new());
}

#[test]
fn with_every_other_name_set_both_parsers_read_the_page_and_tritons_families_are_as_before() {
    let gpus = Standin::new("gpus=2");
    let library = gpus.library();
    let sets = ["--metrics.compat", "trtllm,triton-core,dcgm,spec", "--gpu.library", library.to_str().unwrap()];
    let daemon = two_engines(&sets);
    daemon.until(|page| missing(page.families.iter().any(|(name, _)| name == "nv_gpu_up"), || "no GPU".to_owned()));
    let openmetrics = ask("GET", &daemon.address, "/metrics", OPENMETRICS, b"").unwrap();
    let (text, openmetrics) = (parsed("text", &daemon.text("/metrics")), parsed("openmetrics", openmetrics.text()));
    let names = |families: &[Family]| families.iter().map(|family| family.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&text), names(&openmetrics));
    for name in ["trtllm_num_requests_running", "nv_inference_request_success", "DCGM_FI_DEV_GPU_UTIL"] {
        assert!(names(&text).iter().any(|shown| shown == name), "{name}");
    }
    let series = |daemon: &Daemon| -> BTreeSet<String> {
        let page = Page::parse(&daemon.text("/metrics?collect[]=triton"));
        page.series.into_iter().map(|(series, _)| series).collect()
    };
    assert_eq!(series(&daemon), series(&two_engines(&[])));
}

#[test]
fn an_unknown_group_is_400_with_the_list() {
    let daemon = two_engines(&[]);
    for query in ["collect[]=tritn", "collect[]=", "collect[]=triton&collect[]=x", "collect%5B%5D=Triton"] {
        let answer = daemon.get(&format!("/metrics?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        for group in Group::ALL {
            assert!(answer.text().contains(group.name()), "{query}: {}", answer.text());
        }
    }
}

#[test]
fn text_is_the_default_and_openmetrics_is_for_those_who_ask() {
    let daemon = two_engines(&[]);
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, wanted) in [
        (None, text),
        (Some("*/*"), text),
        (Some("text/plain"), text),
        (Some("application/json"), text),
        (Some("application/openmetrics-text"), openmetrics),
        (
            Some(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            openmetrics,
        ),
        (
            Some(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ),
            openmetrics,
        ),
    ] {
        let headers: Vec<(&str, &str)> = accept.iter().map(|accept| ("Accept", *accept)).collect();
        for path in ["/metrics", "/metrics/gateway", STILL] {
            let answer = ask("GET", &daemon.address, path, &headers, b"").unwrap();
            assert_eq!(answer.header("content-type"), Some(wanted), "{path} {accept:?}");
            assert_eq!(answer.text().ends_with("# EOF\n"), wanted == openmetrics, "{path} {accept:?}");
            assert_eq!(answer.header("content-encoding"), None);
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(daemon.get(path).status, 200, "{path}");
    }
    assert_eq!(daemon.get("/").header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(daemon.get("/nowhere").status, 404);
    assert_eq!(ask("POST", &daemon.address, "/metrics", &[], b"x").unwrap().status, 405);
}

#[test]
fn a_gzip_body_is_the_plain_body_packed() {
    let daemon = two_engines(&[]);
    for path in [STILL, "/metrics/gateway"] {
        for accept in ["gzip", "gzip, deflate", "deflate, gzip;q=0.5"] {
            let packed = ask("GET", &daemon.address, path, &[("Accept-Encoding", accept)], b"").unwrap();
            assert_eq!(packed.header("content-encoding"), Some("gzip"), "{accept}");
            assert_eq!(packed.header("content-length"), Some(packed.body.len().to_string().as_str()));
            assert!(packed.header("vary").unwrap().contains("Accept-Encoding"));
            let mut text = String::new();
            flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
            assert_eq!(text, daemon.text(path));
            assert!(packed.body.len() < text.len());
        }
    }
}

#[test]
fn two_daemons_that_replay_one_file_serve_the_same_bytes_and_so_does_one_twice() {
    let (_, cpp, _) = recordings();
    let source = format!("replay:{}?speed=max", cpp.display());
    let [first, second] = [(); 2].map(|()| replayed(Daemon::start(&["--source", &source])));
    for path in [STILL, "/metrics?collect[]=triton", "/metrics/gateway"] {
        for headers in [&[][..], OPENMETRICS, &[("Accept-Encoding", "gzip")]] {
            let body = |daemon: &Daemon| ask("GET", &daemon.address, path, headers, b"").unwrap().body;
            let once = body(&first);
            assert!(once.len() > 100);
            assert!(once == body(&second), "{path} {headers:?}: two daemons differ");
            // Not from a cache: what was known then has been published anew since.
            first.poll(&[], 3);
            assert!(once == body(&first), "{path} {headers:?}: two scrapes differ");
        }
    }
    let page = Page::parse(&first.text(STILL));
    assert!(page.count("nv_trt_llm_iterations_total", &[]) >= 999, "the replay is not empty");
}
