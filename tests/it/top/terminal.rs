//! A real terminal: a pane of tmux in which `top` runs. Each has its own tmux server, which ends with the test.

use std::path::Path;
use std::process::Command;

use crate::support;
use crate::support::daemon::doctor_binary;

pub(crate) struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    /// Runs `top` with these arguments.
    pub(crate) fn top(size: (u16, u16), environment: &str, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
        Self::run(size, &format!("env {environment} {} top {}", doctor_binary(), arguments.join(" ")))
    }

    /// Runs a command line, then prints its exit code and the settings of the terminal.
    pub(crate) fn run(size: (u16, u16), line: &str) -> Self {
        let terminal = Self { folder: tempfile::tempdir().unwrap() };
        let script = terminal.folder.path().join("script");
        // The shell writes its process id to a file, and then the command replaces the shell.
        let pid = terminal.folder.path().join("pid");
        let pid = pid.display();
        let text = format!(
            "echo before; sh -c 'echo $$ >{pid}; exec \"$0\" \"$@\"' {line}\necho \"exit code $?\"; stty -a; echo end of settings; cat\n"
        );
        std::fs::write(&script, text).unwrap();
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let shell = format!("sh {}", script.display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, &shell]);
        terminal
    }

    /// Starts a shell with job control.
    pub(crate) fn shell(size: (u16, u16)) -> Self {
        let terminal = Self { folder: tempfile::tempdir().unwrap() };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let shell = "env PS1='ready>' bash --norc --noprofile -i";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(support::program("tmux"));
        command.arg("-u").arg("-S").arg(self.folder.path().join("socket")).args(arguments);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("TRTLLM_EXPORTER_") || name.starts_with("TMUX") || name == "NO_COLOR" {
                command.env_remove(name.as_ref());
            }
        }
        let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The text of the pane.
    pub(crate) fn pane(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The text of the pane, with escape sequences for colours.
    pub(crate) fn coloured(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// The value of a variable in tmux's formats.
    pub(crate) fn says(&self, variable: &str) -> String {
        self.tmux(&["display-message", "-p", &format!("#{{{variable}}}")]).trim().to_owned()
    }

    /// Presses keys, given by their tmux names.
    pub(crate) fn press(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", key]);
        }
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&self, name: &str) {
        let pid = std::fs::read_to_string(self.folder.path().join("pid")).unwrap();
        let kill = Command::new("sh").args(["-c", "kill -s $0 $1", name, pid.trim()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the pane contains all of these texts, and returns it.
    pub(crate) fn until(&self, texts: &[&str]) -> String {
        self.until_pane(|pane| match texts.iter().find(|text| !pane.contains(**text)) {
            None => Ok(()),
            Some(text) => Err(format!("{text:?} is missing")),
        })
    }

    pub(crate) fn until_pane(&self, mut check: impl FnMut(&str) -> Result<(), String>) -> String {
        support::until(|| {
            let pane = self.pane();
            check(&pane).map(|()| pane.clone()).map_err(|error| format!("{error}:\n{pane}"))
        })
    }

    /// Waits until the command has ended. The pane must be as before the command, and must echo typed text.
    pub(crate) fn is_restored(&self, code: u8) {
        let exit_code = format!("exit code {code}");
        let pane = self.until(&["before", &exit_code, "end of settings"]);
        let words: Vec<&str> = pane.split([' ', ';', '\n']).collect();
        for setting in ["icanon", "echo", "isig", "icrnl", "opost"] {
            assert!(words.contains(&setting), "{setting} is off:\n{pane}");
        }
        assert!(!pane.contains("trtllm-doctor top"), "{pane}");
        assert_eq!((self.says("alternate_on").as_str(), self.says("cursor_flag").as_str()), ("0", "1"));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new(support::program("tmux"));
        let _ = command.arg("-S").arg(self.folder.path().join("socket")).arg("kill-server").output();
    }
}
