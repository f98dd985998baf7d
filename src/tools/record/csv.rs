//! Writes a recording as one table: a row for each item, and a column for each number or text in any item, without arrays.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use super::{ExportError, Selection};
use trtllm_recording::utc;

/// The first columns, which every table has.
const FIRST: [&str; 5] = ["item", "time", "us", "model", "version"];
/// The keys of a line besides the key that names its item.
const STAMP: [&str; 4] = ["us", "clock_us", "model", "version"];

/// Writes the table. Reads the recording twice, because the first row must name all columns.
pub(super) fn write(lines: &mut Selection<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    let mut columns: BTreeMap<String, usize> = BTreeMap::new();
    lines.each(|_, text| {
        let line: Value = serde_json::from_slice(text)?;
        cells(&line, &mut |name, _| {
            if !columns.contains_key(name) {
                columns.insert(name.to_owned(), 0);
            }
        });
        Ok(())
    })?;
    columns.values_mut().enumerate().for_each(|(place, at)| *at = place);
    let mut names: Vec<String> = FIRST.iter().map(|name| (*name).to_owned()).collect();
    names.extend(columns.keys().map(|name| quoted(name)));
    writeln!(out, "{}", names.join(","))?;
    let mut row = vec![String::new(); columns.len()];
    lines.each(|parsed, text| {
        let line: Value = serde_json::from_slice(text)?;
        let text = |key| quoted(line[key].as_str().unwrap_or_default());
        let item = item(&line).unwrap_or_default();
        let at = parsed.at.us;
        write!(out, "{item},{},{at},{},{}", utc(at), text("model"), text("version"))?;
        row.iter_mut().for_each(String::clear);
        cells(&line, &mut |name, value| {
            // A recorder that still runs may have written an item with a new column since the first read.
            if let Some(cell) = columns.get(name).and_then(|place| row.get_mut(*place)) {
                *cell = value.as_str().map_or_else(|| value.to_string(), quoted);
            }
        });
        row.iter().try_for_each(|cell| write!(out, ",{cell}"))?;
        writeln!(out)
    })
}

fn item(line: &Value) -> Option<&str> {
    line.as_object()?.keys().map(String::as_str).find(|key| !STAMP.contains(key))
}

/// Calls `each` with each number and text of the item, and with the path of its keys, such as `kvCacheStats.usedNumBlocks`.
fn cells(line: &Value, each: &mut impl FnMut(&str, &Value)) {
    fn below(path: &str, value: &Value, each: &mut impl FnMut(&str, &Value)) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    below(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, each);
                }
            }
            Value::Array(_) | Value::Null => {}
            value => each(path, value),
        }
    }
    let Some(item) = item(line) else { return };
    match &line[item] {
        fields @ Value::Object(_) => below("", fields, each),
        value => below(item, value, each),
    }
}

/// Quotes a cell as RFC 4180 says. A `'` before the text of an engine prevents that a spreadsheet runs it as a formula.
fn quoted(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_numbers_are_columns_and_texts_are_quoted() {
        let line = serde_json::json!({"us": 1, "clock_us": 1, "model": "m", "version": "1",
            "record": {"iter": 5, "kvCacheStats": {"usedNumBlocks": 7}, "requestStats": [1], "schedulerMode": "a,\"b\""}});
        let mut found = Vec::new();
        cells(&line, &mut |name, value| {
            found.push((name.to_owned(), value.as_str().map_or(value.to_string(), quoted)))
        });
        let expected = [("iter", "5"), ("kvCacheStats.usedNumBlocks", "7"), ("schedulerMode", "\"a,\"\"b\"\"\"")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(item(&line), Some("record"));
        assert_eq!([quoted("=1+1"), quoted("\t=1"), quoted("\r=1")], ["'=1+1", "'\t=1", "\"'\r=1\""]);
    }
}
