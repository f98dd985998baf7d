//! The environment variables of flags: `TRTLLM_EXPORTER_GPU_UUID` for `--gpu.uuid`. An empty one counts as not set: compose files
//! and charts set a variable to nothing if they have no value for it.

use clap::Arg;

pub const PREFIX: &str = "TRTLLM_EXPORTER_";

/// The argument with the variable of its flag, if the variable `counts`.
#[must_use]
pub fn with_variable(argument: Arg, counts: fn(&str) -> bool) -> Arg {
    let variable = argument.get_long().map(|flag| format!("{PREFIX}{}", flag.to_uppercase().replace(['.', '-'], "_")));
    match variable.filter(|variable| counts(variable)) {
        Some(variable) => argument.env(variable),
        None => argument,
    }
}

/// False for a variable that is set to nothing.
#[must_use]
pub fn is_not_empty(variable: &str) -> bool {
    std::env::var_os(variable).is_none_or(|value| !value.is_empty())
}

/// Splits the value of a variable that can hold several.
pub fn split(values: &mut Vec<String>, separator: fn(char) -> bool) {
    let all = std::mem::take(values);
    let all = all.iter().flat_map(|value| value.split(separator)).filter(|value| !value.trim().is_empty());
    *values = all.map(|value| value.trim().to_owned()).collect();
}
