//! Generates code from the list of members in `detail/members.h`: the decoder of rows and the names of the slots.

// Cargo reads build script instructions from standard output.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::Path;

const MEMBERS: &str = "../library/include/trtllm_exporter/detail/members.h";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={MEMBERS}");
    let header = std::fs::read_to_string(MEMBERS).map_err(|error| format!("{MEMBERS}: {error}"))?;
    let folder = std::env::var("OUT_DIR").map_err(|error| error.to_string())?;
    std::fs::write(Path::new(&folder).join("generated.rs"), generate(&header)?).map_err(|error| error.to_string())
}

/// For each `#define TRTLLM_EXPORTER_<Struct>(V, N, T)` of the header: a module of slot names, and a function of the macro
/// `decoders!`.
fn generate(header: &str) -> Result<String, String> {
    let header = header.replace("\\\n", " ");
    let tables =
        header.lines().filter_map(|line| line.strip_prefix("#define TRTLLM_EXPORTER_")?.split_once("(V, N, T)"));
    let (mut slots, mut decoders) = (String::new(), String::new());
    for (table, members) in tables {
        let (mut names, mut fields) = (String::new(), String::new());
        for member in members.split(')').map(str::trim).filter(|member| !member.is_empty()) {
            let (kind, arguments) =
                member.split_once('(').ok_or_else(|| format!("{MEMBERS}: {member:?} in {table}"))?;
            let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
            let (slot, name, value) = match (kind, arguments.as_slice()) {
                ("V", [slot, name]) => (slot, name, format!("row.get(at + {slot})")),
                ("N", [slot, name, table]) => {
                    (slot, name, format!("row.nested(at + {slot}, decode_{})", snake_case(table)))
                }
                ("T", [_]) => continue, // the text of a row has no slot
                _ => return Err(format!("{MEMBERS}: {table} has no member {member:?}")),
            };
            let name = snake_case(name);
            let _ = writeln!(names, "        pub const {}: usize = {slot};", name.to_uppercase());
            let _ = writeln!(fields, "                {name}: {value},");
        }
        let name = snake_case(table);
        let _ = writeln!(slots, "    pub mod {name} {{\n{names}    }}");
        let _ = writeln!(
            decoders,
            "        pub(super) fn decode_{name}(row: &$crate::Reader<'_>, at: usize) -> {table} {{\n            {table} {{\n{fields}\
             \u{20}               ..{table}::default()\n            }}\n        }}"
        );
    }
    Ok(format!(
        "/// The slots of each struct. Those of a nested struct begin at its own slot.\npub mod slots {{\n{slots}}}\n\n\
         /// Defines a function `decode_<struct>(&Reader, first_slot)` for each struct of the list. They return \
         the caller's structs of these names, and are visible in the parent of the module that calls the macro.\n#[macro_export]\nmacro_rules! decoders {{\n    () => {{\n{decoders}    }};\n}}\n"
    ))
}

/// "kvCacheTransferMS" is `kv_cache_transfer_ms`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    let mut after_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && after_lower {
            text.push('_');
        }
        after_lower = !letter.is_ascii_uppercase();
        text.push(letter.to_ascii_lowercase());
    }
    text
}
