//! `doctor`: watches exporters (`watch`) and asks sources (`sources`), then prints what limits each engine. The rules and the
//! report are in `diagnosis`.

mod bundle;
mod sources;
mod watch;

use std::convert::Infallible;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinError;

use crate::cli::{DoctorArgs, ReportFormat};
use crate::config::ConfigError;
use trtllm_diagnosis::finding::{Finding, Severity};
use trtllm_diagnosis::observation::{Exporter, Observation};
use trtllm_diagnosis::{judge, report};
use trtllm_service::printable;

use super::exporters::client::targets;
use watch::Watched;

/// Of a terminal: back to the start of the line, and erases it.
const CLEAR_LINE: &str = "\r\x1b[K";

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
    let observed = runtime.block_on(async {
        tokio::select! {
            observed = observe(arguments, sources) => observed,
            never = show_progress(arguments.window) => match never {},
        }
    });
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "{CLEAR_LINE}");
    }
    let (observation, watched) = observed?;
    // A look-up of a name may hang on another thread.
    runtime.shutdown_background();
    let findings = judge::judge(&observation);
    match arguments.format {
        ReportFormat::Text => super::print(&report::text(&observation, &findings)),
        ReportFormat::Json => super::print_json(&format!("{:#}\n", report::json(&observation, &findings))),
    }
    if let Some(path) = &arguments.bundle {
        write_bundle(path, &observation, &watched, &findings)?;
    }
    Ok(report::worst(&observation, &findings).map_or(0, Severity::exit_code))
}

/// Counts the seconds on a terminal. A pipe or a log gets nothing but the report.
async fn show_progress(window: Duration) -> Infallible {
    let begun = Instant::now();
    while std::io::stderr().is_terminal() {
        let (seconds, all) = (begun.elapsed().as_secs(), humantime::format_duration(window));
        let _ = match begun.elapsed() < window {
            true => write!(std::io::stderr(), "{CLEAR_LINE}watching for {all}: {seconds} s"),
            false => write!(std::io::stderr(), "{CLEAR_LINE}waiting for the last answers: {seconds} s"),
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::future::pending().await
}

async fn observe(
    arguments: &DoctorArgs,
    sources: Vec<(crate::config::SourceSpec, Option<String>)>,
) -> Result<(Observation, Vec<Watched>), ConfigError> {
    let mut tasks = Vec::new();
    for target in targets(&arguments.connection).await? {
        tasks.push((target.url.clone(), tokio::spawn(watch::watch(target, arguments.window))));
    }
    let mut watched = Vec::new();
    for (url, task) in tasks {
        watched.push(task.await.unwrap_or_else(|error| not_watched(url, &error)));
    }
    let exporters: Vec<_> = watched.iter_mut().map(|watched| std::mem::take(&mut watched.exporter)).collect();
    let sources = sources::ask(sources, &exporters).await;
    Ok((Observation { exporters, sources }, watched))
}

/// An exporter whose task has failed must not be missing in the report.
fn not_watched(url: String, error: &JoinError) -> Watched {
    let error = Some(format!("a bug in doctor: {error}; please report it"));
    Watched { exporter: Exporter { url, error, ..Exporter::default() }, ..Watched::default() }
}

fn write_bundle(
    path: &Path,
    observation: &Observation,
    watched: &[Watched],
    findings: &[Finding],
) -> Result<(), ConfigError> {
    let text = bundle::bundle(observation, watched, findings);
    std::fs::write(path, &*printable::json(&text)).map_err(|error| ConfigError::Flag {
        flag: "--bundle",
        value: path.display().to_string(),
        why: format!("cannot write the file: {error}; choose a path in a writable directory"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_exporter_whose_task_failed_is_in_the_report() {
        let error = tokio::spawn(async { panic!("a planted bug") }).await.unwrap_err();
        let exporter = not_watched("http://e".to_owned(), &error).exporter;
        let findings = judge::judge(&Observation { exporters: vec![exporter], ..Observation::default() });
        assert_eq!(findings.iter().map(|finding| finding.rule.name).collect::<Vec<_>>(), ["exporter-unreadable"]);
        let fact = findings[0].facts[0].to_string();
        assert!(
            findings[0].subject == "http://e" && fact.contains("a planted bug") && fact.contains("report it"),
            "{fact}"
        );
    }
}
