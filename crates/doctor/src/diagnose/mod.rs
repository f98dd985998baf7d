//! `diagnose`: reads from exporters, a recording or a log, what limits each engine (`read`), asks the sources which
//! options are off (`sources`), and prints both (`report`). The exporters judge engines; only the answers of sources
//! are judged here.

mod bundle;
pub mod fleet;
mod read;
pub mod report;
pub mod source_rules;
mod sources;

use crate::cli::{DiagnoseArgs, ReportFormat};
use trtllm_config::{ConfigError, command_line};
use trtllm_service::printable;
use trtllm_verdict::verdict::Severity;

use crate::exporters::client::targets;
use read::Exporter;
use report::Report;

/// Reads, prints the report, and returns the exit code. Fails if the command line is invalid or the bundle cannot be written.
pub fn run(arguments: &DiagnoseArgs) -> Result<u8, ConfigError> {
    if arguments.rules {
        command_line::print(&report::reference());
        return Ok(0);
    }
    let runtime = command_line::runtime("diagnose")?;
    if let Some(url) = &arguments.prometheus {
        return runtime.block_on(fleet::of_prometheus(url, arguments));
    }
    if let Some(directory) = &arguments.past.recording {
        let exporters = read::recording(directory, arguments)?;
        return print(&Report { exporters, sources: Vec::new() }, arguments);
    }
    if let Some(file) = &arguments.log {
        return print(&Report { exporters: vec![read::log(file)?], sources: Vec::new() }, arguments);
    }
    let sources = sources::configured(arguments)?;
    let (with_details, format) = (arguments.bundle.is_some(), arguments.format);
    let report = runtime.block_on(async {
        let mut tasks = Vec::new();
        for target in targets(&arguments.connection).await? {
            tasks.push((target.url.clone(), tokio::spawn(read::read(target, with_details, format))));
        }
        let mut exporters = Vec::new();
        for (url, task) in tasks {
            // The report names every exporter, even if the task that reads it has panicked.
            let failed = |error| Exporter::unread(url, format!("a bug in trtllm-doctor: {error}; please report it"));
            exporters.push(task.await.unwrap_or_else(failed));
        }
        let sources = sources::ask(sources, &exporters).await;
        Ok::<_, ConfigError>(Report { exporters, sources })
    })?;
    // The lookup of a name may hang on another thread. Do not wait for it.
    runtime.shutdown_background();
    print(&report, arguments)
}

fn print(report: &Report, arguments: &DiagnoseArgs) -> Result<u8, ConfigError> {
    match arguments.format {
        ReportFormat::Text => command_line::print(&report.text()),
        ReportFormat::Json => command_line::print_json(&format!("{:#}\n", report.json())),
    }
    if let Some(path) = &arguments.bundle {
        let written = std::fs::write(path, &*printable::json(&bundle::bundle(report)));
        written.map_err(|error| {
            let why = format!("cannot write the file: {error}; choose a path in a writable directory");
            ConfigError::flag("--bundle", path.display(), why)
        })?;
    }
    Ok(exit_code(report.worst()))
}

/// The exit code for the worst severity of a report.
const fn exit_code(worst: Severity) -> u8 {
    match worst {
        Severity::None | Severity::Info => 0,
        Severity::Warning => 3,
        Severity::Critical => 4,
    }
}
