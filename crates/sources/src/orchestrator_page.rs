//! Parses what the orchestrator of disaggregated serving answers: its Prometheus page and `/cluster_info`. These are
//! pure functions. They skip what they do not know, and bound their result, whatever the server sends.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::prometheus_text::{NotAPage, ParsedSample, family_names, for_each_sample, short};
use trtllm_records::orchestrator::{OrchestratorCount, OrchestratorCounter, OrchestratorTime, Side, WorkerCounts};

/// Limit of the series that are kept of a page. An orchestrator has about 250.
const MAX_SERIES: usize = 1024;

/// Parses `GET /prometheus/metrics` of an orchestrator. Its families have no labels and no common prefix. Series of one
/// family that differ in labels are added. Fails if the text is not a page, or has none of the orchestrator's families.
pub fn parse_orchestrator_page(page: &[u8]) -> Result<Vec<OrchestratorCount>, NotAPage> {
    let (mut counts, mut places) = (Vec::new(), HashMap::new());
    for_each_sample(page, |sample| {
        let Some((counter, value)) = counter(sample) else { return };
        match places.get(&counter) {
            Some(index) => {
                let count: &mut OrchestratorCount = &mut counts[*index];
                count.value = count.value.saturating_add(value);
            }
            None if counts.len() < MAX_SERIES => {
                places.insert(counter.clone(), counts.len());
                counts.push(OrchestratorCount { counter, value });
            }
            None => {}
        }
    })?;
    if counts.is_empty() { Err(NotAPage) } else { Ok(counts) }
}

/// The families of the page that are not read, for [`Batch::keys`](super::Batch::keys).
pub fn unread_families(page: &[u8]) -> BTreeSet<String> {
    let is_read = |name: &str| {
        let labels = vec![("le", "1".into())];
        counter(&ParsedSample { name, labels, value: 0.0 }).is_some()
    };
    let mut names = family_names(page);
    // `total_requests_total` is the sum of two families that are read.
    names.retain(|name| name != "total_requests_total" && !is_read(name) && !is_read(&format!("{name}_bucket")));
    names
}

fn counter(sample: &ParsedSample<'_>) -> Option<(OrchestratorCounter, u64)> {
    let value = sample.count(1.0)?;
    let counter = match sample.name {
        "stream_requests_total" => OrchestratorCounter::Streamed,
        "nonstream_requests_total" => OrchestratorCounter::Whole,
        "total_responses_total" => OrchestratorCounter::Responses,
        "validation_exceptions_total" => OrchestratorCounter::Invalid,
        "http_exceptions_total" => OrchestratorCounter::HttpErrors,
        "internal_errors_total" => OrchestratorCounter::InternalErrors,
        name => {
            let of_side = Side::ALL.into_iter().find_map(|side| Some((side, name.strip_prefix(side.prefix())?)));
            match of_side {
                Some((side, "total_requests_total")) => OrchestratorCounter::Sent(side),
                Some((side, "retry_requests_total")) => OrchestratorCounter::Retried(side),
                Some((side, "error_requests_total")) => OrchestratorCounter::Failed(side),
                Some((side, "completed_requests_total")) => OrchestratorCounter::Ended(side),
                _ => {
                    let (time, series) = time(name, of_side)?;
                    match series {
                        "_bucket" => OrchestratorCounter::Time(time, short(sample.label("le")?)),
                        "_sum" => return Some((OrchestratorCounter::TimeNanos(time), sample.count(1e9)?)),
                        _ => return None,
                    }
                }
            }
        }
    };
    Some((counter, value))
}

/// The histogram that a series belongs to, and the rest of its name: `_bucket`, `_sum` or `_count`.
fn time<'n>(name: &'n str, of_side: Option<(Side, &'n str)>) -> Option<(OrchestratorTime, &'n str)> {
    let Some((side, name)) = of_side else {
        return Some((OrchestratorTime::Queue, name.strip_prefix("queue_latency_seconds")?));
    };
    [
        (OrchestratorTime::FirstBytes(side), "first_token_latency_seconds"),
        (OrchestratorTime::BetweenReads(side), "per_token_latency_seconds"),
        (OrchestratorTime::Complete(side), "complete_latency_seconds"),
    ]
    .into_iter()
    .find_map(|(time, family)| Some((time, name.strip_prefix(family)?)))
}

/// The workers of an orchestrator, and how many workers it needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    pub workers: WorkerCounts,
    pub minimal: WorkerCounts,
}

/// Parses `GET /cluster_info`. `None` if the answer is not that of an orchestrator: the coordinator of several orchestrator
/// processes answers in MessagePack.
pub fn parse_cluster_info(body: &[u8]) -> Option<ClusterInfo> {
    #[derive(Deserialize)]
    struct Answer {
        current_workers: Option<Sides<Workers>>,
        minimal_instances: Option<Sides<u64>>,
    }
    #[derive(Deserialize)]
    struct Sides<T> {
        context_servers: Option<T>,
        generation_servers: Option<T>,
    }
    /// Only the number of workers is kept. A vector of a type without content needs no memory.
    type Workers = Vec<IgnoredAny>;

    fn counts<T>(sides: Option<Sides<T>>, count: fn(T) -> u64) -> WorkerCounts {
        sides.map_or_else(WorkerCounts::default, |of| WorkerCounts {
            context: of.context_servers.map(count),
            generation: of.generation_servers.map(count),
        })
    }
    let Answer { current_workers, minimal_instances } = serde_json::from_slice(body).ok()?;
    if current_workers.is_none() && minimal_instances.is_none() {
        return None;
    }
    Some(ClusterInfo {
        workers: counts(current_workers, |workers| workers.len() as u64),
        minimal: counts(minimal_instances, |number| number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../tests/fixtures/prometheus_disaggregated_SHAPE_2026H2.txt");

    fn value(counts: &[OrchestratorCount], counter: &OrchestratorCounter) -> Option<u64> {
        counts.iter().find(|count| count.counter == *counter).map(|count| count.value)
    }

    #[test]
    fn every_family_of_an_orchestrator_is_read() {
        use OrchestratorCounter::*;
        let counts = parse_orchestrator_page(PAGE.as_bytes()).unwrap();
        let (context, generation) = (Side::Context, Side::Generation);
        for (counter, expected) in [
            (Streamed, 90),
            (Whole, 10),
            (Responses, 97),
            (Invalid, 2),
            (HttpErrors, 3),
            (InternalErrors, 0),
            (Sent(context), 100),
            (Retried(context), 4),
            (Failed(context), 1),
            (Ended(context), 100),
            (Sent(generation), 99),
            (Retried(generation), 0),
            (Failed(generation), 2),
            (Ended(generation), 98),
            (Time(OrchestratorTime::Queue, "0.001".to_owned()), 60),
            (Time(OrchestratorTime::Queue, "+Inf".to_owned()), 100),
            (TimeNanos(OrchestratorTime::Queue), 250_000_000),
            (Time(OrchestratorTime::FirstBytes(generation), "0.5".to_owned()), 88),
            (Time(OrchestratorTime::BetweenReads(generation), "0.02".to_owned()), 9000),
            (TimeNanos(OrchestratorTime::Complete(context)), 40_000_000_000),
            (Time(OrchestratorTime::Complete(generation), "0.1".to_owned()), 0),
        ] {
            assert_eq!(value(&counts, &counter), Some(expected), "{counter:?}");
        }
        assert_eq!(value(&counts, &Sent(Side::Encoder)), None);
        // Six counters of the server, four of each of two sides, and seven histograms with their buckets and sums.
        assert_eq!(counts.len(), 6 + 2 * 4 + 5 * 24 + 2 * 23);
    }

    #[test]
    fn only_families_of_a_newer_orchestrator_are_not_read() {
        assert!(unread_families(PAGE.as_bytes()).is_empty());
        let newer = format!("{PAGE}# TYPE ctx_dreams_total counter\n# TYPE queue_latency_seconds_max gauge\n");
        let unread: Vec<String> = unread_families(newer.as_bytes()).into_iter().collect();
        assert_eq!(unread, ["ctx_dreams_total", "queue_latency_seconds_max"]);
    }

    #[test]
    fn series_with_labels_are_added_and_pages_of_others_are_refused() {
        let counts =
            parse_orchestrator_page(b"mme_total_requests_total{pid=\"1\"} 2\nmme_total_requests_total{pid=\"2\"} 3\n");
        assert_eq!(value(&counts.unwrap(), &OrchestratorCounter::Sent(Side::Encoder)), Some(5));
        let worker = include_bytes!("../../../tests/fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");
        for other in [&b""[..], b"{}", b"<html></html>", b"up 1\n", worker] {
            assert_eq!(parse_orchestrator_page(other), Err(NotAPage));
        }
    }

    #[test]
    fn a_page_cut_at_any_byte_does_no_harm_and_a_long_one_is_bounded() {
        for end in 0..PAGE.len() {
            let _ = parse_orchestrator_page(&PAGE.as_bytes()[..end]);
        }
        let many: String = (0..5000).map(|n| format!("queue_latency_seconds_bucket{{le=\"{n}\"}} 1\n")).collect();
        assert_eq!(parse_orchestrator_page(many.as_bytes()).unwrap().len(), MAX_SERIES);
        let long = format!("queue_latency_seconds_bucket{{le=\"{}\"}} 1\n", "1".repeat(5000));
        let OrchestratorCounter::Time(_, bound) = &parse_orchestrator_page(long.as_bytes()).unwrap()[0].counter else {
            panic!("another counter");
        };
        assert_eq!(bound.len(), 64);
    }

    #[test]
    fn workers_are_counted_and_not_named() {
        let body = br#"{"is_ready": true, "current_workers": {"context_servers": [{"host": "a", "port": 1}, "b:2"],
            "generation_servers": []}, "minimal_instances": {"context_servers": 2, "generation_servers": 1}}"#;
        let expected = ClusterInfo {
            workers: WorkerCounts { context: Some(2), generation: Some(0) },
            minimal: WorkerCounts { context: Some(2), generation: Some(1) },
        };
        assert_eq!(parse_cluster_info(body), Some(expected));
        let fixed = br#"{"current_workers": {"context_servers": ["a:1"], "generation_servers": ["b:2"]}, "minimal_instances": null}"#;
        assert_eq!(parse_cluster_info(fixed).unwrap().minimal, WorkerCounts::default());
        for end in 0..body.len() {
            assert_eq!(parse_cluster_info(&body[..end]), None);
        }
    }

    #[test]
    fn the_message_pack_of_a_coordinator_is_rejected() {
        // {"current_workers": {"context_servers": []}}
        let packed = b"\x81\xafcurrent_workers\x81\xafcontext_servers\x90";
        for other in [&packed[..], b"", b"{}", b"[]", br#"{"detail":"Not Found"}"#] {
            assert_eq!(parse_cluster_info(other), None);
        }
    }
}
