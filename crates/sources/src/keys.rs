//! Collects the keys of an engine's messages. Unknown keys show that the engine is newer than the exporter.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::de::{DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess};

use super::trtllm_json::{PublisherLine, parse_line};
use trtllm_records::Message;
use trtllm_records::RejectReason;
use trtllm_records::lenient::{Any, Lenient, Scalar};

/// Limits for the number of keys, and for the bytes of a key.
const MAX_KEYS: usize = 256;
const MAX_KEY: usize = 64;
/// Number of elements of an array whose keys are collected.
const MAX_ELEMENTS: usize = 4;

/// Time after which the keys of a kind of message are collected again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Collects the keys of one kind of message once a minute.
#[derive(Debug, Default)]
pub(super) struct KeyWatch {
    /// When the keys are collected next. `None` means now.
    due: Option<Instant>,
}

impl KeyWatch {
    /// To be called when the server does not answer: a newer server may answer next.
    pub(super) fn may_be_replaced(&mut self) {
        self.due = None;
    }

    /// Adds the keys of the object, or those of the first one in an array, if a collection is due.
    pub(super) fn look_at(&mut self, text: &[u8], keys: &mut BTreeSet<String>) {
        if self.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let mut found = keys_of_first(text);
        if !found.is_empty() {
            self.due = Some(Instant::now() + INTERVAL);
        }
        keys.append(&mut found);
    }
}

/// Parses the lines of a publisher, and collects the keys of each kind of message.
#[derive(Debug, Default)]
pub struct LineParser([KeyWatch; 3]);

impl LineParser {
    /// Parses one line, see [`parse_line`]. Adds its keys, if a collection is due. Fails with the reason to count.
    pub fn parse(&mut self, line: &[u8], keys: &mut BTreeSet<String>) -> Result<PublisherLine, RejectReason> {
        let parsed = parse_line(line)?;
        let kind = match &parsed {
            PublisherLine::Message(Message::Record(_)) => 0,
            PublisherLine::Message(Message::RequestRows(_)) => 1,
            PublisherLine::Message(Message::FinishedRequest(_)) => 2,
            PublisherLine::Message(_) | PublisherLine::Hello(_) => return Ok(parsed),
        };
        self.0[kind].look_at(line, keys);
        Ok(parsed)
    }
}

/// The keys of an object, or of the first one in an array, and of the objects in it. Ids, such as those of pools, are left out.
pub fn keys_of_first(text: &[u8]) -> BTreeSet<String> {
    let (text, mut keys) = (text.trim_ascii_start(), BTreeSet::new());
    // What follows the object is not read.
    let object = text.strip_prefix(b"[").unwrap_or(text);
    let _ = Any(Keys(&mut keys)).deserialize(&mut serde_json::Deserializer::from_slice(object));
    keys
}

struct Keys<'k>(&'k mut BTreeSet<String>);

impl<'de> Lenient<'de> for Keys<'_> {
    type Value = ();

    fn scalar(self, _: Scalar<'_>) -> Option<()> {
        None
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<()>, A::Error> {
        while let Some(key) = object.next_key::<String>()? {
            let is_name = key.starts_with(|first: char| first.is_ascii_alphabetic())
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_name && key.len() <= MAX_KEY && self.0.len() < MAX_KEYS {
                self.0.insert(key);
            }
            object.next_value_seed(Any(Keys(self.0)))?;
        }
        Ok(None)
    }

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<()>, A::Error> {
        for _ in 0..MAX_ELEMENTS {
            if array.next_element_seed(Any(Keys(self.0)))?.is_none() {
                return Ok(None);
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_collected_once_a_minute_and_again_when_the_server_may_have_been_replaced() {
        let (mut watch, mut keys) = (KeyWatch::default(), BTreeSet::new());
        watch.look_at(b"[]", &mut keys);
        watch.look_at(b"{\"a\":1}", &mut keys);
        watch.look_at(b"{\"b\":1}", &mut keys);
        assert_eq!(keys.iter().collect::<Vec<_>>(), ["a"]);
        watch.may_be_replaced();
        watch.look_at(b"{\"c\":1}", &mut keys);
        assert_eq!(keys.iter().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn the_keys_of_each_kind_of_line_are_collected_unless_it_is_invalid() {
        let (mut lines, mut keys) = (LineParser::default(), BTreeSet::new());
        for line in [
            r#"{"iter":1,"dreams":1}"#,
            r#"{"iter":2,"later":1}"#,
            r#"{"iter":1,"requestStats":[{"wishes":1}]}"#,
            r#"{"perf_metrics":{},"hopes":1}"#,
            r#"{"unknown":1}"#,
            r#"{"hello":{"model":"m","name":1}}"#,
            r#"{"iter":1,"cut":"#,
        ] {
            let _ = lines.parse(line.as_bytes(), &mut keys);
        }
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        assert_eq!(keys, ["dreams", "hopes", "iter", "perf_metrics", "requestStats", "wishes"]);
    }

    #[test]
    fn names_at_every_depth_are_found_and_ids_are_not() {
        let text = r#" [{"iter": 1, "kvCacheStats": {"maxNumBlocks": null}, "byPool": {"0": {"slotSize": [1]}, "a b": 2},
            "requestStats": [{"id": 7, "stage": "x"}, true, 1.5]}, {"second": 1"#;
        let keys: Vec<String> = keys_of_first(text.as_bytes()).into_iter().collect();
        assert_eq!(keys, ["byPool", "id", "iter", "kvCacheStats", "maxNumBlocks", "requestStats", "slotSize", "stage"]);
        assert!(keys_of_first(b"{\"iter\":1}").contains("iter"), "an object without an array");
        for nothing in ["[]", "", "[1", "\"x\""] {
            assert!(keys_of_first(nothing.as_bytes()).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn many_and_long_keys_take_bounded_memory() {
        let many: Vec<String> = (0..9999).map(|number| format!("\"k{number}\":{{}}")).collect();
        assert_eq!(keys_of_first(format!("[{{{}}}]", many.join(",")).as_bytes()).len(), MAX_KEYS);
        let long = format!("[{{\"{}\":1}}]", "k".repeat(MAX_KEY + 1));
        assert!(keys_of_first(long.as_bytes()).is_empty());
        assert!(keys_of_first("[".repeat(100_000).as_bytes()).is_empty());
    }
}
