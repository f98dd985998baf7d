//! `doctor`: watches exporters, then says what limits each engine. Fetching (`watch`, `sources`), judging (`judge`, `rules`) and
//! printing (`report`, `bundle`) are apart: a rule is a pure function of an observation.

mod batches;
mod bundle;
pub mod finding;
pub mod judge;
pub mod observation;
pub mod report;
pub mod rules;
mod sources;
mod watch;

#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cli::{DoctorArgs, ReportFormat};
use crate::config::ConfigError;

use super::exporters::client::targets;
use finding::{Finding, Severity};
use observation::Observation;
use watch::Watched;

/// Watches, prints the report, and returns the exit code.
///
/// # Errors
/// When the command line is invalid or the bundle cannot be written.
pub fn run(arguments: &DoctorArgs) -> Result<u8, ConfigError> {
    if arguments.rules {
        super::print(&report::reference());
        return Ok(0);
    }
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(3600));
    let flag = |flag, value: String, why: String| ConfigError::Flag { flag, value, why };
    if arguments.window < least || arguments.window > most {
        return Err(flag(
            "--for",
            format!("{:?}", arguments.window),
            format!("must be between {least:?} and {most:?}"),
        ));
    }
    let sources = sources::configured(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| flag("doctor", String::new(), format!("cannot start: {error}")))?;
    // A report takes as long as the window. A pipe or a log gets nothing but the report.
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "watching for {}…", humantime::format_duration(arguments.window));
    }
    let (observation, watched) = runtime.block_on(observe(arguments, sources))?;
    // A look-up of a name may hang on another thread.
    runtime.shutdown_background();
    let findings = judge::judge(&observation);
    super::print(&match arguments.format {
        ReportFormat::Text => report::text(&observation, &findings),
        ReportFormat::Json => format!("{:#}\n", report::json(&observation, &findings)),
    });
    if let Some(path) = &arguments.bundle {
        write_bundle(path, &observation, &watched, &findings)?;
    }
    Ok(report::worst(&findings).map_or(0, Severity::exit_code))
}

async fn observe(
    arguments: &DoctorArgs,
    sources: Vec<(crate::config::SourceSpec, Option<String>)>,
) -> Result<(Observation, Vec<Watched>), ConfigError> {
    let mut tasks = JoinSet::new();
    for (at, target) in targets(&arguments.connection).await?.into_iter().enumerate() {
        let window = arguments.window;
        tasks.spawn(async move { (at, watch::watch(target, window).await) });
    }
    let mut watched = Vec::new();
    while let Some(task) = tasks.join_next().await {
        watched.extend(task.ok());
    }
    watched.sort_by_key(|(at, _)| *at);
    let mut watched: Vec<Watched> = watched.into_iter().map(|(_, watched)| watched).collect();
    let exporters: Vec<_> = watched.iter_mut().map(|watched| std::mem::take(&mut watched.exporter)).collect();
    let sources = sources::ask(sources, &exporters).await;
    Ok((Observation { exporters, sources }, watched))
}

fn write_bundle(
    path: &Path,
    observation: &Observation,
    watched: &[Watched],
    findings: &[Finding],
) -> Result<(), ConfigError> {
    let text = bundle::bundle(observation, watched, findings);
    std::fs::write(path, text).map_err(|error| ConfigError::Flag {
        flag: "--bundle",
        value: path.display().to_string(),
        why: format!("cannot write the file: {error}; choose a path in a writable directory"),
    })
}
