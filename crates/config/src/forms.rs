//! The form of each source.

pub const FORMS: [&str; 11] = [
    "sim:[?key=value&…]",
    "executor:DIR",
    "trtllm-serve:http://HOST:PORT",
    "trtllm-disagg:http://HOST:PORT",
    "perf-metrics:DIR",
    "socket:PATH",
    "otlp:HOST:PORT",
    "replay:FILE",
    "log:FILE",
    "kubernetes:[NAMESPACE]",
    "auto",
];

/// What to use instead of an invalid source.
pub(super) fn remedy() -> String {
    let [others @ .., last] = &FORMS;
    format!("use {} or {last}", others.join(", "))
}

/// Whether the address of this source is a path.
pub(super) fn has_path(source: &str) -> bool {
    let Some((scheme, _)) = source.split_once(':') else { return false };
    ["DIR", "FILE", "PATH"].iter().any(|path| FORMS.contains(&&*format!("{scheme}:{path}")))
}
