//! Removes from an error what may be secret in a URL: the user and the password, and the values of unknown options.

use std::borrow::Cow;

use super::forms::has_path;

/// The options whose values errors may show. The value of any other option may be a token: `?token=…`, `?api_key=…`.
const SHOWN: [&str; 24] = [
    "bearer_token_file",
    "ca_file",
    "engine",
    "from_start",
    "in_flight",
    "iter_stats_max_iterations",
    "iterations",
    // The form of an option in a remedy.
    "key",
    "load",
    "otlp",
    "output_tokens",
    "perf_metrics",
    "perf_metrics_dir",
    "perf_metrics_from_start",
    "ports",
    "prometheus_metrics",
    "prompt_tokens",
    "rate",
    "request_stats_max_iterations",
    "requests",
    "scenario",
    "seed",
    "speed",
    "trace",
];

/// The characters before the name of an option. `&`, `;` and `#` are also written by mistake instead of `?`.
const SEPARATORS: [char; 4] = ['?', '&', ';', '#'];

/// An error without secrets: without the user and password of a URL that it quotes, and without the values of options that
/// are not known.
#[must_use]
pub fn hide_secrets(text: &str) -> Cow<'_, str> {
    // A secret may contain spaces and quotes, so it ends before the last quote of the error.
    hide(text, |option| option.rfind('"').unwrap_or(option.len()))
}

/// Like [`hide_secrets`], for a text that is only a URL or a source.
#[must_use]
pub fn hide_secrets_of_url(url: &str) -> Cow<'_, str> {
    hide(url, str::len)
}

fn hide(text: &str, end: fn(&str) -> usize) -> Cow<'_, str> {
    match hide_user_info(text) {
        Cow::Borrowed(text) => hide_values(text, end),
        Cow::Owned(text) => hide_values(&text, end).into_owned().into(),
    }
}

/// Whether this can be the name of an option. A text with digits or other characters may be a secret.
pub(super) fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || b"_.-[]".contains(&byte);
    (1..=32).contains(&text.len()) && text.bytes().all(is_letter)
}

/// Replaces the values of options by `…`. A value without a name is replaced, too. `end`: where the last option in a text ends.
fn hide_values(text: &str, end: fn(&str) -> usize) -> Cow<'_, str> {
    if !text.contains(SEPARATORS) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    let (mut rest, mut is_query) = (text, false);
    while let Some(at) = rest.find(SEPARATORS) {
        let (before, after) = rest.split_at(at + 1);
        shown += before;
        // Only the text after the ? of a URL is certain to be options.
        is_query |=
            before.ends_with('?') && shown.contains(':') && !after.starts_with([' ', '\n']) && !after.is_empty();
        let part = after.split('&').next().unwrap_or_default();
        let part = &part[..end(part)];
        let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
        rest = &after[part.len()..];
        match value {
            Some("") => shown += part,
            Some(_) if SHOWN.contains(&name) => shown += part,
            Some(_) if is_name(name) => shown += &format!("{name}=…"),
            Some(_) if is_query => shown.push('…'),
            // The ellipsis of a remedy stands for further options.
            None if is_query && !SHOWN.contains(&name) && !name.is_empty() && !name.starts_with('…') => {
                shown.push('…')
            }
            _ => shown += part,
        }
    }
    shown += rest;
    shown.into()
}

/// `text` without the user and password of a URL in it: `http://u:hunter2@host` becomes `http://…@host`. A password may contain
/// any character, so everything up to the last `@` is hidden. Without `://`, everything after the first colon is treated as a password.
fn hide_user_info(text: &str) -> Cow<'_, str> {
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
    fn the_value_of_an_unknown_option_is_hidden_and_its_name_is_shown() {
        for (text, hidden) in [
            ("trtllm-serve:http://h?token=hunter2", "trtllm-serve:http://h?token=…"),
            (
                "http://h:8002/?bearer_token=hunter2&ca_file=/a&x=hunter2",
                "http://h:8002/?bearer_token=…&ca_file=/a&x=…",
            ),
            ("trtllm-serve:http://h?hunter2", "trtllm-serve:http://h?…"),
            ("trtllm-serve:http://h?ab12cd==", "trtllm-serve:http://h?…"),
            ("trtllm-serve:http://h?perf_metrics=true&hunter2", "trtllm-serve:http://h?perf_metrics=true&…"),
            // Typed by mistake instead of ?.
            ("trtllm-serve:http://h:8000&token=hunter2", "trtllm-serve:http://h:8000&token=…"),
            ("trtllm-serve:http://h:8000#token=hunter2", "trtllm-serve:http://h:8000#token=…"),
            (
                "port \"8000&token=a hunter2\" is not a number; correct it",
                "port \"8000&token=…\" is not a number; correct it",
            ),
        ] {
            assert_eq!(hide_secrets(text), hidden);
        }
        assert_eq!(hide_secrets_of_url("http://h?api-key=it's \"a\" hunter2&x=1"), "http://h?api-key=…&x=…");
        for harmless in [
            "sim:?rate=20&seed=1",
            "use sim:[?key=value&…], executor:DIR or auto",
            "trtllm-serve:http://HOST:PORT?perf_metrics_dir=DIR&ca_file=/a",
            "auto:?ports=8000,9000",
            "sim:?scenario=list",
            "unknown key modle; did you mean model?",
            "http://h:1; did you mean this? correct it",
            "socket:/run/a&b;c#d.sock",
            "/etc/a?b",
        ] {
            assert_eq!(hide_secrets(harmless), harmless);
        }
    }
}
