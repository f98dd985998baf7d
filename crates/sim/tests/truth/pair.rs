//! A deployment of a context and a generation engine: both show the same requests.

use trtllm_sim::config::{CacheManager, Era, Fault, Release};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::pair::{Pair, Side};
use trtllm_sim::record::Entry;
use trtllm_sim::{Config, Unanswered, write};

fn pytorch() -> Config {
    Config { release: Release::PyTorch { era: Era::Frames, cache: CacheManager::V1 }, ..Config::default() }
}

#[derive(Debug, Default)]
struct Run {
    answered: Vec<(Entry, Entry)>,
    unanswered: Vec<(Side, Unanswered)>,
    context_entries: Vec<Entry>,
    /// All that the context engine and the generation engine report.
    text: [String; 2],
}

fn run(context: Config, generation: Config, seconds: f64) -> (Pair, Run) {
    let release = context.release;
    let mut pair = Pair::new(context, generation, 3);
    let mut run = Run::default();
    let mut now = Some(0.0);
    let mut steps = 0;
    while let Some(at) = now.filter(|at| *at < seconds) {
        let stepped = pair.step(at);
        assert!(stepped.next.is_none_or(|next| next >= at), "{at} {:?}", stepped.next);
        now = stepped.next;
        let side = usize::from(stepped.side == Side::Generation);
        for record in &stepped.step.records {
            run.text[side] += &write::record(record, release, 0).to_string();
        }
        if stepped.side == Side::Context {
            run.context_entries.extend(stepped.step.entries);
        }
        run.answered.extend(stepped.answered);
        run.unanswered.extend(stepped.step.unanswered.into_iter().map(|unanswered| (stepped.side, unanswered)));
        steps += 1;
    }
    assert!(steps < (seconds * 10_000.0) as u64, "{steps} steps");
    (pair, run)
}

#[test]
fn a_generation_server_gets_each_request_when_the_context_server_has_answered() {
    let (pair, run) = run(pytorch(), pytorch(), 60.0);
    assert!(run.answered.len() > 300, "{}", run.answered.len());
    for (context, generation) in &run.answered {
        assert_eq!((context.id, context.prompt_tokens), (generation.id, generation.prompt_tokens));
        assert!(context.continued && context.output_tokens == 1 && !generation.continued);
        // The answer of the context server, which takes some time in its frontend.
        let sent = generation.server_arrival - context.last_token;
        assert!((0.0..0.1).contains(&sent), "{sent}");
        assert!(context.transfer.is_none(), "not known when the context server answers");
        assert!(generation.transfer.unwrap().0 >= generation.arrival);
    }
    let counts = |side| pair.engine(side).truth().arrived;
    assert!(counts(Side::Generation) <= counts(Side::Context));
    assert!(run.unanswered.is_empty());
}

#[test]
fn equal_options_and_seeds_show_the_same_deployment() {
    let texts = || run(pytorch(), pytorch(), 20.0).1.text;
    let (first, second) = (texts(), texts());
    assert!(first[0].len() > 10_000 && first[1].len() > 10_000);
    assert!(first == second);
}

#[test]
fn a_context_server_keeps_the_blocks_of_a_request_until_the_generation_server_has_them() {
    let mut generation = pytorch();
    generation.transfer.seconds = 1.5;
    let mut context = pytorch();
    context.cache.reuse = false;
    context.load.arrivals = Arrivals::Offline { requests: 1 };
    let all = context.cache.blocks as usize;
    let mut pair = Pair::new(context, generation, 3);
    let mut now = Some(0.0);
    let mut used = Vec::new();
    let mut end = None;
    while let Some(at) = now.filter(|at| *at < 20.0) {
        let stepped = pair.step(at);
        now = stepped.next;
        end = end.or(stepped.answered.first().map(|(_, generation)| generation.transfer.unwrap().1));
        used.push((at, all - pair.engine(Side::Context).free_blocks()));
    }
    let freed = used.iter().rfind(|(_, blocks)| *blocks > 0).unwrap().0;
    let next = used.iter().find(|(at, _)| *at > freed).unwrap().0;
    assert!(freed <= end.unwrap() && next >= end.unwrap() && next < end.unwrap() + 0.1, "{freed} {next} {end:?}");
}

#[test]
fn a_full_generation_server_makes_requests_wait_there_and_not_at_the_context_server() {
    let mut generation = pytorch();
    generation.limits.max_batch_size = 4;
    let mut context = pytorch();
    context.load.arrivals = Arrivals::Poisson { rate: 8.0 };
    context.load.in_flight = Some(100);
    let (pair, run) = run(context, generation, 60.0);
    let mean =
        |wait: fn(&(Entry, Entry)) -> f64| run.answered.iter().map(wait).sum::<f64>() / run.answered.len() as f64;
    assert!(mean(|(_, generation)| generation.first_scheduled - generation.arrival) > 2.0);
    assert!(mean(|(context, _)| context.first_scheduled - context.arrival) < 0.1);
    // The limit of the load counts the requests of both engines.
    let inside = pair.engine(Side::Context).truth().arrived - run.answered.len() as u64;
    assert!((95..=100).contains(&inside), "{inside}");
}

#[test]
fn a_conversation_goes_on_after_the_answer_of_the_generation_server() {
    let mut context = pytorch();
    context.load.arrivals = Arrivals::Closed { concurrency: 4 };
    context.load.think = 0.5;
    let (_, run) = run(context, pytorch(), 60.0);
    assert!(run.answered.len() > 40);
    let ends: Vec<f64> = run.answered.iter().map(|(_, generation)| generation.last_token + 0.5).collect();
    for (context, _) in run.answered.iter().skip(8) {
        assert!(ends.iter().any(|end| (context.server_arrival - end).abs() < 0.05), "{context:?}");
    }
}

#[test]
fn a_request_whose_first_token_ends_its_answer_stays_with_the_context_server() {
    let mut context = pytorch();
    context.load.output = Length::Mixed { short: 1, long: 50, share: 0.5 };
    let (_, run) = run(context, pytorch(), 30.0);
    let alone: Vec<_> = run.context_entries.iter().filter(|entry| !entry.continued).collect();
    assert!(alone.len() > 50 && run.answered.len() > 50);
    assert!(run.answered.iter().all(|(context, _)| alone.iter().all(|entry| entry.id != context.id)));
}

#[test]
fn a_request_fails_whose_generation_server_crashes_or_does_not_listen() {
    let mut generation = pytorch();
    generation.faults = vec![Fault::Restart { at: 20.0, seconds: 0.5 }];
    let (_, run) = run(pytorch(), generation, 60.0);
    assert!(run.unanswered.iter().all(|(side, _)| *side == Side::Generation));
    assert!([true, false].iter().all(|refused| run.unanswered.iter().any(|(_, call)| call.is_refused == *refused)));
    assert!(run.answered.iter().all(|(context, _)| run.unanswered.iter().all(|(_, call)| call.id != context.id)));
}
