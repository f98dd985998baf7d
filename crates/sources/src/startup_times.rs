//! Parses `startup_metrics` of trtllm-serve's `/server_info`. The tree differs between releases, so every number whose
//! key ends in `_seconds` is read. This is a pure function with a bounded result, whatever the server sends.

use serde_json::Value;

use trtllm_records::StartupTimes;

/// Longest answer, in bytes. A tree takes dozens of times the memory of its text. A server's has a few KB.
const MAX_BODY: usize = 128 << 10;
const MAX_STAGES: usize = 64;
/// Most characters of a stage's path, and most keys in it.
const MAX_PATH: usize = 96;
const MAX_DEPTH: usize = 16;
/// A longer time cannot be that of a start.
const MAX_SECONDS: f64 = 7.0 * 86_400.0;

/// Parses `GET /server_info`. Empty for an older server, which reports no times.
pub fn parse_startup_times(body: &[u8]) -> StartupTimes {
    let mut times = StartupTimes::new();
    if body.len() <= MAX_BODY
        && let Ok(info) = serde_json::from_slice::<Value>(body)
    {
        add_times(&info["startup_metrics"], "", 0, &mut times);
    }
    times
}

/// Adds the times of a part of the tree. `path`: the keys that lead to this part, joined by dots.
fn add_times(tree: &Value, path: &str, depth: usize, times: &mut StartupTimes) {
    if let Some(seconds) = tree.as_f64().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds))
        && path.ends_with("_seconds")
        && times.len() < MAX_STAGES
    {
        times.insert(path.to_owned(), seconds);
    }
    for (key, part) in tree.as_object().into_iter().flatten().filter(|_| depth < MAX_DEPTH) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if path.chars().count() <= MAX_PATH {
            add_times(part, &path, depth + 1, times);
        }
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
        let long = "x".repeat(90);
        let body = json!({"startup_metrics": {"a_seconds": -1, "b_seconds": 1e300, "c_seconds": "2", "d_seconds": [3.0],
            long.clone(): {"e_seconds": 1.0}, "f_seconds": 0.25}});
        assert_eq!(parsed(&body), [("f_seconds".to_owned(), 0.25)]);
        let many: serde_json::Map<String, Value> = (0..100).map(|n| (format!("{n}_seconds"), json!(1))).collect();
        assert_eq!(parsed(&json!({"startup_metrics": many})).len(), MAX_STAGES);
        let mut deep = json!({"_seconds": 1});
        for _ in 0..100 {
            deep = json!({"k": deep});
        }
        for body in [json!({"startup_metrics": deep}), json!({"startup_metrics": []}), json!({}), json!([1])] {
            assert_eq!(parsed(&body), []);
        }
        assert!(parse_startup_times(b"not JSON").is_empty());
        // Empty keys do not make a path longer, so the limit of the depth applies.
        let endless = "{\"\":".repeat(100) + "{\"a_seconds\":1}" + &"}".repeat(100);
        assert!(parse_startup_times(format!("{{\"startup_metrics\":{endless}}}").as_bytes()).is_empty());
    }
}
