//! What entries tell about a request compared with when its client really received it, for each kind of request and release.

use trtllm_sim::config::{CacheManager, Era, Release, Role};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::record::Entry;
use trtllm_sim::truth::RequestTruth;
use trtllm_sim::{Arrival, Config, End, Engine};

const ERAS: [Era; 4] = [Era::Early, Era::One, Era::Ranks, Era::Frames];

fn pytorch(era: Era) -> Config {
    Config { release: Release::PyTorch { era, cache: CacheManager::V1 }, ..Config::default() }
}

/// The entries of a minute, each with the truth of its request.
fn run(config: Config) -> Vec<(Entry, RequestTruth)> {
    let mut engine = Engine::new(config, 7);
    let mut entries = Vec::new();
    engine.run(60.0, |step| entries.extend(step.entries));
    let truth = |entry: &Entry| engine.truth().requests.iter().find(|request| request.id == entry.id).unwrap().clone();
    let pairs: Vec<_> = entries.into_iter().map(|entry| (truth(&entry), entry)).map(|(t, e)| (e, t)).collect();
    assert!(!pairs.is_empty());
    pairs
}

fn recorded(requests: &[(f64, u32, u32, u32)]) -> Arrivals {
    let arrival =
        |&(at, prompt, output, max_new_tokens)| Arrival { at, prompt, output, max_new_tokens, ..Arrival::default() };
    Arrivals::Recorded(requests.iter().map(arrival).collect())
}

#[test]
fn a_context_server_ends_all_answers_that_a_generation_server_continues_by_their_length() {
    for era in ERAS {
        let mut config = pytorch(era);
        config.role = Role::ContextOnly;
        // The limit is one token; the first token is a stop word; both servers answer.
        config.load.arrivals = recorded(&[(1.0, 100, 1, 1), (2.0, 100, 1, 9), (3.0, 100, 5, 9)]);
        let ended: Vec<_> = run(config).iter().map(|(entry, _)| (entry.end, entry.continued)).collect();
        assert_eq!(ended, [(End::Length, false), (End::Stop, false), (End::Length, true)], "{era:?}");
    }
}

#[test]
fn the_client_of_a_request_without_streaming_receives_all_tokens_at_the_end() {
    for era in ERAS {
        let mut config = pytorch(era);
        config.load.nonstream_share = 0.5;
        let requests = run(config);
        let (whole, streamed): (Vec<_>, Vec<_>) = requests.iter().partition(|(entry, _)| entry.nonstream);
        assert!(whole.len() > 50 && streamed.len() > 50, "{} {}", whole.len(), streamed.len());
        for (entry, truth) in whole {
            assert_eq!(truth.first_seen, Some(truth.last_seen));
            // Before 1.3, the server stamped the first token only of streams.
            assert_eq!(entry.server_first_token, truth.first_seen.filter(|_| era >= Era::Ranks), "{era:?}");
            assert_eq!(entry.last_token, truth.last_token);
        }
        for (entry, truth) in streamed.iter().filter(|(entry, _)| entry.output_tokens > 1) {
            assert_eq!(entry.server_first_token, truth.first_seen);
            assert!(truth.first_seen < Some(truth.last_seen));
        }
    }
}

#[test]
fn tokenising_is_in_the_queue_time_of_entries_before_1_3() {
    for era in ERAS {
        let mut config = pytorch(era);
        (config.frontend.seconds_per_request, config.frontend.workers) = (0.05, 8);
        for (entry, truth) in run(config) {
            assert!(truth.queued - truth.arrival >= 0.05);
            assert_eq!(entry.server_arrival, truth.arrival);
            let expected = if era >= Era::Ranks { truth.queued } else { truth.arrival };
            assert_eq!(entry.arrival, expected, "{era:?}");
        }
    }
    let cpp = Config { release: Release::Cpp { major: 1, minor: 1 }, ..Config::default() };
    assert!(run(cpp).iter().all(|(entry, truth)| entry.arrival == truth.queued), "the Executor stamps its own time");
}

#[test]
fn release_0_20_stamps_a_first_token_before_the_prompt_is_computed() {
    for era in [Era::Early, Era::One] {
        let mut config = pytorch(era);
        // The second prompt needs several batches, and the first request keeps the loop busy.
        config.load.arrivals = recorded(&[(1.0, 100, 300, 300), (1.5, 30_000, 20, 20)]);
        config.limits.max_num_tokens = 2048;
        config.cache.reuse = false;
        let requests = run(config);
        let (entry, truth) = requests.iter().find(|(entry, _)| entry.prompt_tokens == 30_000).unwrap();
        let first = truth.first_token.unwrap();
        if era == Era::Early {
            let scheduled = truth.scheduled.unwrap();
            assert!(entry.first_token < scheduled + 0.1 && first > scheduled + 0.3, "{entry:?} {truth:?}");
            assert!(entry.first_iter + 10 < entry.last_iter - 20);
        } else {
            assert_eq!(entry.first_token, first);
        }
    }
}

#[test]
fn a_generation_server_of_0_20_under_overlap_stamps_its_own_token() {
    for overlap in [true, false] {
        let mut config = pytorch(Era::Early);
        config.role = Role::GenerationOnly;
        config.costs.overlap = overlap;
        config.load.output = Length::Fixed(20);
        config.transfer.seconds = 0.05;
        let early = run(config).iter().filter(|(entry, truth)| Some(entry.first_token) < truth.first_token).count();
        assert_eq!(early > 0, !overlap, "{early}");
    }
}
