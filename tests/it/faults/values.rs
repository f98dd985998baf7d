//! Values that no engine sends, for every key of a record.

use serde_json::Value;

use super::engine::{Answer, record};
use super::scene::Scene;

/// Values as JSON. Integers and floats that do not fit into 64 bits are written as text here.
const VALUES: [(&str, &str); 9] = [
    ("text", "\"1\""),
    ("true", "true"),
    ("an array", "[1]"),
    ("an object", "{\"x\":1}"),
    ("a negative number", "-1"),
    ("the highest u64", "18446744073709551615"),
    ("more than 64 bits", "1e400"),
    ("nested 200 deep", NESTED),
    ("twice", TWICE),
];
const NESTED: &str = "nested";
const TWICE: &str = "twice";

/// The pointers of all values in a record, such as `/kvCacheStats/usedNumBlocks`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    if let Value::Object(fields) = value {
        for (key, value) in fields {
            let at = format!("{at}/{key}");
            found.push(at.clone());
            pointers(value, &at, found);
        }
    }
}

/// A record whose value at `pointer` is `value`.
fn changed(pointer: &str, value: &str, iter: u64) -> String {
    const MARK: &str = "to be replaced";
    let mut record: Value = serde_json::from_str(&record(iter)).unwrap();
    let old = std::mem::replace(record.pointer_mut(pointer).unwrap(), MARK.into());
    let value = match value {
        NESTED => "[".repeat(200) + &"]".repeat(200),
        TWICE => {
            let key = pointer.rsplit('/').next().unwrap();
            format!("{old},\"{key}\":{old}")
        }
        value => value.to_owned(),
    };
    record.to_string().replace(&format!("\"{MARK}\""), &value)
}

pub(super) fn records_with_an_impossible_value_are_counted_once_either_way(scene: &Scene) {
    let mut all = Vec::new();
    pointers(&serde_json::from_str(&record(1)).unwrap(), "", &mut all);
    // The most important keys get every value. Each of the other keys gets one value, in turn.
    let decisive = ["/iter", "/numActiveRequests", "/kvCacheStats", "/kvCacheStats/reusedBlocks", "/iterLatencyMS"];
    for (index, pointer) in all.iter().enumerate() {
        for (which, (kind, value)) in VALUES.iter().enumerate() {
            if !decisive.contains(&pointer.as_str()) && which != index % VALUES.len() {
                continue;
            }
            let name = format!("{} is {kind}", &pointer[1..]);
            // Only a record that cannot be read, or whose key is impossible, is rejected.
            let may_reject =
                [NESTED, TWICE].contains(value) || ["/iter", "/statsSequence", "/rank"].contains(&pointer.as_str());
            let expected = |counted: &str, more: u64| {
                (counted.is_empty() && more == 1)
                    || (may_reject && more == 0 && ["not_a_record 1", "implausible 1", "not_json 1"].contains(&counted))
            };
            scene.fault("values", &name, &expected, |scene| {
                let record = changed(pointer, value, scene.victim.next_iter());
                scene.answer("/metrics", Answer::Body(format!("[{record}]").into_bytes()));
            });
        }
    }
}
