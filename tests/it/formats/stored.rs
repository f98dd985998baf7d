//! Prometheus servers scrape the page in each format. Their databases must contain the values of the page.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use trtllm_page::metrics::catalog::CATALOG;

use super::{ParsedPage, Series, is_judged, labels, parse_output};
use crate::support;
use crate::support::prometheus::{Prometheus, now, prometheus_2, prometheus_3};
use crate::support::sessions::{DETERMINISTIC, run_on_page, two_engines};
use crate::support::{ensure, until};

/// One way to scrape: the server, its flags, the settings of the job, and what the server's database must then contain.
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

/// The series of the page that the server's database contains for this time; `None` before the first scrape.
fn stored_page(prometheus: &Prometheus, at: f64) -> Option<ParsedPage> {
    let query = [("query", "{job=\"page\"}"), ("time", &at.to_string())];
    let stored = prometheus.api("query", &query)["result"].clone();
    let stored = stored.as_array().filter(|stored| stored.len() > 100)?;
    let mut page = ParsedPage::default();
    for series in stored {
        let mut labels = labels(&series["metric"]);
        let name = labels.remove("__name__").unwrap();
        if name == "up" || name.starts_with("scrape_") || is_judged(&name) {
            continue;
        }
        assert_eq!((labels.remove("job").as_deref(), labels.remove("instance").is_some()), (Some("page"), true));
        let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
        if series["histogram"].is_null() {
            page.samples.insert((name, labels), number(&series["value"][1]));
        } else {
            let histogram = &series["histogram"][1];
            page.native.insert((format!("{name}_count"), labels.clone()), number(&histogram["count"]));
            page.native.insert((format!("{name}_sum"), labels), number(&histogram["sum"]));
        }
    }
    Some(page)
}

fn prometheus_stores_the_page(scrape: &Scrape) {
    let daemon = two_engines(&[]);
    let more = if scrape.job.is_empty() { String::new() } else { format!(", {}", scrape.job) };
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\nscrape_configs:\n\
         - {{job_name: page, params: {{'collect[]': [triton, engine]}}, static_configs: [{{targets: ['{}']}}]{more}}}\n",
        daemon.address
    );
    let prometheus = Prometheus::with(&(scrape.server)(), &config, scrape.flags);
    prometheus.until_up();
    let ours = |name: &str| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        CATALOG.iter().any(|metric| metric.name == family && metric.has_native_buckets())
    };
    // Some request times appear only some seconds after the records, so the page may differ from the last scrape. On a
    // busy machine, a late scrape leaves a gap until the next scrape, so all series are read at one point in time.
    let stored_at = until(|| {
        let page = parse_output(&{
            let mut python = Command::new(support::python());
            python.arg(support::root().join("tests/judges/parse_page.py")).arg("text");
            run_on_page(&mut python, daemon.text(DETERMINISTIC).as_bytes()).1
        });
        let at = now();
        let stored = stored_page(&prometheus, at).ok_or("no series are stored yet")?;
        let classic = |((name, _), _): &(&Series, &f64)| scrape.classic || !ours(name);
        let steady = |((name, _), _): &(&Series, &f64)| !is_judged(name);
        let wanted: BTreeMap<&Series, &f64> = page.samples.iter().filter(classic).filter(steady).collect();
        let differing = stored.samples.iter().zip(&wanted).find(|(stored, shown)| stored != &(*shown.0, *shown.1));
        ensure((stored.samples.len(), differing) == (wanted.len(), None), || {
            format!("{} of {} series, first difference: {differing:?}", stored.samples.len(), wanted.len())
        })?;
        let counted = |((name, _), _): &(&Series, &f64)| scrape.native && ours(name) && !name.ends_with("_bucket");
        let counted: BTreeMap<&Series, &f64> = page.samples.iter().filter(counted).collect();
        let differing = stored.native.iter().zip(&counted).find(|(stored, shown)| stored != &(*shown.0, *shown.1));
        ensure((stored.native.len(), differing) == (counted.len(), None), || {
            format!("{} of {} histograms, first difference: {differing:?}", stored.native.len(), counted.len())
        })?;
        Ok(at)
    });

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
        // Native and classic buckets give about the same median.
        let median = |histogram: &str| {
            let query = format!("max(histogram_quantile(0.5, {histogram}))");
            prometheus.value(&query, Some(stored_at)).unwrap()
        };
        let fine = median("nv_trt_llm_iteration_latency_seconds");
        assert!((0.0005..0.5).contains(&fine), "a median of {fine} s");
        if scrape.classic {
            let coarse = median("nv_trt_llm_iteration_latency_seconds_bucket");
            assert!(
                (0.4..2.5).contains(&(fine / coarse)),
                "{fine} s from native buckets, {coarse} s from classic buckets"
            );
        }
    }
}

#[test]
fn prometheus_2_stores_the_openmetrics_page() {
    prometheus_stores_the_page(&OPENMETRICS_2);
}

#[test]
fn prometheus_2_with_native_histograms_stores_them_instead_of_classic_ones() {
    prometheus_stores_the_page(&Scrape {
        flags: NATIVE,
        legacy: "counter",
        classic: false,
        native: true,
        ..OPENMETRICS_2
    });
}

#[test]
fn prometheus_3_stores_native_histograms_beside_classic_ones() {
    prometheus_stores_the_page(&PROTOBUF_3);
}

#[test]
fn prometheus_3_stores_the_page_from_every_text_format() {
    for (job, legacy, exemplars) in [
        ("scrape_protocols: [OpenMetricsText1.0.0]", "unknown", true),
        ("scrape_protocols: [PrometheusText1.0.0]", "counter", false),
        ("scrape_protocols: [PrometheusText0.0.4]", "counter", false),
    ] {
        prometheus_stores_the_page(&Scrape { job, legacy, native: false, exemplars, ..PROTOBUF_3 });
    }
}
