//! `top` shows engines and GPUs of running exporters in the terminal. `reader` and `screen` do all input and output. `app` is the
//! state; `draw` and `table` draw it.

pub mod app;
pub mod columns;
pub mod draw;
pub mod exporter;
pub mod numbers;
mod reader;
pub mod screen;
pub mod table;
pub mod theme;
pub mod units;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cli::TopArgs;
use trtllm_config::ConfigError;
use trtllm_config::command_line::{print, runtime};
use trtllm_service::shutdown::{hangups, signals};

use crate::exporters::client::{Target, targets};
use app::{App, Update};
use reader::Wanted;
use screen::{Input, Screen};
use theme::Theme;

/// The exit code if an exporter did not answer, as in `diagnose`.
const UNREADABLE: u8 = 4;
/// Most updates that wait for the screen.
const UPDATES: usize = 16;

/// Shows the exporters until the user quits, or prints them once. Returns the exit code. Fails if the command line is invalid or the
/// terminal cannot be used.
pub fn run(arguments: &TopArgs) -> Result<u8, ConfigError> {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(3600));
    if arguments.interval < least || arguments.interval > most {
        let why = format!("must be between {least:?} and {most:?}; correct it");
        return Err(ConfigError::flag("--interval", format!("{:?}", arguments.interval), why));
    }
    let failed = |cause: io::Error| {
        let term = std::env::var("TERM").unwrap_or_default();
        ConfigError::flag("TERM", term, format!("cannot use the terminal: {cause}; use --once"))
    };
    let runtime = runtime("top")?;
    let targets = runtime.block_on(targets(&arguments.connection))?;
    let urls: Vec<String> = targets.iter().map(|target| target.url.clone()).collect();
    let mut app = App::new(&urls);
    let is_terminal = io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let code = if arguments.once || !is_terminal {
        runtime.block_on(read_once(&mut app, &targets));
        print(&draw::text(&app));
        let failed = app.exporters.iter().any(|exporter| exporter.failure.is_some());
        if failed { UNREADABLE } else { 0 }
    } else {
        runtime.block_on(show(&mut app, targets, arguments.interval)).map_err(failed)?;
        0
    };
    // The lookup of a name may hang on another thread. Do not wait for it.
    runtime.shutdown_background();
    Ok(code)
}

/// Reads each exporter once.
async fn read_once(app: &mut App, targets: &[Target]) {
    let mut tasks = Vec::new();
    for target in targets {
        let mut client = target.client_for_terminal();
        tasks.push(tokio::spawn(async move { reader::read(&mut client, None).await }));
    }
    for (exporter, task) in tasks.into_iter().enumerate() {
        let read = match task.await {
            Ok(read) => read.map_err(|failure| failure.to_string()),
            Err(error) => Err(format!("a bug: {error}; please report it")),
        };
        app.absorb(Update { exporter, time: 0.0, read });
    }
}

/// Shows the exporters until the user quits or a signal arrives.
async fn show(app: &mut App, targets: Vec<Target>, interval: Duration) -> io::Result<()> {
    let stopped = signals()?;
    let mut stopped = std::pin::pin!(stopped);
    let mut hangups = hangups()?;
    let theme = Theme { colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let mut screen = Screen::enter()?;
    let mut inputs = screen::inputs()?;
    let (sender, mut updates) = mpsc::channel(UPDATES);
    let (wanted, wants) = watch::channel(Wanted::default());
    let mut tasks = JoinSet::new();
    for (at, target) in targets.into_iter().enumerate() {
        tasks.spawn(reader::follow(at, target, interval, wants.clone(), sender.clone()));
    }
    while !app.quit {
        screen.draw(app, theme, interval)?;
        tokio::select! {
            input = inputs.recv() => match input {
                Some(Input::Key(key)) => app.key(key),
                Some(Input::Quit) => app.quit = true,
                Some(Input::Suspend) => screen.suspend()?,
                Some(Input::Redraw) => screen.clear()?,
                Some(Input::Resize) => {}
                None => return Err(io::Error::other("the keyboard cannot be read")),
            },
            Some(update) = updates.recv() => app.absorb(update),
            _ = &mut stopped => return Ok(()),
            _ = hangups.recv() => return Ok(()),
            // While this function runs, a reader ends only by a panic.
            Some(_) = tasks.join_next() => return Err(io::Error::other("reading an exporter has failed")),
        }
        let now = Wanted { paused: app.paused, history_of: app.charts_of() };
        wanted.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }
    Ok(())
}
