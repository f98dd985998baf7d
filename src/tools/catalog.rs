//! `catalog`: every metric, from the table the page is made of. The markdown is `deploy/METRICS.md`.

use std::fmt::Write as _;

use crate::cli::CatalogFormat;
use crate::metrics::catalog::equivalents::EQUIVALENTS;
use crate::metrics::catalog::fields::{FIELDS, Goes, NOT_READ};
use crate::metrics::catalog::{CATALOG, Group, Kind, Metric};

/// Series of an engine that tells everything there is to tell, and of one as trtllm-serve and the C++ Executor are today.
/// Measured by a test.
pub const SERIES: Series = Series { most: 630, serve: 535, executor: 409 };

/// Numbers of series per engine, without name sets on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    pub most: usize,
    pub serve: usize,
    pub executor: usize,
}

/// `--metrics.compat`: name, what it is, who reads it.
const SETS: [(&str, &str, &str); 4] = [
    (
        "trtllm",
        "trtllm-serve's own families, by its meaning: running is active, waiting is the executor's queue",
        "llm-d's router (engine `trtllm-serve`), AIBrix (by `model_name`), Dynamo (prefix `trtllm_`), AIPerf",
    ),
    (
        "triton-core",
        "Triton's request counters, durations from requests' own times, absent without those",
        "NVIDIA's autoscaling guide (recording rules, HPA) and its Grafana dashboard, KEDA and EKS samples, vLLM's semantic router",
    ),
    (
        "dcgm",
        "dcgm-exporter's families, with its labels and units",
        "AIPerf (GPU telemetry), llm-d's `dcgm-extractor`, NVIDIA's Grafana dashboards",
    ),
    (
        "spec",
        "the founding specification's label values beside Triton's in the same families",
        "dashboards built on `used_blocks`, `max_blocks`, `cache_block_fraction`",
    ),
];

/// What the fold makes of the engine's quirks; tests/reference/fold.py is the same in another language.
const RULES: &str = "
## How it is counted

- An iteration is counted once, by `iter`. A record with nothing active, nothing scheduled and latency 0 is the C++ executor's idle flush: it stands for no
  iteration and has the number of the one to come, which repeats its `numCompletedRequests`; completed requests are counted once per number. The flush's
  `numNewActiveRequests` is stale and not counted.
- Lost iterations are the gaps in `iter` (or in `statsSequence`, where that is sent), or what `statsDroppedFrames` grew by if that is more.
- `iter` going backwards, or another process behind the source, is a restart: numbers and cumulative counts begin anew, totals go on.
- Cumulative counts (KV blocks) add what they grew by. The first value of an engine met running is a baseline; one that falls has begun anew.
- Further rows of one `iter` with another `attentionDpRank` add their tokens and nothing else.
- Iteration latencies leave out 0, the record after it, and on PyTorch each record before which nothing was active or queued (and the first of all): they
  contain the wait for work.
- Request times are the requests' own (RequestPerfMetrics) from the first of them on. Where none come within five seconds of a request's end they are read from
  its rows: it arrives at the start of the iteration that first shows it, is scheduled at the start of the first that says so, has its first token at the
  end of the first that shows one, and has ended at the start of the one that reports it complete. An iteration starts where the one before ended. A
  request that was under way when it was first seen, or that moved on in lost iterations, has no times. Its blocks and tokens are counted all the same.
- Lengths and KV cache transfers of requests are the rows'; where none come, those that stand beside the requests' own times.
- A time of 0 is not observed, except the queue's.
";

/// Prints the catalog.
pub fn run(format: CatalogFormat) {
    match format {
        CatalogFormat::Markdown => print!("{}", markdown()),
        CatalogFormat::Json => println!("{}", json()),
    }
}

/// The metric reference.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\nWritten by `trtllm-exporter catalog`. What an engine does not tell is absent, never 0; \
         families that only some engines feed appear with their first value.\n",
    );
    for group in Group::ALL {
        let _ = write!(out, "\n## `collect[]={}`\n", group.name());
        if group == Group::Compat {
            sets(&mut out);
        }
        table(&mut out, &["name", "type", "labels", "meaning", "from"]);
        for metric in CATALOG.iter().filter(|metric| metric.group == group) {
            let labels = labels(metric);
            row(&mut out, &[&format!("`{}`", metric.name), kind(metric), &labels, metric.help, metric.origin]);
        }
    }
    out.push_str(RULES);
    series(&mut out);
    equivalents(&mut out);
    fields(&mut out);
    out
}

fn sets(out: &mut String) {
    out.push_str("\nOther exporters' names, each set on request by `--metrics.compat` and computed as its own exporter means it.\n");
    table(out, &["set", "what it is", "who reads it"]);
    for (set, what, readers) in SETS {
        row(out, &[&format!("`{set}`"), what, readers]);
    }
}

fn series(out: &mut String) {
    let Series { most, serve, executor } = SERIES;
    let _ = write!(
        out,
        "\n## Series\n\nOne engine has {executor} series as the C++ Executor with request statistics, {serve} as trtllm-serve (PyTorch) with \
         `/perf_metrics`, and {most} if it tells everything there is to tell (groups `triton` and `engine`). The number is the \
         engine's, not its load's: requests, prompts, ids and peers make no series. Each label's values are those above; \
         what an engine says beyond them is `other`.\n"
    );
}

fn equivalents(out: &mut String) {
    out.push_str("\n## Who calls it what\n\nA `{label=value}` here means that series of the family.\n");
    table(out, &["concept", "vLLM", "SGLang", "trtllm-serve", "Triton", "Dynamo", "here"]);
    for same in EQUIVALENTS {
        let ours: Vec<String> = same
            .ours
            .iter()
            .map(|(id, value)| {
                let metric = id.metric();
                let label = metric.variant.zip(*value).map(|(variant, value)| format!("{{{}={value}}}", variant.label));
                format!("`{}{}`", metric.name, label.unwrap_or_default())
            })
            .collect();
        let code = |names: &str| {
            let names: Vec<String> = names.split(", ").map(|name| format!("`{name}`")).collect();
            names.join(", ").replace("`–`", "–")
        };
        let others = [same.vllm, same.sglang, same.trtllm_serve, same.triton, same.dynamo].map(code);
        let [vllm, sglang, serve, triton, dynamo] = &others;
        row(out, &[same.concept, vllm, sglang, serve, triton, dynamo, &ours.join(", ")]);
    }
}

fn fields(out: &mut String) {
    out.push_str(
        "\n## Where each field goes\n\nKeys as TensorRT-LLM writes them in JSON; snake_case is read as well.\n",
    );
    table(out, &["field", "families"]);
    for field in FIELDS {
        let families = match field.goes {
            Goes::To(ids) => {
                let names: Vec<String> = ids.iter().map(|id| format!("`{}`", id.metric().name)).collect();
                names.join(", ")
            }
            Goes::Nowhere(why) => format!("not exported: {why}"),
        };
        row(out, &[&format!("{}.`{}`", field.of, field.name), &families]);
    }
    for (key, why) in NOT_READ {
        row(out, &[&format!("`{key}`"), &format!("not read: {why}")]);
    }
}

fn table(out: &mut String, columns: &[&str]) {
    let _ = writeln!(out, "\n| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()));
}

fn row(out: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|text| text.replace('|', "\\|")).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// An array of objects.
#[must_use]
pub fn json() -> String {
    let families: Vec<serde_json::Value> = CATALOG
        .iter()
        .map(|metric| {
            serde_json::json!({
                "name": metric.name,
                "type": metric.kind.name(),
                "unit": metric.unit,
                "labels": metric.labels,
                "variant": metric.variant.map(|variant| serde_json::json!({"label": variant.label, "values": variant.values})),
                "group": metric.group.name(),
                "help": metric.help,
                "origin": metric.origin,
                "legacy_name": metric.kind == Kind::LegacyCounter,
            })
        })
        .collect();
    serde_json::Value::Array(families).to_string()
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::LegacyCounter => "counter (Triton's name, without `_total`)",
        kind => kind.name(),
    }
}

fn labels(metric: &Metric) -> String {
    let mut labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    if let Some(variant) = metric.variant {
        labels.push(format!("`{}`: {}", variant.label, variant.values.join(", ")));
    }
    labels.join(", ")
}
