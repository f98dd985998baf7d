//! Tests the verdict in virtual time, with scenarios of the simulated engine, whose causes are known.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod disaggregated;
mod executor;
mod incidents;
mod play;
mod records_alone;
mod remedies;
#[path = "../../../sim/tests/truth/users.rs"]
mod users;

use std::sync::Mutex;
use std::time::Duration;

use play::Play;
use trtllm_records::Objectives;
use trtllm_sim::Config;
use trtllm_sim::config::{Fault, Slow};
use trtllm_sim::options::{Host, Options};
use trtllm_sim::scenario::{Scenario, all, drills, find};
use trtllm_verdict::blind::Blind;
use trtllm_verdict::cause::Cause;
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};
use trtllm_verdict::input::VerdictInput;
use trtllm_verdict::judge::judge;
use trtllm_verdict::verdict::{Severity, Verdict};

/// Seconds of virtual time in which a scenario is played. Restarts and model loads have not ended by then.
const UNTIL: f64 = 130.0;

/// Plays each scenario, on two threads, and collects what `wrong` finds.
fn play_all(wrong: impl Fn(&Scenario, &Play) -> Option<String> + Sync) -> Vec<String> {
    play_each(all(), |scenario, play| {
        play.until(UNTIL);
        wrong(scenario, play)
    })
}

/// The seed of the scenarios. `.ci/full situations` plays all of them with seeds that were not used to write the rules.
fn seed() -> u64 {
    let seed = std::env::var("TRTLLM_TEST_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("TRTLLM_TEST_SEED is a number"))
}

/// Lets `wrong` play these scenarios, on two threads, and collects what it finds.
fn play_each(scenarios: Vec<Scenario>, wrong: impl Fn(&Scenario, &mut Play) -> Option<String> + Sync) -> Vec<String> {
    let (scenarios, failures) = (Mutex::new(scenarios.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = scenarios.lock().unwrap().next();
                    let Some(scenario) = next else { return };
                    let mut play = Play::new(&scenario.config, seed());
                    let found = wrong(&scenario, &mut play).map(|text| format!("{}: {text}", scenario.name));
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

#[test]
fn each_situation_has_its_cause_and_a_remedy_that_helps_and_healthy_engines_have_none() {
    // For each scenario whose remedy names a setting: its name, the remedy, and whether the remedy helps.
    let tried = Mutex::new(Vec::new());
    let failures = play_all(|scenario, play| {
        let Some(verdict) = play.verdicts.verdict() else {
            // Without a request since its start, an engine has no record, so nobody knows whether it works.
            return (scenario.name != "healthy-idle").then(|| "no verdict".to_owned());
        };
        if let Some(wrong) = wrong_cause(scenario, verdict) {
            return Some(wrong);
        }
        if verdict.remedy.is_empty() == (verdict.cause != Cause::None) {
            return Some(format!("remedy {:?}", verdict.remedy));
        }
        let helps = remedies::helps(scenario, verdict);
        tried.lock().unwrap().extend(helps.map(|helps| (scenario.name.clone(), verdict.remedy.clone(), helps)));
        let alarm = play.history.iter().find(|(_, _, severity)| *severity > Severity::Info);
        if let ("none", Some((at, cause, _))) = (scenario.cause, alarm) {
            return Some(format!("a warning at {at} s: {}", cause.name()));
        }
        // The trouble begins in the first minute, so changes of the cause are expected until then.
        let causes: Vec<_> = play.history.iter().filter(|(at, ..)| *at > 70.0).map(|(_, cause, _)| *cause).collect();
        let changes = causes.windows(2).filter(|two| two[0] != two[1]).count();
        (changes > 2).then(|| format!("{changes} changes: {causes:?}"))
    });
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), all().len(), failures.join("\n"));
    let tried = tried.into_inner().unwrap();
    let useless: Vec<_> =
        tried.iter().filter(|(.., helps)| !helps).map(|(name, remedy, _)| format!("{name}: {remedy}")).collect();
    println!(
        "{} of {} remedies by a setting help; not these:\n{}",
        tried.len() - useless.len(),
        tried.len(),
        useless.join("\n")
    );
    assert!(
        tried.len() >= 60 && 20 * useless.len() <= tried.len(),
        "{} of {}:\n{}",
        useless.len(),
        tried.len(),
        useless.join("\n")
    );
}

/// What is wrong with the cause of a verdict. trtllm-serve does not count requests that fail, and the exporter says that it cannot see them.
fn wrong_cause(scenario: &Scenario, verdict: &Verdict) -> Option<String> {
    let is_unseen = scenario.cause == Cause::Errors.name() && !scenario.config.release.is_cpp();
    let expected = if is_unseen { Cause::None.name() } else { scenario.cause };
    let says_so = !is_unseen || verdict.blind.iter().any(|spot| spot.what == Blind::Failures.name());
    let is_right = verdict.cause.name() == expected && says_so;
    (!is_right).then(|| format!("{}, not {expected}: {} {:?}", verdict.cause.name(), verdict.says, verdict.blind))
}

/// As `sim:?scenario=drill-N` runs it.
fn drill(name: &str) -> Scenario {
    let options = Options::parse(&format!("sim:?scenario={name}")).unwrap();
    Scenario { config: options.config(&Host { rows: false, ..Host::default() }), ..find(name).unwrap() }
}

#[test]
fn each_drill_has_the_cause_of_its_scenario() {
    let played = drills().map(|(name, _)| drill(&name)).collect();
    let failures = play_each(played, |scenario, play| {
        play.until(UNTIL);
        let Some(verdict) = play.verdicts.verdict() else {
            // Without a request since its start, an engine has no record, so nobody knows whether it works.
            return (scenario.name != "healthy-idle").then(|| "no verdict".to_owned());
        };
        wrong_cause(scenario, verdict)
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn input(config: &Config) -> VerdictInput {
    let mut play = Play::new(config, 5);
    play.until(UNTIL);
    play.input().unwrap()
}

/// The cause after two minutes, with this change of the GPU's readings.
fn cause_with_gpu(name: &str, change: impl Fn(&mut GpuMark)) -> Cause {
    let scenario = all().into_iter().find(|scenario| scenario.name == name).unwrap();
    let mut play = Play::new(&scenario.config, 1);
    let mut cause = Cause::None;
    for until in (1..=24).map(|slot| 5.0 * f64::from(slot)) {
        play.until(until);
        let mut gpu = GpuWindow::new("GPU-0".to_owned());
        for mark in play.gpus[0].marks() {
            let mut mark = *mark;
            change(&mut mark);
            gpu.push(mark);
        }
        let input = VerdictInput::of(play.facts(), &play.window, &[gpu]);
        cause = input.and_then(|input| judge(&input, until)).map_or(cause, |verdict| verdict.cause);
    }
    cause
}

#[test]
fn a_gpu_that_takes_all_of_its_default_power_is_not_limited_by_its_clocks() {
    let at_limit = |lowered: Option<bool>| {
        cause_with_gpu("healthy-busy", |mark| {
            (mark.clock_share, mark.throttled_by_power) = (Some(0.8), Some(mark.at));
            mark.has_lowered_limit = lowered;
        })
    };
    assert_eq!(at_limit(Some(false)), Cause::None);
    assert_eq!(at_limit(Some(true)), Cause::Clocks);
    assert_eq!(at_limit(None), Cause::Clocks);
}

#[test]
fn the_time_of_spikes_is_the_true_one() {
    let faults = vec![Fault::Spike { every: 3.0, seconds: 0.8 }];
    let found = input(&Config { faults, ..Config::default() });
    let added = found.now.sums.spike_seconds / found.now.seconds;
    assert!((added / (0.8 / 3.0) - 1.0).abs() < 0.1, "{added}");
}

/// No limit is reached: a request alone takes longer than its objective.
#[test]
fn a_request_that_misses_its_objective_without_any_delay_is_explained() {
    let slow = |change: fn(&mut Config), objectives: Objectives| {
        let mut config = Config::default();
        change(&mut config);
        let mut play = Play::new(&config, 3);
        play.set_objectives(objectives);
        play.until(UNTIL);
        let verdict = play.verdicts.verdict().unwrap();
        (verdict.cause, verdict.severity, verdict.says.clone())
    };
    let limit = |seconds: f64| Some(Duration::from_secs_f64(seconds));
    // trtllm-serve does not report the time for each token.
    let e2e = Objectives { e2e: limit(2.0), ..Objectives::default() };
    let (cause, severity, says) = slow(|config| config.costs.base = 0.05, e2e);
    assert_eq!((cause, severity), (Cause::GenerationWork, Severity::Warning), "{says}");
    assert!(says.starts_with("Decoding takes ") && says.ends_with("and nothing delays it."), "{says}");
    let ttft = Objectives { ttft: limit(0.1), ..Objectives::default() };
    let (cause, severity, says) = slow(|config| config.costs.per_context_token *= 3.0, ttft);
    assert_eq!((cause, severity), (Cause::ContextWork, Severity::Warning), "{says}");
    let loose = Objectives { ttft: limit(10.0), e2e: limit(60.0), ..Objectives::default() };
    assert_eq!(slow(|_| (), loose).0, Cause::None);
}

#[test]
fn the_cost_names_the_missed_objective() {
    let scenario = find("batch-limit").unwrap();
    let mut play = Play::new(&scenario.config, 1);
    let ttft = Some(Duration::from_millis(500));
    play.set_objectives(Objectives { ttft, ..Objectives::default() });
    play.until(UNTIL);
    let verdict = play.verdicts.verdict().unwrap();
    assert_eq!((verdict.cause, verdict.severity), (Cause::BatchLimit, Severity::Warning));
    let cost = verdict.cost.as_deref().unwrap();
    assert!(cost.ends_with("of requests miss ttft=500 ms"), "{cost}");
    assert!(verdict.evidence.iter().any(|fact| fact.threshold.is_some_and(|limit| fact.value >= limit)));
}

/// An engine whose decoding batch grows for minutes, one of experts, and one whose load doubles its batch after the slowdown.
fn growing() -> Vec<(&'static str, Config)> {
    use trtllm_sim::cost::Experts;
    use trtllm_sim::load::{Arrivals, Length};
    let with = |set: fn(&mut Config)| {
        let mut config = Config::default();
        set(&mut config);
        config
    };
    vec![
        ("default", with(|_| ())),
        ("ramp", with(|c| c.load.arrivals = Arrivals::Ramp { from: 1.0, to: 14.0, seconds: 120.0 })),
        (
            "long answers",
            with(|c| {
                c.load.output = Length::Fixed(3000);
                c.load.arrivals = Arrivals::Poisson { rate: 0.8 };
                c.cache.blocks = 40_000;
            }),
        ),
        (
            "experts",
            with(|c| {
                c.costs.experts = Some(Experts { count: 64, per_token: 4, seconds: 80e-6 });
                c.load.arrivals = Arrivals::Ramp { from: 1.0, to: 16.0, seconds: 120.0 };
            }),
        ),
        ("busy", with(|c| c.load.arrivals = Arrivals::Poisson { rate: 12.0 })),
        ("slow graphs", with(|c| c.costs.per_generation_token = 250e-6)),
        (
            "slow host",
            with(|c| {
                (c.costs.host, c.costs.base) = (0.0175, 0.005);
                c.load.arrivals = Arrivals::Poisson { rate: 9.0 };
            }),
        ),
    ]
}

#[test]
fn the_slowdown_is_known_after_20_seconds_and_1_where_nothing_changes() {
    let mut wrong = Vec::new();
    for (name, config) in growing() {
        // A GPU that is slower does not slow an engine that waits for its host.
        let factors: &[f64] = if name == "slow host" { &[1.0] } else { &[1.0, 1.3, 1.9] };
        for factor in factors.iter().copied() {
            let faults = vec![Fault::Slow { at: 60.0, factor, why: Slow::Regression }];
            let mut play = Play::new(&Config { faults, ..config.clone() }, seed() + 40);
            let mut line = format!("{name} {factor}:");
            for at in (20..=130).step_by(5) {
                play.until(f64::from(at));
                let found = play.input().and_then(|input| input.slowdown).map(|slowdown| slowdown.ratio);
                let truth = if at > 60 { factor } else { 1.0 };
                line += &found.map_or(" -".to_owned(), |found| format!(" {:.3}", found / truth));
                let is_settled = at <= 60 || at >= 80;
                // Experts flatten the costs, CUDA graphs add steps, and the batch grows by a factor of five meanwhile.
                let bound = match (truth == 1.0, name) {
                    (true, _) => 0.035,
                    (false, "experts") => 0.18,
                    (false, _) => 0.05,
                };
                let is_wrong = found.is_some_and(|found| (found / truth - 1.0).abs() > bound);
                if is_settled && (is_wrong || at >= 80 && found.is_none()) {
                    wrong.push(format!("{name} {factor} at {at} s: {found:?}"));
                }
            }
            println!("{line}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
