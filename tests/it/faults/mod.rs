//! Faults from outside, one after another, against the real binary: broken answers, broken lines, hostile HTTP clients,
//! a clock that jumps, and a host without file descriptors, threads, memory or disk space. After each fault, the totals
//! must be exact, healthy engines unaffected, the page readable, and memory and descriptors back to normal. Each test
//! prints a table of its faults and of the errors that the exporter counted for each.

mod answers;
mod clients;
mod clock;
mod engine;
mod host;
mod limits;
mod many;
mod progress;
mod publishers;
mod scene;

use scene::Scene;

#[test]
fn one_daemon_survives_hundreds_of_faults_and_counts_each() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::start(&["--poll.timeout", "60s", "--record.dir", folder.path().to_str().unwrap()]);
    answers::bodies_that_are_not_an_array_of_records(&scene);
    answers::answers_that_are_cut_lose_only_the_record_that_was_cut(&scene);
    answers::broken_http_responses(&scene);
    publishers::invalid_lines(&scene);
    publishers::hellos_that_are_cut_at_any_byte(&scene);
    clients::hostile_requests(&scene);
    scene.finish();
}
