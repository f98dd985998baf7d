//! Parses `startup_metrics` of trtllm-serve's `/server_info`. The tree differs between releases, so every number whose
//! key ends in `_seconds` is read. This is a pure function with a bounded result, whatever the server sends.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use trtllm_records::StartupTimes;
use trtllm_records::bounded::ShortText;

/// Limits for the stages of a start, for the characters of a stage's path, and for the keys in that path.
const MAX_STAGES: usize = 64;
const MAX_PATH: usize = 64;
const MAX_DEPTH: usize = 16;
/// A longer time cannot be that of a start.
const MAX_SECONDS: f64 = 7.0 * 86_400.0;

/// Parses `GET /server_info`. Empty for an older server, which reports no times.
#[must_use]
pub fn parse_startup_times(body: &[u8]) -> StartupTimes {
    #[derive(Deserialize)]
    struct ServerInfo {
        #[serde(default, deserialize_with = "times")]
        startup_metrics: StartupTimes,
    }
    serde_json::from_slice(body).map_or_else(|_| StartupTimes::new(), |info: ServerInfo| info.startup_metrics)
}

fn times<'de, D: Deserializer<'de>>(tree: D) -> Result<StartupTimes, D::Error> {
    let mut times = StartupTimes::new();
    Branch { times: &mut times, path: "", depth: 0 }.deserialize(tree)?;
    Ok(times)
}

/// A part of the tree. It is visited while it is parsed, and not kept: a tree takes dozens of times the memory of its text.
struct Branch<'a> {
    times: &'a mut StartupTimes,
    /// The keys that lead to this part, joined by dots.
    path: &'a str,
    depth: usize,
}

impl Branch<'_> {
    fn add(self, seconds: f64) {
        let is_time = self.path.ends_with("_seconds") && (0.0..=MAX_SECONDS).contains(&seconds);
        if is_time && self.times.len() < MAX_STAGES {
            self.times.insert(self.path.to_owned(), seconds);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Branch<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, tree: D) -> Result<(), D::Error> {
        tree.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Branch<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a tree of times")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(ShortText(key)) = members.next_key()? {
            let path = key.map(|key| if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) });
            match path {
                Some(path) if self.depth < MAX_DEPTH && path.chars().count() <= MAX_PATH => {
                    members.next_value_seed(Branch { times: self.times, path: &path, depth: self.depth + 1 })?;
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<(), E> {
        self.add(seconds as f64);
        Ok(())
    }

    fn visit_i64<E>(self, seconds: i64) -> Result<(), E> {
        self.add(seconds as f64);
        Ok(())
    }

    fn visit_f64<E>(self, seconds: f64) -> Result<(), E> {
        self.add(seconds);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(body: &Value) -> Vec<(String, f64)> {
        parse_startup_times(body.to_string().as_bytes()).into_iter().collect()
    }

    #[test]
    fn a_tree_of_seconds_becomes_dotted_paths() {
        let body = json!({"disaggregated_params": null, "startup_metrics": {"worker_start_seconds": 2, "rank": 0,
            "final_model_engine": {"total_warmup_seconds": 31.5, "autotuner_warmup_seconds": null}, "note": "ok"}});
        let expected = [("final_model_engine.total_warmup_seconds", 31.5), ("worker_start_seconds", 2.0)];
        assert_eq!(parsed(&body), expected.map(|(stage, seconds)| (stage.to_owned(), seconds)));
    }

    #[test]
    fn what_is_absurd_or_too_much_is_left_out() {
        let long = "x".repeat(60);
        let body = json!({"startup_metrics": {"a_seconds": -1, "b_seconds": 1e300, "c_seconds": "2", "d_seconds": [3.0],
            long.clone(): {"e_seconds": 1.0}, "f_seconds": 0.25}});
        assert_eq!(parsed(&body), [("f_seconds".to_owned(), 0.25)]);
        let many: serde_json::Map<String, Value> = (0..100).map(|n| (format!("{n}_seconds"), json!(1))).collect();
        assert_eq!(parsed(&json!({"startup_metrics": many})).len(), MAX_STAGES);
        let mut deep = json!({"_seconds": 1});
        for _ in 0..100 {
            deep = json!({"k": deep});
        }
        for body in [deep, json!({"startup_metrics": []}), json!({}), json!([1])] {
            assert_eq!(parsed(&body), []);
        }
        assert!(parse_startup_times(b"not JSON").is_empty());
        // Empty keys do not make a path longer, so the limit of the depth applies.
        let endless = "{\"\":".repeat(100) + "{\"a_seconds\":1}" + &"}".repeat(100);
        assert!(parse_startup_times(format!("{{\"startup_metrics\":{endless}}}").as_bytes()).is_empty());
    }
}
