//! `startup_metrics` of trtllm-serve's `/server_info`. The tree differs between releases, so it is read as it comes: every number
//! whose key ends in `_seconds`. A pure function, whose result is bounded whatever the server sends.

use serde::Deserialize;
use serde_json::Value;

use crate::model::StartupTimes;

/// Stages of a start, and characters of the path of one.
const MAX_STAGES: usize = 64;
const MAX_PATH: usize = 64;
/// A longer start is not one.
const MAX_SECONDS: f64 = 7.0 * 86_400.0;

/// Parses `GET /server_info`. An older server has no times.
#[must_use]
pub fn parse_startup_times(body: &[u8]) -> StartupTimes {
    #[derive(Deserialize)]
    struct ServerInfo {
        #[serde(default)]
        startup_metrics: Value,
    }
    let mut times = StartupTimes::new();
    if let Ok(ServerInfo { startup_metrics }) = serde_json::from_slice(body) {
        add(&mut times, "", &startup_metrics);
    }
    times
}

fn add(times: &mut StartupTimes, path: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if path.chars().count() <= MAX_PATH {
                    add(times, &path, value);
                }
            }
        }
        Value::Number(number) if path.ends_with("_seconds") && times.len() < MAX_STAGES => {
            if let Some(seconds) = number.as_f64().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds)) {
                times.insert(path.to_owned(), seconds);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    }
}
