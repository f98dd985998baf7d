//! Runs an engine, the poll driver and readers in one deterministic loop in virtual time. The seed determines
//! everything, so it reproduces a failure: `TRTLLM_SIMULATION_SEED=N cargo test -p trtllm-intake simulation`.
//! `TRTLLM_SIMULATION_POLLS` sets the polls of a run, `TRTLLM_SIMULATION_RECORDS` the most records between two polls
//! (`.ci/full simulation`).

mod world;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::intake::Intake;
use crate::poll::{Driver, Schedule};
use trtllm_engines::State;
use trtllm_fold::{EngineState, EngineTotals};
use trtllm_page::metrics::catalog::Profile;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::metrics::page_builder::{PageBuilder, Selection};
use trtllm_page::{exposition, exposition::negotiate::Format};
use trtllm_records::EngineName;
use trtllm_service::shutdown;
use trtllm_service::supervise::Heartbeats;
use trtllm_sim::random::Random;
use trtllm_sources::{Batch, Source, TestPoll};

use world::{FEW, World};

const SCHEDULE: Schedule = Schedule { interval: Duration::from_millis(100), timeout: Duration::from_secs(5) };
const STALE_AFTER: Duration = Duration::from_secs(15);

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new(0, FEW));
}

fn world<T>(with: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(with)
}

fn now() -> Duration {
    thread_local!(static START: tokio::time::Instant = tokio::time::Instant::now());
    START.with(tokio::time::Instant::elapsed)
}

/// A scraper. It checks that totals never fall, that the state fits the age of the last answer, and that the page
/// agrees with both.
struct Reader {
    state: Arc<State>,
    builder: PageBuilder,
    before: Option<[u64; 7]>,
    reads: u64,
}

fn totals(totals: &EngineTotals) -> [u64; 7] {
    [
        totals.iterations,
        totals.losses.lost,
        totals.engine_restarts,
        totals.batch.tokens.context,
        totals.batch.tokens.generation,
        totals.kv.reused_blocks.unwrap_or(0).cast_unsigned(),
        totals.iteration_latency.count(),
    ]
}

impl Reader {
    fn read(&mut self) {
        let (state, seen) = {
            let slots = self.state.slots();
            let engine = slots[0].lock();
            (engine.state, totals(engine.totals()))
        };
        if let Some(before) = self.before {
            assert!(seen.iter().zip(before).all(|(now, before)| *now >= before), "{before:?} fell to {seen:?}");
        }
        self.before = Some(seen);
        self.reads += 1;
        // An answer of the last two milliseconds may not be folded yet.
        let settled = now().saturating_sub(Duration::from_millis(2));
        let silent = world(|world| world.answered(settled)).map(|answered| settled - answered);
        let answers_now = world(|world| world.answered(now()) != world.answered(settled));
        match state {
            EngineState::Starting => assert!(seen[0] == 0, "starting with {} iterations", seen[0]),
            EngineState::Unreachable => {
                // An engine with work outstanding is unreachable that long after its last batch.
                let least = STALE_AFTER / 2 - Duration::from_millis(2);
                assert!(silent.is_some_and(|silent| silent >= least), "unreachable after {silent:?}");
            }
            state @ (EngineState::Busy | EngineState::Idle | EngineState::Stalled) => {
                let fresh = answers_now || silent.is_some_and(|silent| silent < STALE_AFTER);
                assert!(fresh, "{state:?} after {silent:?}");
            }
        }
        let idle = world(|world| world.shown_idle(settled));
        assert!(!(idle && state == EngineState::Stalled), "an engine without requests is stalled");
        // Building a page takes far longer than the other checks.
        if self.reads.is_multiple_of(64) {
            let page = self.builder.page(&self.state, &HttpMetrics::new(), Selection::All);
            let mut text = Vec::new();
            exposition::render(&page, Format::Text, &mut text);
            let text = String::from_utf8(text).expect("a page in UTF-8");
            let iterations = format!("\nnv_trt_llm_iterations_total{{model=\"m\",version=\"1\"}} {}\n", seen[0]);
            assert!(text.contains(&iterations), "{iterations}");
            let load = text.contains("nv_trt_llm_request_metrics{model=\"m\",request_type=\"active\"");
            assert_eq!(load, matches!(state, EngineState::Busy | EngineState::Idle), "{state:?}");
            assert!(!text.contains("NaN") && !text.contains("Inf\n"));
        }
    }
}

fn poll(batch: &mut Batch) -> TestPoll {
    let now = now();
    world(|world| world.poll(batch, now))
}

/// Checks the totals and the state once all records are delivered.
fn check_end(state: &State) {
    let truth = world(|world| world.truth);
    let slots = state.slots();
    let engine = slots[0].lock();
    assert_eq!(totals(engine.totals())[..6], truth.totals(), "iterations, lost, restarts, context, generation, reused");
    let rejected = engine.source.metrics.rejected.iter().map(|count| count.get()).sum::<u64>();
    assert_eq!(rejected, truth.rejected, "rejected");
    assert!(matches!(engine.state, EngineState::Busy | EngineState::Idle), "{:?}", engine.state);
}

/// Runs the simulation with one seed. Panics if a number is wrong.
async fn run(seed: u64, polls: u64, most: u64) {
    world(|world| *world = World::new(seed, most));
    let name = EngineName::new("m", "1", "test");
    let state = Arc::new(State::new(vec![name]));
    let (events, _received) = tokio::sync::mpsc::unbounded_channel();
    let heartbeat = Heartbeats::default().register("the driver".to_owned());
    let driver = Driver::new(Intake::new(Arc::clone(&state.slots()[0]), STALE_AFTER), SCHEDULE, events, heartbeat);
    let (trigger, shutdown) = shutdown::channel();
    let driving = tokio::spawn(driver.run(std::future::ready(Ok(Source::Test(poll))), shutdown));
    let builder = PageBuilder::new(CompatSets::default(), Profile::Full);
    let mut reader = Reader { state: Arc::clone(&state), builder, before: None, reads: 0 };
    let mut random = Random::new(seed ^ 0x5eed);
    while world(|world| world.polls) < polls {
        tokio::time::sleep(Duration::from_micros(random.below(1_000_000))).await;
        assert!(!driving.is_finished(), "the driver has ended");
        reader.read();
    }
    // Without further faults, all records are delivered, and a working engine shows its load, also if it has just started.
    world(World::calm);
    let drained = world(|world| world.polls) + 250;
    while world(|world| world.polls) < drained {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    check_end(&state);
    trigger.stop();
    driving.await.expect("the driver ends");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn totals_are_exact_and_nothing_stale_is_shown_whatever_happens() {
    let polls = number("TRTLLM_SIMULATION_POLLS").unwrap_or(4_000);
    let most = number("TRTLLM_SIMULATION_RECORDS").unwrap_or(FEW);
    let one_seed = number("TRTLLM_SIMULATION_SEED");
    let seeds = one_seed.map_or(1..=12, |seed| seed..=seed);
    let mut all = [0; 4];
    for seed in seeds {
        // Each seed has a thread, for its own world and its own clock.
        let simulated = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime").block_on(async {
                run(seed, polls, most).await;
                world(|world| (world.truth, now()))
            })
        });
        let Ok((truth, time)) = simulated.join() else { panic!("TRTLLM_SIMULATION_SEED={seed} fails") };
        println!("seed {seed}: {polls} polls in {} s of virtual time, {truth:?}", time.as_secs());
        all.iter_mut().zip(truth.events()).for_each(|(all, more)| *all += more);
    }
    println!("records, lost, rejected, restarts: {all:?}");
    assert!(one_seed.is_some() || all.iter().all(|&count| count > 0), "a kind of event has never happened: {all:?}");
}
