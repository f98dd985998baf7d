//! The exact bytes of the page, which scripts may match, and the options of a request: groups, the gateway's page,
//! formats, compression. The module `formats` tests the page with the parsers of other programs.

use std::collections::{BTreeMap, BTreeSet};

use trtllm_page::metrics::catalog::{CATALOG, Group};

use crate::support::daemon::Daemon;
use crate::support::http::{self, request};
use crate::support::page::{Page, name_of};
use crate::support::sessions::{DETERMINISTIC, recordings, replayed, two_engines, two_engines_and_two_gpus};

const OPENMETRICS: &[(&str, &str)] = &[("Accept", "application/openmetrics-text; version=1.0.0")];
const PROTOBUF: &[(&str, &str)] =
    &[("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")];

/// The label names of a series as it is written on the page, in the same order.
fn label_names(series: &str) -> Vec<&str> {
    let Some((_, mut rest)) = series.split_once('{') else { return Vec::new() };
    let mut names = Vec::new();
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name);
        let mut escaped = false;
        let end = value.bytes().position(|byte| {
            let end = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            end
        });
        rest = value[end.unwrap() + 1..].trim_start_matches(',');
    }
    assert_eq!(rest, "}", "{series}");
    names
}

#[test]
fn labels_are_sorted_with_le_last_and_numbers_have_no_exponent() {
    let (daemon, _gpus) = two_engines_and_two_gpus(&[]);
    let openmetrics = request("GET", &daemon.address, "/metrics", OPENMETRICS, b"").unwrap();
    assert!(openmetrics.text().ends_with("\n# EOF\n"));
    let legacy = ["nv_trt_llm_disaggregated_serving_metrics", "nv_energy_consumption"];
    for text in [&daemon.text("/metrics"), openmetrics.text()] {
        assert!(text.ends_with('\n') && !text.contains('\r'));
        let page = Page::parse(text);
        let mut seen = BTreeSet::new();
        for (series, value) in &page.series {
            assert!(seen.insert(series), "{series} is duplicate");
            assert!(value.is_finite(), "{series} is {value}");
            let mut names = label_names(series);
            assert_eq!(names.contains(&"le"), name_of(series).ends_with("_bucket"), "{series}");
            if names.last() == Some(&"le") {
                names.pop();
            }
            assert!(names.is_sorted(), "{series}");
            assert!(!names.contains(&"le") && !names.contains(&"gpu"), "{series}");
            assert!(!name_of(series).ends_with("_created"), "{series}");
        }
        for name in legacy {
            assert!(page.series.iter().any(|(series, _)| name_of(series) == name), "{name}");
            let twin = format!("{name}_total");
            assert!(!page.series.iter().any(|(series, _)| name_of(series) == twin), "{twin}");
        }
        let families: BTreeSet<&String> = page.families.iter().map(|(name, _)| name).collect();
        assert_eq!(families.len(), page.families.len(), "a family is duplicate");
    }
    // Scripts that read Triton's page match digits with at most one decimal point, without exponent or sign.
    for line in daemon.text("/metrics").lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
    }
}

#[test]
fn the_gateway_page_has_five_series_per_engine_and_name_set_in_configured_order() {
    let daemon = two_engines(&[]);
    let text = daemon.text("/metrics/gateway");
    let page = Page::parse(&text);
    let series: Vec<&str> = page.series.iter().map(|(series, _)| series.as_str()).collect();
    let first = |name: &str, label: &str, kind: &str| match label < "model" {
        true => format!(r#"{name}{{{label}="{kind}",model="tensorrt_llm",version="1"}}"#),
        false => format!(r#"{name}{{model="tensorrt_llm",{label}="{kind}",version="1"}}"#),
    };
    let odd = |name: &str, label: &str, kind: &str| {
        let model = r#"model="odd \"name\" \\ é {a=1}, # b""#;
        let rest = r#"version="2,\"3\"",zone="eu \"1\"""#;
        match label < "model" {
            true => format!(r#"{name}{{{label}="{kind}",{model},{rest}}}"#),
            false => format!(r#"{name}{{{model},{label}="{kind}",{rest}}}"#),
        }
    };
    let (requests, blocks) = ("nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics");
    let (by_type, by_block) = (["scheduled", "waiting"], ["max", "tokens_per", "fraction"]);
    let mut wanted = Vec::new();
    wanted.extend(by_type.map(|kind| first(requests, "request_type", kind)));
    wanted.extend(by_type.map(|kind| odd(requests, "request_type", kind)));
    wanted.extend(by_block.map(|kind| first(blocks, "kv_cache_block_type", kind)));
    wanted.extend(by_block.map(|kind| odd(blocks, "kv_cache_block_type", kind)));
    let of_trtllm_serve = [
        ("num_requests_running", requests, "request_type=scheduled"),
        ("num_requests_waiting", requests, "request_type=waiting"),
        ("kv_cache_utilization", blocks, "kv_cache_block_type=fraction"),
        ("kv_cache_max_blocks", blocks, "kv_cache_block_type=max"),
        ("kv_cache_tokens_per_block", blocks, "kv_cache_block_type=tokens_per"),
    ];
    for (name, family, label) in of_trtllm_serve {
        let name = format!("trtllm_{name}");
        for model in ["tensorrt_llm", r#"odd \"name\" \\ é {a=1}, # b"#] {
            wanted.push(series.iter().find(|s| s.starts_with(&name) && s.contains(model)).unwrap().to_string());
            let same = page.get(family, &[label, &format!("model={model}")]);
            assert_eq!(page.get(&name, &[&format!("model_name={model}")]), same, "{name}");
        }
    }
    assert_eq!(series, wanted);
    assert!(page.families.iter().all(|(_, kind)| kind == "gauge") && page.families.len() == 2 + of_trtllm_serve.len());
    let fraction = page.get(blocks, &["kv_cache_block_type=fraction", "model=tensorrt_llm"]);
    assert!((0.0..=1.0).contains(&fraction));
    // The values are those of the full page.
    let whole: BTreeMap<String, f64> = daemon.page().series.into_iter().collect();
    for (series, value) in page.series.iter().filter(|(series, _)| series.starts_with("nv_")) {
        assert_eq!(whole.get(series), Some(value), "{series}");
    }
}

#[test]
fn head_returns_the_headers_of_get_without_a_body() {
    let daemon = two_engines(&[]);
    for headers in [&[][..], OPENMETRICS, PROTOBUF, &[("Accept-Encoding", "gzip")]] {
        for path in [DETERMINISTIC, "/metrics/gateway", "/healthz", "/readyz"] {
            let get = request("GET", &daemon.address, path, headers, b"").unwrap();
            let head = request("HEAD", &daemon.address, path, headers, b"").unwrap();
            assert_eq!(head.status, 200);
            assert_eq!(head.body, b"", "{path}");
            let but_date = |answer: &http::Response| {
                answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect::<BTreeSet<_>>()
            };
            assert_eq!(but_date(&head), but_date(&get), "{path}");
            assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()), "{path}");
        }
    }
}

/// The families on a page that are in the catalog.
fn families(page: &Page) -> BTreeSet<&'static str> {
    let catalog = |(name, _): &(String, String)| {
        let metric = CATALOG.iter().find(|metric| metric.name == name);
        metric.unwrap_or_else(|| panic!("{name} is not in the catalog")).name
    };
    page.families.iter().map(catalog).collect()
}

#[test]
fn collect_returns_only_the_requested_groups() {
    let (daemon, _gpus) = two_engines_and_two_gpus(&[]);
    let whole = families(&daemon.page());
    // A compatibility set may use the name of an existing family with other labels. Without the set, the page has only
    // the existing family.
    let group_of = |name: &str| CATALOG.iter().find(|metric| metric.name == name).map(|metric| metric.group);
    let of = |groups: &[Group]| {
        let wanted = |name: &&&str| group_of(name).is_some_and(|group| groups.contains(&group));
        whole.iter().filter(wanted).copied().collect::<BTreeSet<_>>()
    };
    for group in Group::ALL {
        let page = Page::parse(&daemon.text(&format!("/metrics?collect[]={}", group.name())));
        assert_eq!(families(&page), of(&[group]), "{}", group.name());
        assert_eq!(page.series.is_empty(), group == Group::Compat);
    }
    // Browsers and Prometheus escape the brackets.
    let page = Page::parse(&daemon.text("/metrics?collect%5B%5D=gpu&collect%5B%5D=triton&collect[]=gpu"));
    assert_eq!(families(&page), of(&[Group::Gpu, Group::Triton]));
    let all: Vec<String> = Group::ALL.iter().map(|group| format!("collect[]={}", group.name())).collect();
    assert_eq!(families(&Page::parse(&daemon.text(&format!("/metrics?{}", all.join("&"))))), whole);
    // Other parameters are ignored.
    assert_eq!(families(&Page::parse(&daemon.text("/metrics?target=x"))), whole);
}

#[test]
fn an_unknown_group_is_400_and_lists_the_valid_ones() {
    let daemon = two_engines(&[]);
    for query in ["collect[]=tritn", "collect[]=", "collect[]=triton&collect[]=x", "collect%5B%5D=Triton"] {
        let answer = daemon.get(&format!("/metrics?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        for group in Group::ALL {
            assert!(answer.text().contains(group.name()), "{query}: {}", answer.text());
        }
    }
}

#[test]
fn two_daemons_that_replay_one_file_and_two_scrapes_of_one_serve_the_same_bytes() {
    let (_, cpp, _) = recordings();
    let source = format!("replay:{}?speed=max", cpp.display());
    let [first, second] = [(); 2].map(|()| replayed(Daemon::start(&["--source", &source])));
    for path in [DETERMINISTIC, "/metrics?collect[]=triton", "/metrics/gateway"] {
        for headers in [&[][..], OPENMETRICS, PROTOBUF, &[("Accept-Encoding", "gzip")], &[("Accept-Encoding", "zstd")]]
        {
            let body = |daemon: &Daemon| request("GET", &daemon.address, path, headers, b"").unwrap().body;
            let once = body(&first);
            assert!(once.len() > 100);
            assert!(once == body(&second), "{path} {headers:?}: two daemons differ");
            assert!(once == body(&first), "{path} {headers:?}: two scrapes differ");
        }
    }
    let page = Page::parse(&first.text(DETERMINISTIC));
    assert!(page.count("nv_trt_llm_iterations_total", &[]) >= 999, "the replay is not empty");
}
