//! Faults from outside, one after another, against the real binary: broken answers, broken lines, hostile HTTP clients,
//! damaged files, a clock that jumps, and a host without file descriptors, threads, memory or disk space. After each
//! fault, the totals must be exact, healthy engines unaffected, the page readable, and memory and descriptors back to
//! normal. Each test prints a table of its faults and of the errors that the exporter counted for each.

mod answers;
mod clients;
mod clock;
mod engine;
mod files;
mod host;
mod limits;
mod many;
mod progress;
mod publishers;
mod scene;
mod values;

use std::fs;

use scene::Scene;

#[test]
fn one_daemon_survives_hundreds_of_faults_and_counts_each() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, config) = (folder.path().join("kept"), folder.path().join("web.yml"));
    fs::write(&config, "").unwrap();
    let files = [&kept, &config].map(|path| path.to_str().unwrap());
    let scene = Scene::start(&["--poll.timeout", "60s", "--record.dir", files[0], "--web.config.file", files[1]]);
    answers::bodies_that_are_not_an_array_of_records(&scene);
    answers::answers_that_are_cut_lose_only_the_record_that_was_cut(&scene);
    answers::broken_http_responses(&scene);
    values::records_with_an_impossible_value_are_counted_once_either_way(&scene);
    publishers::invalid_lines(&scene);
    publishers::hellos_that_are_cut_at_any_byte(&scene);
    clients::hostile_requests(&scene);
    files::broken_recordings(&scene, &kept);
    files::broken_configurations(&scene, &config);
    scene.finish();
}
