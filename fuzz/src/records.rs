//! Parses and folds answers of trtllm-serve to `GET /metrics` and `GET /perf_metrics`, lines of the ingest socket, and
//! iteration logs. Input is used as an answer if it begins with `[`, as lines if it begins with `{`, as a log if it
//! begins with `i`. Other input describes a session.

use arbitrary::Unstructured;
use serde::de::IgnoredAny;
use trtllm_page::exposition::negotiate::Format;
use trtllm_records::Message;
use trtllm_records::{RejectCounts, RequestStats, RequestStatsPerIteration};
use trtllm_sources::Batch;
use trtllm_sources::iteration_log::LoggedMessages;
use trtllm_sources::trtllm_json::{
    ArrayPosition, ParseError, PublisherLine, StatisticsArray, parse_line, parse_perf_metrics, parse_records,
};

use super::fold::{Fold, engine};
use super::page_text;
use super::session::{Answer, polls};

pub fn run(data: &[u8]) {
    let mut fold = Fold::new(engine());
    match data.first() {
        Some(b'[') => {
            check_array(data);
            fold.poll_with(|batch| parse_records(data, batch).is_ok());
            fold.poll_with(|batch| parse_perf_metrics(data, batch).is_ok());
        }
        Some(b'{') => {
            data.split(|byte| *byte == b'\n').for_each(check_line);
            fold.poll_with(|batch| Answer::Lines(data.to_vec()).parse(batch));
        }
        Some(b'i') => fold.poll_with(|batch| {
            let mut log = LoggedMessages::of(data);
            while let Ok(Some((message, _))) = log.next_message() {
                batch.push(message);
            }
            true
        }),
        _ => polls(&mut Unstructured::new(data)).iter().for_each(|poll| fold.poll(poll)),
    }
    page_text::check(&fold.page(), Format::Text);
}

/// A line of the socket must give the same record as an array that contains it.
fn check_line(line: &[u8]) {
    let Ok(PublisherLine::Message(record @ Message::Record(_))) = parse_line(line) else { return };
    let mut batch = Batch::default();
    let array = [b"[", line, b"]"].concat();
    assert_eq!(parse_records(&array, &mut batch), Ok(()));
    assert_eq!((batch.messages, batch.rejected), (vec![record], [0; 6]));
}

/// An array must give the same records if it is parsed as a whole or in parts. Each element of an array that serde_json
/// accepts must give one item or one rejection.
fn check_array(text: &[u8]) {
    let mut whole = Batch::default();
    let result = parse_records(text, &mut whole);
    let (mut items, mut rejected, mut parsed) = (Vec::new(), 0, ArrayPosition::default());
    loop {
        let mut batch = nearly_full();
        let part = StatisticsArray::Records.parse_part(text, &mut parsed, &mut batch);
        items.extend(batch.messages.drain(1..));
        rejected += batch.rejected.iter().sum::<u64>();
        if part.is_err() || parsed.is_complete() {
            assert_eq!(part.is_ok(), result.is_ok(), "{part:?}, {result:?}");
            break;
        }
    }
    assert_eq!((rejected, &items), (whole.rejected.iter().sum(), &whole.messages));
    // When text arrives in parts, only the arrived part is checked for UTF-8. So compare only valid texts.
    if std::str::from_utf8(text).is_ok() {
        assert_eq!(arriving(text), (result.is_ok(), whole.messages, whole.rejected));
    }
    // Compare only valid UTF-8, because serde_json does not check the encoding of elements that it ignores.
    let text = std::str::from_utf8(text).unwrap_or_default();
    if let Ok(elements) = serde_json::from_str::<Vec<IgnoredAny>>(text) {
        assert_eq!(result, Ok(()));
        assert_eq!(items.len() as u64 + rejected, elements.len() as u64);
    }
}

/// Parses an array while its text arrives. Returns whether it is valid, and its contents.
fn arriving(text: &[u8]) -> (bool, Vec<Message>, RejectCounts) {
    let (mut batch, mut parsed, mut arrived) = (Batch::default(), ArrayPosition::default(), Vec::new());
    // Texts of different lengths are cut at different places.
    let length = 1 + text.len() % 97;
    let mut parts = text.chunks(length).peekable();
    loop {
        arrived.extend(parts.next().unwrap_or_default());
        let result = StatisticsArray::Records.parse_part(&arrived, &mut parsed, &mut batch);
        if parts.peek().is_none() || matches!(result, Err(ParseError::NotJson(_))) {
            return (result.is_ok() && parsed.is_complete(), batch.messages, batch.rejected);
        }
        arrived.drain(..parsed.take_parsed());
    }
}

/// A batch that has room for only one more item.
fn nearly_full() -> Batch {
    let mut batch = Batch::default();
    let rows = Batch::ENOUGH / size_of::<RequestStats>() - 1;
    let request_stats = Some(vec![RequestStats::default(); rows]);
    batch.push(Message::RequestRows(RequestStatsPerIteration { iter: None, request_stats }));
    assert!(batch.has_room());
    batch
}
