//! Parses trtllm-serve's own Prometheus page: the `trtllm_*` families with numbers that the JSON lacks. These are pure
//! functions. They skip invalid lines, and bound their result, whatever the server sends. A general parser would keep every series.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::{ConfigSection, RequestHistogram, ServerCount, ServerCounter, ServerMetrics};

/// Longest page, in bytes.
pub const MAX_PAGE: usize = 4 << 20;
/// Limit of the series that are kept of a page. A server has a few hundred.
const MAX_SERIES: usize = 4096;
/// Limit of the family names that are collected. A server has less than a hundred.
const MAX_FAMILIES: usize = 512;
/// Limit of the labels of a series.
const MAX_LABELS: usize = 32;
/// Limit of the characters of a name or value.
const MAX_TEXT: usize = 64;
/// A larger value is not a count.
const MAX_COUNT: f64 = (1_u64 << 62) as f64;

/// The text has lines, but no valid series. An empty text is a valid page: the server has not observed anything yet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no line is a Prometheus series")]
pub struct NotAPage;

/// Parses `GET /prometheus/metrics`. Fails if the text has lines, and none is valid.
pub fn parse_server_metrics(page: &[u8]) -> Result<ServerMetrics, NotAPage> {
    let (mut metrics, mut batches) = (ServerMetrics::default(), BTreeMap::new());
    for_each_sample(page, |sample| match sample.name {
        "trtllm_scheduled_batch_size" | "trtllm_inflight_batch_size" => note_batch(&mut batches, sample),
        _ => add(&mut metrics, sample),
    })?;
    metrics.scheduled_batch_size = batches.into_values().map(|(_, size)| size).reduce(u64::saturating_add);
    Ok(metrics)
}

/// Notes the batch of a rank by its process, under the family's current or former name. The series of a process that has ended stays on
/// the page, so the newest process of a rank counts (upstream issue 19418).
fn note_batch(batches: &mut BTreeMap<String, (u64, u64)>, sample: &ParsedSample<'_>) {
    let Some(size) = sample.count(1.0) else { return };
    let pid = sample.label("pid");
    let process = pid.and_then(|pid| pid.parse().ok()).unwrap_or(0);
    // Without a rank, each process has its own.
    let rank = sample.label("rank").or(pid).map(short).unwrap_or_default();
    if batches.len() < MAX_SERIES || batches.contains_key(&rank) {
        let newest = batches.entry(rank).or_insert((process, size));
        *newest = (*newest).max((process, size));
    }
}

/// Calls `add` with each valid line.
pub(super) fn for_each_sample(page: &[u8], mut add: impl FnMut(&ParsedSample<'_>)) -> Result<(), NotAPage> {
    let (mut valid, mut invalid) = (false, page.len() > MAX_PAGE);
    for line in page[..page.len().min(MAX_PAGE)].split(|byte| *byte == b'\n') {
        let text = std::str::from_utf8(line).map(str::trim_ascii);
        if matches!(text, Ok("")) || line.starts_with(b"#") {
            continue;
        }
        match text.ok().and_then(ParsedSample::parse) {
            Some(sample) => {
                valid = true;
                add(&sample);
            }
            None => invalid = true,
        }
    }
    if invalid && !valid { Err(NotAPage) } else { Ok(()) }
}

/// The names of the families that the page declares, for [`Batch::keys`](super::Batch::keys).
pub(super) fn family_names(page: &[u8]) -> BTreeSet<String> {
    let lines = page[..page.len().min(MAX_PAGE)].split(|byte| *byte == b'\n');
    let declared = lines.filter_map(|line| std::str::from_utf8(line.strip_prefix(b"# TYPE ")?).ok()?.split(' ').next());
    // The Python client declares the time of each counter's creation as a family of its own.
    let names = declared.map(|name| name.strip_suffix("_created").unwrap_or(name)).filter(|name| is_name(name));
    names.filter(|name| name.len() <= MAX_TEXT).take(MAX_FAMILIES).map(str::to_owned).collect()
}

fn add(metrics: &mut ServerMetrics, sample: &ParsedSample<'_>) {
    // Up to release 1.2, names have no prefix. The label tells them from those of other servers.
    let bare = || sample.label("engine_type").map(|_| sample.name);
    let Some(name) = sample.name.strip_prefix("trtllm_").or_else(bare) else { return };
    if let Some(section) = config_section(name) {
        metrics.config.entry(section).or_insert_with(|| sample.configuration());
        return;
    }
    let Some(value) = sample.count(1.0) else { return };
    let of = |label: &str| sample.label(label).map(short);
    let (counter, value) = match name {
        "request_success_total" => {
            (sample.label("finished_reason").map(|reason| ServerCounter::Finished(FinishReason::of(reason))), value)
        }
        "request_error_total" => (of("http_code").map(ServerCounter::Errors), value),
        "prompt_tokens_total" => (Some(ServerCounter::PromptTokens), value),
        "generation_tokens_total" => (Some(ServerCounter::GenerationTokens), value),
        "prompt_cached_tokens_total" => (Some(ServerCounter::CachedTokens), value),
        "spec_decode_drafted_tokens_total" => (of("token_position").map(ServerCounter::DraftedTokens), value),
        "spec_decode_accepted_tokens_total" => (of("token_position").map(ServerCounter::AcceptedTokens), value),
        _ => match histogram(name) {
            Some((of_requests, "_bucket")) => {
                (of("le").map(|bound| ServerCounter::HistogramBucket(of_requests, bound)), value)
            }
            Some((of_requests, "_sum")) => match sample.count(of_requests.parts()) {
                Some(parts) => (Some(ServerCounter::HistogramSum(of_requests)), parts),
                None => return,
            },
            _ => return,
        },
    };
    if let Some(counter) = counter
        && metrics.counts.len() < MAX_SERIES
    {
        metrics.counts.push(ServerCount { counter, series: sample.series(), value });
    }
}

fn config_section(name: &str) -> Option<ConfigSection> {
    Some(match name {
        "model_config_info" => ConfigSection::Model,
        "parallel_config_info" => ConfigSection::Parallel,
        "speculative_config_info" => ConfigSection::Speculative,
        "kv_cache_config_info" => ConfigSection::KvCache,
        _ => return None,
    })
}

/// The histogram that a series belongs to, and the rest of its name: `_bucket`, `_sum`, `_count` or `_created`.
fn histogram(name: &str) -> Option<(RequestHistogram, &str)> {
    RequestHistogram::ALL
        .into_iter()
        .find_map(|of_requests| Some((of_requests, name.strip_prefix(of_requests.name())?)))
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// One line: `name{label="value",…} value [timestamp]`.
#[derive(Debug)]
pub struct ParsedSample<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    pub value: f64,
}

impl<'a> ParsedSample<'a> {
    /// `None` if the line is not valid.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(|c: char| c == '{' || c.is_ascii_whitespace())?);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut fields = rest.split_ascii_whitespace();
        let value = fields.next()?.parse().ok()?;
        let timestamp = fields.next().is_none_or(|time| time.parse::<i64>().is_ok());
        (is_name(name) && timestamp && fields.next().is_none()).then_some(Self { name, labels, value })
    }

    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_ref())
    }

    /// The value in another unit, as a whole number.
    pub(super) fn count(&self, factor: f64) -> Option<u64> {
        let value = (self.value * factor).round();
        (0.0..=MAX_COUNT).contains(&value).then_some(value as u64)
    }

    /// A hash of the labels. The bound of a bucket is left out, because the buckets of a histogram belong together.
    fn series(&self) -> u64 {
        let labels: Vec<_> = self.labels.iter().filter(|(label, _)| *label != "le").collect();
        BuildHasherDefault::<DefaultHasher>::new().hash_one(labels)
    }

    /// The labels without those that every series of the server has.
    fn configuration(&self) -> Vec<(String, String)> {
        let own = |label: &str| {
            !matches!(label, "model_name" | "engine_type" | "pid") && label.len() <= MAX_TEXT && !is_reserved(label)
        };
        let labels = self.labels.iter().filter(|(label, _)| own(label));
        labels.map(|(label, value)| ((*label).to_owned(), short(value))).collect()
    }
}

type LabelsAndRest<'a> = (Vec<(&'a str, Cow<'a, str>)>, &'a str);

/// Labels up to the closing brace, and the text after it.
fn labels(mut rest: &str) -> Option<LabelsAndRest<'_>> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        // The exporter's own page shows the labels of a configuration, so they must be valid there, too.
        let repeated = labels.iter().any(|(other, _)| *other == name);
        if !is_name(name) || name.contains(':') || repeated || labels.len() == MAX_LABELS {
            return None;
        }
        labels.push((name, value));
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// A label value up to its closing quote, and the text after it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut unescaped = String::new();
    let mut copied = 0;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' if copied == 0 => return Some((Cow::Borrowed(&text[..at]), &text[at + 1..])),
            '"' => return Some((Cow::Owned(unescaped + &text[copied..at]), &text[at + 1..])),
            '\\' => {
                unescaped.push_str(&text[copied..at]);
                unescaped.push(match characters.next()?.1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    _ => return None,
                });
                copied = at + 2;
            }
            _ => {}
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
    letters && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Labels with a meaning in Prometheus, which rejects a whole page if a series has a second `__name__`.
fn is_reserved(label: &str) -> bool {
    label.starts_with("__") || matches!(label, "le" | "quantile")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../tests/fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");

    fn parse(page: &str) -> ServerMetrics {
        parse_server_metrics(page.as_bytes()).unwrap()
    }

    /// The values of one counter's series.
    fn values(metrics: &ServerMetrics, counter: &ServerCounter) -> Vec<u64> {
        metrics.counts.iter().filter(|count| count.counter == *counter).map(|count| count.value).collect()
    }

    #[test]
    fn a_request_that_a_context_server_hands_on_has_ended_well_and_an_unknown_reason_is_unknown() {
        let page = |reason: &str| {
            parse(&format!(
                "# TYPE trtllm_request_success_total counter\ntrtllm_request_success_total{{finished_reason=\"{reason}\"}} 3.0\n"
            ))
        };
        assert_eq!(values(&page("not_finished"), &ServerCounter::Finished(FinishReason::Length)), [3]);
        assert_eq!(values(&page("length"), &ServerCounter::Finished(FinishReason::Length)), [3]);
        assert_eq!(values(&page("moved"), &ServerCounter::Finished(FinishReason::Other)), [3]);
    }

    #[test]
    fn the_families_that_the_json_lacks_are_read() {
        let metrics = parse(PAGE);
        for (counter, value) in [
            (ServerCounter::Finished(FinishReason::Stop), 7),
            (ServerCounter::Finished(FinishReason::Cancelled), 1),
            (ServerCounter::PromptTokens, 1000),
            (ServerCounter::GenerationTokens, 500),
            (ServerCounter::CachedTokens, 128),
            (ServerCounter::HistogramBucket(RequestHistogram::CachedTokens, "64.0".to_owned()), 8),
            (ServerCounter::HistogramSum(RequestHistogram::CachedTokens), 128),
            (ServerCounter::Errors("400".to_owned()), 2),
            (ServerCounter::DraftedTokens("1".to_owned()), 8),
            (ServerCounter::AcceptedTokens("1".to_owned()), 3),
            (ServerCounter::HistogramBucket(RequestHistogram::PerOutputToken, "0.025".to_owned()), 3),
            (ServerCounter::HistogramBucket(RequestHistogram::PerOutputToken, "+Inf".to_owned()), 5),
            (ServerCounter::HistogramSum(RequestHistogram::PerOutputToken), 100_078_000_000),
        ] {
            assert_eq!(values(&metrics, &counter), [value], "{counter:?}");
        }
        // The sum of both ranks.
        assert_eq!(metrics.scheduled_batch_size, Some(7));
        assert_eq!(metrics.counts.len(), 3 + 3 + 1 + 4 + 20 + 1 + 10 + 1);
    }

    #[test]
    fn names_without_a_prefix_are_those_of_old_releases_only_with_their_label() {
        let page = include_str!("../../../tests/fixtures/prometheus_v1.1_aibrix2004.txt");
        let (metrics, sum) = (parse(page), ServerCounter::HistogramSum(RequestHistogram::EndToEnd));
        assert_eq!(values(&metrics, &sum), [3_487_823_999]);
        let other = page.replace("engine_type=\"undefined\",", "");
        assert!(parse(&other).counts.is_empty());
    }

    #[test]
    fn the_newest_process_of_a_rank_tells_its_batch_under_either_name() {
        let of = |page: &str| parse(page).scheduled_batch_size;
        let dead = "trtllm_scheduled_batch_size{pid=\"310\",rank=\"0\"} 8\n";
        let page = format!(
            "{dead}trtllm_scheduled_batch_size{{pid=\"4021\",rank=\"0\"}} 0\ntrtllm_scheduled_batch_size{{pid=\"4022\",rank=\"1\"}} 2\n"
        );
        assert_eq!((of(dead), of(&page)), (Some(8), Some(2)));
        assert_eq!(of(&page.replace("scheduled", "inflight")), Some(2));
        assert_eq!(of("trtllm_inflight_batch_size{pid=\"1\"} 3\ntrtllm_inflight_batch_size{pid=\"2\"} 4\n"), Some(7));
        assert_eq!(of("trtllm_request_error_total{http_code=\"500\"} 1"), None);
    }

    #[test]
    fn a_configuration_keeps_its_own_labels_and_their_escaped_values() {
        let config = parse(PAGE).config;
        let model = &config[&ConfigSection::Model];
        let names: Vec<&str> = model.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["dtype", "gpu_type", "max_model_len", "model", "quantization", "served_model_name"]);
        assert_eq!(model[3].1, r#"/models/"llama"\8b"#);
        assert_eq!((config.len(), config[&ConfigSection::Parallel].len()), (3, 3));
        let long =
            format!("trtllm_model_config_info{{a=\"{}\",{}=\"b\",c=\"é\\n\"}} 1", "é".repeat(99), "n".repeat(99));
        let cut = [("a".to_owned(), "é".repeat(64)), ("c".to_owned(), "é\n".to_owned())];
        assert_eq!(parse(&long).config[&ConfigSection::Model], cut);
    }

    #[test]
    fn a_configuration_with_a_reserved_label_does_not_make_our_page_invalid() {
        let config = parse(r#"trtllm_model_config_info{__name__="up",le="1",quantile="0.5",dtype="auto"} 1"#).config;
        assert_eq!(config[&ConfigSection::Model], [("dtype".to_owned(), "auto".to_owned())]);
    }

    #[test]
    fn series_of_several_processes_are_kept_apart() {
        let metrics = parse(
            "trtllm_prompt_tokens_total{pid=\"1\"} 5\ntrtllm_prompt_tokens_total{pid=\"2\"} 7 1700000000000\r\n\
             trtllm_prompt_tokens_total 1e3\n",
        );
        assert_eq!(values(&metrics, &ServerCounter::PromptTokens), [5, 7, 1000]);
        let series: Vec<u64> = metrics.counts.iter().map(|count| count.series).collect();
        assert!(series[0] != series[1] && series[1] != series[2]);
    }

    #[test]
    fn lines_that_are_not_valid_are_skipped() {
        for line in [
            "trtllm_prompt_tokens_total",
            "trtllm_prompt_tokens_total{",
            "trtllm_prompt_tokens_total{} ",
            "trtllm_prompt_tokens_total{} five",
            "trtllm_prompt_tokens_total{a=\"1\" 5",
            "trtllm_prompt_tokens_total{a=\"1\"b=\"2\"} 5",
            "trtllm_prompt_tokens_total{a=\"\\x\"} 5",
            "trtllm_prompt_tokens_total{1a=\"1\"} 5",
            "trtllm_prompt_tokens_total{=\"1\"} 5",
            "trtllm_prompt_tokens_total{a:b=\"1\"} 5",
            "trtllm_prompt_tokens_total{a=\"1\",a=\"2\"} 5",
            "trtllm_prompt_tokens_total 5 6 7",
            "trtllm_prompt_tokens_total 5 soon",
            "<html>trtllm_prompt_tokens_total 5</html>",
            "{\"trtllm_prompt_tokens_total\": 5}",
        ] {
            assert_eq!(parse_server_metrics(line.as_bytes()), Err(NotAPage), "{line}");
            assert_eq!(parse(&format!("{line}\ntrtllm_prompt_tokens_total 8")).counts.len(), 1, "{line}");
        }
        for value in ["NaN", "+Inf", "-1", "1e300"] {
            assert!(parse(&format!("trtllm_prompt_tokens_total {value}")).counts.is_empty(), "{value}");
        }
        assert_eq!(parse_server_metrics(b"up 1\n\xff\xfe 5\ntrtllm_prompt_tokens_total 8\n").unwrap().counts.len(), 1);
        for empty in ["", "\n\n", "# HELP a b\n"] {
            assert!(parse(empty).is_empty());
        }
    }

    #[test]
    fn the_names_of_families_are_those_that_the_page_declares() {
        let long = "n".repeat(MAX_TEXT + 1);
        let page = format!(
            "# HELP a x\n# TYPE a counter\na 1\n# TYPE b histogram\nb_bucket{{le=\"1\"}} 1\n# TYPE a_created gauge\n\
             # TYPE {long} gauge\n# TYPE 9 gauge\n# TYPE \n# TYPE"
        );
        assert_eq!(family_names(page.as_bytes()).into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(family_names(PAGE.as_bytes()).len(), 14);
        let many: String = (0..5000).map(|n| format!("# TYPE n{n} gauge\n")).collect();
        assert_eq!(family_names(many.as_bytes()).len(), MAX_FAMILIES);
    }

    #[test]
    fn a_page_cut_at_any_byte_does_no_harm() {
        for end in 0..PAGE.len() {
            let _ = parse_server_metrics(&PAGE.as_bytes()[..end]);
            let _ = family_names(&PAGE.as_bytes()[..end]);
        }
    }

    #[test]
    fn the_result_is_bounded() {
        let many: String =
            (0..20_000).map(|n| format!("trtllm_request_error_total{{http_code=\"{n}\"}} 1\n")).collect();
        assert_eq!(parse(&many).counts.len(), MAX_SERIES);
        let labels: String = (0..100).map(|n| format!("l{n}=\"1\",")).collect();
        assert_eq!(parse_server_metrics(format!("trtllm_model_config_info{{{labels}}} 1").as_bytes()), Err(NotAPage));
        assert!(parse(&format!("up 1\n{}", "x".repeat(2 * MAX_PAGE))).is_empty());
    }
}
