//! The options of `sim:?key=value&…`. One table lists each key, its valid values and what it sets.

use crate::config::{CacheConfig, Config, Fault, Frontend, Limits, Policy, Release, Role, Speculation, Transfer};
use crate::cost::Costs;
use crate::load::{Arrival, Arrivals, Length, Load, Prefixes, prefix_name};
use crate::scenario;

/// The options of one engine.
#[derive(Debug, Clone)]
pub struct Options {
    pub scenario: Option<String>,
    pub seed: u64,
    /// Simulated seconds per real second. Infinite: as fast as possible.
    pub speed: f64,
    /// Real seconds that opening the engine takes.
    pub load_seconds: f64,
    /// The engine hangs after this many iterations.
    pub iterations: Option<u64>,
    pub rank: u32,
    /// Which exception each call of the C++ Executor throws: `standard` or `foreign`.
    pub throws: Option<String>,
    pub request_stats: bool,
    output_mean: u32,
    prompt_mean: u32,
    rate: f64,
    wave: f64,
    wave_period: f64,
    /// Standard deviation of the logarithm of lengths. If absent, 0.7 for prompts and 0.6 for answers.
    spread: Option<f64>,
    trace: Option<Vec<Arrival>>,
    prefix_tokens: u32,
    is_static: bool,
    iter_base_ms: f64,
    draft_len: u32,
    acceptance: f64,
    /// The engine that the options describe. Without a scenario, `config` starts from it.
    engine: Config,
}

/// Settings that the host program has in its own configuration, and not in the URL.
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
    // [`Options::parse`] reads the file, because errors in the file have texts of their own.
    "trace", "a file name", _o, v => Some(v).filter(|name| !name.is_empty()).map(drop)?;
    "requests", NUMBER, o, v => o.engine.load.requests = Some(number(v, 0, u64::MAX)?);
    "iterations", NUMBER, o, v => o.iterations = Some(number(v, 0, u64::MAX)?);
    "in_flight", "1 to 1000000 requests", o, v => o.engine.load.in_flight = Some(number(v, 1, 1_000_000)?);
    "max_tokens", TOKENS, o, v => o.engine.load.max_new_tokens = Some(number(v, 1, 1_000_000)?);
    "spread", "0 to 2", o, v => o.spread = Some(number(v, 0.0, 2.0)?);
    "prompt_mean", TOKENS, o, v => o.prompt_mean = number(v, 1, 1_000_000)?;
    "output_mean", TOKENS, o, v => o.output_mean = number(v, 1, 1_000_000)?;
    "prefix_share", "0 to 1", o, v => o.engine.load.prefix_share = number(v, 0.0, 1.0)?;
    "prefix_tokens", "0 to 1000000 tokens", o, v => o.prefix_tokens = number(v, 0, 1_000_000)?;
    "load_seconds", "0 to 86400", o, v => o.load_seconds = number(v, 0.0, 86400.0)?;
    "max_batch_size", "1 to 65536", o, v => o.engine.limits.max_batch_size = number(v, 1, 65536)?;
    "max_num_tokens", "1 to 1000000", o, v => o.engine.limits.max_num_tokens = number(v, 1, 1_000_000)?;
    "kv_blocks", "2 to 10000000", o, v => o.engine.cache.blocks = number(v, 2, 10_000_000)?;
    "host_blocks", "0 to 10000000", o, v => o.engine.cache.host_blocks = number(v, 0, 10_000_000)?;
    "tokens_per_block", "1 to 1024", o, v => o.engine.cache.tokens_per_block = number(v, 1, 1024)?;
    "policy", "max_utilization or guaranteed_no_evict", o, v => o.engine.limits.policy = policy(v)?;
    "credits_reuse", "0 or 1", o, v => o.engine.limits.credits_reuse = word(v, "0", "1")?;
    "batching", "inflight or static", o, v => o.is_static = word(v, "inflight", "static")?;
    "iter_base_ms", "0.001 to 60000", o, v => o.iter_base_ms = number(v, 0.001, 60000.0)?;
    "ctx_token_us", "0 to 1000000", o, v => o.engine.costs.per_context_token = number(v, 0.0, 1e6)? / 1e6;
    "gen_request_us", "0 to 1000000", o, v => o.engine.costs.per_generation_token = number(v, 0.0, 1e6)? / 1e6;
    "steps_ms", "requests:milliseconds, ascending and separated by commas", o, v => o.engine.costs.steps = steps(v)?;
    "graphs", "batch sizes, ascending and separated by commas", o, v => o.engine.costs.graphs = ascending(v)?;
    "eager_ms", "0 to 60000", o, v => o.engine.costs.eager = number(v, 0.0, 60000.0)? / 1e3;
    "host_ms", "0 to 60000", o, v => o.engine.costs.host = number(v, 0.0, 60000.0)? / 1e3;
    "host_request_us", "0 to 1000000", o, v => o.engine.costs.host_per_request = number(v, 0.0, 1e6)? / 1e6;
    "overlap", "0 or 1", o, v => o.engine.costs.overlap = word(v, "0", "1")?;
    "jitter", "0 to 1", o, v => o.engine.costs.jitter = number(v, 0.0, 1.0)?;
    "spec_draft_len", "0 to 64 tokens", o, v => o.draft_len = number(v, 0, 64)?;
    "spec_acceptance", "0 to 1", o, v => o.acceptance = number(v, 0.0, 1.0)?;
    "disagg", "generation, context, 1 for generation, or 0", o, v => o.engine.role = role(v)?;
    "transfer_ms", "0 to 60000", o, v => o.engine.transfer.seconds = number(v, 0.0, 60000.0)? / 1e3;
    "transfer_gbps", "0.001 to 100000 gigabits per second", o, v =>
        o.engine.transfer.bytes_per_second = number(v, 0.001, 1e5)? * 1e9 / 8.0;
    "ranks", "1 to 64 ranks of attention data parallelism", o, v => o.engine.ranks.attention_dp = number(v, 1, 64)?;
    "imbalance", "0 to 1", o, v => o.engine.ranks.imbalance = number(v, 0.0, 1.0)?;
    "frontend_request_ms", "0 to 60000", o, v => o.engine.frontend.seconds_per_request = number(v, 0.0, 60000.0)? / 1e3;
    "frontend_token_us", "0 to 1000000", o, v =>
        o.engine.frontend.seconds_per_output_token = number(v, 0.0, 1e6)? / 1e6;
    "wedge_s", "0 to 86400", o, v => o.engine.faults = vec![Fault::Wedge { at: number(v, 0.0, 86400.0)? }];
    "nonstream", "0 to 1", o, v => o.engine.load.nonstream_share = number(v, 0.0, 1.0)?;
    "timeout_s", "0.001 to 86400", o, v => o.engine.load.timeout = Some(number(v, 0.001, 86400.0)?);
    "losing", "0 to 1", o, v => o.engine.faults = vec![Fault::LoseRecords { share: number(v, 0.0, 1.0)? }];
    "rank", "0 to 65535", o, v => o.rank = number(v, 0, 65535)?;
    "throws", "standard or foreign", o, v => { word(v, "standard", "foreign")?; o.throws = Some(v.to_owned()) };
    "request_stats", "0 or 1", o, v => o.request_stats = word(v, "0", "1")?;
];

/// How many requests may wait in addition to a full batch while rows are reported. The limit is low, because each
/// request has a row in every iteration.
const WAITING: usize = 256;

/// Keys that may be given together with a scenario.
const BESIDE_A_SCENARIO: [&str; 5] = ["scenario", "seed", "speed", "load_seconds", "request_stats"];

/// Parses a number in the range from `least` to `most`. NaN is in no range.
fn number<T: std::str::FromStr + PartialOrd>(text: &str, least: T, most: T) -> Option<T> {
    let value = text.parse::<T>().ok().filter(|_| !text.starts_with('+'))?;
    (value >= least && value <= most).then_some(value)
}

/// False for the first word, true for the second.
fn word(text: &str, first: &str, second: &str) -> Option<bool> {
    (text == first || text == second).then_some(text == second)
}

/// Numbers that are separated by commas, each above the one before.
fn ascending(text: &str) -> Option<Vec<u32>> {
    let sizes: Vec<u32> = text.split(',').map(|size| number(size, 1, 65536)).collect::<Option<_>>()?;
    sizes.is_sorted_by(|one, next| one < next).then_some(sizes)
}

fn steps(text: &str) -> Option<Vec<(u32, f64)>> {
    let (sizes, times): (Vec<_>, Vec<_>) = text.split(',').map(|step| step.split_once(':')).collect::<Option<_>>()?;
    let seconds = times.iter().map(|ms| Some(number(ms, 0.001, 60000.0)? / 1e3));
    Some(ascending(&sizes.join(","))?.into_iter().zip(seconds.collect::<Option<Vec<f64>>>()?).collect())
}

fn policy(text: &str) -> Option<Policy> {
    match text {
        "guaranteed_no_evict" => Some(Policy::GuaranteedNoEvict),
        "max_utilization" => Some(Policy::MaxUtilization),
        _ => None,
    }
}

fn role(text: &str) -> Option<Role> {
    match text {
        "0" => Some(Role::Aggregated),
        "1" | "generation" => Some(Role::GenerationOnly),
        "context" => Some(Role::ContextOnly),
        _ => None,
    }
}

/// Reads a file with one request per line: seconds, prompt tokens, output tokens and, optionally, the number of the shared prefix with
/// which the prompt begins. Blanks or commas separate the fields, and `#` starts a comment.
fn read_trace(file: &str) -> Result<Vec<Arrival>, String> {
    let unreadable = |error: std::io::Error| format!("sim: cannot read trace={file}: {error}; name a readable file");
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let mut trace = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let fields: Vec<_> = line.split([' ', '\t', ',', '\r']).filter(|field| !field.is_empty()).collect();
        if fields.is_empty() {
            continue;
        }
        let arrival = parse_arrival(&fields).ok_or_else(|| {
            format!("sim: option trace={file}: line {number} is invalid; write seconds, prompt tokens, output tokens")
        })?;
        trace.push(arrival);
    }
    trace.sort_by(|a: &Arrival, b| a.at.total_cmp(&b.at));
    Ok(trace)
}

/// The request of one line.
fn parse_arrival(fields: &[&str]) -> Option<Arrival> {
    let tokens = |at: usize| number::<u32>(fields.get(at)?, 1, i32::MAX as u32);
    let at = number(fields.first()?, 0.0, f64::MAX)?;
    let family = fields.get(3).and_then(|field| number::<u64>(field, 1, u64::MAX));
    let prefix = family.map(|family| (prefix_name(family), 384));
    let output = tokens(2)?;
    Some(Arrival { at, prompt: tokens(1)?, output, max_new_tokens: output, prefix, ..Arrival::default() })
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
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
                // Other texts may be secrets.
                let is_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                let name = if is_name { name } else { "without a name" };
                return Err(format!("sim: unknown option {name}; use one of {}", names.join(", ")));
            };
            let invalid = || format!("sim: invalid option {name}={value}; use {}", key.accepts);
            (key.read)(&mut options, value).ok_or_else(invalid)?;
            if name == "trace" {
                options.trace = Some(read_trace(value)?);
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

    /// The configuration of the simulation.
    #[must_use]
    pub fn config(&self, host: &Host) -> Config {
        let rows = host.rows || self.request_stats;
        if let Some(scenario) = self.scenario.as_deref().and_then(scenario::find) {
            let mut config = Config { keeps_requests: false, ..scenario.config };
            config.statistics.rows = rows;
            // Bounds the queue and its rows. Requests in the waiting queue of the PyTorch loop have no rows.
            let waiting = if rows && !config.release.has_waiting_queue() { WAITING } else { 20_000 };
            config.load.in_flight.get_or_insert(config.limits.max_batch_size as usize + waiting);
            return config;
        }
        let mut config = self.engine.clone();
        config.release = host.release;
        config.cache.reuse = host.reuse;
        config.statistics.rows = rows;
        config.costs.base = self.iter_base_ms / 1e3;
        config.speculation = (self.draft_len > 0).then_some(Speculation {
            draft_len: self.draft_len,
            acceptance: self.acceptance,
            // Each draft position adds 6 % of the target model's `iter_base_ms`.
            seconds_per_position: 0.06e-3 * self.iter_base_ms,
        });
        config.limits.chunked_context = host.chunked_context;
        if self.is_static {
            config.limits.policy = Policy::Static;
        }
        self.set_load(&mut config);
        config
    }

    /// Sets the members of the load that depend on several options or on the limits.
    fn set_load(&self, config: &mut Config) {
        let Config { load, limits, cache, .. } = config;
        // A log-normal length with this mean, limited to six times the mean.
        let length = |mean: u32, sigma: f64| Length::Lognormal {
            median: f64::from(mean) * (-0.5 * sigma * sigma).exp(),
            sigma,
            max: mean.saturating_mul(6),
        };
        load.prompt = length(self.prompt_mean, self.spread.unwrap_or(0.7));
        load.output = length(self.output_mean, self.spread.unwrap_or(0.6));
        load.arrivals = match &self.trace {
            Some(trace) => Arrivals::Recorded(trace.clone()),
            None if self.rate > 0.0 => Arrivals::Day { mean: self.rate, swing: self.wave, period: self.wave_period },
            None => Arrivals::Submitted,
        };
        load.prefixes = (self.prefix_tokens > 0 && load.prefix_share > 0.0)
            .then_some(Prefixes { families: 4, tokens: self.prefix_tokens });
        load.in_flight.get_or_insert(limits.max_batch_size as usize + WAITING);
        let in_cache = (u64::from(cache.blocks) * u64::from(cache.tokens_per_block)).min(1 << 20) as u32;
        load.max_sequence = in_cache - self.draft_len.min(in_cache - 2);
        let longest = if limits.chunked_context { u32::MAX } else { limits.max_num_tokens };
        load.max_prompt = longest.min(load.max_sequence - 1);
    }
}

impl Default for Options {
    fn default() -> Self {
        let engine = Config {
            limits: Limits { max_num_tokens: 2048, max_queue: usize::MAX, ..Config::default().limits },
            cache: CacheConfig { blocks: 512, ..Config::default().cache },
            costs: Costs {
                host: 0.0,
                host_per_request: 0.0,
                per_context_token: 12e-6,
                per_attention_pair: 0.0,
                per_generation_token: 60e-6,
                per_kv_token: 0.0,
                graphs: Vec::new(),
                jitter: 0.05,
                ..Costs::default()
            },
            transfer: Transfer { bytes_per_second: 65e9, seconds: 0.0 },
            frontend: Frontend {
                seconds_per_request: 0.0,
                seconds_per_prompt_token: 0.0,
                seconds_per_output_token: 0.0,
                workers: 1,
                max_wait: f64::INFINITY,
            },
            load: Load { prefix_share: 0.6, prefix_is_part: true, ..Load::default() },
            keeps_requests: false,
            ..Config::default()
        };
        Self {
            scenario: None,
            seed: 1,
            speed: 1.0,
            load_seconds: 0.0,
            iterations: None,
            rank: 0,
            throws: None,
            request_stats: false,
            output_mean: 120,
            prompt_mean: 600,
            rate: 8.0,
            wave: 0.6,
            wave_period: 60.0,
            spread: None,
            trace: None,
            prefix_tokens: 384,
            is_static: false,
            iter_base_ms: 8.0,
            draft_len: 0,
            acceptance: 0.7,
            engine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_a_word_or_the_number_of_older_command_lines() {
        for (value, role) in [
            ("0", Role::Aggregated),
            ("1", Role::GenerationOnly),
            ("generation", Role::GenerationOnly),
            ("context", Role::ContextOnly),
        ] {
            let options = Options::parse(&format!("sim:?disagg={value}")).unwrap();
            assert_eq!(options.config(&Host::default()).role, role, "{value}");
        }
        let error = Options::parse("sim:?disagg=2").unwrap_err();
        assert!(error.ends_with("use generation, context, 1 for generation, or 0"), "{error}");
        let transfer = Options::parse("sim:?transfer_ms=20&transfer_gbps=8").unwrap().config(&Host::default()).transfer;
        assert_eq!((transfer.seconds, transfer.bytes_per_second), (0.02, 1e9));
    }

    #[test]
    fn steps_and_graphs_are_lists_in_ascending_order() {
        let costs = Options::parse("sim:?steps_ms=1:4,8:5.5&graphs=1,8").unwrap().config(&Host::default()).costs;
        assert_eq!((costs.steps, costs.graphs), (vec![(1, 0.004), (8, 0.0055)], vec![1, 8]));
        for wrong in ["steps_ms=8:5,1:4", "steps_ms=1", "graphs=8,8", "graphs="] {
            assert!(Options::parse(&format!("sim:?{wrong}")).unwrap_err().contains("ascending"), "{wrong}");
        }
    }

    #[test]
    fn lengths_fit_the_cache() {
        for url in ["sim:?kv_blocks=2", "sim:?kv_blocks=2&spec_draft_len=64", "sim:?tokens_per_block=1&kv_blocks=2"] {
            let load = Options::parse(url).unwrap().config(&Host::default()).load;
            assert!(load.max_prompt >= 1 && load.max_sequence > load.max_prompt, "{url}");
        }
    }
}
