//! The options of a source, `KEY=VALUE&…`. An error names the key, the expected value and the given one.

use std::path::PathBuf;

pub(super) struct SourceOptions {
    /// The options that were not read yet.
    unread: Vec<(String, String)>,
    /// The keys that this source knows.
    known: Vec<&'static str>,
}

impl SourceOptions {
    /// Refuses an option that is given twice, because it is not clear which value counts.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut unread: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            if unread.iter().any(|(other, _)| *other == name) {
                return Err(format!("option {} is given twice; remove one", quoted(&name)));
            }
            unread.push((name, value));
        }
        Ok(Self { unread, known: Vec::new() })
    }

    /// Removes an option and returns its value.
    pub(super) fn take(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let at = self.unread.iter().position(|(name, _)| name == key)?;
        Some(self.unread.remove(at).1)
    }

    /// Removes all options: another parser reads and checks them.
    pub(super) fn take_all(&mut self) {
        self.unread.clear();
    }

    /// Removes an option that names a file or a directory.
    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, String> {
        self.read(key, "a path", |text| (!text.is_empty()).then(|| text.into()))
    }

    /// Removes an option and parses its value. `parse` returns None for anything but an `expected` value.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("{key} must be {expected}, not {text:?}; correct it or remove the option")),
        }
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, String> {
        self.read(key, "true or false", |text| text.parse().ok())
    }

    pub(super) fn above_zero(&mut self, key: &'static str) -> Result<Option<f64>, String> {
        self.read(key, "a number above 0", above_zero)
    }

    /// Numbers of ports, separated by commas.
    pub(super) fn ports(&mut self) -> Result<Option<Vec<u16>>, String> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let ports = |text: &str| text.split(',').map(port).collect();
        self.read("ports", "numbers from 1 to 65535 with commas between them", ports)
    }

    /// Speed of a replay as a multiple of the recorded speed; `max` is infinite.
    pub(super) fn speed(&mut self) -> Result<Option<f64>, String> {
        self.read("speed", "recorded, max or a number above 0", |text| match text {
            "recorded" => Some(1.0),
            "max" => Some(f64::INFINITY),
            times => above_zero(times),
        })
    }

    /// Fails if an option was not read.
    pub(super) fn finish(self) -> Result<(), String> {
        let Some((name, _)) = self.unread.first() else { return Ok(()) };
        let shown = quoted(name);
        Err(match self.known.as_slice() {
            [] => format!("unknown option {shown}; this source has no options"),
            known => format!("unknown option {shown}; use one of {}", known.join(", ")),
        })
    }
}

/// The name of an option. A text that cannot be a name, such as one with digits, may be a part of a secret: a token with an `&`.
fn quoted(name: &str) -> String {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || b"_.-[]".contains(&byte);
    let is_name = (1..=32).contains(&name.len()) && name.bytes().all(is_letter);
    if is_name { format!("{name:?}") } else { "without a name (its text is not shown)".to_owned() }
}

fn above_zero(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
