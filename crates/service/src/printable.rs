//! Makes foreign text safe for a terminal: without control characters, with which escape sequences begin, and without
//! characters that hide or reorder text. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum number of characters of one text.
const MAX: usize = 256;

/// The first 256 characters of a text. Each unsafe character becomes `?`.
pub fn printable(text: &str) -> String {
    text.chars().take(MAX).map(|character| if is_harmless(character) { character } else { '?' }).collect()
}

/// Like [`printable`], for a text of any length.
pub fn one_line(text: &str) -> String {
    replace(text, is_harmless, |out, _| out.push('?')).into_owned()
}

/// Like [`one_line`], but keeps line feeds and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |character| is_harmless(character) || matches!(character, '\n' | '\t'), |out, _| out.push('?'))
}

/// Escapes unsafe characters in JSON. They can only be in strings, except for line feeds between values.
pub fn json(text: &str) -> Cow<'_, str> {
    let escape = |out: &mut String, character: char| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    replace(text, |character| is_harmless(character) || character == '\n', escape)
}

fn replace(text: &str, stays: impl Fn(char) -> bool, with: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if stays(character) {
            out.push(character);
        } else {
            with(&mut out, character);
        }
    }
    out.into()
}

fn is_harmless(character: char) -> bool {
    let hides = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    !character.is_control() && !hides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_stays() {
        for (text, expected) in [
            ("llama-3.1 8B é 模型", "llama-3.1 8B é 模型"),
            ("\x1b[2J\x1b]0;title\x07x", "?[2J?]0;title?x"),
            ("a\nb\r\tc\0\x7f", "a?b??c??"),
            ("\u{9b}31m", "?31m"),
            ("\u{202e}evil\u{200b}", "?evil?"),
        ] {
            assert_eq!(printable(text), expected);
        }
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = printable(&character.to_string());
            assert!(!shown.chars().any(char::is_control), "{character:?}");
        }
        assert_eq!(printable(&"x".repeat(9999)).len(), MAX);
        assert_eq!(one_line(&"\r".repeat(9999)), "?".repeat(9999));
    }

    #[test]
    fn a_text_of_several_lines_keeps_them_and_json_keeps_its_values() {
        assert_eq!(lines("a\n\tb\x1b[2J\r\u{9b}c\n"), "a\n\tb?[2J??c\n");
        let name = "m\x1b\x07\r\n\u{7f}\u{9b}\u{202e}\u{e0001}é";
        let text = format!("{:#}\n", serde_json::json!({"model": name}));
        let shown = json(&text);
        assert!(!shown.chars().any(|character| !is_harmless(character) && character != '\n'), "{shown:?}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["model"], name);
    }
}
