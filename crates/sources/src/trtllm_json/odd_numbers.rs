//! Numbers that JSON cannot express. Python's `json.dumps` writes `NaN`, `Infinity` and `-Infinity`, and a number may be above the
//! highest float. They are replaced by the highest float, which no field can have, so the field is left out and counted.
//! This runs only after serde_json has failed.

/// What replaces such a number. A whole number cannot have this value, either.
const HIGHEST: &str = "1.7976931348623157e308";

/// The first value of a text, without such numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub json: String,
    /// Length of the value in the original text.
    pub length: usize,
}

/// The object at the start of `text`. `None` if it is not a whole object, or has no such number.
pub(super) fn replaced(text: &str) -> Option<Replaced> {
    let mut json = String::new();
    let (mut copied, mut any) = (0, false);
    let length = scan(text, |start, end| {
        if is_odd(&text[start..end]) {
            json.push_str(&text[copied..start]);
            json.push_str(HIGHEST);
            (copied, any) = (end, true);
        }
    })?;
    json.push_str(&text[copied..length]);
    any.then_some(Replaced { json, length })
}

/// Whether `text` starts with an object that does not end, and has such a number or the beginning of one.
pub(super) fn ends_inside(text: &str) -> bool {
    let mut any = false;
    let end = scan(text, |start, end| {
        let word = &text[start..end];
        let begins = || ["NaN", "Infinity", "-Infinity"].iter().any(|odd| odd.starts_with(word));
        any |= is_odd(word) || end == text.len() && begins();
    });
    end.is_none() && any
}

fn is_odd(word: &str) -> bool {
    let number = || word.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    matches!(word, "NaN" | "Infinity" | "-Infinity") || number() && word.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// Calls `word` with the range of each number or word outside of strings, until the object at the start of `text` ends.
/// Returns its length. `None` if it does not end, or if the text does not start with an object.
fn scan(text: &str, mut word: impl FnMut(usize, usize)) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    if bytes.first() != Some(&b'{') {
        return None;
    }
    while let Some(byte) = bytes.get(at) {
        let begun = at;
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            b'"' => {
                while *bytes.get(at)? != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            _ if is_of_word(*byte) => {
                while bytes.get(at).copied().is_some_and(is_of_word) {
                    at += 1;
                }
                word(begun, at);
            }
            _ => {}
        }
    }
    None
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_outside_of_strings_are_replaced() {
        let text = r#"{"NaN":"\"NaN,","a":[NaN,-Infinity ,1e400,-1E999,1e300],"b":{"c":Infinity}} {"d":NaN}"#;
        let json =
            format!(r#"{{"NaN":"\"NaN,","a":[{HIGHEST},{HIGHEST} ,{HIGHEST},{HIGHEST},1e300],"b":{{"c":{HIGHEST}}}}}"#);
        assert_eq!(replaced(text), Some(Replaced { json, length: text.find(" {\"d\"").unwrap() }));
        for same in
            ["{}", "{\"a\":1e300}", "{\"a\":nan}", "{\"a\":\"NaN\"}", "[NaN]", "NaN", "", "{\"a\":NaN", "{\"a\":inf}"]
        {
            assert_eq!(replaced(same), None, "{same}");
        }
    }

    #[test]
    fn an_object_that_is_not_complete_may_continue_at_each_byte() {
        let text = r#"{"iter":1,"iterLatencyMS":-Infinity,"x":{"y":"}"}}"#;
        let first = text.find("-I").unwrap() + 1;
        for end in 0..text.len() {
            assert_eq!(ends_inside(&text[..end]), end >= first, "{}", &text[..end]);
        }
        assert!(!ends_inside(text) && !ends_inside("<html>") && !ends_inside("{\"a\":nonsense"));
    }
}
