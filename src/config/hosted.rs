//! `executor:DIR?…`. Keys and values have TensorRT-LLM's own names; a missing key keeps TensorRT-LLM's default.

use std::path::PathBuf;

use trtllm_bridge::{BatchingType, CommMode, ExecutorOptions, HostOptions, Load, ModelType};

use trtllm_sources::executor::hosting::{Hosting, LoadPlan, Recorded, STATISTICS};

use super::options::SourceOptions;

/// Parses `executor:`. The caller refuses the keys that are left in `options`.
pub(super) fn hosting(engine: &str, options: &mut SourceOptions) -> Hosting {
    if engine.is_empty() {
        options.wrong("executor: has no engine directory; use executor:DIR");
    }
    let statistics = ExecutorOptions {
        iter_stats_max_iterations: whole(options, "iter_stats_max_iterations")
            .unwrap_or(STATISTICS.iter_stats_max_iterations),
        request_stats_max_iterations: whole(options, "request_stats_max_iterations")
            .unwrap_or(STATISTICS.request_stats_max_iterations),
    };
    if statistics.iter_stats_max_iterations == 0 {
        options.wrong("iter_stats_max_iterations=0 turns off all statistics; use at least 1");
    }
    let fraction = |text: &str| text.parse().ok().filter(|value: &f32| *value > 0.0 && *value < 1.0);
    let models = [
        ("decoder_only", ModelType::DecoderOnly),
        ("encoder_only", ModelType::EncoderOnly),
        ("encoder_decoder", ModelType::EncoderDecoder),
    ];
    let batching = [("inflight", BatchingType::Inflight), ("static", BatchingType::Static)];
    let modes = [("leader", CommMode::Leader), ("orchestrator", CommMode::Orchestrator)];
    let host = HostOptions {
        statistics,
        model_type: word(options, "model_type", &models).unwrap_or_default(),
        batching_type: word(options, "batching_type", &batching),
        max_batch_size: whole(options, "max_batch_size"),
        max_num_tokens: whole(options, "max_num_tokens"),
        max_queue_size: whole(options, "max_queue_size"),
        enable_chunked_context: options.boolean("enable_chunked_context"),
        enable_block_reuse: options.boolean("enable_block_reuse"),
        free_gpu_memory_fraction: options.read("free_gpu_memory_fraction", "above 0 and below 1", fraction),
        max_tokens: whole(options, "max_tokens"),
        event_buffer_max_size: whole(options, "event_buffer_max_size"),
        comm_mode: word(options, "comm_mode", &modes),
        participant_ids: numbers(options, "participant_ids"),
        device_ids: numbers(options, "device_ids"),
        is_orchestrator: options.boolean("is_orchestrator"),
        worker_executable: options.take("worker_executable"),
        spawn_processes: options.boolean("spawn_processes"),
    };
    Hosting { engine: engine.to_owned(), options: host, load: load(options) }
}

fn load(options: &mut SourceOptions) -> Option<LoadPlan> {
    let load = options.take("load")?;
    let in_flight = whole(options, "in_flight");
    if in_flight == Some(0) {
        options.wrong("in_flight=0 sends no request; remove load for an engine without requests");
    }
    if load != "synthetic" {
        if load.is_empty() {
            options.wrong("load is empty; write synthetic or the path of a file with recorded requests");
        }
        let speed = options.speed().unwrap_or(1.0);
        return Some(LoadPlan::Recorded(Recorded { path: PathBuf::from(load), in_flight, speed }));
    }
    let above_zero = |text: &str| text.parse().ok().filter(|count| *count > 0);
    let tokens = |options: &mut SourceOptions, key| options.read(key, "a whole number above 0", above_zero);
    let plan = Load {
        in_flight: in_flight.unwrap_or(8),
        prompt_tokens: tokens(options, "prompt_tokens").unwrap_or(512),
        shared_prefix_tokens: whole(options, "shared_prefix_tokens").unwrap_or(0),
        output_tokens: tokens(options, "output_tokens").unwrap_or(128),
        requests: whole(options, "requests").map(u64::from),
    };
    if plan.shared_prefix_tokens > plan.prompt_tokens {
        let Load { prompt_tokens, shared_prefix_tokens, .. } = plan;
        options.wrong(format!(
            "shared_prefix_tokens={shared_prefix_tokens} is more than prompt_tokens={prompt_tokens}; lower it"
        ));
    }
    Some(LoadPlan::Synthetic(plan))
}

fn whole(options: &mut SourceOptions, key: &str) -> Option<u32> {
    options.read(key, "a whole number", |text| text.parse().ok())
}

fn numbers(options: &mut SourceOptions, key: &str) -> Vec<u32> {
    let list = |text: &str| text.split(',').map(|number| number.parse().ok()).collect();
    options.read(key, "a list such as 0,1", list).unwrap_or_default()
}

fn word<T: Copy>(options: &mut SourceOptions, key: &str, words: &[(&str, T)]) -> Option<T> {
    let expected = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    options.read(key, &expected, |text| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value))
}

#[cfg(test)]
mod tests {
    use super::super::source::SourceSpec;
    use super::*;

    fn read(url: &str) -> Result<Hosting, String> {
        match url.parse::<SourceSpec>()? {
            SourceSpec::Executor(hosting) => Ok(*hosting),
            other => panic!("{url} is {other:?}"),
        }
    }

    #[test]
    fn a_missing_key_keeps_the_engines_default() {
        assert_eq!(read("executor:/engines/a").unwrap(), Hosting::plain("/engines/a".to_owned()));
    }

    #[test]
    fn every_key_sets_its_option() {
        let hosting = read(
            "executor:/e?model_type=encoder_decoder&batching_type=static&max_batch_size=1&max_num_tokens=2&\
             max_queue_size=3&enable_chunked_context=true&enable_block_reuse=false&free_gpu_memory_fraction=0.5&\
             max_tokens=4&event_buffer_max_size=6&comm_mode=orchestrator&participant_ids=1,2&device_ids=3&is_orchestrator=true&\
             worker_executable=/bin/w&spawn_processes=false&iter_stats_max_iterations=5&request_stats_max_iterations=0",
        );
        let expected = HostOptions {
            statistics: ExecutorOptions { iter_stats_max_iterations: 5, request_stats_max_iterations: 0 },
            model_type: ModelType::EncoderDecoder,
            batching_type: Some(BatchingType::Static),
            max_batch_size: Some(1),
            max_num_tokens: Some(2),
            max_queue_size: Some(3),
            enable_chunked_context: Some(true),
            enable_block_reuse: Some(false),
            free_gpu_memory_fraction: Some(0.5),
            max_tokens: Some(4),
            event_buffer_max_size: Some(6),
            comm_mode: Some(CommMode::Orchestrator),
            participant_ids: vec![1, 2],
            device_ids: vec![3],
            is_orchestrator: Some(true),
            worker_executable: Some("/bin/w".to_owned()),
            spawn_processes: Some(false),
        };
        assert_eq!(hosting.unwrap().options, expected);
    }

    #[test]
    fn a_load_is_synthetic_or_recorded() {
        let load = |query: &str| read(&format!("executor:/e?{query}")).unwrap().load.unwrap();
        let plain =
            Load { in_flight: 8, prompt_tokens: 512, shared_prefix_tokens: 0, output_tokens: 128, requests: None };
        assert_eq!(load("load=synthetic"), LoadPlan::Synthetic(plain));
        let small =
            Load { in_flight: 1, prompt_tokens: 9, shared_prefix_tokens: 9, output_tokens: 2, requests: Some(3) };
        assert_eq!(
            load("load=synthetic&in_flight=1&prompt_tokens=9&shared_prefix_tokens=9&output_tokens=2&requests=3"),
            LoadPlan::Synthetic(small)
        );
        let recorded = |in_flight, speed| LoadPlan::Recorded(Recorded { path: "/t.jsonl".into(), in_flight, speed });
        assert_eq!(load("load=/t.jsonl"), recorded(None, 1.0));
        assert_eq!(load("load=/t.jsonl&speed=max&in_flight=4"), recorded(Some(4), f64::INFINITY));
    }

    #[test]
    fn an_error_names_the_invalid_key() {
        for (query, key) in [
            ("max_batch_size=many", "max_batch_size"),
            ("model_type=gpt", "decoder_only"),
            ("free_gpu_memory_fraction=1.5", "free_gpu_memory_fraction"),
            ("device_ids=0,x", "device_ids"),
            ("iter_stats_max_iterations=0", "iter_stats_max_iterations"),
            ("load=", "load"),
            ("load=synthetic&in_flight=0", "in_flight"),
            ("load=synthetic&output_tokens=0", "output_tokens"),
            ("load=synthetic&speed=2", "speed"),
            ("load=synthetic&prompt_tokens=5&shared_prefix_tokens=6", "shared_prefix_tokens"),
            ("prompt_tokens=5", "prompt_tokens"),
            ("load=/t&speed=0", "speed"),
        ] {
            let why = read(&format!("executor:/e?{query}")).unwrap_err();
            assert!(why.contains(key), "{query}: {why}");
        }
        assert!(read("executor:").unwrap_err().contains("directory"));
    }
}
