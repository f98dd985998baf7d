//! `/api/v1/history?at=TIME` shows from the recording what the exporter showed at TIME. If the recording does not cover
//! TIME, the answer says so. Requests for the past do not delay other requests.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::standin::Standin;
use crate::support::{ensure, until};

const ROWS: u64 = 120;
/// Number of threads that request the past: more than the requests that the exporter handles at the same time.
const READERS: usize = 60;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn iterations(daemon: &Daemon) -> u64 {
    daemon.get("/api/v1/engines").json()[0]["totals"]["iterations"].as_u64().unwrap_or(0)
}

/// The sum over all slots (intervals) of the history, for a number that the slots state per second.
fn sum(answer: &Value, number: &str) -> f64 {
    let slots = answer["engines"][0]["slots"].as_array().unwrap();
    slots.iter().map(|slot| slot[number].as_f64().unwrap() * slot["seconds"].as_f64().unwrap()).sum()
}

/// Requests the past. Retries while the exporter refuses with 503 because of other such requests.
fn at(daemon: &Daemon, time: &str) -> (u16, Value) {
    until(|| {
        let answer = daemon.get(&format!("/api/v1/history?at={time}"));
        ensure(answer.status != 503, || answer.text().to_owned()).map(|()| (answer.status, answer.json()))
    })
}

#[test]
fn the_past_is_what_the_exporter_showed_then() {
    let standin = Standin::new(&format!("gpus=3\n{}", include_str!("../fixtures/busy_gpu.state")));
    let folder = tempfile::tempdir().unwrap();
    let (source, directory) = (folder.path().join("rows.ndjson"), folder.path().join("recording"));
    let mut rows = String::new();
    for iter in 1..=ROWS {
        writeln!(
            rows,
            "{{\"iter\": {iter}, \"iterLatencyMS\": 10.0, \"numActiveRequests\": 3, \"inflightBatchingStats\": \
             {{\"numScheduledRequests\": 2, \"numCtxTokens\": 5, \"numGenRequests\": 2}}, \
             \"kvCacheStats\": {{\"maxNumBlocks\": 200, \"usedNumBlocks\": 50}}}}"
        )
        .unwrap();
    }
    std::fs::write(&source, rows).unwrap();
    let began = now();
    let daemon = Daemon::start(&[
        "--source",
        &format!("replay:{}?rate=10", source.display()),
        "--model",
        "llama",
        "--record.dir",
        directory.to_str().unwrap(),
        "--gpu.library",
        standin.library().to_str().unwrap(),
        "--gpu.interval",
        "100ms",
    ]);

    // Take a time in the middle of the session. Its count of iterations lies between the count shown before that time
    // and the count shown after the next polls.
    until(|| ensure(iterations(&daemon) > ROWS / 3, || "too few iterations".to_owned()));
    let (before, middle) = (iterations(&daemon), now());
    let next = iterations(&daemon);
    until(|| ensure(iterations(&daemon) > next, || "no further poll".to_owned()));
    let after = iterations(&daemon);

    // Wait for the end, when the last slot has no iteration. The recording assigns all rows to slots. In the exporter,
    // some rows may be missing, because it read them before its first slot began.
    let live = until(|| {
        let live = daemon.get("/api/v1/history").json();
        let last =
            live["engines"][0]["slots"].as_array().and_then(|slots| slots.last()?["iterationsPerSecond"].as_f64());
        let is_over = iterations(&daemon) == ROWS && last == Some(0.0);
        ensure(is_over && live["gpus"].as_array().unwrap().len() == 3, || live.to_string()).map(|()| live)
    });
    let end = now();
    let past = until(|| {
        let (status, past) = at(&daemon, &end.to_string());
        let is_written = status == 200 && past["engines"][0]["then"]["totals"]["iterations"] == ROWS;
        ensure(is_written, || past.to_string()).map(|()| past)
    });
    for (number, each) in [("iterationsPerSecond", 1), ("contextTokensPerSecond", 5), ("generationTokensPerSecond", 2)]
    {
        let (live, past, all) = (sum(&live, number), sum(&past, number), (each * ROWS) as f64);
        assert!((past - all).abs() < 1e-6 * all, "{number}: {past} recorded, truly {all}");
        assert!(live > all / 2.0 && live <= past * 1.000_001, "{number}: {live} live, {past} recorded");
    }
    let last = |answer: &Value| {
        answer["engines"][0]["slots"]
            .as_array()
            .unwrap()
            .iter()
            .rfind(|slot| slot["kvCacheUsedRatio"].is_number())
            .cloned()
    };
    assert_eq!(last(&live).unwrap()["kvCacheUsedRatio"], last(&past).unwrap()["kvCacheUsedRatio"]);
    let then = &past["engines"][0]["then"];
    let shown = daemon.get("/api/v1/engines").json()[0].clone();
    assert_eq!((&then["model"], &then["totals"]), (&shown["model"], &shown["totals"]));
    let uuids = |answer: &Value| -> Vec<Value> {
        answer["gpus"].as_array().unwrap().iter().map(|gpu| gpu["uuid"].clone()).collect()
    };
    assert_eq!(uuids(&live), uuids(&past), "GPUs are in the recording");
    assert_eq!(past["gpus"][1]["slots"][0]["utilizationRatio"], live["gpus"][1]["slots"][0]["utilizationRatio"]);
    assert_eq!((past["at"].as_f64().unwrap() * 1e3).round(), (end * 1e3).round());
    assert_eq!(past["left"], serde_json::json!([]));

    // The load became 0 when the replay ended, but no record states that. The earlier load must still be shown.
    let (status, past) = at(&daemon, &middle.to_string());
    let then = &past["engines"][0]["then"];
    let load = ["active", "scheduled", "waiting"].map(|number| then["load"][number].as_u64());
    assert_eq!(load, [Some(3), Some(2), Some(1)], "{then}");
    let then = then["totals"]["iterations"].as_u64().unwrap();
    assert!(status == 200 && (before..=after).contains(&then), "{then} is not from {before} to {after}");

    // If the exporter cannot answer a request, the error states the reason.
    for (query, status, why) in [
        ("at=noon".to_owned(), 400, "is not a time; write a Unix time, or one such as"),
        ("at=".to_owned(), 400, "is not a time"),
        ("at=-5".to_owned(), 400, "is not a time"),
        ("at=NaN".to_owned(), 400, "is not a time"),
        (format!("at={}", end + 9e5), 400, "in the future"),
        ("at=9e99".to_owned(), 400, "in the future"),
        ("at=2001-01-01T00:00:00Z".to_owned(), 404, "it begins at "),
        (format!("at={}", began - 60.0), 404, "choose a later time"),
        (format!("at={end}&engine=other"), 404, "choose one of llama:1"),
        (format!("at={end}&seconds=0"), 400, "seconds=0"),
    ] {
        let answer = until(|| {
            let answer = daemon.get(&format!("/api/v1/history?{query}"));
            ensure(answer.status != 503, || answer.text().to_owned()).map(|()| answer)
        });
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(why), "{query}: {error}");
    }
    assert!(daemon.text("/").contains("<form id=\"past\" >"));
    let off = Daemon::start(&["--source", "sim:"]);
    let answer = off.get(&format!("/api/v1/history?at={end}"));
    assert!(answer.status == 404 && answer.text().contains("set --record.dir"), "{}", answer.text());
    assert!(off.text("/").contains("<form id=\"past\" hidden>"));
}

#[test]
fn readers_of_the_past_take_turns_and_delay_no_scrape() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let daemon = Daemon::start(&["--source", "sim:?rate=20", "--record.dir", directory]);
    until(|| ensure(iterations(&daemon) > 100, || "too few iterations".to_owned()));
    let time = now();
    until(|| ensure(at(&daemon, &time.to_string()).0 == 200, || "nothing recorded".to_owned()));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || {
            let path = format!("/api/v1/history?at={time}");
            (0..4).map(|_| daemon.get(&path).status).collect::<Vec<_>>()
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(ask)).collect();
        // If the exporter let these requests wait, they would use up its limit of requests, and a scrape would fail.
        while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(daemon.get("/metrics").status, 200);
        }
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
}
