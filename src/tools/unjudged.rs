//! Objectives that a source can never judge, as far as the configuration shows it. What a server reports, such as times of single
//! requests or its own bucket bounds, is only known while it runs.

use std::time::Duration;

use trtllm_config::{EngineConfig, SourceSpec};
use trtllm_fold::histogram::{Bound, FIRST_TOKEN_SECONDS, LONG_SECONDS, PER_TOKEN_SECONDS};
use trtllm_sources::trtllm_serve::Extras;

/// One line for each objective of the engine that is never judged, or only under a condition.
pub(super) fn warnings(engine: &EngineConfig) -> Vec<String> {
    let objectives = &engine.name.objectives;
    let configured = objectives.limits().into_iter().filter_map(|(name, limit)| Some((name, limit?)));
    let mut found: Vec<String> = configured.filter_map(|(name, limit)| why(&engine.source, name, limit)).collect();
    let several = objectives.limits().iter().filter(|(_, limit)| limit.is_some()).count() > 1;
    if several && !found.is_empty() {
        found.push(
            "objective all is then unknown, too: it counts a request only if each of its objectives is known".into(),
        );
    }
    found
}

fn why(source: &SourceSpec, name: &str, limit: Duration) -> Option<String> {
    match source {
        SourceSpec::Orchestrator(_) => Some(format!(
            "objective {name} can never be judged: an orchestrator reports no times of requests; set objectives for its context \
             and generation servers"
        )),
        SourceSpec::Log { .. } => Some(format!(
            "objective {name} can never be judged: an iteration log has no times of requests; read the server itself"
        )),
        SourceSpec::PerfMetrics(_) if name == "tpot" => Some(
            "objective tpot can never be judged: the lines of perf-metrics: have no number of tokens; use \
             trtllm-serve:http://HOST:PORT?perf_metrics_dir=DIR, whose page has the time per token"
                .into(),
        ),
        SourceSpec::TrtllmServe { extras, .. } => of_server(extras, name, limit),
        SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_) => of_server(&Extras::default(), name, limit),
        _ => None,
    }
}

/// The entries of `/perf_metrics` have all times but the time per token, which only spans and the histogram of the server have. The rows of requests in
/// the records have all times, but a server reports them only if it is told to.
fn of_server(extras: &Extras, name: &str, limit: Duration) -> Option<String> {
    const ROWS: &str = "unless the server reports rows of requests (enable_iter_req_stats: true)";
    let has_entries = extras.perf_metrics || extras.lines.is_some() || extras.otlp.is_some();
    // If the server's metrics are read, their time per token is taken.
    if has_entries && (name != "tpot" || extras.otlp.is_some() && !extras.prometheus_metrics) {
        return None;
    }
    if !extras.prometheus_metrics {
        return Some(format!(
            "objective {name} can never be judged with prometheus_metrics=false, {ROWS}; remove that option"
        ));
    }
    // Unless the server's prometheus_metrics_config sets others.
    let bounds = match name {
        "ttft" => FIRST_TOKEN_SECONDS,
        "tpot" => PER_TOKEN_SECONDS,
        _ => LONG_SECONDS,
    };
    let bound = |bound: &Bound| Duration::from_secs_f64(bound.value);
    if bounds.iter().map(bound).any(|bound| bound == limit) {
        return None;
    }
    let below = bounds.iter().map(bound).rfind(|bound| *bound < limit);
    let above = bounds.iter().map(bound).find(|bound| *bound > limit);
    let next: Vec<String> = below.into_iter().chain(above).map(|bound| format!("{bound:?}")).collect();
    Some(format!(
        "objective {name}={limit:?} can never be judged by trtllm-serve's own histogram, which has no bucket with this bound, {ROWS}; use \
         {}, or give the histogram this bound in the server's prometheus_metrics_config",
        next.join(" or ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_config::read_file;

    /// The warnings about the only engine of a configuration.
    fn of(source: &str, objectives: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        std::fs::write(&path, format!("engines:\n- source: {source}\n  objectives: {{{objectives}}}\n")).unwrap();
        warnings(&read_file(&path).unwrap()[0])
    }

    #[test]
    fn an_orchestrator_judges_no_objective() {
        let found = of("trtllm-disagg:http://h:1", "ttft: 500ms, e2e: 10s");
        assert!(
            found[0].contains("objective ttft can never be judged") && found[1].contains("objective e2e"),
            "{found:?}"
        );
        assert!(found[2].contains("objective all is then unknown"), "{found:?}");
    }

    #[test]
    fn lines_of_finished_requests_have_no_time_per_token() {
        let folder = tempfile::tempdir().unwrap();
        let source = format!("perf-metrics:{}", folder.path().display());
        assert!(of(&source, "tpot: 50ms")[0].contains("no number of tokens"));
        assert_eq!(of(&source, "ttft: 410ms, e2e: 9s"), Vec::<String>::new());
    }

    #[test]
    fn a_limit_that_no_bucket_of_the_server_has_is_named_with_the_next_ones() {
        let found = of("trtllm-serve:http://h:1", "tpot: 45ms");
        assert!(
            found.len() == 1 && found[0].contains("tpot=45ms") && found[0].contains("use 25ms or 50ms"),
            "{found:?}"
        );
        assert_eq!(of("trtllm-serve:http://h:1", "ttft: 410ms, tpot: 50ms, e2e: 9s"), Vec::<String>::new());
        let spans = "trtllm-serve:http://h:1?prometheus_metrics=false&otlp=127.0.0.1:4317";
        assert_eq!(of(spans, "tpot: 45ms"), Vec::<String>::new(), "spans have times and tokens");
        // Without entries, the server's metrics have all times.
        let found = of("trtllm-serve:http://h:1?perf_metrics=false", "ttft: 410ms, tpot: 50ms, e2e: 10s");
        assert!(found[0].contains("ttft=410ms") && found[1].contains("objective all") && found.len() == 2, "{found:?}");
        assert!(of("auto", "tpot: 1ms")[0].contains("use 10ms"));
    }

    #[test]
    fn without_the_page_no_time_per_token_is_known() {
        let found = of("trtllm-serve:http://h:1?prometheus_metrics=false", "ttft: 410ms, tpot: 50ms");
        assert!(found[0].contains("tpot can never be judged with prometheus_metrics=false"), "{found:?}");
        assert_eq!(of("trtllm-serve:http://h:1?prometheus_metrics=false", "ttft: 410ms"), Vec::<String>::new());
    }

    #[test]
    fn a_source_whose_times_are_known_only_while_it_runs_is_not_judged() {
        assert_eq!(of("socket:/run/x.sock", "ttft: 410ms, tpot: 45ms"), Vec::<String>::new());
        assert_eq!(of("trtllm-serve:http://h:1", ""), Vec::<String>::new());
    }
}
