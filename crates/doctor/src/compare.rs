//! `compare` compares two engines, or one engine at two times. It prints how their work differs, and what equal work costs.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use trtllm_what_if::compare::EngineRatios;
use trtllm_what_if::measured_engine::Workload;
use trtllm_what_if::{Comparison, Range, compare};

use crate::cli::{ClientOptions, CompareArgs, ReportFormat, time_us};
use crate::exporters::api::{Model, model};
use crate::exporters::client::targets;
use crate::recording;
use trtllm_config::ConfigError;
use trtllm_config::command_line::{print, print_json, runtime};

/// The exit code if the costs cannot be compared.
const REFUSED: u8 = 3;

/// Prints the comparison and returns the exit code. Fails if the command line is invalid or an exporter does not answer.
pub fn run(arguments: &CompareArgs) -> Result<u8, ConfigError> {
    let [first, second] = runtime("compare")?.block_on(read(arguments))?;
    let comparison = compare(&first.measured, &second.measured);
    match arguments.format {
        ReportFormat::Json => {
            let mut answer = json!(comparison);
            answer["first"] = about(&first);
            answer["second"] = about(&second);
            print_json(&format!("{answer}\n"));
        }
        ReportFormat::Text => print(&text(&first, &second, &comparison)),
    }
    Ok(if comparison.engine.is_some() { 0 } else { REFUSED })
}

fn about(side: &Model) -> serde_json::Value {
    let configuration = &side.configuration;
    json!({"model": side.model, "version": side.version, "labels": side.labels, "at": side.at, "configuration": configuration,
        "workload": side.measured.workload})
}

async fn read(arguments: &CompareArgs) -> Result<[Model; 2], ConfigError> {
    let invalid = |url: &str, why: &str| ConfigError::flag("URL", url, why);
    let given = &arguments.connection.urls;
    let (first, second) = match &given[..] {
        [first, second] => (first.as_str(), second.as_str()),
        // One URL, or by default that of the exporter on this host: both engines are there.
        [only] => (only.as_str(), only.as_str()),
        _ => return Err(invalid(&given.join(" "), "compare reads two engines; give two URLs")),
    };
    if first == second && arguments.engine.len() != 2 {
        return Err(invalid(
            first,
            "both are the same; give two exporters, a recording as DIR@TIME, or two engines with --engine",
        ));
    }
    if arguments.engine.len() > 2 {
        return Err(ConfigError::flag(
            "--engine",
            arguments.engine.join(" "),
            "compare reads two engines; name at most two",
        ));
    }
    let engines = [arguments.engine.first(), arguments.engine.last()];
    let [first, second] = [(first, engines[0]), (second, engines[1])].map(|(side, engine)| async move {
        let url = match side_of(side)? {
            Side::Exporter(url) => url,
            Side::Recording(directory, at_us) => {
                let engine = engine.cloned();
                // Use another thread, because reading files blocks.
                let read = move || recording::model(&directory, at_us, engine.as_deref());
                let read = tokio::task::spawn_blocking(read).await;
                return read.unwrap_or_else(|error| Err(invalid(side, &format!("a bug: {error}; please report it"))));
            }
        };
        let connection = ClientOptions { urls: vec![url.to_owned()], ..arguments.connection.clone() };
        let [target] = &targets(&connection).await?[..] else {
            return Err(invalid(side, "it names several exporters; give the address of one"));
        };
        model(target, engine.map(String::as_str)).await
    });
    Ok([first.await?, second.await?])
}

/// One side of a comparison.
#[derive(Debug, PartialEq)]
enum Side<'a> {
    /// The address of a running exporter.
    Exporter(&'a str),
    /// The directory of a recording, and a time in it in microseconds since 1970 UTC. Without a time: its end.
    Recording(PathBuf, Option<i64>),
}

/// Parses `URL`, `DIR` or `DIR@TIME`.
fn side_of(text: &str) -> Result<Side<'_>, ConfigError> {
    if Path::new(text).is_dir() {
        return Ok(Side::Recording(text.into(), None));
    }
    let Some((path, time)) = text.rsplit_once('@') else { return Ok(Side::Exporter(text)) };
    let invalid = |why: &str| ConfigError::flag("URL", text, why);
    match (time_us(time), Path::new(path).is_dir()) {
        (Ok(at_us), true) => Ok(Side::Recording(path.into(), Some(at_us))),
        (Err(_), true) => Err(invalid("the text after @ is not a time; write DIR@-2h or DIR@2026-11-23T04:00:00Z")),
        (Ok(_), false) => Err(invalid(
            "there is no such directory, and the past of an exporter is in its recording; write DIR@TIME with the directory of its --record.dir",
        )),
        // Probably USER@HOST. `targets` refuses it and names --user-file.
        (Err(_), false) => Ok(Side::Exporter(text)),
    }
}

fn text(first: &Model, second: &Model, comparison: &Comparison) -> String {
    let mut text = String::new();
    for (name, side) in [("first", first), ("second", second)] {
        let at = side.at.filter(|at| *at >= 0.0).map(|at| UNIX_EPOCH + Duration::from_secs(at as u64));
        let when = at.map_or("now".to_owned(), |at| humantime::format_rfc3339_seconds(at).to_string());
        text += &format!("{name:8}{}, {when}\n", side.name());
    }
    let mut row = |cells: [String; 4]| {
        let [name, first, second, ratio] = cells;
        text += format!("{name:22}{first:>12}{second:>12}  {ratio}").trim_end();
        text.push('\n');
    };
    row(["", "first", "second", "ratio"].map(str::to_owned));
    let ratios = &comparison.workload;
    let rows: [WorkloadRow; 5] = [
        ("requests/s", |of| Some(of.requests_per_second), ratios.requests_per_second),
        ("tokens of a prompt", |of| of.prompt_tokens, ratios.prompt_tokens),
        ("share computed", |of| Some(1.0 - of.cached_share?), ratios.uncached_share),
        ("tokens of an answer", |of| of.output_tokens, ratios.output_tokens),
        ("requests in a batch", |of| Some(of.batch), ratios.batch),
    ];
    for (name, of, ratio) in rows {
        let cells = [first, second].map(|side| side.measured.workload.as_ref().and_then(of));
        if cells.iter().any(Option::is_some) {
            let [first, second] = cells.map(|cell| cell.map_or("-".to_owned(), digits));
            row([name.to_owned(), first, second, ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))]);
        }
    }
    if let Some(EngineRatios { slowdown, decode, context }) = &comparison.engine {
        let parts = [
            ("time of equal work", Some(slowdown)),
            ("  only decoding", decode.as_ref()),
            ("  with prompts", context.as_ref()),
        ];
        for (name, range) in parts.into_iter().filter_map(|(name, range)| Some((name, range?))) {
            row([name.to_owned(), String::new(), String::new(), shown(range)]);
        }
    }
    let (before, after) = (&first.configuration, &second.configuration);
    for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
        let [before, after] = [before, after].map(|of| of.get(name).map_or("unknown", String::as_str));
        if before != after {
            row([name.clone(), before.to_owned(), after.to_owned(), String::new()]);
        }
    }
    text + &comparison.says + "\n"
}

/// A row of the table: its name, the function that gets the number of one engine, and the ratio of both engines.
type WorkloadRow = (&'static str, fn(&Workload) -> Option<f64>, Option<f64>);

fn digits(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn shown(range: &Range) -> String {
    format!("{:.2} [{:.2} {:.2}]", range.value, range.low, range.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_url_or_a_recording_and_perhaps_a_time() {
        assert_eq!(side_of("http://h:1/m").unwrap(), Side::Exporter("http://h:1/m"));
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_str().unwrap();
        let recording = |at_us| Side::Recording(folder.path().to_owned(), at_us);
        assert_eq!(side_of(directory).unwrap(), recording(None));
        let at = |time: &str| format!("{directory}@{time}");
        assert_eq!(side_of(&at("1970-01-02T00:00:00Z")).unwrap(), recording(Some(86_400_000_000)));
        let now = UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
        for time in ["-2h", "2h"] {
            let Side::Recording(_, Some(at_us)) = side_of(&at(time)).unwrap() else { panic!("{time}") };
            assert!((7_198_000_000..=7_202_000_000).contains(&(now - at_us)), "{time}: {at_us}");
        }
        for side in [at(""), at("--2h"), at("-1"), at("before")] {
            assert!(side_of(&side).unwrap_err().to_string().contains("write DIR@-2h"), "{side}");
        }
        for side in ["h:1@-2h", "http://h:1@2026-11-23T04:00:00Z", "no-such-directory@-2h"] {
            assert!(side_of(side).unwrap_err().to_string().contains("write DIR@TIME"), "{side}");
        }
        assert_eq!(side_of("http://user:pass@h:1").unwrap(), Side::Exporter("http://user:pass@h:1"));
    }
}
