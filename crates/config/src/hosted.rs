//! Parses `executor:DIR?…`. The keys about statistics have the names of TensorRT-LLM's ExecutorConfig.

use trtllm_sources::hosting::{HostedLoad, Hosting};

use super::options::SourceOptions;

/// Parses `executor:`. The caller refuses the keys that are left in `options`.
pub(super) fn hosting(engine: &str, options: &mut SourceOptions) -> Result<Hosting, String> {
    if engine.is_empty() {
        return Err("executor: has no engine directory; use executor:DIR".to_owned());
    }
    let mut hosting = Hosting::plain(engine.to_owned());
    for (key, value) in [
        ("iter_stats_max_iterations", &mut hosting.iter_stats_max_iterations),
        ("request_stats_max_iterations", &mut hosting.request_stats_max_iterations),
    ] {
        *value = whole(options, key)?.unwrap_or(*value);
    }
    if hosting.iter_stats_max_iterations == 0 {
        return Err("iter_stats_max_iterations=0 turns off all statistics; use at least 1".to_owned());
    }
    hosting.load = load(options)?;
    Ok(hosting)
}

fn load(options: &mut SourceOptions) -> Result<Option<HostedLoad>, String> {
    if options.read("load", "synthetic", |text| (text == "synthetic").then_some(()))?.is_none() {
        return Ok(None);
    }
    let above_zero = |text: &str| text.parse().ok().filter(|count| *count > 0);
    let number = |options: &mut SourceOptions, key| options.read(key, "a whole number above 0", above_zero);
    Ok(Some(HostedLoad {
        in_flight: number(options, "in_flight")?.unwrap_or(8),
        prompt_tokens: number(options, "prompt_tokens")?.unwrap_or(512),
        output_tokens: number(options, "output_tokens")?.unwrap_or(128),
        requests: whole(options, "requests")?.map(u64::from),
    }))
}

fn whole(options: &mut SourceOptions, key: &'static str) -> Result<Option<u32>, String> {
    options.read(key, "a whole number", |text| text.parse().ok())
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
        let hosting = read("executor:/e?iter_stats_max_iterations=5&request_stats_max_iterations=0");
        let plain = Hosting::plain("/e".to_owned());
        let expected = Hosting { iter_stats_max_iterations: 5, request_stats_max_iterations: 0, ..plain };
        assert_eq!(hosting.unwrap(), expected);
    }

    #[test]
    fn a_load_has_defaults() {
        let load = |query: &str| read(&format!("executor:/e?load=synthetic{query}")).unwrap().load.unwrap();
        let plain = HostedLoad { in_flight: 8, prompt_tokens: 512, output_tokens: 128, requests: None };
        assert_eq!(load(""), plain);
        let small = HostedLoad { in_flight: 1, prompt_tokens: 9, output_tokens: 2, requests: Some(3) };
        assert_eq!(load("&in_flight=1&prompt_tokens=9&output_tokens=2&requests=3"), small);
    }

    #[test]
    fn an_error_names_the_invalid_key() {
        for (query, key) in [
            ("iter_stats_max_iterations=many", "iter_stats_max_iterations"),
            ("device_ids=0", "device_ids"),
            ("iter_stats_max_iterations=0", "iter_stats_max_iterations"),
            ("load=", "load"),
            ("load=synthetic&in_flight=0", "in_flight"),
            ("load=synthetic&output_tokens=0", "output_tokens"),
            ("load=synthetic&speed=2", "speed"),
            ("prompt_tokens=5", "prompt_tokens"),
            ("load=/requests.jsonl", "must be synthetic"),
        ] {
            let why = read(&format!("executor:/e?{query}")).unwrap_err();
            assert!(why.contains(key), "{query}: {why}");
        }
        assert!(read("executor:").unwrap_err().contains("directory"));
    }
}
