//! Writes the JSON of `/api/v1`: arrays piece by piece, and values without null.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Writes an array, one value after the other: a tree of all values would take many times the memory of their text.
pub(super) fn write_array(text: &mut String, values: impl Iterator<Item = Value>) {
    let mut separator = '[';
    for value in values {
        let _ = write!(text, "{separator}{value}");
        separator = ',';
    }
    text.push_str(if separator == '[' { "[]" } else { "]" });
}

pub(super) fn array(values: impl Iterator<Item = Value>) -> String {
    let mut text = String::new();
    write_array(&mut text, values);
    text
}

/// The value as JSON, without null values.
pub(super) fn without_nulls(value: &impl Serialize) -> Value {
    // Cannot fail: map keys are strings, and floats are finite.
    let mut value = serde_json::to_value(value).unwrap_or_default();
    remove_nulls(&mut value);
    value
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
