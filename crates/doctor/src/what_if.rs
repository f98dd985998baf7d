//! `what-if` predicts what an engine would do with another limit or load. It reads the engine's costs and requests from an
//! exporter or a recording, and simulates the engine in this process.

use serde_json::json;

use trtllm_what_if::{Answer, Change, Forecast, MeasuredEngine, Range, ask};

use crate::cli::{ReportFormat, WhatIfArgs};
use crate::exporters::api::{self, Model};
use crate::exporters::client::targets;
use crate::recording;
use trtllm_config::ConfigError;
use trtllm_config::command_line::{print, print_json, runtime};

/// The exit code if the question is refused.
const REFUSED: u8 = 3;

/// Prints the answer and returns the exit code. Fails if the command line is invalid or the exporter does not answer.
pub fn run(arguments: &WhatIfArgs) -> Result<u8, ConfigError> {
    let change = change(arguments)?;
    let engine = match &arguments.past.recording {
        Some(directory) => recording::model(directory, arguments.past.at_us, arguments.engine.as_deref())?,
        None => runtime("what-if")?.block_on(read_model(arguments))?,
    };
    let answer = ask(&engine.measured, &change);
    match arguments.format {
        ReportFormat::Json => {
            let mut report = json!(answer);
            report["engine"] = json!({"model": engine.model, "version": engine.version, "labels": engine.labels});
            print_json(&format!("{report}\n"));
        }
        ReportFormat::Text => print(&text_report(&engine, arguments, &answer)),
    }
    Ok(if answer.supported { 0 } else { REFUSED })
}

fn change(arguments: &WhatIfArgs) -> Result<Change, ConfigError> {
    let mut change = Change::default();
    for setting in &arguments.set {
        change.set(setting).map_err(|why| ConfigError::flag("--set", setting, why))?;
    }
    change.set_rate(&arguments.rate).map_err(|why| ConfigError::flag("--rate", &arguments.rate, why))?;
    Ok(change)
}

async fn read_model(arguments: &WhatIfArgs) -> Result<Model, ConfigError> {
    let [target] = &targets(&arguments.connection).await?[..] else {
        let urls = arguments.connection.urls.join(" ");
        return Err(ConfigError::flag("URL", urls, "what-if asks one exporter; give one URL"));
    };
    api::model(target, arguments.engine.as_deref()).await
}

fn text_report(engine: &Model, arguments: &WhatIfArgs, answer: &Answer) -> String {
    let rate = (arguments.rate != "1x").then(|| format!("rate {}", arguments.rate));
    let changes = arguments.set.iter().cloned().chain(rate).collect::<Vec<_>>().join(", ");
    let changes = if changes.is_empty() { "nothing changed".to_owned() } else { changes };
    let mut report = format!("{}: {changes}\n", engine.name());
    if let Some(reason) = &answer.reason {
        report += &format!("no answer: {reason}\n");
    }
    let columns = [("measured", &answer.measured), ("now", &answer.now), ("then", &answer.then)];
    let columns: Vec<(&str, &Forecast)> =
        columns.into_iter().filter_map(|(name, forecast)| Some((name, forecast.as_ref()?))).collect();
    if columns.is_empty() {
        return report;
    }
    let mut row = |name: &str, cells: Vec<String>| {
        report += format!("{name:18}{}", cells.iter().map(|cell| format!("{cell:>26}")).collect::<String>()).trim_end();
        report.push('\n');
    };
    row("", columns.iter().map(|(name, _)| (*name).to_owned()).collect());
    for (name, unit, of) in ROWS {
        let cells: Vec<Option<Range>> = columns.iter().map(|(_, forecast)| of(forecast)).collect();
        if cells.iter().any(Option::is_some) {
            row(name, cells.iter().map(|cell| cell.map_or("-".to_owned(), |range| shown(&range, *unit))).collect());
        }
    }
    let MeasuredEngine { span_seconds, last_request_seconds: last, .. } = engine.measured;
    if let Some(last) = last.filter(|_| answer.measured.is_some()) {
        report += &format!("measured over {}, the last request {} ago\n", about(span_seconds), about(last));
    }
    if answer.then.is_some_and(|then| !then.stable) {
        report += "unstable: requests would arrive faster than they end, so there are no latencies\n";
    } else if answer.then.is_some() {
        report += "in brackets: intervals of 90 %\n";
    }
    report
}

/// A time for people.
fn about(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 7200.0 => format!("{:.0} h", seconds / 3600.0),
        seconds if seconds >= 120.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{seconds:.0} s"),
    }
}

/// A row of the table: its name, the factor to its unit, and the function that gets its number.
type Row = (&'static str, f64, fn(&Forecast) -> Option<Range>);

const ROWS: &[Row] = &[
    ("requests/s", 1.0, |forecast| Some(forecast.requests_per_second)),
    ("tokens/s", 1.0, |forecast| Some(forecast.tokens_per_second)),
    ("capacity req/s", 1.0, |forecast| forecast.capacity_requests_per_second),
    ("queue growth/s", 1.0, |forecast| forecast.queue_growth_per_second),
    ("TTFT p50 ms", 1e3, |forecast| Some(forecast.ttft_seconds?.p50)),
    ("TTFT p95 ms", 1e3, |forecast| Some(forecast.ttft_seconds?.p95)),
    ("TPOT p50 ms", 1e3, |forecast| Some(forecast.tpot_seconds?.p50)),
    ("TPOT p95 ms", 1e3, |forecast| Some(forecast.tpot_seconds?.p95)),
    ("TTFT met %", 100.0, |forecast| forecast.objectives_met?.ttft),
    ("TPOT met %", 100.0, |forecast| forecast.objectives_met?.tpot),
    ("E2E met %", 100.0, |forecast| forecast.objectives_met?.e2e),
    ("all met %", 100.0, |forecast| forecast.objectives_met?.all),
];

fn shown(range: &Range, factor: f64) -> String {
    let digits = |value: f64| match value.abs() {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let [value, low, high] = [range.value, range.low, range.high].map(|value| digits(value * factor));
    if range.low < range.high { format!("{value} [{low} {high}]") } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_people_would_use() {
        assert_eq!([3.4, 300.0, 68_400.0].map(about), ["3 s", "5 min", "19 h"]);
    }

    #[test]
    fn numbers_are_shown_with_their_interval() {
        assert_eq!(shown(&Range { value: 0.0251, low: 0.02, high: 0.0309 }, 1e3), "25.1 [20.0 30.9]");
        assert_eq!(shown(&Range { value: 812.4, low: 812.4, high: 812.4 }, 1.0), "812");
    }
}
