//! Reads every format of the page with the programs that read it in practice: promtool, both parsers of the Python
//! client, Go's expfmt, and Prometheus servers, whose databases must then contain the same values.

mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use trtllm_page::metrics::catalog::{CATALOG, Metric, MetricKind};

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::http::request;
use crate::support::prometheus::prometheus_3;
use crate::support::sessions::{DETERMINISTIC, run_on_page, two_engines, two_engines_and_two_gpus};
use crate::support::standin::Standin;
use crate::support::{ensure, expfmt, until};

/// promtool criticizes only names that come from Triton. It prints one line for each name, and its exit code is 3.
#[test]
fn promtool_reports_only_inherited_names() {
    let promtool = prometheus_3().with_file_name("promtool");
    let (daemon, _gpus) = two_engines_and_two_gpus(&[]);
    let text = daemon.text("/metrics");
    let (code, stdout, reports) = run_on_page(Command::new(&promtool).args(["check", "metrics"]), text.as_bytes());
    assert_eq!(code, Some(3), "{stdout}{reports}");
    let wanted = ["nv_energy_consumption", "nv_trt_llm_disaggregated_serving_metrics"]
        .map(|name| format!("{name} counter metrics should have \"_total\" suffix"));
    let mut lines: Vec<&str> = reports.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, wanted, "{stdout}");
}

/// A series: its name and labels. The value of `le` is in its shortest form.
type Series = (String, BTreeMap<String, String>);

/// A page as a program parsed it. The names of families are those of the catalog.
#[derive(Debug, Default)]
struct ParsedPage {
    kinds: BTreeMap<&'static str, String>,
    samples: BTreeMap<Series, f64>,
    exemplars: BTreeSet<&'static str>,
    /// Number of observations in the native buckets of each histogram. The key is the `_count` series.
    native: BTreeMap<Series, f64>,
}

/// Finds the family by the name that a program printed: some remove `_total`, some append it.
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

/// Parses the output of `parse_page.py` and `expfmt`.
fn parse_output(printed: &str) -> ParsedPage {
    let families: Vec<Value> = serde_json::from_str(printed).unwrap();
    let mut page = ParsedPage::default();
    for family in families {
        let metric = metric(family["name"].as_str().unwrap());
        let duplicate = page.kinds.insert(metric.name, family["type"].as_str().unwrap().to_owned());
        assert_eq!(duplicate, None, "duplicate family {}", metric.name);
        for sample in family["samples"].as_array().unwrap() {
            let mut name = sample[0].as_str().unwrap();
            if metric.kind == MetricKind::LegacyCounter {
                // The Python client appends _total to every counter.
                name = name.strip_suffix("_total").unwrap_or(name);
            }
            let series = (name.to_owned(), labels(&sample[1]));
            let duplicate = page.samples.insert(series.clone(), sample[2].as_str().unwrap().parse().unwrap());
            assert_eq!(duplicate, None, "duplicate series {series:?}");
        }
        if family["exemplars"].as_u64().unwrap() > 0 {
            page.exemplars.insert(metric.name);
        }
        for native in family["native"].as_array().into_iter().flatten() {
            let series = (format!("{}_count", metric.name), labels(&native["labels"]));
            page.native.insert(series, native["count"].as_f64().unwrap());
        }
    }
    page
}

/// One format: how a client requests it, what the response must be, and which programs parse it.
struct FormatCase {
    accept: &'static str,
    content_type: &'static str,
    /// The parser of the Python client for this format.
    python: Option<&'static str>,
    expfmt: bool,
    /// The type of a legacy counter (a counter without `_total` in its name) in this format.
    legacy: &'static str,
    exemplars: bool,
    native: bool,
}

const TEXT: FormatCase = FormatCase {
    accept: "*/*",
    content_type: "text/plain; version=0.0.4; charset=utf-8",
    python: Some("text"),
    expfmt: true,
    legacy: "counter",
    exemplars: false,
    native: false,
};
const FORMATS: [FormatCase; 4] = [
    TEXT,
    FormatCase {
        accept: "text/plain;version=1.0.0;escaping=allow-utf-8",
        content_type: "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ..TEXT
    },
    FormatCase {
        accept: "application/openmetrics-text;version=1.0.0",
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
        python: Some("openmetrics"),
        // expfmt cannot parse OpenMetrics; Prometheus has its own parser.
        expfmt: false,
        legacy: "unknown",
        exemplars: true,
        native: false,
    },
    FormatCase {
        accept: "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
        content_type: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        python: None,
        expfmt: true,
        legacy: "counter",
        exemplars: true,
        native: true,
    },
];

/// The page at `path` as every program for this format parses it, in every content encoding.
fn parse_with_all(daemon: &Daemon, path: &str, format: &FormatCase) -> Vec<ParsedPage> {
    let mut bodies = BTreeSet::new();
    for encoding in ["identity", "gzip", "zstd"] {
        let headers = [("Accept", format.accept), ("Accept-Encoding", encoding)];
        let answer = request("GET", &daemon.address, path, &headers, b"").unwrap();
        assert_eq!(answer.header("content-type"), Some(format.content_type), "{encoding}");
        let is_packed = encoding != "identity";
        assert_eq!(answer.header("content-encoding"), is_packed.then_some(encoding));
        assert!(!is_packed || answer.header("vary").is_some_and(|vary| vary.contains("Accept-Encoding")));
        bodies.insert(answer.decompressed());
    }
    let mut pages = Vec::new();
    for body in bodies {
        let python = format.python.map(|parser| {
            let mut command = Command::new(support::python());
            command.arg(support::root().join("tests/judges/parse_page.py")).arg(parser);
            command
        });
        let go = format.expfmt.then(|| {
            let mut command = Command::new(expfmt());
            command.arg(format.content_type);
            command
        });
        for mut reader in [python, go].into_iter().flatten() {
            let (code, stdout, stderr) = run_on_page(&mut reader, &body);
            assert_eq!(code, Some(0), "{reader:?}: {stderr}");
            pages.push(parse_output(&stdout));
        }
    }
    pages
}

/// Two engines, two GPUs and all compatibility name sets.
fn everything() -> (Daemon, Standin) {
    two_engines_and_two_gpus(&["--metrics.compat", "trtllm,vllm,triton-core,dcgm,spec"])
}

/// Checks the types, exemplars and native buckets of a page in this format. Returns the page without the series that
/// change every few seconds.
fn checked(mut page: ParsedPage, format: &FormatCase) -> ParsedPage {
    page.samples.retain(|(name, _), _| !is_judged(name));
    page.kinds.retain(|name, _| !is_judged(name));
    let wanted = |name: &str| match metric(name).kind {
        MetricKind::Gauge => "gauge",
        MetricKind::Counter => "counter",
        MetricKind::LegacyCounter => format.legacy,
        MetricKind::Histogram => "histogram",
    };
    for (name, kind) in &page.kinds {
        assert_eq!(kind, wanted(name), "{name} in {}", format.content_type);
    }
    assert_eq!(page.exemplars.contains("nv_trt_llm_e2e_request_latency_seconds"), format.exemplars);
    assert_eq!(page.exemplars.is_empty(), !format.exemplars, "{:?}", page.exemplars);
    let ours = page.samples.iter().filter(|((name, _), _)| {
        let count = name.strip_suffix("_count").and_then(|name| CATALOG.iter().find(|m| m.name == name));
        format.native && count.is_some_and(Metric::has_native_buckets)
    });
    let ours: BTreeMap<Series, f64> = ours.map(|(series, value)| (series.clone(), *value)).collect();
    // Our histograms have as many observations in native buckets as in classic ones. No other families have native
    // buckets.
    assert_eq!(page.native, ours, "{}", format.content_type);
    page
}

#[test]
fn all_programs_read_the_same_series_and_values_from_all_formats() {
    let (daemon, _gpus) = everything();
    let still = format!("{DETERMINISTIC}&collect[]=gpu&collect[]=compat");
    // Some request times appear only some seconds after the records. If the page changes between two formats, all
    // formats are read again.
    let page = until(|| {
        let mut first: Option<ParsedPage> = None;
        for format in &FORMATS {
            let pages = parse_with_all(&daemon, &still, format);
            let readers = usize::from(format.python.is_some()) + usize::from(format.expfmt);
            ensure(pages.len() == readers, || format!("{}: encodings differ", format.content_type))?;
            for page in pages {
                let page = checked(page, format);
                let Some(first) = &first else {
                    first = Some(page);
                    continue;
                };
                let differing = |((name, labels), value): (&Series, &f64)| {
                    let shown = page.samples.get(&(name.clone(), labels.clone()));
                    (shown != Some(value)).then(|| format!("{name}{labels:?} {value} {shown:?}"))
                };
                let differing: Vec<String> = first.samples.iter().filter_map(differing).collect();
                let alike = differing.is_empty() && first.samples.len() == page.samples.len();
                ensure(alike && first.kinds.keys().eq(page.kinds.keys()), || {
                    format!(
                        "{}: {} series, not {}: {differing:?}",
                        format.content_type,
                        page.samples.len(),
                        first.samples.len()
                    )
                })?;
            }
        }
        Ok(first.unwrap())
    });
    assert!(page.kinds.len() > 100 && page.samples.len() > 1000, "{} {}", page.kinds.len(), page.samples.len());
    // A label value that needs escaping must arrive unchanged.
    let model =
        |((_, labels), _): (&Series, &f64)| labels.get("model").is_some_and(|m| m == r#"odd "name" \ é {a=1}, # b"#);
    assert!(page.samples.iter().any(model));
    let of = |name: &str| -> f64 {
        page.samples.iter().filter(|((found, _), _)| found == name).map(|(_, value)| *value).sum()
    };
    assert!(of("nv_trt_llm_disaggregated_serving_metrics") >= 2.0 * (12.25 + 1.0));
    assert!(of("nv_trt_llm_iteration_latency_seconds_count") > 1000.0);
}

/// The values of these families change between requests.
#[test]
fn the_families_of_the_exporter_are_the_same_in_every_format() {
    let daemon = two_engines(&[]);
    // The first scrapes of the exporter are on its later pages.
    until(|| {
        let pages = FORMATS.iter().flat_map(|format| parse_with_all(&daemon, "/metrics?collect[]=exporter", format));
        let names: BTreeSet<Vec<&str>> = pages.map(|page| page.kinds.into_keys().collect()).collect();
        for expected in ["trtllm_exporter_build_info", "process_resident_memory_bytes"] {
            assert!(names.iter().all(|names| names.contains(&expected)), "{expected}");
        }
        ensure(names.len() == 1, || format!("{names:?}"))
    });
}

#[test]
fn compatibility_name_sets_do_not_change_tritons_families() {
    let (daemon, _gpus) = everything();
    let series = |daemon: &Daemon| -> BTreeSet<String> {
        let page = support::page::Page::parse(&daemon.text("/metrics?collect[]=triton"));
        page.series.into_iter().map(|(series, _)| series).collect()
    };
    assert_eq!(series(&daemon), series(&two_engines(&[])));
    let page = daemon.page();
    for name in ["trtllm_num_requests_running", "nv_inference_request_success", "DCGM_FI_DEV_GPU_UTIL"] {
        assert!(page.families.iter().any(|(shown, _)| shown == name), "{name}");
    }
}

/// True for families of the verdict. It is computed every five seconds, so it may change between two scrapes.
fn is_judged(name: &str) -> bool {
    let others = [
        "iteration_slowdown_ratio",
        "capacity_requests_per_second",
        "headroom_ratio",
        "throughput_of_reference_ratio",
        "tokens_per_joule_of_reference_ratio",
    ];
    name.starts_with("nv_trt_llm_limited_by") || others.iter().any(|other| name == format!("nv_trt_llm_{other}"))
}
