//! Sets the soname of the shared library, because without one, programs that link it would record the path of the build
//! folder. Generates the decoder of rows from the list of members in `detail/members.h`.

// Cargo reads build script instructions from standard output.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::Path;

const MEMBERS: &str = "include/trtllm_exporter/detail/members.h";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={MEMBERS}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtrtllm_exporter.so.0");
    let header = std::fs::read_to_string(MEMBERS).map_err(|error| format!("{MEMBERS}: {error}"))?;
    let folder = std::env::var("OUT_DIR").map_err(|error| error.to_string())?;
    std::fs::write(Path::new(&folder).join("decode.rs"), decoder(&header)?).map_err(|error| error.to_string())
}

/// One function for each `#define TRTLLM_EXPORTER_<Struct>(V, N, T)` of the header.
fn decoder(header: &str) -> Result<String, String> {
    let header = header.replace("\\\n", " ");
    let tables =
        header.lines().filter_map(|line| line.strip_prefix("#define TRTLLM_EXPORTER_")?.split_once("(V, N, T)"));
    let mut code = String::new();
    for (table, members) in tables {
        let mut fields = String::new();
        for member in members.split(')').map(str::trim).filter(|member| !member.is_empty()) {
            let (kind, arguments) =
                member.split_once('(').ok_or_else(|| format!("{MEMBERS}: {member:?} in {table}"))?;
            let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
            match (kind, arguments.as_slice()) {
                ("V", [slot, name]) => writeln!(fields, "        {}: row.get(at + {slot}),", snake_case(name)),
                ("N", [slot, name, table]) => {
                    writeln!(
                        fields,
                        "        {}: row.nested(at + {slot}, decode_{}),",
                        snake_case(name),
                        snake_case(table)
                    )
                }
                ("T", [_]) => Ok(()), // the text of a row has no slot
                _ => return Err(format!("{MEMBERS}: {table} has no member {member:?}")),
            }
            .map_err(|error| error.to_string())?;
        }
        let name = snake_case(table);
        let _ = write!(
            code,
            "pub(crate) fn decode_{name}(row: &Reader<'_>, at: usize) -> {table} {{\n    {table} {{\n{fields}        \
             ..{table}::default()\n    }}\n}}\n\n"
        );
    }
    Ok(code)
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
