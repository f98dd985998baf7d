//! A simulated engine in this process. It writes records as TensorRT-LLM's JSON, which the other sources' parsers read.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use trtllm_records::{EngineAbout, EngineSettings};
use trtllm_sim::config::{Config, Release};
use trtllm_sim::options::{Host, Options};
use trtllm_sim::write::{self, Version};
use trtllm_sim::{Engine, Step};

use super::batch::{Batch, Presence};
use super::error::{OpenError, SourceError};
use super::trtllm_json::{PublisherLine, parse_line, parse_perf_metrics, parse_records};

/// Limit of the steps in one poll: an engine at the highest speed must not fill the memory.
const MAX_STEPS: usize = 2048;
/// Longest time of one poll. If this machine is too slow for the option `speed`, the simulated time falls behind.
const MAX_TIME: Duration = Duration::from_millis(50);

/// Whether only [`Simulated`] can simulate this `sim:` URL. The simulated C++ Executor has no PyTorch backend.
pub fn is_in_process(url: &str) -> bool {
    let options = Options::parse(url).ok().filter(|options| options.scenario.is_some());
    options.is_some_and(|options| !options.config(&Host::default()).release.is_cpp())
}

/// A running engine.
#[derive(Debug)]
pub struct Simulated {
    pub(super) target: String,
    options: Options,
    engine: Engine,
    started: Option<(Instant, i64)>,
    /// When the next step of the engine is due. `None` if nothing more will happen.
    next: Option<f64>,
}

impl Simulated {
    /// Fails if an option is invalid.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Engine { engine: url.to_owned(), cause };
        let options = Options::parse(url).map_err(failed)?;
        if options.throws.is_some() || options.rank > 0 {
            return Err(failed("sim: throws and rank are for the C++ Executor; remove them".to_owned()));
        }
        let engine = Engine::new(options.config(&Host { rows: false, ..Host::default() }), options.seed);
        Ok(Self { target: url.to_owned(), options, engine, started: None, next: Some(0.0) })
    }

    pub(super) fn is_loading(&self) -> bool {
        self.started.is_none_or(|(started, _)| started.elapsed().as_secs_f64() < self.options.load_seconds)
    }

    pub(super) fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let (started, wall) = *self.started.get_or_insert_with(|| {
            batch.about = Some(about(self.engine.config()));
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            (Instant::now(), wall.as_micros() as i64)
        });
        let Some(elapsed) = started.elapsed().checked_sub(Duration::from_secs_f64(self.options.load_seconds)) else {
            return Ok(Presence::Loading);
        };
        // Zero times an infinite speed would not be a number.
        let until = elapsed.as_secs_f64().max(f64::MIN_POSITIVE) * self.options.speed;
        let began = Instant::now();
        for _ in 0..MAX_STEPS {
            if began.elapsed() > MAX_TIME {
                break;
            }
            let hangs = self.options.iterations.is_some_and(|most| self.engine.truth().iterations >= most);
            let Some(at) = self.next.filter(|at| *at <= until && !hangs) else { break };
            let mut step = self.engine.step(at);
            self.next = step.next;
            // Timestamps are in real time, so a higher speed brings records closer together.
            step.records.iter_mut().for_each(|record| record.at /= self.options.speed);
            let read = read_step(&step, self.engine.config().release, wall, batch);
            read.map_err(|cause| SourceError::Engine { cause })?;
        }
        match self.engine.is_up(until) {
            true => Ok(Presence::Present),
            false if self.engine.truth().restarts == 0 => Ok(Presence::Loading),
            false => Err(SourceError::Connect { target: self.target.clone(), cause: "the engine restarts".to_owned() }),
        }
    }
}

/// Reads what an engine of this release reports in a step. `epoch_us`: the wall clock at virtual time 0, in µs since 1970.
/// Fails if the reports are not those of an engine.
pub fn read_step(step: &Step, release: Release, epoch_us: i64, batch: &mut Batch) -> Result<(), String> {
    let text = |values: Vec<Value>| Value::from(values).to_string();
    let records = step.records.iter().map(|record| write::record(record, release, epoch_us)).collect();
    parse_records(text(records).as_bytes(), batch).map_err(|error| error.to_string())?;
    // The record of an iteration comes before its rows.
    for (iter, rows) in &step.rows {
        match parse_line(write::rows(*iter, rows, release).to_string().as_bytes()) {
            Ok(PublisherLine::Message(item)) => batch.push(item),
            Ok(PublisherLine::Hello(_)) => {}
            Err(reason) => batch.reject(reason),
        }
    }
    // The program that hosts the C++ Executor publishes entries with the ids of the rows.
    let version = if release.is_cpp() { Version::Host } else { Version::V2 };
    let entries = step.entries.iter().map(|entry| write::entry(entry, version)).collect();
    parse_perf_metrics(text(entries).as_bytes(), batch).map_err(|error| error.to_string())
}

fn about(config: &Config) -> EngineAbout {
    let (backend, version) = match config.release {
        Release::Cpp { major, minor } => ("tensorrt", format!("{major}.{minor}.0+simulated")),
        Release::PyTorch { .. } => ("pytorch", "1.3.0+simulated".to_owned()),
    };
    let mut settings = EngineSettings::default();
    settings.set("max_batch_size", &config.limits.max_batch_size.to_string());
    settings.set("max_num_tokens", &config.limits.max_num_tokens.to_string());
    settings.set("tokens_per_block", &config.cache.tokens_per_block.to_string());
    EngineAbout {
        backend: Some(backend.to_owned()),
        version: Some(version),
        simulated: true,
        settings,
        ..EngineAbout::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_records::Message;

    /// Polls until there are at least `enough` records. A slow machine needs several polls.
    fn records(url: &str, enough: usize) -> usize {
        let mut source = Simulated::open(url).unwrap();
        let mut batch = Batch::default();
        let mut count = 0;
        for _ in 0..100 {
            batch.clear();
            source.poll(&mut batch).unwrap();
            count += batch.messages.iter().filter(|item| matches!(item, Message::Record(_))).count();
            if count >= enough || source.next.is_none() {
                break;
            }
        }
        count
    }

    #[test]
    fn an_engine_with_options_sends_records_and_the_error_names_an_invalid_option() {
        assert!(records("sim:?speed=max&requests=20", 101) > 100);
        let error = Simulated::open("sim:?rate=-1").unwrap_err().to_string();
        assert!(error.contains("sim: invalid option rate=-1"), "{error}");
    }

    #[test]
    fn only_pytorch_needs_this_engine_beside_an_executor() {
        assert!(is_in_process("sim:?scenario=context-work"));
        assert!(
            !is_in_process("sim:?scenario=context-work-cpp") && !is_in_process("sim:?rate=3") && !is_in_process("sim:")
        );
    }
}
