//! The commands `man` and `completions`. Both are generated from the definition of the command line.

use std::fmt::Write as _;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use trtllm_page::build;

use super::print;

/// Width of the commands' help on the manual page, in columns.
const WIDTH: usize = 76;

/// Prints the script with which a shell completes flags and commands.
pub fn completions(shell: Shell, mut command: Command) {
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script));
}

/// Prints the manual page in roff format. It does not depend on the environment variables that are set. `last` has the last
/// sections.
pub fn manual_page(command: Command, last: &str) {
    print(&manual(command, last));
}

fn manual(command: Command, last: &str) -> String {
    let mut command = command.version(build::VERSION).term_width(WIDTH);
    command.build();
    let man = Man::new(command.clone()).manual("User Commands").date(build::COMMIT_DATE);
    let mut roff = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render_title(&mut roff);
    let _ = man.render_name_section(&mut roff);
    roff.extend_from_slice(synopsis(&command).as_bytes());
    let _ = man.render_description_section(&mut roff);
    let _ = man.render_options_section(&mut roff);
    let mut roff = String::from_utf8_lossy(&roff).into_owned();
    roff.push_str(".SH COMMANDS\n");
    for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        roff.push_str(&section(command));
    }
    roff.push_str(last);
    roff
}

/// Shorter than the synopsis of clap_mangen, which lists all options.
fn synopsis(command: &Command) -> String {
    let name = literal(command.get_name());
    let alone = format!("\\fB{name}\\fR [\\fIOPTION\\fR]...\n.br\n");
    let alone = if command.is_subcommand_required_set() { "" } else { &alone };
    format!(".SH SYNOPSIS\n{alone}\\fB{name}\\fR \\fICOMMAND\\fR\n")
}

/// The section of a command, with its help text.
fn section(command: &mut Command) -> String {
    let help = command.clone().mut_args(|argument| argument.hide_env_values(true)).render_long_help().to_string();
    let mut section = String::new();
    let _ = writeln!(section, ".SS {}\n.nf", literal(command.get_name()));
    for line in help.lines() {
        // A line that begins with a dot or a quote would be a request to roff.
        let _ = writeln!(section, "\\&{}", literal(line));
    }
    section.push_str(".fi\n");
    section
}

fn literal(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
