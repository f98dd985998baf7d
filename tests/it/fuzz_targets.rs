//! Runs every fuzz target, without libFuzzer, over its corpus and over mutations of it. The mutations are the same in
//! each run. A target panics if it finds an error. `.ci/full fuzz` fuzzes for longer.

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::{self, Random};

/// Texts that parsers treat in a special way.
const TOKENS: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"1e308",
    b"9223372036854775807",
    b"18446744073709551616",
    b"null",
    b"{}",
    b"[]",
    b"\"",
    b"\\",
    b"\n",
    b"\0",
    b"\xff",
    b",",
    b";q=0",
    b": ",
];

fn mutate(input: &mut Vec<u8>, other: &[u8], numbers: &mut Random) {
    for _ in 0..=numbers.index(4) {
        let at = numbers.index(input.len() + 1);
        let end = (at + numbers.index(16)).min(input.len());
        match numbers.index(6) {
            0 if at < input.len() => input[at] = numbers.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << numbers.index(8),
            2 => drop(input.drain(at..end)),
            3 => drop(input.splice(at..end, TOKENS[numbers.index(TOKENS.len())].iter().copied())),
            4 => {
                let from = numbers.index(other.len() + 1);
                let until = (from + numbers.index(64)).min(other.len());
                drop(input.splice(at..at, other[from..until].iter().copied()));
            }
            _ => {
                let copied = input[at..end].to_vec();
                drop(input.splice(at..at, copied));
            }
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        std::fs::read_dir(format!("fuzz/corpus/{target}")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn holds(target: &str, mutations: usize) {
    let (_, run) = fuzz::TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{target} has no corpus");
    let check = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
            let path = std::env::temp_dir().join(format!("trtllm-exporter-fuzz-{target}"));
            std::fs::write(&path, input).unwrap();
            panic!("{target} fails; the input is in {}", path.display());
        }
    };
    corpus.iter().for_each(|input| check(input));
    let mut numbers = Random(0x9E37_79B9_7F4A_7C15);
    let mutations = if support::long() { 10 * mutations } else { mutations };
    for round in 0..mutations {
        let mut input = corpus[round % corpus.len()].clone();
        let other = &corpus[numbers.index(corpus.len())];
        mutate(&mut input, other, &mut numbers);
        check(&input);
    }
}

#[test]
fn every_target_has_a_test() {
    let names: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    let tested = std::fs::read_to_string("tests/it/fuzz_targets.rs").unwrap();
    assert!(names.iter().all(|name| tested.contains(&format!("holds(\"{name}\","))));
}

#[test]
fn records_never_let_a_total_fall_or_vanish() {
    holds("records", 150);
}

#[test]
fn lines_do_not_depend_on_the_chunks_in_which_they_arrive() {
    holds("framing", 250);
}

#[test]
fn pages_of_trtllm_serve_never_let_a_total_fall() {
    holds("server_metrics", 150);
}

#[test]
fn pages_of_an_orchestrator_never_let_a_total_fall() {
    holds("orchestrator", 150);
}

#[test]
fn files_of_trtllm_bench_are_read_or_refused() {
    holds("bench_report", 300);
}

#[test]
fn a_web_configuration_is_accepted_or_refused_with_a_line_for_each_mistake() {
    holds("web_config", 1000);
}

#[test]
fn every_accept_header_gets_a_valid_answer() {
    holds("negotiation", 5000);
}

#[test]
fn the_answer_of_a_kubelet_gives_known_gpus() {
    holds("pod_resources", 2000);
}

#[test]
fn every_page_is_valid_text_whatever_the_labels_contain() {
    holds("formats", 60);
}
