//! Removes from an error what may be secret in a URL: the user and the password, and everything after its path. An option may be a
//! token: `?token=…`, `?api_key=…`.

use super::forms::has_path;

/// What begins the options of a URL. `&`, `;` and `#` are also written by mistake instead of `?`.
const SEPARATORS: [char; 4] = ['?', '&', ';', '#'];

/// An error without secrets. It has what was given as `{:?}`: between double quotes, with a `\` before each quote in it.
#[must_use]
pub fn hide_secrets(text: &str) -> String {
    let mut is_escaped = false;
    let is_quote = |letter| {
        let is_quote = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_quote
    };
    let text = hide_user_info(text);
    let parts = text.split(is_quote).enumerate();
    // Every second part is between quotes.
    let hidden = parts.map(|(at, part)| if at % 2 == 1 { hide_options(part) } else { part.to_owned() });
    hidden.collect::<Vec<_>>().join("\"")
}

/// Like [`hide_secrets`], for a text that is only a URL or a source.
#[must_use]
pub fn hide_secrets_of_url(url: &str) -> String {
    hide_options(&hide_user_info(url))
}

/// `text` up to the options of a URL. A path may contain all separators but the `?`.
fn hide_options(text: &str) -> String {
    let is_path = text.starts_with('/') || has_path(text);
    let is_separator = |letter| if is_path { letter == '?' } else { SEPARATORS.contains(&letter) };
    match text.find(is_separator) {
        Some(at) if at + 1 < text.len() => format!("{}…", &text[..=at]),
        _ => text.to_owned(),
    }
}

/// `text` without the user and password of a URL in it: `http://u:hunter2@host` becomes `http://…@host`. A password may contain
/// any character, so everything up to the last `@` is hidden. Without `://`, everything after the first colon is treated as a password.
fn hide_user_info(text: &str) -> String {
    let Some(end) = text.rfind('@') else { return text.to_owned() };
    let before = &text[..end];
    // An `@` in a path does not follow a user name.
    let is_path = text.starts_with('/') || has_path(text);
    let begin = match (before.find("://"), before.find(':')) {
        (Some(scheme), _) => scheme + "://".len(),
        (None, Some(colon)) if !is_path => colon + 1,
        _ => return text.to_owned(),
    };
    format!("{}…{}", &text[..begin], &text[end..])
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
            assert_eq!(hide_secrets(text), hidden);
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
            assert_eq!(hide_secrets(harmless), harmless);
        }
    }

    #[test]
    fn the_options_of_a_url_are_hidden() {
        for (url, hidden) in [
            ("trtllm-serve:http://h?token=hunter2", "trtllm-serve:http://h?…"),
            ("trtllm-serve:http://h?hunter2", "trtllm-serve:http://h?…"),
            ("perf-metrics:/a&b?token=hunter2", "perf-metrics:/a&b?…"),
            ("http://h?api-key=it's \"a\" hunter2&x=1", "http://h?…"),
            // Typed by mistake instead of ?.
            ("trtllm-serve:http://h:8000&token=hunter2", "trtllm-serve:http://h:8000&…"),
            ("trtllm-serve:http://h:8000;token=hunter2", "trtllm-serve:http://h:8000;…"),
            ("trtllm-serve:http://h:8000; token=hunter2", "trtllm-serve:http://h:8000;…"),
            ("trtllm-serve:http://h:8000#token=hunter2", "trtllm-serve:http://h:8000#…"),
        ] {
            assert_eq!(hide_secrets_of_url(url), hidden);
        }
        for harmless in ["sim:?", "socket:/run/a&b;c#d.sock", "/etc/a#b", "é"] {
            assert_eq!(hide_secrets_of_url(harmless), harmless);
        }
    }

    #[test]
    fn the_options_in_what_an_error_quotes_are_hidden() {
        for (text, hidden) in [
            ("port \"8000&token=a \\\"hunter2\" is not a number", "port \"8000&…\" is not a number"),
            ("model \"a#b\" and version \"1\"; change one", "model \"a#…\" and version \"1\"; change one"),
            ("\"C:\\\\\" and \"a?hunter2", "\"C:\\\\\" and \"a?…"),
        ] {
            assert_eq!(hide_secrets(text), hidden);
        }
        for harmless in [
            "use sim:[?key=value&…], executor:DIR or auto",
            "unexpected \"x\" after auto:; use auto or auto:?ports=8000,8001",
            "unknown key \"model\"; the only key is engines, with the keys of each engine below it, after \"- \"",
            "http://h:1; did you mean this? correct it",
            "\"/run/a&b;c#d\" is read by another engine; remove one of them",
        ] {
            assert_eq!(hide_secrets(harmless), harmless);
        }
    }
}
