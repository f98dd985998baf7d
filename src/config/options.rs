//! The options of a source, `KEY=VALUE&…`. An error names the key, the expected value and the given one.

use std::path::PathBuf;

use super::secrets::is_name;

pub(super) struct SourceOptions {
    /// The options that were not read yet.
    unread: Vec<(String, String)>,
    /// The keys that this source knows.
    known: Vec<String>,
    mistakes: Vec<String>,
}

impl SourceOptions {
    /// Refuses an option that is given twice, because it is not clear which value counts.
    pub(super) fn parse(query: &str) -> Self {
        let all = form_urlencoded::parse(query.as_bytes()).into_owned();
        let mut options = Self { unread: Vec::new(), known: Vec::new(), mistakes: Vec::new() };
        for (name, value) in all {
            if options.unread.iter().any(|(other, _)| *other == name) {
                options.wrong(format!("option {} is given twice; remove one", quoted(&name)));
            } else {
                options.unread.push((name, value));
            }
        }
        options
    }

    pub(super) fn wrong(&mut self, why: impl Into<String>) {
        self.mistakes.push(why.into());
    }

    /// Adds the error as a mistake, or returns the value.
    pub(super) fn keep<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result.map_err(|why| self.wrong(why)).ok()
    }

    /// Removes an option and returns its value.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        self.known.push(key.to_owned());
        let at = self.unread.iter().position(|(name, _)| name == key)?;
        Some(self.unread.remove(at).1)
    }

    /// Removes all options: another parser reads and checks them.
    pub(super) fn take_all(&mut self) {
        self.unread.clear();
    }

    /// Removes an option that names a file or a directory.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.read(key, "a path", |text| (!text.is_empty()).then(|| text.into()))
    }

    /// Removes an option and parses its value. `parse` returns None for anything but an `expected` value.
    pub(super) fn read<T>(&mut self, key: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.take(key)?;
        let value = parse(&text);
        if value.is_none() {
            self.wrong(format!("{key} must be {expected}, not {text:?}; correct it or remove the option"));
        }
        value
    }

    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        self.read(key, "true or false", |text| text.parse().ok())
    }

    pub(super) fn above_zero(&mut self, key: &str) -> Option<f64> {
        self.read(key, "a number above 0", above_zero)
    }

    /// Numbers of ports, separated by commas.
    pub(super) fn ports(&mut self) -> Option<Vec<u16>> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let ports = |text: &str| text.split(',').map(port).collect();
        self.read("ports", "numbers from 1 to 65535 with commas between them", ports)
    }

    /// Speed of a replay as a multiple of the recorded speed; `max` is infinite.
    pub(super) fn speed(&mut self) -> Option<f64> {
        self.read("speed", "recorded, max or a number above 0", |text| match text {
            "recorded" => Some(1.0),
            "max" => Some(f64::INFINITY),
            times => above_zero(times),
        })
    }

    /// `value`, if there are no mistakes and each option was read.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Vec<String>> {
        for (name, _) in std::mem::take(&mut self.unread) {
            let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
            let is_gone = name == "kv_cache_events";
            let name = quoted(&name);
            let why = match known.as_slice() {
                _ if is_gone => "KV cache events are not read any more, because a read takes them away from a router; \
                    remove kv_cache_events"
                    .to_owned(),
                [] => format!("unknown option {name}; this source has no options"),
                known => format!("unknown option {name}; use one of {}", known.join(", ")),
            };
            self.mistakes.push(why);
        }
        value.filter(|_| self.mistakes.is_empty()).ok_or(self.mistakes)
    }
}

/// The name of an option. A text that cannot be a name may be a part of a secret, such as a token with an `&`.
fn quoted(name: &str) -> String {
    if is_name(name) { format!("{name:?}") } else { "without a name (its text is not shown)".to_owned() }
}

fn above_zero(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
