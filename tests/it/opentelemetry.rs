//! The example for the OpenTelemetry Collector renames histograms that exist, with the names and attributes of
//! OpenTelemetry's semantic conventions for generative AI. The Collector itself does not run.

use std::collections::BTreeMap;

use serde::Deserialize;
use trtllm_page::metrics::catalog::{CATALOG, MetricKind};

#[derive(Deserialize)]
struct Collector {
    receivers: BTreeMap<String, serde_json::Value>,
    processors: Processors,
    exporters: BTreeMap<String, serde_json::Value>,
    service: Service,
}

/// The example must have exactly these processors. They are in the order in which they must run: `transform` sets the
/// unit of copies by the name that `metricstransform` gives them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Processors {
    metricstransform: MetricsTransform,
    transform: serde_json::Value,
    batch: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTransform {
    transforms: Vec<Copy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    include: String,
    action: String,
    new_name: String,
    operations: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    UpdateLabel { label: String, new_label: String },
    AddLabel { new_label: String, new_value: String },
}

#[derive(Deserialize)]
struct Service {
    pipelines: BTreeMap<String, Pipeline>,
}

#[derive(Deserialize)]
struct Pipeline {
    receivers: Vec<String>,
    processors: Vec<String>,
    exporters: Vec<String>,
}

#[test]
fn the_collectors_example_copies_three_histograms_to_the_names_of_opentelemetry() {
    let text = include_str!("../../deploy/opentelemetry/collector.yaml");
    let collector: Collector = serde_saphyr::from_str(text).unwrap();
    let copies = collector.processors.metricstransform.transforms;
    for Copy { include, action, new_name, operations } in &copies {
        let metric = CATALOG.iter().find(|metric| metric.name == include).unwrap_or_else(|| panic!("no {include}"));
        assert_eq!((metric.kind, metric.unit), (MetricKind::Histogram, Some("seconds")), "{include}");
        assert_eq!(action, "insert", "the original of {new_name} must stay");
        let mut attributes = Vec::new();
        for operation in operations {
            match operation {
                Operation::UpdateLabel { label, new_label } => {
                    assert!(metric.labels.contains(&label.as_str()), "{include} has no label {label}");
                    attributes.push(new_label.as_str());
                }
                Operation::AddLabel { new_label, new_value } => {
                    assert!(!new_value.is_empty(), "{new_label}");
                    attributes.push(new_label);
                }
            }
        }
        attributes.sort_unstable();
        assert_eq!(attributes, ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"], "{new_name}");
    }
    let renamed: Vec<(&str, &str)> = copies.iter().map(|copy| (&*copy.include, &*copy.new_name)).collect();
    let wanted = [
        ("nv_trt_llm_time_to_first_token_seconds", "gen_ai.server.time_to_first_token"),
        ("nv_trt_llm_time_per_output_token_seconds", "gen_ai.server.time_per_output_token"),
        ("nv_trt_llm_e2e_request_latency_seconds", "gen_ai.server.request.duration"),
    ];
    assert_eq!(renamed, wanted);
    // Only the three copied families get a unit.
    let statement = r#"set(unit, "s") where IsMatch(name, "^gen_ai\\.server\\.")"#;
    assert_eq!(collector.processors.transform["metric_statements"][0]["statements"][0], statement);
    assert_eq!(collector.processors.batch, serde_json::json!({}));
    let Pipeline { receivers, processors, exporters } = &collector.service.pipelines["metrics"];
    assert_eq!(processors, &["metricstransform", "transform", "batch"]);
    assert!(receivers.iter().all(|name| collector.receivers.contains_key(name)), "{receivers:?}");
    assert!(exporters.iter().all(|name| collector.exporters.contains_key(name)), "{exporters:?}");
}
