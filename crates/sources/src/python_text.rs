//! Converts data in Python's notation, such as `{'iter': 1, 'x': None, 'y': True}`, to JSON. trtllm-bench writes such
//! lines (`--iteration_log`), and Python's JSON may contain `NaN`. Pure functions; the result is not checked to be JSON.

/// Returns the text with strings in double quotes, and JSON's words instead of Python's. Numbers that JSON cannot write
/// become null. `None` if a string does not end.
#[must_use]
pub fn to_json(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => string(rest, first, &mut json)?,
            _ if first.is_ascii_alphabetic() => {
                let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(rest.len());
                word(&rest[..end], &mut json);
                end
            }
            // A number such as `1e5`, in which `e` does not begin a word.
            _ if first.is_ascii_digit() => {
                let is_part = |next: char| next.is_ascii_alphanumeric() || matches!(next, '.' | '+' | '-');
                let end = rest.find(|next| !is_part(next)).unwrap_or(rest.len());
                json.push_str(&rest[..end]);
                end
            }
            '-' if rest[1..].starts_with(['i', 'I', 'n', 'N']) => 1,
            _ => {
                // A tuple becomes an array.
                json.push(match first {
                    '(' => '[',
                    ')' => ']',
                    other => other,
                });
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(json)
}

fn word(word: &str, json: &mut String) {
    json.push_str(match word {
        "True" => "true",
        "False" => "false",
        "None" | "nan" | "inf" | "NaN" | "Infinity" => "null",
        other => other,
    });
}

/// Writes the string at the start of `text` as JSON, and returns its length in `text`.
fn string(text: &str, quote: char, json: &mut String) -> Option<usize> {
    json.push('"');
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            _ if character == quote => {
                json.push('"');
                return Some(at + 1);
            }
            '"' => json.push_str("\\\""),
            '\\' => match characters.next()?.1 {
                '\'' => json.push('\''),
                code @ ('x' | 'U') => {
                    let digits = if code == 'x' { 2 } else { 8 };
                    let hex: String = characters.by_ref().take(digits).map(|(_, digit)| digit).collect();
                    let number = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits)?;
                    push(char::from_u32(number)?, json);
                }
                // JSON has the same escape.
                other => json.extend(['\\', other]),
            },
            other => push(other, json),
        }
    }
    None
}

/// Writes a character of a string. JSON allows no control characters there.
fn push(character: char, json: &mut String) {
    match character {
        '"' | '\\' => json.extend(['\\', character]),
        '\0'..='\u{1f}' => json.push_str(&format!("\\u{:04x}", u32::from(character))),
        other => json.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> serde_json::Value {
        serde_json::from_str(&to_json(text).unwrap()).unwrap()
    }

    #[test]
    fn a_record_that_python_printed_is_the_same_record() {
        let text = "{'iter': 1, 'timestamp': '07-25-2025 16:54:34.140189', 'cpuMemUsage': 0, 'iterLatencyMS': 12.5e-1, \
                    'maxBatchSizeStatic': None, 'isOk': True, 'not': False, 'kvCacheStats': {'cacheHitRate': -0.5}, \
                    'ranks': [1, (2, 3)]}";
        let expected = serde_json::json!({"iter": 1, "timestamp": "07-25-2025 16:54:34.140189", "cpuMemUsage": 0,
            "iterLatencyMS": 1.25, "maxBatchSizeStatic": null, "isOk": true, "not": false,
            "kvCacheStats": {"cacheHitRate": -0.5}, "ranks": [1, [2, 3]]});
        assert_eq!(value(text), expected);
    }

    #[test]
    fn numbers_that_json_cannot_write_are_null() {
        let text = "[nan, inf, -inf, NaN, Infinity, -Infinity, 1e300, -1, 'NaN None']";
        assert_eq!(value(text), serde_json::json!([null, null, null, null, null, null, 1e300, -1, "NaN None"]));
    }

    #[test]
    fn strings_keep_their_characters() {
        let text = r#"["it's", 'a "b"', 'it\'s', 'tab\tend', '\\', '\x1b', 'é', '\U0001f600', '\u00e9', '\x22']"#;
        let expected = ["it's", "a \"b\"", "it's", "tab\tend", "\\", "\u{1b}", "é", "😀", "é", "\""];
        assert_eq!(value(text), serde_json::json!(expected));
        assert_eq!(value("'\u{1}'"), serde_json::json!("\u{1}"));
    }

    #[test]
    fn json_stays_as_it_is() {
        let text = r#"{"a": [1, -2.5e-3, true, null, "x\n\"é"], "b": {}}"#;
        assert_eq!(to_json(text).as_deref(), Some(text));
    }

    #[test]
    fn a_text_that_is_cut_is_no_json() {
        let text = r"{'iter': 1, 'text': 'a\x41', 'none': None, 'list': (1, 2)}";
        assert!(serde_json::from_str::<serde_json::Value>(&to_json(text).unwrap()).is_ok());
        for end in 0..text.len() {
            let json = to_json(&text[..end]);
            assert!(json.is_none_or(|json| serde_json::from_str::<serde_json::Value>(&json).is_err()), "{end}");
        }
    }
}
