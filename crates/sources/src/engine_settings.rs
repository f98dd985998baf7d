//! Reads the settings of an engine from JSON: those that a publisher sends, and the `config.json` of an engine's directory.
//! Pure functions. A value that is missing or has another type is left out.

use serde_json::{Map, Value};

use trtllm_records::EngineSettings;

/// Limit of the settings of a publisher, in bytes. Ten settings need about 1 KiB.
const MAX_SENT: usize = 16 << 10;
/// The name of each setting and its paths in `config.json`. The first path with a value counts.
const OF_ENGINE: [(&str, &[&str]); 9] = [
    ("dtype", &["/pretrained_config/dtype"]),
    ("quantization", &["/pretrained_config/quantization/quant_algo"]),
    ("tensor_parallel_size", &["/pretrained_config/mapping/tp_size"]),
    ("pipeline_parallel_size", &["/pretrained_config/mapping/pp_size"]),
    ("expert_parallel_size", &["/pretrained_config/mapping/moe_ep_size"]),
    // A cache without quantization has the type of the model.
    ("kv_cache_dtype", &["/pretrained_config/quantization/kv_cache_quant_algo", "/pretrained_config/dtype"]),
    ("tokens_per_block", &["/build_config/plugin_config/tokens_per_block"]),
    ("max_batch_size", &["/build_config/max_batch_size"]),
    ("max_num_tokens", &["/build_config/max_num_tokens"]),
];
/// The bits of TensorRT-LLM's `SpeculativeDecodingMode`, from the lowest on.
const SPECULATIVE: [&str; 8] = [
    "none",
    "draft_tokens_external",
    "medusa",
    "lookahead_decoding",
    "explicit_draft_tokens",
    "eagle",
    "ngram",
    "user_provided",
];

/// Parses the object `config` of a publisher's hello: names and values, which are text or numbers. Other values are
/// ignored, and so is an object of more than 16 KiB.
pub fn parse_settings(config: &str) -> EngineSettings {
    let sent = if config.len() <= MAX_SENT { serde_json::from_str(config) } else { Ok(Map::new()) };
    let mut settings = EngineSettings::default();
    for (name, value) in sent.unwrap_or_default() {
        set(&mut settings, &name, &value);
    }
    settings
}

/// Parses the `config.json` that `trtllm-build` writes into the directory of an engine.
pub fn parse_engine_config(body: &[u8]) -> EngineSettings {
    let config: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut settings = EngineSettings::default();
    for (name, paths) in OF_ENGINE {
        // In reverse, because a later value replaces an earlier one.
        for path in paths.iter().rev() {
            set(&mut settings, name, config.pointer(path).unwrap_or_default());
        }
    }
    if config.pointer("/pretrained_config/quantization/quant_algo") == Some(&Value::Null) {
        settings.set("quantization", "none");
    }
    let mode = config.pointer("/build_config/speculative_decoding_mode").and_then(Value::as_u64);
    let name = mode.filter(|mode| mode.is_power_of_two()).and_then(|mode| SPECULATIVE.get(mode.ilog2() as usize));
    settings.set("speculative_method", name.unwrap_or(&""));
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

    fn engine(speculative: u64) -> Value {
        json!({"version": "1.0.0",
            "pretrained_config": {"architecture": "LlamaForCausalLM", "dtype": "bfloat16",
                "mapping": {"world_size": 8, "cp_size": 1, "tp_size": 4, "pp_size": 2, "moe_tp_size": 1, "moe_ep_size": 3},
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "INT8", "group_size": 128}},
            "build_config": {"max_batch_size": 96, "max_num_tokens": 8191, "kv_cache_type": "PAGED",
                "speculative_decoding_mode": speculative, "plugin_config": {"dtype": "float16", "tokens_per_block": 64}}})
    }

    #[test]
    fn the_file_of_an_engine_has_all_settings() {
        let expected = [
            ("dtype", "bfloat16"),
            ("quantization", "FP8"),
            ("tensor_parallel_size", "4"),
            ("pipeline_parallel_size", "2"),
            ("expert_parallel_size", "3"),
            ("kv_cache_dtype", "INT8"),
            ("tokens_per_block", "64"),
            ("speculative_method", "eagle"),
            ("max_batch_size", "96"),
            ("max_num_tokens", "8191"),
        ];
        assert_eq!(known(&parse_engine_config(engine(32).to_string().as_bytes())), expected);
    }

    #[test]
    fn an_engine_without_quantization_has_the_types_of_its_model() {
        let mut config = engine(1);
        config["pretrained_config"]["quantization"] = json!({"quant_algo": null, "kv_cache_quant_algo": null});
        let settings = parse_engine_config(config.to_string().as_bytes());
        let found = ["quantization", "kv_cache_dtype", "speculative_method"].map(|name| settings.get(name));
        assert_eq!(found, [Some("none"), Some("bfloat16"), Some("none")]);
        config["pretrained_config"]["quantization"] = json!({});
        assert_eq!(parse_engine_config(config.to_string().as_bytes()).get("quantization"), None);
    }

    #[test]
    fn other_files_and_unknown_modes_have_no_settings() {
        for body in ["", "{", "[]", "null", "{\"build_config\": 1, \"pretrained_config\": [1]}"] {
            assert!(parse_engine_config(body.as_bytes()).is_empty(), "{body}");
        }
        for mode in [0, 3, 256, u64::MAX] {
            assert_eq!(parse_engine_config(engine(mode).to_string().as_bytes()).get("speculative_method"), None);
        }
    }
}
