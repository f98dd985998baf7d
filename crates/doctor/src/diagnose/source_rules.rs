//! The rules about the answers of a source: which of its options are off.

use trtllm_service::printable::one_line;
use trtllm_sources::prometheus_text::ParsedSample;
use trtllm_verdict::finding_rules;
use trtllm_verdict::findings::{Finding, Rule};
use trtllm_verdict::texts::Texts;
use trtllm_verdict::verdict::Unit;

finding_rules! {
    Texts(include_str!("source_rules.md"));
    EXPORTER_UNREADABLE = "exporter-unreadable", Exporter, Critical;
    UNANSWERED = "source-unanswered", Source, Warning;
    NOT_ASKED = "source-not-asked", Source, Warning;
    REFUSED = "source-refused", Source, Warning;
    OTHER = "source-other", Source, Warning;
    STATUS = "source-status", Source, Warning;
    UNHEALTHY = "source-unhealthy", Source, Critical;
    STATISTICS_OFF = "iteration-statistics-off", Source, Warning;
    PERF_METRICS_OFF = "perf-metrics-off", Source, Info;
    REUSE_OFF = "block-reuse-off", Source, Info;
    SOCKET_MISSING = "socket-missing", Source, Warning;
}

/// The answers of one source.
#[derive(Debug, Clone, Default)]
pub struct SourceAnswer {
    /// The source as in `--source`, without options.
    pub target: String,
    /// The label `model` of its engine, if it is known.
    pub model: Option<String>,
    /// True if the server says that it is starting, or one of the exporters has an engine that is. Then this source may
    /// still load its model.
    pub starting: bool,
    /// Whether a request succeeded, or whether the socket exists.
    pub reached: Reached,
    pub version: Option<String>,
    /// The status of `/version`, if it is an error that does not mean that the path is missing.
    pub version_status: Option<u16>,
    /// The status of `/health`.
    pub health: Option<u16>,
    /// The text of `/prometheus/metrics`, or the status of the answer. Reading it removes no statistics.
    pub server_page: Option<Result<String, u16>>,
}

/// How a source answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reached {
    #[default]
    Yes,
    /// No connection, no answer in time, or a broken answer. The text says why.
    No(String),
    /// It was not asked, because a file in its options cannot be used. The text says why.
    NotAsked(String),
    /// A token is missing or wrong. The number is the HTTP status.
    Refused(u16),
    /// It is not trtllm-serve.
    Other,
    /// The ingest socket does not exist.
    NoSocket,
}

/// All findings about a source.
pub(super) fn judge(source: &SourceAnswer) -> Vec<Finding> {
    let model = source.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
    let about = |rule: &Rule| rule.about(one_line(&format!("{}{model}", source.target)));
    let mut found = Vec::new();
    found.extend(match &source.reached {
        Reached::No(why) if !source.starting => Some(about(&UNANSWERED).detail(&one_line(why))),
        Reached::NotAsked(why) => Some(about(&NOT_ASKED).detail(&one_line(why))),
        Reached::Refused(status) => Some(about(&REFUSED).with("status", f64::from(*status), Unit::Count, None)),
        Reached::Other => Some(about(&OTHER)),
        Reached::NoSocket => Some(about(&SOCKET_MISSING)),
        Reached::Yes | Reached::No(_) => None,
    });
    if let Some(status) = source.version_status.filter(|status| *status < 500) {
        found.push(about(&STATUS).with("status of /version", f64::from(status), Unit::Count, None));
    }
    // A server whose model loads may answer 503 at every path, and it has lost no engine.
    let is_unhealthy = |status: &u16| *status >= 500 && !(*status == 503 && source.starting);
    if let Some(status) = source.health.filter(is_unhealthy) {
        found.push(about(&UNHEALTHY).with("status of /health", f64::from(status), Unit::Count, None));
    }
    match &source.server_page {
        Some(Ok(text)) => {
            if let Some(finished) = finishes_without_iterations(text) {
                found.push(about(&STATISTICS_OFF).with("requests finished", finished, Unit::Count, None));
            }
            let is_off = |sample: &ParsedSample<'_>| label(sample, "enable_block_reuse").eq_ignore_ascii_case("false");
            if samples(text, "trtllm_kv_cache_config_info").any(|sample| is_off(&sample)) {
                found.push(about(&REUSE_OFF));
            }
        }
        Some(Err(404)) if source.version.as_deref().and_then(release).is_some_and(|release| release >= (1, 1)) => {
            found.push(about(&PERF_METRICS_OFF));
        }
        _ => {}
    }
    found
}

fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = ParsedSample<'a>> {
    let lines = text.lines().filter(move |line| line.starts_with(name));
    lines.filter_map(|line| ParsedSample::parse(line.trim_ascii())).filter(move |sample| sample.name == name)
}

fn label<'a>(sample: &'a ParsedSample<'_>, name: &str) -> &'a str {
    sample.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
}

/// The number of finished requests, if the server's page has finished requests but no iterations.
fn finishes_without_iterations(text: &str) -> Option<f64> {
    let finished: f64 = samples(text, "trtllm_request_success_total").map(|sample| sample.value).sum();
    // Releases that have this family also have the families of iterations, after the first iteration.
    let reports_iterations = samples(text, "trtllm_model_config_info").next().is_some();
    let has_iterations = samples(text, "trtllm_max_num_active_requests").next().is_some();
    (finished >= 1.0 && reports_iterations && !has_iterations).then_some(finished)
}

fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}
