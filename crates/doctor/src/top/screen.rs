//! Sets up the terminal at the start. Restores it at the end, before a suspension and after a panic.

use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

use super::app::App;
use super::draw;
use super::theme::Theme;

/// What a person does at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Key(KeyCode),
    /// Ctrl-C.
    Quit,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
    Resize,
}

/// True while the terminal belongs to `top`. The terminal must be restored only once: a second time would move the cursor back
/// to its position at the start, and later output would overwrite the message of a panic.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
    enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Restores the terminal. Ignores errors, because they mean that there is no terminal any more.
fn restore() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// The terminal while it belongs to `top`. Dropping it restores the terminal.
#[derive(Debug)]
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Fails if the terminal cannot be set up.
    pub fn enter() -> io::Result<Self> {
        let entered = enter().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        entered.map(Self).inspect_err(|_| restore())
    }

    /// Fails if the terminal is gone, or was restored by a panic in another task.
    pub fn draw(&mut self, app: &App, theme: Theme, interval: Duration) -> io::Result<()> {
        if !IS_ENTERED.load(Ordering::SeqCst) {
            return Err(io::Error::other("a task has failed"));
        }
        self.0.draw(|frame| draw::draw(frame, app, theme, interval)).map(|_| ())
    }

    /// Makes the next draw write every cell again. Fails if the terminal is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` would ask the terminal where its cursor is, and the keyboard's thread would read the answer.
        let size = self.0.size()?;
        self.0.resize(size.into())
    }

    /// Gives the terminal back to the shell until it continues this process. Fails if the terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        kill_process(getpid(), Signal::TSTP)?;
        enter()?;
        self.clear()?;
        self.0.hide_cursor()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Reads the keyboard on its own thread, because reading blocks. The thread ends with the process. Fails if no thread can be started.
pub(super) fn inputs() -> io::Result<mpsc::Receiver<Input>> {
    let (sender, receiver) = mpsc::channel(64);
    let read = move || {
        while let Ok(event) = event::read() {
            if input(&event).is_some_and(|input| sender.blocking_send(input).is_err()) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(read)?;
    Ok(receiver)
}

fn input(event: &Event) -> Option<Input> {
    match event {
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
        Event::Key(KeyEvent { code, modifiers, .. }) if modifiers.contains(KeyModifiers::CONTROL) => match code {
            KeyCode::Char('c') => Some(Input::Quit),
            KeyCode::Char('z') => Some(Input::Suspend),
            KeyCode::Char('l') => Some(Input::Redraw),
            _ => None,
        },
        Event::Key(key) => Some(Input::Key(key.code)),
        Event::Resize(..) => Some(Input::Resize),
        _ => None,
    }
}
