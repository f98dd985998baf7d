//! Every format the page has, read by every program that reads it: promtool, the Python client's two parsers, Go's expfmt,
//! and real Prometheus servers, whose databases must hold what the page says.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod e2e;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use e2e::daemon::Daemon;
use e2e::http::ask;
use e2e::prometheus::{Prometheus, now, prometheus_2, prometheus_3};
use e2e::sessions::{STILL, judge, two_engines, two_engines_and_two_gpus};
use e2e::standin::Standin;
use e2e::{expfmt, missing, until};
use serde_json::Value;
use trtllm_exporter::metrics::catalog::{CATALOG, Kind, Metric};

/// promtool finds nothing wrong but the names that Triton gave: exit code 3, and one complaint for each.
fn only_inherited_names_are_complained_of(promtool: &Path) {
    let (with_gpus, _gpus) = two_engines_and_two_gpus(&[]);
    let without = two_engines(&[]);
    for (daemon, inherited) in [
        (&with_gpus, vec!["nv_energy_consumption", "nv_trt_llm_disaggregated_serving_metrics"]),
        (&without, vec!["nv_trt_llm_disaggregated_serving_metrics"]),
    ] {
        let text = daemon.text("/metrics");
        let (code, stdout, complaints) = judge(Command::new(promtool).args(["check", "metrics"]), text.as_bytes());
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

/// Name and labels, `le` as a number's shortest form.
type Series = (String, BTreeMap<String, String>);

/// A page as a reader understood it, by our own names of families.
#[derive(Debug, Default)]
struct Reading {
    kinds: BTreeMap<&'static str, String>,
    samples: BTreeMap<Series, f64>,
    /// Families with exemplars.
    exemplars: BTreeSet<&'static str>,
    /// Observations in native buckets, by the series of their count.
    native: BTreeMap<Series, f64>,
}

/// The family of a reader's name for it: some leave `_total` out, some append it.
fn metric(name: &str) -> &'static Metric {
    let bare = |name: &'static str| name.strip_suffix("_total").unwrap_or(name);
    let found = CATALOG.iter().find(|metric| metric.name == name || bare(metric.name) == name);
    found.unwrap_or_else(|| panic!("{name} is not in the catalog"))
}

fn labels(read: &Value) -> BTreeMap<String, String> {
    let labels = read.as_object().unwrap().iter();
    let label = |(name, value): (&String, &Value)| {
        let value = value.as_str().unwrap();
        let number = |value: &str| value.parse().map(|bound: f64| bound.to_string()).unwrap();
        (name.clone(), if name == "le" { number(value) } else { value.to_owned() })
    };
    labels.map(label).collect()
}

/// From what `parse_page.py` and `expfmt` print.
fn reading(printed: &str) -> Reading {
    let families: Vec<Value> = serde_json::from_str(printed).unwrap();
    let mut reading = Reading::default();
    for family in families {
        let metric = metric(family["name"].as_str().unwrap());
        let twice = reading.kinds.insert(metric.name, family["type"].as_str().unwrap().to_owned());
        assert_eq!(twice, None, "{} stands twice", metric.name);
        for sample in family["samples"].as_array().unwrap() {
            let mut name = sample[0].as_str().unwrap();
            if metric.kind == Kind::LegacyCounter {
                // To the Python client every counter ends in _total.
                name = name.strip_suffix("_total").unwrap_or(name);
            }
            let series = (name.to_owned(), labels(&sample[1]));
            let twice = reading.samples.insert(series.clone(), sample[2].as_str().unwrap().parse().unwrap());
            assert_eq!(twice, None, "{series:?} stands twice");
        }
        if family["exemplars"].as_u64().unwrap() > 0 {
            reading.exemplars.insert(metric.name);
        }
        for native in family["native"].as_array().into_iter().flatten() {
            let series = (format!("{}_count", metric.name), labels(&native["labels"]));
            reading.native.insert(series, native["count"].as_f64().unwrap());
        }
    }
    reading
}

/// A format: what asks for it, as what it is answered, and who reads it.
struct Row {
    accept: &'static str,
    content_type: &'static str,
    /// The Python client's parser of it.
    python: Option<&'static str>,
    expfmt: bool,
    /// What a legacy counter is called.
    legacy: &'static str,
    exemplars: bool,
    native: bool,
}

const TEXT: Row = Row {
    accept: "*/*",
    content_type: "text/plain; version=0.0.4; charset=utf-8",
    python: Some("text"),
    expfmt: true,
    legacy: "counter",
    exemplars: false,
    native: false,
};
const ROWS: [Row; 4] = [
    TEXT,
    Row {
        accept: "text/plain;version=1.0.0;escaping=allow-utf-8",
        content_type: "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ..TEXT
    },
    Row {
        accept: "application/openmetrics-text;version=1.0.0",
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
        python: Some("openmetrics"),
        // Go's has no reader of it; Prometheus has one of its own.
        expfmt: false,
        legacy: "unknown",
        exemplars: true,
        native: false,
    },
    Row {
        accept: "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
        content_type: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        python: None,
        expfmt: true,
        legacy: "counter",
        exemplars: true,
        native: true,
    },
];

/// What every reader of a row makes of `path`, whichever way it is packed.
fn readings(daemon: &Daemon, path: &str, row: &Row) -> Vec<Reading> {
    let mut bodies = BTreeSet::new();
    for packed in ["identity", "gzip", "zstd"] {
        let headers = [("Accept", row.accept), ("Accept-Encoding", packed)];
        let answer = ask("GET", &daemon.address, path, &headers, b"").unwrap();
        assert_eq!(answer.header("content-type"), Some(row.content_type), "{packed}");
        assert_eq!(answer.header("content-encoding"), Some(packed).filter(|packed| *packed != "identity"));
        bodies.insert(answer.unpacked());
    }
    let mut readings = Vec::new();
    for body in bodies {
        let python = row.python.map(|parser| {
            let mut command = Command::new(e2e::python());
            command.arg(e2e::root().join("tests/e2e/parse_page.py")).arg(parser);
            command
        });
        let go = row.expfmt.then(|| {
            let mut command = Command::new(expfmt());
            command.arg(row.content_type);
            command
        });
        for mut reader in [python, go].into_iter().flatten() {
            let (code, stdout, stderr) = judge(&mut reader, &body);
            assert_eq!(code, Some(0), "{reader:?}: {stderr}");
            readings.push(reading(&stdout));
        }
    }
    readings
}

/// Two engines, two GPUs and every other exporter's name set.
fn everything() -> (Daemon, Standin) {
    two_engines_and_two_gpus(&["--metrics.compat", "trtllm,triton-core,dcgm,spec"])
}

#[test]
fn every_reader_of_every_format_reads_the_same_series_and_values() {
    let (daemon, _gpus) = everything();
    let still = format!("{STILL}&collect[]=gpu&collect[]=compat");
    let mut first: Option<Reading> = None;
    for row in &ROWS {
        let readings = readings(&daemon, &still, row);
        assert_eq!(readings.len(), usize::from(row.python.is_some()) + usize::from(row.expfmt), "{}", row.accept);
        for reading in readings {
            let wanted = |name: &str| match metric(name).kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::LegacyCounter => row.legacy,
                Kind::Histogram => "histogram",
            };
            for (name, kind) in &reading.kinds {
                assert_eq!(kind, wanted(name), "{name} in {}", row.content_type);
            }
            assert_eq!(reading.exemplars.contains("nv_trt_llm_e2e_request_latency_seconds"), row.exemplars);
            assert_eq!(reading.exemplars.is_empty(), !row.exemplars, "{:?}", reading.exemplars);
            let ours: BTreeMap<Series, f64> = reading
                .samples
                .iter()
                .filter(|((name, _), _)| {
                    let count = name.strip_suffix("_count").and_then(|name| CATALOG.iter().find(|m| m.name == name));
                    row.native && count.is_some_and(Metric::has_native_buckets)
                })
                .map(|(series, value)| (series.clone(), *value))
                .collect();
            // As many observations in native buckets as in classic ones, in every histogram of ours and in no other.
            assert_eq!(reading.native, ours, "{}", row.content_type);
            match &first {
                None => first = Some(reading),
                Some(first) => {
                    assert!(first.samples == reading.samples, "{}", row.content_type);
                    assert!(first.kinds.keys().eq(reading.kinds.keys()), "{}", row.content_type);
                }
            }
        }
    }
    let read = first.unwrap();
    assert!(read.kinds.len() > 100 && read.samples.len() > 1000, "{} {}", read.kinds.len(), read.samples.len());
    // The names that need escaping arrived as they were meant.
    let model =
        |((_, labels), _): (&Series, &f64)| labels.get("model").is_some_and(|m| m == r#"odd "name" \ é {a=1}, # b"#);
    assert!(read.samples.iter().any(model));
    let of = |name: &str| -> f64 {
        read.samples.iter().filter(|((found, _), _)| found == name).map(|(_, value)| *value).sum()
    };
    assert!(of("nv_trt_llm_disaggregated_serving_metrics") >= 2.0 * (12.25 + 1.0));
    assert!(of("nv_trt_llm_iteration_latency_seconds_count") > 1000.0);
}

#[test]
fn the_whole_page_has_the_same_families_in_every_format() {
    let (daemon, _gpus) = two_engines_and_two_gpus(&[]);
    let mut first = BTreeSet::new();
    for row in &ROWS {
        // The exporter's own numbers move: the packed bodies may differ.
        for reading in readings(&daemon, "/metrics", row) {
            let names: BTreeSet<&str> = reading.kinds.keys().copied().collect();
            for expected in ["trtllm_exporter_build_info", "process_resident_memory_bytes", "nv_gpu_utilization"] {
                assert!(names.contains(expected), "{expected}");
            }
            if first.is_empty() {
                first = names;
            } else {
                assert_eq!(first, names, "{}", row.content_type);
            }
        }
    }
}

#[test]
fn other_name_sets_leave_tritons_families_as_they_were() {
    let (daemon, _gpus) = everything();
    let series = |daemon: &Daemon| -> BTreeSet<String> {
        let page = e2e::page::Page::parse(&daemon.text("/metrics?collect[]=triton"));
        page.series.into_iter().map(|(series, _)| series).collect()
    };
    assert_eq!(series(&daemon), series(&two_engines(&[])));
    let page = daemon.page();
    for name in ["trtllm_num_requests_running", "nv_inference_request_success", "DCGM_FI_DEV_GPU_UTIL"] {
        assert!(page.families.iter().any(|(shown, _)| shown == name), "{name}");
    }
}

/// One way of scraping: the server, its flags, a job's own settings, and what its database then holds.
struct Scrape {
    server: fn() -> std::path::PathBuf,
    flags: &'static [&'static str],
    job: &'static str,
    legacy: &'static str,
    classic: bool,
    native: bool,
    exemplars: bool,
}

const NATIVE: &[&str] = &["--enable-feature=native-histograms,exemplar-storage"];
const OPENMETRICS_2: Scrape = Scrape {
    server: prometheus_2,
    flags: &["--enable-feature=exemplar-storage"],
    job: "",
    legacy: "unknown",
    classic: true,
    native: false,
    exemplars: true,
};
const PROTOBUF_3: Scrape = Scrape {
    server: prometheus_3,
    flags: NATIVE,
    job: "always_scrape_classic_histograms: true, scrape_protocols: [PrometheusProto]",
    legacy: "counter",
    classic: true,
    native: true,
    exemplars: true,
};

fn stored_is_what_the_page_says(scrape: &Scrape) {
    let daemon = two_engines(&[]);
    let page = reading(&{
        let mut python = Command::new(e2e::python());
        python.arg(e2e::root().join("tests/e2e/parse_page.py")).arg("text");
        judge(&mut python, daemon.text(STILL).as_bytes()).1
    });
    let more = if scrape.job.is_empty() { String::new() } else { format!(", {}", scrape.job) };
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\nscrape_configs:\n\
         - {{job_name: page, params: {{'collect[]': [triton, engine]}}, static_configs: [{{targets: ['{}']}}]{more}}}\n",
        daemon.address
    );
    let prometheus = Prometheus::with(&(scrape.server)(), &config, scrape.flags);
    prometheus.until_up();
    // A scrape that comes too late on a busy machine leaves nothing behind until the next one: all is read as of one time.
    let (stored, stored_at) = until(|| {
        let at = now();
        let query = [("query", "{job=\"page\"}"), ("time", &at.to_string())];
        let stored = prometheus.api("query", &query)["result"].clone();
        missing(stored.as_array().is_some_and(|stored| stored.len() > 100), || "nothing is stored yet".to_owned())?;
        Ok((stored, at))
    });
    let (mut samples, mut native) = (BTreeMap::new(), BTreeMap::new());
    for series in stored.as_array().unwrap() {
        let mut labels = labels(&series["metric"]);
        let name = labels.remove("__name__").unwrap();
        if name == "up" || name.starts_with("scrape_") {
            continue;
        }
        assert_eq!((labels.remove("job").as_deref(), labels.remove("instance").is_some()), (Some("page"), true));
        let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
        if series["histogram"].is_null() {
            samples.insert((name, labels), number(&series["value"][1]));
        } else {
            let histogram = &series["histogram"][1];
            native.insert((format!("{name}_count"), labels.clone()), number(&histogram["count"]));
            native.insert((format!("{name}_sum"), labels), number(&histogram["sum"]));
        }
    }
    let ours = |name: &str| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        CATALOG.iter().any(|metric| metric.name == family && metric.has_native_buckets())
    };
    let classic = |((name, _), _): &(&Series, &f64)| scrape.classic || !ours(name);
    let wanted: BTreeMap<&Series, &f64> = page.samples.iter().filter(classic).collect();
    let differing = samples.iter().zip(&wanted).find(|(stored, shown)| stored != &(*shown.0, *shown.1));
    assert_eq!((samples.len(), differing), (wanted.len(), None));
    let counted = |((name, _), _): &(&Series, &f64)| scrape.native && ours(name) && !name.ends_with("_bucket");
    assert_eq!(native.iter().collect::<BTreeMap<_, _>>(), page.samples.iter().filter(counted).collect());

    let metadata = prometheus.api("targets/metadata", &[("metric", "nv_trt_llm_disaggregated_serving_metrics")]);
    assert_eq!(metadata[0]["type"], scrape.legacy);
    let shown = "nv_trt_llm_e2e_request_latency_seconds_bucket";
    let shown = if scrape.classic { shown } else { "nv_llm_input_token_len_bucket" };
    let span = [("query", shown), ("start", "0"), ("end", "9999999999")];
    let examples = prometheus.api("query_exemplars", &span);
    let examples = examples.as_array().unwrap();
    assert_eq!(examples.is_empty(), !scrape.exemplars || !scrape.classic, "{examples:?}");
    for example in examples.iter().flat_map(|series| series["exemplars"].as_array().unwrap()) {
        assert!(example["labels"]["request_id"].as_str().unwrap().parse::<u64>().is_ok(), "{example}");
    }
    if scrape.native {
        // Both kinds of buckets say the same of the same observations.
        let median = |histogram: &str| {
            let query = format!("max(histogram_quantile(0.5, {histogram}))");
            prometheus.value(&query, Some(stored_at)).unwrap()
        };
        let fine = median("nv_trt_llm_iteration_latency_seconds");
        assert!((0.0005..0.5).contains(&fine), "a median of {fine} s");
        if scrape.classic {
            let coarse = median("nv_trt_llm_iteration_latency_seconds_bucket");
            assert!((0.4..2.5).contains(&(fine / coarse)), "{fine} s, but {coarse} s by classic buckets");
        }
    }
}

#[test]
fn prometheus_2_stores_what_the_openmetrics_page_says() {
    stored_is_what_the_page_says(&OPENMETRICS_2);
}

#[test]
fn prometheus_2_with_native_histograms_stores_them_instead_of_classic_ones() {
    stored_is_what_the_page_says(&Scrape {
        flags: NATIVE,
        legacy: "counter",
        classic: false,
        native: true,
        ..OPENMETRICS_2
    });
}

#[test]
fn prometheus_3_stores_native_histograms_beside_classic_ones() {
    stored_is_what_the_page_says(&PROTOBUF_3);
}

#[test]
fn prometheus_3_stores_what_every_text_format_says() {
    for (job, legacy, exemplars) in [
        ("scrape_protocols: [OpenMetricsText1.0.0]", "unknown", true),
        ("scrape_protocols: [PrometheusText1.0.0]", "counter", false),
        ("scrape_protocols: [PrometheusText0.0.4]", "counter", false),
    ] {
        stored_is_what_the_page_says(&Scrape { job, legacy, native: false, exemplars, ..PROTOBUF_3 });
    }
}
