//! Plays each scenario in virtual time, and tests the alerts with what Prometheus would scrape (`promtool test rules`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use trtllm_fold::EngineState;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_verdict::cause::Cause;
use trtllm_verdict::verdict::Severity;

use super::play::Play;

/// Seconds between two scrapes, and number of scrapes that are added after the play, as if the engine did not change. Alerts
/// need minutes, and simulating ten minutes of overload takes long.
const SCRAPE: f64 = 10.0;
const HELD: usize = 72;

/// What Prometheus stores about one engine: each series that an alert reads, with a value or a gap for each scrape.
#[derive(Default)]
pub(crate) struct Scrapes {
    series: BTreeMap<String, Vec<Option<f64>>>,
    count: usize,
}

impl Scrapes {
    fn put(&mut self, name: &str, labels: &str, value: f64) {
        let values = self.series.entry(format!("{name}{{LABELS{labels}}}")).or_default();
        values.resize(self.count, None);
        values.push(Some(value));
    }

    /// Adds the values that the engine's page shows now. The page of an engine that does not answer has no load gauges.
    fn scrape(&mut self, play: &Play) {
        let facts = play.facts();
        for state in EngineState::ALL {
            let is_it = f64::from(u8::from(state == facts.state));
            self.put("nv_trt_llm_engine_state", &format!(", state=\"{}\"", state.name()), is_it);
        }
        let answers = f64::from(u8::from(facts.silence.is_none()));
        self.put("trtllm_exporter_source_up", ", source=\"trtllm-serve\"", answers);
        if let Some(verdict) = play.verdicts.verdict() {
            for cause in Cause::ALL {
                let is_it = f64::from(u8::from(cause == verdict.cause));
                self.put("nv_trt_llm_limited_by", &format!(", cause=\"{}\"", cause.name()), is_it);
            }
            self.put("nv_trt_llm_limited_by_severity", "", verdict.severity as u64 as f64);
            self.put("nv_trt_llm_limited_by_since_timestamp_seconds", "", verdict.since);
        }
        let totals = &play.observed.fold.totals;
        self.put("nv_trt_llm_iterations_total", "", totals.iterations as f64);
        self.put("nv_trt_llm_iterations_lost_total", "", totals.losses.lost as f64);
        self.put("nv_trt_llm_engine_restarts_total", "", totals.engine_restarts as f64);
        self.put("nv_trt_llm_requests_completed_total", "", totals.requests_completed as f64);
        for (reason, count) in
            FinishReason::ALL.iter().zip(play.observed.fold.requests.totals.finished.into_iter().flatten())
        {
            let reason = format!(", reason=\"{}\"", reason.name());
            self.put("nv_trt_llm_requests_finished_total", &reason, count as f64);
        }
        for (code, count) in &play.observed.fold.requests.totals.server.errors {
            self.put("nv_trt_llm_request_errors_total", &format!(", code=\"{code}\""), *count as f64);
        }
        let is_loaded = matches!(facts.state, EngineState::Busy | EngineState::Idle);
        if let Some(active) = play.observed.fold.latest().and_then(|latest| latest.active).filter(|_| is_loaded) {
            self.put("nv_trt_llm_request_metrics", ", request_type=\"active\"", active as f64);
        }
        self.count += 1;
    }

    /// Writes the series in promtool's notation. Series that are always 0 are left out, except counters.
    fn write(&self, text: &mut String, labels: &str) {
        for (name, values) in &self.series {
            if values.iter().flatten().all(|value| *value == 0.0) && !name.contains("_total{") {
                continue;
            }
            let mut words: Vec<(String, usize)> = Vec::new();
            for at in 0..self.count {
                let word = match values.get(at).copied().flatten() {
                    Some(value) => value.to_string(),
                    None if at > 0 && values.get(at - 1).copied().flatten().is_some() => "stale".to_owned(),
                    None => "_".to_owned(),
                };
                match words.last_mut() {
                    Some((last, times)) if *last == word => *times += 1,
                    _ => words.push((word, 1)),
                }
            }
            // `5x2` means three samples of 5, and `_x2` means two gaps.
            let words = words.into_iter().map(|(word, times)| match (word.as_str(), times) {
                ("_", times) => format!("_x{times}"),
                (word, 1) => word.to_owned(),
                (word, times) => format!("{word}x{}", times - 1),
            });
            let mut values_text: Vec<String> = words.collect();
            if let Some(Some(last)) = values.get(self.count - 1) {
                let earlier = values.get(self.count - 7).copied().flatten().unwrap_or(*last);
                let slope = if name.contains("_total{") { (last - earlier) / 6.0 } else { 0.0 };
                values_text.push(format!("{}+{slope}x{}", last + slope, HELD - 1));
            }
            let name = name.replace("LABELS", labels);
            let _ = write!(text, "      - series: '{name}'\n        values: {}\n", values_text.join(" "));
        }
    }
}

/// One test for promtool: the series of a scenario, and exactly the alerts that must have fired by its end.
fn write_test(name: &str, play: &mut Play) -> String {
    let mut scrapes = Scrapes::default();
    let mut at = 0.0;
    while at <= super::UNTIL {
        play.until(at);
        scrapes.scrape(play);
        at += SCRAPE;
    }
    let mut expected = alerts_of(name).to_vec();
    let is_limited = play.verdicts.verdict().is_some_and(|verdict| {
        verdict.severity > Severity::Info && !matches!(verdict.cause, Cause::None | Cause::Unavailable)
    });
    expected.extend(is_limited.then_some("TrtllmEngineLimited"));
    let end = (scrapes.count + HELD - 1) as f64 * SCRAPE;
    let labels = "job=\"trtllm-exporter\", instance=\"i\", model=\"m\", version=\"1\"";
    let mut text = format!("  - name: {name}\n    interval: {SCRAPE}s\n    input_series:\n");
    let _ = write!(
        text,
        "      - series: 'up{{job=\"trtllm-exporter\", instance=\"i\"}}'\n        values: 1x{}\n",
        scrapes.count + HELD
    );
    scrapes.write(&mut text, labels);
    text += "    promql_expr_test:\n      - expr: group by (alertname) (count_over_time(ALERTS{alertstate=\"firing\"}[1h]))\n";
    let _ = write!(text, "        eval_time: {end}s\n        exp_samples:");
    text += if expected.is_empty() { " []\n" } else { "\n" };
    for alert in expected {
        let _ = write!(text, "          - labels: '{{alertname=\"{alert}\"}}'\n            value: 1\n");
    }
    text
}

/// Scenarios that are tested in addition to the first one of each cause.
const MORE: [&str; 9] = [
    "hang",
    "restarts",
    "loading",
    "errors-cpp",
    "errors-timeouts-cpp",
    "statistics-second-reader",
    "healthy-idle",
    "healthy-bursts",
    "healthy-cancellations",
];

/// The alerts that a scenario raises in addition to TrtllmEngineLimited, which follows the verdict's severity.
fn alerts_of(name: &str) -> &'static [&'static str] {
    match name {
        "wedge" | "hang" => &["TrtllmEngineStalled", "TrtllmModelNotServing", "TrtllmModelUnavailable"],
        // The play ends while the engine loads, and its last state is held for twelve minutes.
        "restarts" => &["TrtllmModelNotServing", "TrtllmModelUnavailable"],
        "errors-cpp" | "errors-timeouts-cpp" | "memory-cpp" => &["TrtllmRequestsFailing"],
        "statistics-lost" | "statistics-second-reader" => &["TrtllmStatisticsLost"],
        _ => &[],
    }
}

#[test]
fn each_incident_raises_its_alerts_and_no_other() {
    let mut causes = BTreeSet::new();
    let mut scenarios = trtllm_sim::scenario::all();
    scenarios.retain(|scenario| causes.insert(scenario.cause) || MORE.contains(&scenario.name.as_str()));
    assert!(scenarios.len() > 30, "{}", scenarios.len());
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    let failures = super::play_each(scenarios, |scenario, play| {
        let test = write_test(&scenario.name, play);
        let head = format!(
            "rule_files: [{rules}/recording.yml, {rules}/alerts.yml]\nevaluation_interval: {SCRAPE}s\ntests:\n"
        );
        let file = folder.join(format!("{}_test.yml", scenario.name));
        std::fs::write(&file, head + &test).unwrap();
        let Ok(output) = Command::new("promtool").args(["test", "rules"]).arg(&file).output() else {
            panic!("promtool is not installed (apt-get install prometheus)");
        };
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
