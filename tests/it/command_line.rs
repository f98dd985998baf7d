//! Tests the commands that describe the program: its version, its manual page and its shell completions.

use std::path::Path;
use std::process::Command;

use crate::support::daemon::{BINARY, Launch, doctor_binary, refused};
use crate::support::lookalike::{Lookalike, steady};

fn printed(arguments: &[&str]) -> String {
    printed_by(Launch::new(), arguments)
}

fn printed_by(program: Launch, arguments: &[&str]) -> String {
    let output = program
        .variable("TRTLLM_EXPORTER_MODEL", "a-secret-name")
        .variable("TRTLLM_EXPORTER_SOURCE", "socket:a-secret-name")
        .run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Starts one of the two programs.
type Start = fn() -> Launch;

/// Both programs, with the names of all their flags and commands.
fn programs() -> [(&'static str, Start, Vec<String>); 2] {
    [
        ("trtllm-exporter", Launch::new, names(&trtllm_exporter::cli::command())),
        ("trtllm-doctor", Launch::doctor, names(&trtllm_doctor::cli::command())),
    ]
}

/// The names of all flags and commands.
fn names(command: &clap::Command) -> Vec<String> {
    let flags = command.get_arguments().filter_map(|argument| argument.get_long().map(|name| format!("--{name}")));
    flags.chain(command.get_subcommands().map(|command| command.get_name().to_owned())).collect()
}

#[test]
fn the_version_names_the_revision_its_day_and_the_compiler() {
    let line = printed(&["--version"]);
    assert_eq!(printed_by(Launch::doctor(), &["--version"]), line.replace("exporter", "doctor"));
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

/// Regression: compose files and charts set variables to nothing. Some of them counted as unset, and others ended the start.
#[test]
fn an_empty_variable_counts_as_not_set() {
    let command = trtllm_exporter::cli::command();
    let variables = || command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let programs: [(Start, &[&str]); 2] =
        [(Launch::new, &["--dry-run", "--gpu=off"]), (Launch::doctor, &["diagnose", "--rules"])];
    for (program, arguments) in programs {
        let all = variables().fold(program(), |launch, variable| launch.variable(variable, ""));
        let (empty, unset) = (all.run(arguments), program().run(arguments));
        assert!(empty.status.success(), "{empty:?}");
        assert_eq!(empty.stdout, unset.stdout);
    }
}

#[test]
fn the_manual_page_describes_each_flag_and_command() {
    for (name, program, names) in programs() {
        let page = printed_by(program(), &["man"]);
        assert!(!page.contains("a-secret-name"), "the environment of the build is on the page");
        // roff writes a minus sign as \-.
        let text = page.replace("\\-", "-");
        for name in names {
            assert!(text.contains(&name), "{name} is missing");
        }
        let own = if name == "trtllm-exporter" { &["SIGNALS", "FILES"][..] } else { &[] };
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS"].iter().chain(own) {
            let heading =
                |line: &str| line.strip_prefix(".SH ").is_some_and(|title| title.trim_matches('"') == *section);
            assert_eq!(page.lines().filter(|line| heading(line)).count(), 1, "{name}: section {section}");
        }
        assert!(text.contains("TRTLLM_EXPORTER_SOURCE"), "environment variables are missing");
        assert!(!text.contains(&format!("{name}-completions")), "the page refers to a page that does not exist");
    }
}

#[test]
fn the_completions_of_each_shell_know_each_flag_and_command() {
    for (_, program, names) in programs() {
        for shell in ["bash", "zsh", "fish"] {
            let script = printed_by(program(), &["completions", shell]);
            for name in &names {
                // fish writes `-l source` for --source.
                assert!(script.contains(name.trim_start_matches("--")), "{shell}: {name} is missing");
            }
        }
    }
}

#[test]
fn bash_completes_a_flag_a_command_and_a_value() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program, _) in programs() {
        std::fs::write(folder.path().join(name), printed_by(program(), &["completions", "bash"])).unwrap();
    }
    let complete = |words: &[&str]| -> String {
        let program = words[0];
        let last = words.len() - 1;
        let previous = words[last - 1];
        let test = format!(
            "source \"$0\"; COMP_WORDS=(\"$@\") COMP_CWORD={last}; function=$(complete -p {program})
             function=${{function#*-F }}; ${{function%% *}} {program} '{}' '{previous}'; echo \"${{COMPREPLY[*]}}\"",
            words[last],
        );
        let output =
            Command::new("bash").arg("-c").arg(test).arg(folder.path().join(program)).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["trtllm-exporter", "--web.listen-a"]), "--web.listen-address");
    assert_eq!(complete(&["trtllm-exporter", "check-c"]), "check-config");
    assert_eq!(complete(&["trtllm-exporter", "catalog", "--format", ""]), "markdown json");
    assert_eq!(complete(&["trtllm-doctor", "diagnose", "--bun"]), "--bundle");
    assert_eq!(complete(&["trtllm-doctor", "diagnose", "--format", ""]), "text json");
}

#[test]
fn the_help_fits_a_screen_and_names_each_flag_and_command() {
    let help = printed(&["--help"]);
    assert_eq!(printed(&["-h"]), help);
    assert!(help.lines().count() <= 48 && help.lines().all(|line| line.chars().count() <= 100), "{help}");
    for name in names(&trtllm_exporter::cli::command()) {
        assert!(help.contains(&name), "{name} is missing");
    }
    let first = help.split("Most used:").nth(1).unwrap().trim_start();
    assert!(first.starts_with("--source"), "{help}");
    assert!(!help.contains("a-secret-name"), "{help}");
    // Each command has its own help, and `help` explains all flags.
    assert!(printed(&["init", "--help"]).contains("--ports"));
    assert!(printed(&["help"]).contains("TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS=]"));
}

#[test]
fn the_doctor_prints_its_help_without_a_command_too() {
    let help = printed_by(Launch::doctor(), &["--help"]);
    for name in names(&trtllm_doctor::cli::command()) {
        assert!(help.contains(&name), "{name} is missing");
    }
    assert!(printed_by(Launch::doctor(), &["diagnose", "--help"]).contains("--bundle"));
    let none = Launch::doctor().run(&[]);
    assert_eq!((none.status.code(), String::from_utf8(none.stderr).unwrap()), (Some(2), help));
}

#[test]
fn a_dry_run_prints_what_a_start_would_use_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let sources =
        format!("trtllm-serve:http://gpu-7:8000?bearer_token_file=/run/token\n  socket:{}\n", socket.display());
    // Several engines are configured by environment variables alone. The version is that of both: an empty name does not
    // count.
    let launch = Launch::new()
        .variable("TRTLLM_EXPORTER_SOURCE", &sources)
        .variable("TRTLLM_EXPORTER_MODEL", "llama 3\nqwen")
        .variable("TRTLLM_EXPORTER_MODEL_VERSION", "2,");
    let port_file = folder.path().join("port");
    let arguments = ["--dry-run", "--web.health-address", ":8003", "--web.port-file", port_file.to_str().unwrap()];
    let output = launch.run(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{text}");
    for line in [
        "  \"llama 3\" version \"2\", from trtllm-serve:http://gpu-7:8000?bearer_token_file=/run/token",
        &format!("  \"qwen\" version \"2\", from socket:{}", socket.display()),
        "  :8002: the metrics, at /metrics",
        "  :8003: health checks",
        &format!("  writes {} (--web.port-file)", port_file.display()),
        "GPU metrics: auto",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    assert!(!socket.exists() && !port_file.exists());
    let text = printed(&["--dry-run", "--source", "otlp:127.0.0.1:4317", "--otlp.endpoint", "http://otel:4318"]);
    assert!(text.contains("from otlp:127.0.0.1:4317, spans are forwarded to http://otel:4318\n"), "{text}");
    let text = String::from_utf8(Launch::new().run(&["--dry-run", "--source", "auto"]).stdout).unwrap();
    assert!(text.contains("from auto, at the ports [8000]") && text.contains("\nfiles of flags:\n  none\n"), "{text}");
}

/// Regression: no message stated that an engine directory was not loaded.
#[cfg(feature = "executor")]
#[test]
fn a_build_without_tensorrt_llm_says_that_executor_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("simulated.engine"), "sim:?rate=8\n").unwrap();
    let source = format!("executor:{}", folder.path().display());
    let text = printed(&["--dry-run", "--source", &source]);
    assert!(text.contains("simulated") && text.contains("TENSORRT_LLM_ROOT"), "{text}");
    let daemon = crate::support::daemon::Daemon::start(&["--source", &source]);
    daemon.until_logged(&["this engine is simulated", folder.path().to_str().unwrap()]);
}

#[test]
fn init_writes_a_configuration_with_the_engines_that_run() {
    let engine = Lookalike::start(&steady(50), &["--model", "init-test"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engines.yaml");
    let (port, file) = (engine.port().to_string(), path.to_str().unwrap());
    let said = printed(&["init", "--ports", &port, file]);
    assert!(said.contains(&format!("check-config {file}")), "{said}");
    let text = std::fs::read_to_string(&path).unwrap();
    let entry = format!("- source: \"trtllm-serve:http://127.0.0.1:{port}\"\n    model: \"init-test\"\n");
    assert!(text.contains(&entry) && text.lines().filter(|line| line.contains('#')).count() > 5, "{text}");
    assert!(printed(&["check-config", file]).contains("\"init-test\""));
    // `init` does not overwrite an existing file, which somebody may have edited.
    refused(2, &["init", "--ports", &port, file], &["where no file is"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// Parses each command line of each document. Each section with measured figures must name its benchmark.
#[test]
fn the_command_lines_of_the_documentation_work() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    // Both programs must be in the same folder.
    assert_eq!(Path::new(doctor_binary()).parent(), Path::new(BINARY).parent());
    let judge = |folder: &std::path::Path| {
        let mut command = Command::new(crate::support::program("python3"));
        command.arg(root.join("tests/judges/docs.py")).args(["--binary", BINARY]);
        let output = command.current_dir(folder).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (valid, findings) = judge(root);
    assert!(valid, "{findings}");

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::copy(root.join("docs/METRICS.md"), folder.path().join("docs/METRICS.md")).unwrap();
    let wrong = "# A\n\n## Costs\n\nMeasured: 5 ms.\n\n## Commands\n\n```sh\ntrtllm-exporter --sorce auto\n\
                 cargo run -- --poll.interval soon\ntests/rnu\nif then\n```\n\n\
                 `trtllm-doctor diagnose --bundel x`, `trtllm-exporter top` and `.ci/full speed`.\n";
    std::fs::write(folder.path().join("README.md"), wrong).unwrap();
    let (valid, findings) = judge(folder.path());
    assert!(!valid, "{findings}");
    for finding in [
        "--sorce: unknown flag",
        "\"soon\"",
        "tests/rnu does not exist",
        "bash: ",
        "--bundel",
        "\"top\": not a command",
        "no step speed",
        "\"Costs\"",
        "nothing leads to embedding in C++",
    ] {
        assert!(findings.contains(finding), "{finding} is not in {findings}");
    }
}

/// The exporter's flags with a dot, such as `--poll.interval`. Flags of other programs in these documents have no dot.
fn dotted_flags(text: &str) -> Vec<&str> {
    let flags = text.match_indices("--").map(|(at, _)| {
        let rest = &text[at..];
        let end =
            rest.find(|letter: char| !letter.is_ascii_lowercase() && !"-.".contains(letter)).unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', '-'])
    });
    flags.filter(|flag| flag.contains('.')).collect()
}

#[test]
fn the_documentation_names_only_flags_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["docs", "docs/runbooks"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let pages = pages.into_iter().flatten().map(|entry| entry.unwrap().path()).chain([root.join("README.md")]);
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let known = names(&trtllm_exporter::cli::command());
    let mut checked = 0;
    for path in pages {
        let text = std::fs::read_to_string(&path).unwrap();
        for flag in dotted_flags(&text) {
            assert!(known.iter().any(|name| name == flag), "{}: {flag} is not a flag", path.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} flags");
    assert_eq!(dotted_flags("`--a.b-c PATH`, --plain, --x.y."), ["--a.b-c", "--x.y"]);
}

/// True if `text` uses the flag in a command or in code, with a value if it takes one, or sets its variable.
fn uses(text: &str, flag: &clap::Arg) -> bool {
    let name = format!("--{}", flag.get_long().unwrap());
    let variable = flag.get_env().map(|name| format!("{}=", name.to_str().unwrap()));
    let takes_value = flag.get_action().takes_values();
    variable.is_some_and(|variable| text.contains(&variable))
        || text.split(&name).skip(1).any(|rest| {
            let mut next = rest.chars();
            match next.next() {
                Some(' ' | '=') if takes_value => next.next().is_some_and(|letter| !letter.is_whitespace()),
                Some(letter) => !takes_value && !letter.is_alphanumeric() && !"-.".contains(letter),
                None => !takes_value,
            }
        })
}

/// A flag that no example needs belongs only into the configuration file.
#[test]
fn each_flag_is_used_in_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "deploy/helm", "deploy/kubernetes", "deploy/systemd"] {
        crate::profiles::files(&root.join(folder), &mut paths);
    }
    let is_read = |path: &std::path::PathBuf| !path.ends_with("docs/METRICS.md");
    let texts = paths.iter().filter(|path| is_read(path)).filter_map(|path| std::fs::read_to_string(path).ok());
    let examples = texts.collect::<Vec<String>>().join("\n");
    for flag in trtllm_exporter::cli::command().get_arguments().filter(|flag| flag.get_long().is_some()) {
        assert!(uses(&examples, flag), "no document and no manifest uses --{}", flag.get_long().unwrap());
    }
    let flag = clap::Arg::new("x").long("a.b").env("A_B");
    assert!(["--a.b 1s", "x\n--a.b=1s", "A_B=1"].iter().all(|text| uses(text, &flag)));
    assert!(["`--a.b` is", "--a.b", "--a.b.c 1", "--a.b  "].iter().all(|text| !uses(text, &flag)));
    let switch = clap::Arg::new("x").long("dry").action(clap::ArgAction::SetTrue);
    assert!(uses("`--dry`", &switch) && !uses("--dry-run", &switch));
}
