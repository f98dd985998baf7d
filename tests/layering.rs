//! The flow of `src/lib.rs`, held as a test: a module imports only from those it may know.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What each module may import from the crate. What is not listed may import anything but `main`.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("shutdown", &[]),
    ("heap", &[]),
    ("engine", &["model"]),
    ("gpu", &["model"]),
    ("state", &["model", "engine", "shutdown"]),
    ("metrics", &["model", "engine", "state"]),
    ("exposition", &["engine", "metrics"]),
    ("sources", &["model"]),
    ("intake", &["model", "engine", "sources", "state"]),
    ("poll", &["intake", "sources", "state", "shutdown"]),
    ("http", &["exposition", "metrics", "state", "shutdown"]),
    ("config", &["metrics", "sources", "state"]),
    ("log", &["cli"]),
    ("cli", &["config", "metrics"]),
    ("tools", &["cli", "config", "metrics"]),
];

#[test]
fn every_module_imports_only_what_it_may_know() {
    let mut broken = Vec::new();
    for (module, may_know) in MAY_KNOW {
        for (file, imported) in imports(module) {
            if imported != *module && !may_know.contains(&imported.as_str()) {
                broken.push(format!("{} imports {imported}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "the flow goes one way (see src/lib.rs):\n{}", broken.join("\n"));
}

#[test]
fn every_module_of_the_crate_has_its_place() {
    let declared: BTreeSet<String> = std::fs::read_to_string("src/lib.rs")
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<String> = MAY_KNOW.iter().map(|(module, _)| (*module).to_owned()).collect();
    assert_eq!(declared, listed);
}

#[test]
fn a_broken_import_would_be_seen() {
    let found = crate_imports(
        "use crate::gpu::Nvml;\nuse super::x;\nlet y = crate::http::z();\nuse crate::{state, poll::Driver};",
    );
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["gpu", "http", "poll", "state"]);
}

#[test]
fn foreign_crates_with_a_border_are_each_in_their_place() {
    let homes: &[(&str, &[&str])] = &[
        ("nvml_wrapper", &["gpu"]),
        ("trtllm_bridge", &["sources/executor", "config/hosted.rs"]),
        ("prost", &["exposition/protobuf.rs", "gpu/kubelet.rs"]),
        ("zstd", &["exposition/pack.rs", "exposition/cache.rs"]),
        ("axum", &["http"]),
        // One file format a place: the engines, and who may read the page.
        ("serde_saphyr", &["config.rs", "http/web_config.rs"]),
    ];
    for file in files(Path::new("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (name, homes) in homes {
            let at_home = homes.iter().any(|home| file.starts_with(Path::new("src").join(home)));
            assert!(at_home || !text.contains(&format!("{name}::")), "{} uses {name}", file.display());
        }
    }
}

#[test]
fn unsafe_code_of_this_crate_stands_in_two_places() {
    for file in files(Path::new("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let lifted = text.contains("allow(unsafe_code)") || text.contains("expect(unsafe_code)");
        let may = ["src/gpu/raw.rs", "src/heap.rs"].iter().any(|place| file == Path::new(place));
        assert_eq!(lifted, may, "{}", file.display());
    }
}

/// (file, crate module) of every import in `src/MODULE` or `src/MODULE.rs`, test modules left out.
fn imports(module: &str) -> Vec<(PathBuf, String)> {
    let mut paths = files(&Path::new("src").join(module));
    let single = PathBuf::from(format!("src/{module}.rs"));
    if single.exists() {
        paths.push(single);
    }
    assert!(!paths.is_empty(), "src/{module} is gone");
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

/// The modules named right after `crate::`, comments left out.
fn crate_imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let names = match rest.strip_prefix('{') {
            // The first word of each element; nested braces hold no crate modules.
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
