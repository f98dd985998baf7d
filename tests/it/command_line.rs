//! Tests the commands that describe the program: its version, its manual page and its shell completions.

use std::process::Command;

use clap::CommandFactory as _;
use trtllm_exporter::cli::Cli;

use crate::support::daemon::Launch;

fn printed(arguments: &[&str]) -> String {
    let output = Launch::new().variable("TRTLLM_EXPORTER_MODEL", "a-secret-name").run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The name of each flag and of each command.
fn names() -> Vec<String> {
    let command = Cli::command();
    let flags = command.get_arguments().filter_map(|argument| argument.get_long().map(|name| format!("--{name}")));
    flags.chain(command.get_subcommands().map(|command| command.get_name().to_owned())).collect()
}

#[test]
fn the_version_names_the_revision_its_day_and_the_compiler() {
    let line = printed(&["--version"]);
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["trtllm-exporter", version, "(revision", revision, "of", date, "rustc", compiler] = words.as_slice() else {
        panic!("{line}");
    };
    assert_eq!(*version, env!("CARGO_PKG_VERSION"));
    let date = date.strip_suffix(',').unwrap();
    assert!(date == "unknown" || date.split('-').map(str::len).eq([4, 2, 2]), "{line}");
    let commit = revision.strip_suffix("-modified").unwrap_or(revision);
    assert!(
        commit == "unknown" || commit.len() == 40 && commit.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{line}"
    );
    assert!(compiler.starts_with("1."), "{line}");
}

/// Before, it installed packages.
#[test]
fn the_help_of_the_test_script_starts_and_installs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tests/run");
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    std::fs::copy("tests/run", &script).unwrap();
    for arguments in [&["--help"][..], &["-h"], &["--test", "it", "--help"]] {
        let output = Command::new("bash").arg(&script).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains("tests/run [arguments of cargo test]"),
            "{arguments:?}: {text}"
        );
        assert!(output.stderr.is_empty() && !folder.path().join("target").exists(), "{arguments:?} did something");
    }
}

#[test]
fn the_manual_page_describes_each_flag_and_command() {
    let page = printed(&["man"]);
    assert!(!page.contains("a-secret-name"), "the environment of the build is on the page");
    // roff writes a minus sign as \-.
    let text = page.replace("\\-", "-");
    for name in names() {
        assert!(text.contains(&name), "{name} is missing");
    }
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "SIGNALS", "EXIT STATUS", "FILES"] {
        let heading = |line: &str| line.strip_prefix(".SH ").is_some_and(|title| title.trim_matches('"') == section);
        assert_eq!(page.lines().filter(|line| heading(line)).count(), 1, "section {section}");
    }
    assert!(text.contains("TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS"), "environment variables are missing");
    assert!(!text.contains("trtllm-exporter-check-config"), "the page refers to a page that does not exist");
}

#[test]
fn the_completions_of_each_shell_know_each_flag_and_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        for name in names() {
            // fish writes `-l source` for --source.
            assert!(script.contains(name.trim_start_matches("--")), "{shell}: {name} is missing");
        }
    }
}

#[test]
fn bash_completes_a_flag_a_command_and_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("trtllm-exporter");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let complete = |words: &[&str]| -> String {
        let last = words.len() - 1;
        let previous = words[last - 1];
        let test = format!(
            "source \"$0\"; COMP_WORDS=(\"$@\") COMP_CWORD={last}; function=$(complete -p trtllm-exporter)
             function=${{function#*-F }}; ${{function%% *}} trtllm-exporter '{}' '{previous}'; echo \"${{COMPREPLY[*]}}\"",
            words[last],
        );
        let output = Command::new("bash").arg("-c").arg(test).arg(&script).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["trtllm-exporter", "--web.listen-a"]), "--web.listen-address");
    assert_eq!(complete(&["trtllm-exporter", "check-c"]), "check-config");
    assert_eq!(complete(&["trtllm-exporter", "catalog", "--format", ""]), "markdown json");
}

/// Flags such as `--poll.interval`. Other programs' flags in these pages have no dot.
fn dotted_flags(text: &str) -> Vec<&str> {
    let flags = text.match_indices("--").map(|(at, _)| {
        let rest = &text[at..];
        let end =
            rest.find(|letter: char| !letter.is_ascii_lowercase() && !"-.".contains(letter)).unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', '-'])
    });
    flags.filter(|flag| flag.contains('.')).collect()
}

/// Flags of other programs in our documentation: Alertmanager's.
const OF_OTHERS: [&str; 1] = ["--cluster.listen-address"];

#[test]
fn the_documentation_names_only_flags_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["docs", "docs/runbooks"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let pages = pages.into_iter().flatten().map(|entry| entry.unwrap().path()).chain([root.join("README.md")]);
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let known = names();
    let mut checked = 0;
    for path in pages {
        let text = std::fs::read_to_string(&path).unwrap();
        for flag in dotted_flags(&text) {
            let exists = known.iter().any(|name| name == flag) || OF_OTHERS.contains(&flag);
            assert!(exists, "{}: {flag} is not a flag", path.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} flags");
    assert_eq!(dotted_flags("`--a.b-c PATH`, --plain, --x.y."), ["--a.b-c", "--x.y"]);
}
