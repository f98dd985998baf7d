//! Turns the fuzzer's bytes into a session: the answers of one engine, poll after poll. An answer consists of real
//! records with some changed values, because random bytes rarely form a record.

use std::sync::OnceLock;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use serde_json::{Value, json};
use trtllm_records::Message;
use trtllm_sources::Batch;
use trtllm_sources::trtllm_json::{PublisherLine, parse_line, parse_perf_metrics, parse_records};

/// Limits of the polls in a session and the items in an answer. More would find nothing new and take longer.
const MAX_POLLS: usize = 24;
const MAX_ITEMS: usize = 6;

/// The result of one poll, and its time.
#[derive(Debug)]
pub struct Poll {
    /// Time since the previous poll.
    pub gap: Duration,
    /// Time of the wall clock. It does not depend on `gap`, because a wall clock can be set.
    pub unix_us: i64,
    pub answer: Answer,
}

/// The bytes that the source reads.
#[derive(Debug)]
pub enum Answer {
    Records { body: Vec<u8>, from_ring: bool },
    PerfMetrics(Vec<u8>),
    Lines(Vec<u8>),
    Process(u64),
    Failed,
}

impl Answer {
    /// Parses the answer as the source does. Returns false if the poll fails.
    pub fn parse(&self, batch: &mut Batch) -> bool {
        match self {
            Self::Records { body, from_ring } => {
                batch.from_ring = *from_ring;
                parse_records(body, batch).is_ok()
            }
            Self::PerfMetrics(body) => parse_perf_metrics(body, batch).is_ok(),
            Self::Lines(body) => {
                for line in body.split(|byte| *byte == b'\n') {
                    match parse_line(line) {
                        Ok(PublisherLine::Message(item)) => batch.push(item),
                        Ok(PublisherLine::Hello(hello)) => batch.messages.extend(hello.pid.map(Message::Process)),
                        Err(reason) => batch.reject(reason),
                    }
                }
                true
            }
            Self::Process(process) => {
                batch.messages.push(Message::Process(*process));
                true
            }
            Self::Failed => false,
        }
    }
}

/// Real items: one of each kind, and records of each backend and release that has a different shape.
struct Templates {
    records: Vec<Template>,
    requests: Vec<Template>,
}

struct Template {
    value: Value,
    /// JSON pointers of all members, at all depths.
    members: Vec<String>,
}

impl Template {
    fn new(value: Value) -> Self {
        let mut members = Vec::new();
        list_members(&value, &mut String::new(), &mut members);
        Self { value, members }
    }
}

fn list_members(value: &Value, path: &mut String, members: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            object.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(array) => array.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => return,
    };
    for (key, child) in children {
        let length = path.len();
        path.push('/');
        path.push_str(&key);
        members.push(path.clone());
        list_members(child, path, members);
        path.truncate(length);
    }
}

fn templates() -> &'static Templates {
    static TEMPLATES: OnceLock<Templates> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let payload = |text: &str| match serde_json::from_str::<Value>(text).unwrap()["payload"].take() {
            Value::Array(items) => items,
            other => panic!("{other}"),
        };
        let last = |text: &str| payload(text).pop().unwrap();
        let records = [
            last(include_str!("../../tests/fixtures/metrics_trt_v1.0.0rc4.json")),
            last(include_str!("../../tests/fixtures/metrics_record_SHAPE_2026H2.json")),
            last(include_str!("../../tests/fixtures/metrics_pytorch_v1.0.0rc4_PARTIAL.json")),
            last(include_str!("../../tests/fixtures/metrics_pytorch_docs_0.20.json")),
            last(include_str!("../../tests/fixtures/metrics_v2_cold_tiers_sampled.json")),
            last(include_str!("../../tests/fixtures/metrics_v2_shared_pools_host.json")),
            last(include_str!("../../tests/fixtures/metrics_v2_ssm.json")),
            // Request statistics may come without the other statistics of their iteration.
            json!({"iter": 42, "requestStats": [{"id": 7, "stage": "GENERATION_IN_PROGRESS", "scheduled": true, "paused": false,
                "contextPrefillPosition": 100, "numGeneratedTokens": 3, "avgNumDecodedTokensPerIter": 1.0,
                "allocTotalBlocksPerRequest": 4, "allocNewBlocksPerRequest": 1, "reusedBlocksPerRequest": 0,
                "missedBlocksPerRequest": 4}]}),
        ];
        let requests = payload(include_str!("../../tests/fixtures/perf_metrics_SHAPE.json"));
        let disaggregated = json!({"ctx_server": "http://a", "gen_server": "http://b", "disagg_server_arrival_time": 1000.0,
            "disagg_server_first_token_time": 1000.25, "ctx_perf_metrics": requests[0], "gen_perf_metrics": requests[1]});
        let ended = json!({"request_id": 5, "finish_reason": "stop", "prompt_tokens": 100, "output_tokens": 20,
            "perf_metrics": requests[0]["perf_metrics"]});
        Templates {
            records: records.into_iter().map(Template::new).collect(),
            requests: requests.into_iter().chain([disaggregated, ended]).map(Template::new).collect(),
        }
    })
}

/// Numbers that the engine raises from item to item.
#[derive(Debug)]
struct Numbers {
    iteration: i64,
    sequence: i64,
    request: i64,
}

/// The polls of the session in `data`.
pub fn polls(data: &mut Unstructured<'_>) -> Vec<Poll> {
    let mut numbers = Numbers { iteration: 60, sequence: 40, request: 1 };
    let mut polls = Vec::new();
    while polls.len() < MAX_POLLS && !data.is_empty() {
        match poll(data, &mut numbers) {
            Ok(poll) => polls.push(poll),
            Err(_) => break,
        }
    }
    polls
}

fn poll(data: &mut Unstructured<'_>, numbers: &mut Numbers) -> Result<Poll> {
    let templates = templates();
    let answer = match data.arbitrary::<u8>()? % 12 {
        0 => Answer::PerfMetrics(array(data, &templates.requests, "request_id", numbers)?),
        2 => Answer::Lines(lines(data, numbers)?),
        3 => Answer::Process(data.arbitrary::<u8>()?.into()),
        4 => Answer::Failed,
        _ => Answer::Records { body: array(data, &templates.records, "iter", numbers)?, from_ring: data.arbitrary()? },
    };
    let gap = *data.choose(&[100, 0, 1, 1000, 20_000, 90_000_000])?;
    let unix_us = *data.choose(&[1_753_462_474_000_000, 1_753_462_475_000_000, 0, 253_402_300_799_000_000])?;
    Ok(Poll { gap: Duration::from_millis(gap), unix_us, answer })
}

fn array(data: &mut Unstructured<'_>, templates: &[Template], number: &str, numbers: &mut Numbers) -> Result<Vec<u8>> {
    let mut items = Vec::new();
    for _ in 0..data.int_in_range(0..=MAX_ITEMS)? {
        items.push(item(data, templates, number, numbers)?);
    }
    let mut body = Value::Array(items).to_string().into_bytes();
    cut(data, &mut body)?;
    Ok(body)
}

fn lines(data: &mut Unstructured<'_>, numbers: &mut Numbers) -> Result<Vec<u8>> {
    let templates = templates();
    let mut body = Vec::new();
    for _ in 0..data.int_in_range(1..=MAX_ITEMS)? {
        let line = match data.arbitrary::<u8>()? % 4 {
            0 => item(data, &templates.requests, "request_id", numbers)?,
            1 => json!({"hello": {"model": "m", "pid": data.arbitrary::<u8>()?}}),
            _ => item(data, &templates.records, "iter", numbers)?,
        };
        body.extend(line.to_string().into_bytes());
        body.push(b'\n');
    }
    cut(data, &mut body)?;
    Ok(body)
}

/// Truncates one answer in eight.
fn cut(data: &mut Unstructured<'_>, body: &mut Vec<u8>) -> Result<()> {
    if data.ratio(1, 8)? {
        body.truncate(data.int_in_range(0..=body.len())?);
    }
    Ok(())
}

fn item(data: &mut Unstructured<'_>, templates: &[Template], number: &str, numbers: &mut Numbers) -> Result<Value> {
    let template = data.choose(templates)?;
    let mut item = template.value.clone();
    let step = *data.choose(&[1, 1, 1, 1, 0, 2, 3, 1000, -1, -50])?;
    let next = match number {
        "iter" => {
            if item.get("statsSequence").is_some() {
                numbers.sequence = numbers.sequence.saturating_add(step);
                item["statsSequence"] = numbers.sequence.into();
            }
            &mut numbers.iteration
        }
        _ => &mut numbers.request,
    };
    *next = next.saturating_add(step);
    item[number] = (*next).into();
    for _ in 0..data.int_in_range(0..=4)? {
        let member = data.choose(&template.members)?;
        let new = value(data)?;
        if let Some(old) = item.pointer_mut(member) {
            *old = new;
        }
    }
    Ok(item)
}

/// A small value, a value at a limit of its type, or a value at a limit of what the exporter accepts.
fn value(data: &mut Unstructured<'_>) -> Result<Value> {
    const WHOLE: [i64; 16] = [
        0,
        1,
        2,
        -1,
        1 << 31,
        -(1 << 31),
        (1 << 40) - 1,
        1 << 40,
        1 << 53,
        (1 << 53) + 1,
        (1 << 60) - 1,
        1 << 60,
        i64::MAX,
        i64::MIN,
        4096,
        1_000_000,
    ];
    const FLOATS: [f64; 12] = [0.0, -0.0, 0.5, 1e-9, 1e-300, 1e11, 1e12, 1e15, 1e300, f64::MAX, -1.5, 0.1];
    Ok(match data.arbitrary::<u8>()? % 16 {
        0..=4 => data.arbitrary::<u8>()?.into(),
        5 | 6 => data.arbitrary::<u32>()?.into(),
        7 | 8 => (*data.choose(&WHOLE)?).into(),
        9 => u64::MAX.into(),
        10 | 11 => (*data.choose(&FLOATS)?).into(),
        12 => Value::Null,
        13 => {
            (*data.choose(&["", "07-25-2025 16:54:34.140189", "2026-01-01T00:00:00Z", "COMPLETE", "gpu", "é\"\\\n"])?)
                .into()
        }
        14 => data.arbitrary::<bool>()?.into(),
        _ => json!([]),
    })
}
