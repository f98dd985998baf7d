//! `compare` compares two engines, or one engine at two times. It prints how their work differs, and what equal work costs.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use trtllm_what_if::compare::EngineRatios;
use trtllm_what_if::present::Workload;
use trtllm_what_if::{Comparison, Range, compare};

use super::exporters::api::{Model, model};
use super::exporters::client::targets;
use super::record;
use crate::cli::{ClientOptions, CompareArgs, ReportFormat, time_us};
use crate::config::ConfigError;

/// The exit code if the costs cannot be compared.
const REFUSED: u8 = 3;

/// Prints the comparison and returns the exit code. Fails if the command line is invalid or an exporter does not answer.
pub fn run(arguments: &CompareArgs) -> Result<u8, ConfigError> {
    let [first, second] = super::runtime("compare")?.block_on(read(arguments))?;
    let comparison = compare(&first.present, &second.present);
    match arguments.format {
        ReportFormat::Json => {
            let mut answer = json!(comparison);
            answer["first"] = about(&first);
            answer["second"] = about(&second);
            super::print_json(&format!("{answer}\n"));
        }
        ReportFormat::Text => super::print(&text(&first, &second, &comparison)),
    }
    Ok(if comparison.engine.is_some() { 0 } else { REFUSED })
}

fn about(side: &Model) -> serde_json::Value {
    let configuration = &side.run.configuration;
    json!({"model": side.model, "version": side.version, "at": side.at, "configuration": configuration, "workload": side.present.workload})
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
        return Err(invalid(first, "both are the same; write URL@-2h or URL@before for an earlier time"));
    }
    let engines = [arguments.engine.first(), arguments.engine.last()];
    let [first, second] = [(first, engines[0]), (second, engines[1])].map(|(side, engine)| async move {
        let (url, at) = url_and_time(side)?;
        if Path::new(url).is_dir() {
            let seconds = at.as_deref().map(str::parse::<i64>).transpose();
            let seconds = seconds.map_err(|_| invalid(side, "a recording has a time; write DIR@TIME"))?;
            let (directory, engine) = (PathBuf::from(url), engine.cloned());
            // Use another thread, because reading files blocks.
            let read = move || record::model(&directory, seconds.map(|at| at * 1_000_000), engine.as_deref());
            let read = tokio::task::spawn_blocking(read).await;
            return read.unwrap_or_else(|error| Err(invalid(side, &format!("a bug: {error}; please report it"))));
        }
        let connection = ClientOptions { urls: vec![url.to_owned()], ..arguments.connection.clone() };
        let [target] = &targets(&connection).await?[..] else {
            return Err(invalid(side, "it names several exporters; give the address of one"));
        };
        model(target, engine.map(String::as_str), at.as_deref()).await
    });
    Ok([first.await?, second.await?])
}

/// Splits `URL@TIME`. The time is in the form that `/api/v1/model` reads.
fn url_and_time(side: &str) -> Result<(&str, Option<String>), ConfigError> {
    let Some((url, time)) = side.rsplit_once('@') else { return Ok((side, None)) };
    if time == "before" {
        return Ok((url, Some(time.to_owned())));
    }
    let at_us = time_us(time).map_err(|_| {
        let why = "the text after @ is not a time; write -2h, 2026-11-23T04:00:00Z or before (the run before the last restart)";
        ConfigError::flag("URL", side, why)
    })?;
    Ok((url, Some((at_us / 1_000_000).to_string())))
}

fn text(first: &Model, second: &Model, comparison: &Comparison) -> String {
    let mut text = String::new();
    for (name, side) in [("first", first), ("second", second)] {
        let at = side.at.filter(|at| *at >= 0.0).map(|at| UNIX_EPOCH + Duration::from_secs(at as u64));
        let when = at.map_or("now".to_owned(), |at| humantime::format_rfc3339_seconds(at).to_string());
        text += &format!("{name:8}{} {}, {when}\n", side.model, side.version);
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
        let cells = [first, second].map(|side| side.present.workload.as_ref().and_then(of));
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
    let (before, after) = (&first.run.configuration, &second.run.configuration);
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
    fn a_side_is_a_url_and_perhaps_a_time() {
        let read = |side| url_and_time(side).map(|(url, at)| (url.to_owned(), at));
        assert_eq!(read("http://h:1/m").unwrap(), ("http://h:1/m".to_owned(), None));
        assert_eq!(read("h:1@before").unwrap(), ("h:1".to_owned(), Some("before".to_owned())));
        assert_eq!(read("h:1@1970-01-02T00:00:00Z").unwrap(), ("h:1".to_owned(), Some("86400".to_owned())));
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        for side in ["h:1@-2h", "h:1@2h"] {
            let ago: u64 = read(side).unwrap().1.unwrap().parse().unwrap();
            assert!((7198..=7202).contains(&(now - ago)), "{side}: {ago}");
        }
        for side in ["user:pass@h:1", "h:1@", "h:1@--2h", "h:1@-1"] {
            assert!(read(side).unwrap_err().to_string().contains("-2h"), "{side}");
        }
    }
}
