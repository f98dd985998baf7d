//! Reads the settings of an engine that a publisher sends. A pure function. A value that is missing or has another type is left out.

use serde_json::{Map, Value};

use crate::model::EngineSettings;

/// Bytes of the settings of a publisher. Ten of them need about 1 KiB.
const MAX_SENT: usize = 16 << 10;

/// Parses the object `config` of a hello: names and values, which are text or numbers. Other values are ignored, and so is an
/// object of more than 16 KiB.
#[must_use]
pub fn parse_settings(config: &str) -> EngineSettings {
    let sent = if config.len() <= MAX_SENT { serde_json::from_str(config) } else { Ok(Map::new()) };
    let mut settings = EngineSettings::default();
    for (name, value) in sent.unwrap_or_default() {
        set(&mut settings, &name, &value);
    }
    settings
}

fn set(settings: &mut EngineSettings, name: &str, value: &Value) {
    match value {
        Value::String(text) => settings.set(name, text),
        Value::Number(number) => settings.set(name, &number.to_string()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(settings: &EngineSettings) -> Vec<(&str, &str)> {
        EngineSettings::NAMES.iter().filter_map(|name| Some((*name, settings.get(name)?))).collect()
    }

    #[test]
    fn text_and_numbers_with_known_names_are_settings() {
        let config = json!({"quantization": "FP8", "tensor_parallel_size": 2, "max_batch_size": "256", "unknown": "x",
            "dtype": null, "tokens_per_block": [32], "kv_cache_dtype": {"a": 1}, "max_num_tokens": true,
            "speculative_method": "é".repeat(65), "pipeline_parallel_size": ""});
        let cut = "é".repeat(64);
        let expected = [
            ("quantization", "FP8"),
            ("tensor_parallel_size", "2"),
            ("speculative_method", cut.as_str()),
            ("max_batch_size", "256"),
        ];
        assert_eq!(known(&parse_settings(&config.to_string())), expected);
    }

    #[test]
    fn settings_that_are_not_an_object_or_too_long_are_ignored() {
        let deep = format!("{}1{}", "{\"dtype\":".repeat(200), "}".repeat(200));
        for config in ["", "null", "[]", "7", "\"dtype\"", "{\"dtype\":\"float16\"", "[\"dtype\"]", &deep] {
            assert!(parse_settings(config).is_empty(), "{config}");
        }
        let padded = |bytes: usize| json!({"dtype": "float16", "x": "y".repeat(bytes)}).to_string();
        assert_eq!(known(&parse_settings(&padded(16_000))), [("dtype", "float16")]);
        assert!(parse_settings(&padded(17_000)).is_empty());
    }
}
