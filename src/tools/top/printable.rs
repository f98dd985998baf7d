//! Text of others as text that a terminal shows and does not obey. Pure.

/// Characters of one text.
const MAX: usize = 256;

/// Without control characters (escape sequences begin with one), and without characters that hide or reorder text. Each
/// becomes `?`.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().take(MAX).map(|character| if is_harmless(character) { character } else { '?' }).collect()
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
    }
}
