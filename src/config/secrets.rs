//! Removes the user and password of a URL from an error.

use std::borrow::Cow;

use super::source::has_path;

/// `text` without the user and password of a URL in it: `http://u:hunter2@host` becomes `http://…@host`. A password may contain
/// any character, so everything up to the last `@` is hidden. Without `://`, everything after the first colon is treated as a password.
#[must_use]
pub fn hide_user_info(text: &str) -> Cow<'_, str> {
    let Some(end) = text.rfind('@') else { return text.into() };
    let before = &text[..end];
    // An `@` in a path does not follow a user name.
    let is_path = text.starts_with('/') || has_path(text);
    let begin = match (before.find("://"), before.find(':')) {
        (Some(scheme), _) => scheme + "://".len(),
        (None, Some(colon)) if !is_path => colon + 1,
        _ => return text.into(),
    };
    format!("{}…{}", &text[..begin], &text[end..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_are_hidden_whatever_their_characters() {
        for (text, hidden) in [
            ("http://u:hunter2@host:1/x", "http://…@host:1/x"),
            ("trtllm-serve:http://u:hunter2@hunter2@host", "trtllm-serve:http://…@host"),
            ("http://u:hunter2/?#\"' hunter2@host", "http://…@host"),
            ("u:hunter2@host:8000", "u:…@host:8000"),
            ("u:it's \"hunter2\":x@host", "u:…@host"),
            ("trtllm-serve:/u:hunter2@host", "trtllm-serve:…@host"),
            ("unexpected \"u:hunter2@host\" after auto:", "unexpected \"u:…@host\" after auto:"),
        ] {
            assert_eq!(hide_user_info(text), hidden);
        }
        for harmless in [
            "http://host:1",
            "socket:/run/a@b.sock",
            "perf-metrics:a:b@c",
            "executor:/e/a@b",
            "replay:a@b",
            "/etc/x:y@z.yaml",
            "",
            "@",
            "a@b",
            "é@é",
        ] {
            assert_eq!(hide_user_info(harmless), harmless);
        }
    }
}
