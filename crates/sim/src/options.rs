//! The options of `sim:?key=value&…`. One table lists each key, its valid values and its place.

mod trace;

use crate::config::{
    CacheConfig, Config, Fault, Frontend, Limits, Policy, Ranks, Release, Role, Speculation, Statistics, Transfer,
};
use crate::cost::Costs;
use crate::load::{Arrival, Arrivals, Length, Load, Prefixes};
use crate::scenario;

/// The options, and the scenario if one is named.
#[derive(Debug, Clone)]
pub struct Options {
    pub scenario: Option<String>,
    pub seed: u64,
    /// Simulated seconds in a real one; infinite: as fast as possible.
    pub speed: f64,
    /// Real seconds that opening the engine takes.
    pub load_seconds: f64,
    /// The engine hangs after this many.
    pub iterations: Option<u64>,
    pub rank: u32,
    /// Instead of the host's mode.
    pub is_orchestrated: Option<bool>,
    /// Which exception each call of the C++ Executor throws: `standard` or `foreign`.
    pub throws: Option<String>,
    pub request_stats: bool,
    rate: f64,
    wave: f64,
    wave_period: f64,
    trace: Option<Vec<Arrival>>,
    requests: Option<u64>,
    in_flight: Option<usize>,
    prompt_mean: u32,
    output_mean: u32,
    prefix_share: f64,
    prefix_tokens: u32,
    max_batch_size: Option<u32>,
    max_num_tokens: Option<u32>,
    kv_blocks: u32,
    host_blocks: u32,
    tokens_per_block: u32,
    max_utilization: Option<bool>,
    is_static: Option<bool>,
    iter_base_ms: f64,
    ctx_token_us: f64,
    gen_request_us: f64,
    jitter: f64,
    draft_len: u32,
    acceptance: f64,
    is_disaggregated: bool,
    ranks: usize,
    timeout: Option<f64>,
    losing: f64,
}

/// What the host's configuration says. Options override it.
#[derive(Debug, Clone)]
pub struct Host {
    pub release: Release,
    pub chunked_context: bool,
    pub reuse: bool,
    pub rows: bool,
}

impl Default for Host {
    fn default() -> Self {
        Self { release: Release::Cpp { major: 1, minor: 1 }, chunked_context: true, reuse: true, rows: true }
    }
}

struct Key {
    name: &'static str,
    accepts: &'static str,
    read: fn(&mut Options, &str) -> Option<()>,
}

const NUMBER: &str = "an unsigned integer";
const TOKENS: &str = "1 to 1000000 tokens";

macro_rules! keys {
    ($($name:literal, $accepts:expr, $options:ident, $text:ident => $read:expr;)*) => {
        &[$(Key { name: $name, accepts: $accepts, read: |$options, $text| Some($read) },)*]
    };
}

const KEYS: &[Key] = keys![
    "rate", "0 to 100000 requests per second", o, v => o.rate = number(v, 0.0, 1e5)?;
    "wave", "0 to 1", o, v => o.wave = number(v, 0.0, 1.0)?;
    "wave_period_s", "1 to 86400", o, v => o.wave_period = number(v, 1.0, 86400.0)?;
    "seed", NUMBER, o, v => o.seed = number(v, 0, u64::MAX)?;
    "speed", "0.001 to 1000000, or max", o, v => o.speed = if v == "max" { f64::INFINITY } else { number(v, 0.001, 1e6)? };
    "scenario", "a name from scenario=list", o, v => o.scenario = Some(Some(v.to_owned()).filter(|name| !name.is_empty())?);
    // Read afterwards: a file has errors of its own.
    "trace", "a file name", _o, v => Some(v).filter(|name| !name.is_empty()).map(drop)?;
    "requests", NUMBER, o, v => o.requests = Some(number(v, 0, u64::MAX)?);
    "iterations", NUMBER, o, v => o.iterations = Some(number(v, 0, u64::MAX)?);
    "in_flight", "1 to 1000000 requests", o, v => o.in_flight = Some(number(v, 1, 1_000_000)?);
    "prompt_mean", TOKENS, o, v => o.prompt_mean = number(v, 1, 1_000_000)?;
    "output_mean", TOKENS, o, v => o.output_mean = number(v, 1, 1_000_000)?;
    "prefix_share", "0 to 1", o, v => o.prefix_share = number(v, 0.0, 1.0)?;
    "prefix_tokens", "0 to 1000000 tokens", o, v => o.prefix_tokens = number(v, 0, 1_000_000)?;
    "load_seconds", "0 to 86400", o, v => o.load_seconds = number(v, 0.0, 86400.0)?;
    "max_batch_size", "1 to 65536", o, v => o.max_batch_size = Some(number(v, 1, 65536)?);
    "max_num_tokens", "1 to 1000000", o, v => o.max_num_tokens = Some(number(v, 1, 1_000_000)?);
    "kv_blocks", "2 to 10000000", o, v => o.kv_blocks = number(v, 2, 10_000_000)?;
    "host_blocks", "0 to 10000000", o, v => o.host_blocks = number(v, 0, 10_000_000)?;
    "tokens_per_block", "1 to 1024", o, v => o.tokens_per_block = number(v, 1, 1024)?;
    "policy", "max_utilization or guaranteed_no_evict", o, v =>
        o.max_utilization = Some(word(v, "guaranteed_no_evict", "max_utilization")?);
    "batching", "inflight or static", o, v => o.is_static = Some(word(v, "inflight", "static")?);
    "iter_base_ms", "0.001 to 60000", o, v => o.iter_base_ms = number(v, 0.001, 60000.0)?;
    "ctx_token_us", "0 to 1000000", o, v => o.ctx_token_us = number(v, 0.0, 1e6)?;
    "gen_request_us", "0 to 1000000", o, v => o.gen_request_us = number(v, 0.0, 1e6)?;
    "jitter", "0 to 1", o, v => o.jitter = number(v, 0.0, 1.0)?;
    "spec_draft_len", "0 to 64 tokens", o, v => o.draft_len = number(v, 0, 64)?;
    "spec_acceptance", "0 to 1", o, v => o.acceptance = number(v, 0.0, 1.0)?;
    "disagg", "0 or 1", o, v => o.is_disaggregated = word(v, "0", "1")?;
    "ranks", "1 to 64 ranks of attention data parallelism", o, v => o.ranks = number(v, 1, 64)?;
    "timeout_s", "0.001 to 86400", o, v => o.timeout = Some(number(v, 0.001, 86400.0)?);
    "losing", "0 to 1", o, v => o.losing = number(v, 0.0, 1.0)?;
    "rank", "0 to 65535", o, v => o.rank = number(v, 0, 65535)?;
    "comm_mode", "leader or orchestrator", o, v => o.is_orchestrated = Some(word(v, "leader", "orchestrator")?);
    "throws", "standard or foreign", o, v => { word(v, "standard", "foreign")?; o.throws = Some(v.to_owned()) };
    "request_stats", "0 or 1", o, v => o.request_stats = word(v, "0", "1")?;
];

/// Requests beside a full batch: enough for a queue, few enough for rows of requests.
const WAITING: usize = 256;

/// Keys that a scenario does not decide.
const BESIDE_A_SCENARIO: [&str; 5] = ["scenario", "seed", "speed", "load_seconds", "request_stats"];

/// NaN is in no range.
fn number<T: std::str::FromStr + PartialOrd>(text: &str, least: T, most: T) -> Option<T> {
    let value = text.parse::<T>().ok().filter(|_| !text.starts_with('+'))?;
    (value >= least && value <= most).then_some(value)
}

/// False for the first word, true for the second.
fn word(text: &str, first: &str, second: &str) -> Option<bool> {
    (text == first || text == second).then_some(text == second)
}

/// Decodes %XX as in a URL, so that a file's name may contain `&`.
fn unescaped(text: &str) -> String {
    let mut plain = Vec::new();
    let mut bytes = text.as_bytes();
    while let Some((first, rest)) = bytes.split_first() {
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                bytes = &rest[2..];
            }
            _ => {
                plain.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

impl Options {
    /// Parses `sim:` and `sim:?key=value&key=value`.
    ///
    /// # Errors
    /// Names the key, the value and the valid values.
    pub fn parse(url: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let rest = url.strip_prefix("sim:").unwrap_or(url);
        let mut others = Vec::new();
        for pair in rest.strip_prefix('?').unwrap_or(rest).split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = unescaped(value);
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
                return Err(format!("sim: unknown option {pair}; use one of {}", names.join(", ")));
            };
            let invalid = || format!("sim: invalid option {name}={value}; use {}", key.accepts);
            (key.read)(&mut options, &value).ok_or_else(invalid)?;
            if name == "trace" {
                options.trace = Some(trace::read(&value)?);
            }
            if !BESIDE_A_SCENARIO.contains(&name) {
                others.push(name);
            }
        }
        if let Some(name) = &options.scenario {
            scenario::find(name)
                .ok_or_else(|| format!("sim: unknown scenario {name}; --source sim:?scenario=list prints the names"))?;
            if let Some(other) = others.first() {
                return Err(format!("sim: scenario={name} decides the load and the engine; remove {other}"));
            }
        }
        Ok(options)
    }

    /// What is simulated.
    #[must_use]
    pub fn config(&self, host: &Host) -> Config {
        if let Some(scenario) = self.scenario.as_deref().and_then(scenario::find) {
            let mut config = Config { keeps_requests: false, ..scenario.config };
            config.statistics.rows = host.rows || self.request_stats;
            // Neither the queue nor rows of it may grow without end.
            let waiting = if config.statistics.rows { WAITING } else { 2000 };
            config.load.in_flight.get_or_insert(config.limits.max_batch_size as usize + waiting);
            return config;
        }
        let limits = self.limits(host);
        let cache = self.cache(host);
        let load = self.load(&limits, &cache);
        Config {
            release: host.release,
            costs: self.costs(),
            speculation: (self.draft_len > 0).then_some(Speculation {
                draft_len: self.draft_len,
                acceptance: self.acceptance,
                // A draft token costs this share of an iteration of the target model.
                seconds_per_position: 0.06e-3 * self.iter_base_ms,
            }),
            role: if self.is_disaggregated { Role::GenerationOnly } else { Role::Aggregated },
            transfer: Transfer { bytes_per_second: 65e9, seconds: 0.0 },
            frontend: Frontend {
                seconds_per_request: 0.0,
                seconds_per_prompt_token: 0.0,
                seconds_per_output_token: 0.0,
                workers: 1,
                max_wait: f64::INFINITY,
            },
            ranks: Ranks { attention_dp: self.ranks, ..Config::default().ranks },
            faults: vec![Fault::LoseRecords { share: self.losing }],
            statistics: Statistics { rows: host.rows || self.request_stats, ..Config::default().statistics },
            keeps_requests: false,
            limits,
            cache,
            load,
            ..Config::default()
        }
    }

    fn limits(&self, host: &Host) -> Limits {
        let by_use = self.max_utilization.unwrap_or(false);
        let policy = match self.is_static.unwrap_or(false) {
            true => Policy::Static,
            false if by_use => Policy::MaxUtilization,
            false => Policy::GuaranteedNoEvict,
        };
        Limits {
            max_batch_size: self.max_batch_size.unwrap_or(64),
            max_num_tokens: self.max_num_tokens.unwrap_or(2048),
            policy,
            chunked_context: host.chunked_context,
            max_queue: usize::MAX,
        }
    }

    fn cache(&self, host: &Host) -> CacheConfig {
        CacheConfig {
            blocks: self.kv_blocks.max(2),
            host_blocks: self.host_blocks,
            tokens_per_block: self.tokens_per_block,
            reuse: host.reuse,
            ..Config::default().cache
        }
    }

    fn costs(&self) -> Costs {
        Costs {
            host: 0.0,
            host_per_request: 0.0,
            base: self.iter_base_ms / 1e3,
            per_context_token: self.ctx_token_us / 1e6,
            per_generation_token: self.gen_request_us / 1e6,
            per_attention_pair: 0.0,
            per_kv_token: 0.0,
            graphs: Vec::new(),
            jitter: self.jitter,
            ..Costs::default()
        }
    }

    fn load(&self, limits: &Limits, cache: &CacheConfig) -> Load {
        // A log-normal length with this mean, limited so that one request cannot fill the cache.
        let length = |mean: u32, sigma: f64| Length::Lognormal {
            median: f64::from(mean) * (-0.5 * sigma * sigma).exp(),
            sigma,
            max: mean.saturating_mul(6),
        };
        let max_sequence = (u64::from(cache.blocks) * u64::from(cache.tokens_per_block)).min(1 << 20) as u32;
        let max_sequence = max_sequence - self.draft_len.min(max_sequence - 2);
        let arrivals = match &self.trace {
            Some(trace) => Arrivals::Recorded(trace.clone()),
            None if self.rate > 0.0 => Arrivals::Day { mean: self.rate, swing: self.wave, period: self.wave_period },
            None => Arrivals::Submitted,
        };
        Load {
            arrivals,
            prompt: length(self.prompt_mean, 0.7),
            output: length(self.output_mean, 0.6),
            prefixes: (self.prefix_tokens > 0 && self.prefix_share > 0.0)
                .then_some(Prefixes { families: 4, tokens: self.prefix_tokens }),
            prefix_share: self.prefix_share,
            prefix_is_part: true,
            timeout: self.timeout,
            requests: self.requests,
            in_flight: Some(self.in_flight.unwrap_or(limits.max_batch_size as usize + WAITING)),
            max_prompt: if limits.chunked_context { max_sequence } else { max_sequence.min(limits.max_num_tokens + 1) }
                - 1,
            max_sequence,
            ..Load::default()
        }
    }

    /// The mean length of answers.
    #[must_use]
    pub fn output_mean(&self) -> u32 {
        self.output_mean
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scenario: None,
            seed: 1,
            speed: 1.0,
            load_seconds: 0.0,
            iterations: None,
            rank: 0,
            is_orchestrated: None,
            throws: None,
            request_stats: false,
            rate: 8.0,
            wave: 0.6,
            wave_period: 60.0,
            trace: None,
            requests: None,
            in_flight: None,
            prompt_mean: 600,
            output_mean: 120,
            prefix_share: 0.6,
            prefix_tokens: 384,
            max_batch_size: None,
            max_num_tokens: None,
            kv_blocks: 512,
            host_blocks: 0,
            tokens_per_block: 32,
            max_utilization: None,
            is_static: None,
            iter_base_ms: 8.0,
            ctx_token_us: 12.0,
            gen_request_us: 60.0,
            jitter: 0.05,
            draft_len: 0,
            acceptance: 0.7,
            is_disaggregated: false,
            ranks: 1,
            timeout: None,
            losing: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_found_and_decides_the_rest() {
        let options = Options::parse("sim:?scenario=kv-thrash&seed=3&speed=10").unwrap();
        assert_eq!((options.seed, options.speed), (3, 10.0));
        assert!(options.config(&Host::default()).cache.host_blocks > 0 || options.scenario.is_some());
        let error = Options::parse("sim:?scenario=kv-thrash&rate=3").unwrap_err();
        assert!(error.ends_with("remove rate"), "{error}");
        let error = Options::parse("sim:?scenario=nothing").unwrap_err();
        assert!(error.contains("unknown scenario nothing") && error.contains("list"), "{error}");
    }

    #[test]
    fn lengths_fit_the_cache() {
        for url in ["sim:?kv_blocks=2", "sim:?kv_blocks=2&spec_draft_len=64", "sim:?tokens_per_block=1&kv_blocks=2"] {
            let load = Options::parse(url).unwrap().config(&Host::default()).load;
            assert!(load.max_prompt >= 1 && load.max_sequence > load.max_prompt, "{url}");
        }
    }
}
