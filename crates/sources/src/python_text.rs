//! Converts data in Python's notation, such as `{'iter': 1, 'x': None, 'y': True}`, to JSON. trtllm-bench writes such
//! lines (`--iteration_log`), and Python's JSON may contain `NaN`. Pure functions; the result is not checked to be JSON.

/// Returns the value of the text with strings in double quotes, and JSON's words instead of Python's. Numbers that JSON cannot write
/// become null. `None` if the value does not end, or something follows it.
pub fn to_json(text: &str) -> Option<String> {
    let (json, length) = first_value(text, "null");
    text[length?..].trim_ascii().is_empty().then_some(json)
}

/// The first value of the text as JSON, with `odd` for each number that JSON cannot write, and its length in the text. Without a
/// length, the value may continue in a text that follows, and the JSON ends inside of it, too.
pub(crate) fn first_value(text: &str, odd: &str) -> (String, Option<usize>) {
    let (mut json, mut at, mut depth) = (String::new(), 0, 0_usize);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match first {
            '\'' | '"' => string(rest, first, &mut json),
            '(' | '[' | '{' | ')' | ']' | '}' => {
                depth = if "([{".contains(first) { depth + 1 } else { depth.saturating_sub(1) };
                // A tuple becomes an array.
                json.push(match first {
                    '(' => '[',
                    ')' => ']',
                    other => other,
                });
                Some(1)
            }
            _ if is_of_word(first) => {
                let end = rest.find(|next| !is_of_word(next));
                json.push_str(end.map_or("", |end| word(&rest[..end], odd)));
                end
            }
            other => {
                json.push(other);
                Some(other.len_utf8())
            }
        };
        let Some(length) = length else { return (json, None) };
        at += length;
        if depth == 0 && !first.is_ascii_whitespace() {
            return (json, Some(at));
        }
    }
    (json, None)
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '+' | '-' | '.')
}

/// A word or a number. A number may also be above the highest float.
fn word<'w>(word: &'w str, odd: &'w str) -> &'w str {
    match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        // Rust also reads `inf`, `NaN` and the like.
        _ if word.parse().is_ok_and(|number: f64| !number.is_finite()) => odd,
        other => other,
    }
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
