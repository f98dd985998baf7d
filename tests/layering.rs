//! Tests the architecture: a module imports only the modules listed for it, and no files import each other in a circle.
// A test stops at the first error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "layering/circles.rs"]
mod circles;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What each module of the daemon may import from the others. The crates in `crates/` need no list: the compiler sees to them.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("intake", &[]),
    ("poll", &["intake"]),
    ("diagnosis", &[]),
    ("views", &["diagnosis"]),
    ("listen", &[]),
    ("http", &["listen", "views"]),
    ("config", &[]),
    ("cli", &["config", "http", "listen"]),
    ("tools", &["cli", "config", "diagnosis"]),
    ("start", &["cli", "config", "http", "listen", "poll"]),
];

#[test]
fn every_module_imports_only_what_is_listed_for_it() {
    let mut broken = Vec::new();
    for (module, may_import) in MAY_IMPORT {
        for (file, imported) in imports(module) {
            if imported != *module && !may_import.contains(&imported.as_str()) {
                broken.push(format!("{} imports {imported}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "imports against the data flow (see src/lib.rs):\n{}", broken.join("\n"));
}

#[test]
fn every_module_of_the_crate_is_listed() {
    let declared: BTreeSet<String> = std::fs::read_to_string("src/lib.rs")
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<String> = MAY_IMPORT.iter().map(|(module, _)| (*module).to_owned()).collect();
    assert_eq!(declared, listed);
}

#[test]
fn every_form_of_import_from_the_crate_is_found() {
    let found = crate_imports(
        "use crate::gpu::Nvml;\nuse super::x;\nlet y = crate::http::z();\nuse crate::{state, poll::Driver};",
    );
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["gpu", "http", "poll", "state"]);
}

#[test]
fn no_files_of_a_room_import_each_other_in_a_circle() {
    let found = circles::circles(&sources());
    assert!(found.is_empty(), "these files import each other; move what they share into a file of its own: {found:#?}");
}

#[test]
fn a_circle_is_found_in_every_form_of_import() {
    let circles_of = |files: &[(&str, &str)]| -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        circles::circles(&files).iter().map(|circle| circle.join(" ")).collect()
    };
    let parent = ("room/mod.rs", "mod a;\nmod b;\npub use a::{A, Deep as Renamed};\n");
    for import_of_b in [
        "use super::b::B;",
        "use super::{c, b::{self, B}};",
        "use super::{b::*, c};",
        "use crate::room::b::B;",
        "use crate::{state, room::{c::C, b}};",
        "fn f() { let url = \"http://x\"; super::b::f(url, '\"') }",
    ] {
        for import_of_a in ["use super::a::A;", "use super::A;", "use crate::room::Renamed;"] {
            let found = circles_of(&[parent, ("room/a.rs", import_of_b), ("room/b.rs", import_of_a)]);
            assert_eq!(found, ["room/a.rs room/b.rs"], "{import_of_b} and {import_of_a}");
        }
    }
    // A circle over three files, one of them in a nested folder.
    let nested = ("room/b/deep.rs", "use super::super::c::C;");
    let rest = [("room/c.rs", "use super::a::A;"), ("room/a.rs", "use super::b::deep::D;"), ("room/b.rs", "mod deep;")];
    assert_eq!(circles_of(&[&[nested][..], &rest].concat()), ["room/a.rs room/b/deep.rs room/c.rs"]);
    // A parent that uses its child, and whose item the child imports.
    let uses = ("room/mod.rs", "mod a;\nstruct Shared;\nfn f() { a::run() }");
    assert_eq!(circles_of(&[uses, ("room/a.rs", "use super::Shared;")]), ["room/a.rs room/mod.rs"]);
}

#[test]
fn imports_that_form_no_circle_are_accepted() {
    let files = [
        ("room/mod.rs", "mod a;\nmod b;\npub use a::A;\nfn start() { b::run() }"),
        ("room/a.rs", "// use super::b::B;\nfn f() -> &'static str { \"super::b\" }\n#[cfg(test)]\nuse super::b::B;"),
        ("room/b.rs", "pub(super) fn run(b: usize) { super::A::new(b) }\nuse crate::other::X;"),
        ("other.rs", "use crate::room::A;"),
    ];
    let files: Vec<_> = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    assert_eq!(circles::circles(&files), BTreeSet::new());
}

/// Path below `src` and text of every file, test modules left out. A crate of `crates/` counts as a room of that name.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files(Path::new("src")) {
        let name = path.strip_prefix("src").unwrap().to_str().unwrap().to_owned();
        if !name.ends_with("tests.rs") && name != "lib.rs" && name != "main.rs" {
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    for path in files(Path::new("crates")) {
        let name = path.strip_prefix("crates").unwrap().to_str().unwrap();
        if let Some((room, file)) = name.split_once("/src/")
            && !file.ends_with("tests.rs")
        {
            let text = std::fs::read_to_string(&path).unwrap().replace("crate::", &format!("crate::{room}::"));
            found.push((format!("{room}/{file}").replace("/lib.rs", "/mod.rs"), text));
        }
    }
    assert!(found.iter().any(|(name, _)| name == "engine/mod.rs"));
    found
}

#[test]
fn each_foreign_crate_is_used_in_one_place() {
    let places: &[(&str, &[&str])] = &[
        ("trtllm_bridge", &["config/hosted.rs"]),
        ("prost", &["exposition/protobuf.rs"]),
        // A metric of a source is in the state: the intake increments it, and the collector reads it.
        ("prometheus_client", &["exposition", "metrics", "state/source.rs"]),
        ("zstd", &["exposition/compress.rs", "exposition/cache.rs"]),
        ("axum", &["http"]),
        ("ratatui", &["tools/top/draw", "tools/top/screen.rs", "tools/top/theme.rs", "tools/top/tests.rs"]),
        ("crossterm", &["tools/top/screen.rs"]),
        ("serde_saphyr", &["config.rs"]),
    ];
    for file in files(Path::new("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (name, places) in places {
            let allowed = places.iter().any(|place| file.starts_with(Path::new("src").join(place)));
            assert!(allowed || !text.contains(&format!("{name}::")), "{} uses {name}", file.display());
        }
    }
}

/// They judge what was fetched. So a test needs no process, and the same observation always has the same findings.
#[test]
fn the_diagnosis_fetches_nothing_prints_nothing_and_knows_no_time() {
    let pure = files(Path::new("src/diagnosis"));
    assert!(pure.len() > 10, "{pure:?}");
    for file in pure {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["client", "watch::", "tokio", "std::fs", "std::net", "Instant", "SystemTime", "print(", "stdout"] {
            assert!(!text.contains(word), "{} uses {word}", file.display());
        }
    }
}

/// They turn readings and keys into texts. So a test needs neither a terminal nor an exporter.
#[test]
fn the_state_and_the_drawing_of_top_fetch_nothing_print_nothing_and_know_no_time() {
    let folder = Path::new("src/tools/top");
    let io = ["mod.rs", "reader.rs", "screen.rs"].map(|file| folder.join(file));
    let pure: Vec<PathBuf> = files(folder).into_iter().filter(|file| !io.contains(file)).collect();
    assert!(pure.len() > 10, "{pure:?}");
    for file in pure {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in [
            "client",
            "reader::",
            "tokio",
            "std::fs",
            "std::net",
            "std::env",
            "Instant",
            "SystemTime",
            "print(",
            "stdout",
        ] {
            assert!(!text.contains(word), "{} uses {word}", file.display());
        }
    }
}

#[test]
fn unsafe_code_is_allowed_in_two_files_only() {
    for file in files(Path::new("src")).into_iter().chain(files(Path::new("crates"))) {
        let text = std::fs::read_to_string(&file).unwrap();
        let allows = text.contains("allow(unsafe_code)") || text.contains("expect(unsafe_code)");
        let expected =
            ["crates/gpu/src/raw.rs", "crates/service/src/process.rs"].iter().any(|place| file == Path::new(place));
        assert_eq!(allows, expected, "{}", file.display());
    }
}

/// File and crate module of every import in `src/MODULE` or `src/MODULE.rs`, without test modules.
fn imports(module: &str) -> Vec<(PathBuf, String)> {
    let mut paths = files(&Path::new("src").join(module));
    let single = PathBuf::from(format!("src/{module}.rs"));
    if single.exists() {
        paths.push(single);
    }
    assert!(!paths.is_empty(), "src/{module} does not exist");
    let mut found = Vec::new();
    for path in paths {
        if path.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        found.extend(crate_imports(code).into_iter().map(|imported| (path.clone(), imported)));
    }
    found
}

/// The modules named right after `crate::`, outside comments.
fn crate_imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let names = match rest.strip_prefix('{') {
            // The first word of each element. Nested braces contain no crate modules.
            Some(group) => group.split_once('}').unwrap().0.split(',').map(str::trim).collect(),
            None => vec![rest],
        };
        for name in names {
            found.insert(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
