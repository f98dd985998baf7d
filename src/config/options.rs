//! The options of a source, `KEY=VALUE&…`. An error names the key, the expected value and the given one.

use std::collections::HashSet;

/// The options that were not read yet, and the keys that were asked for.
pub(super) struct SourceOptions {
    unread: Vec<(String, String)>,
    known: Vec<String>,
}

impl SourceOptions {
    /// Refuses an option that is given twice: which of them counts would be a guess.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let unread: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut names = HashSet::new();
        match unread.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(format!("option {name:?} is given twice; remove one")),
            None => Ok(Self { unread, known: Vec::new() }),
        }
    }

    /// Removes an option and returns its value.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        self.known.push(key.to_owned());
        let at = self.unread.iter().position(|(name, _)| name == key)?;
        Some(self.unread.remove(at).1)
    }

    /// Removes an option and parses its value. `parse` returns None for anything but an `expected` value.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| format!("{key} must be {expected}, not {text:?}"))
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, String> {
        self.read(key, "true or false", |text| text.parse().ok())
    }

    pub(super) fn above_zero(&mut self, key: &str) -> Result<Option<f64>, String> {
        self.read(key, "a number above 0", above_zero)
    }

    /// Numbers of ports, separated by commas.
    pub(super) fn ports(&mut self) -> Result<Option<Vec<u16>>, String> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        self.read("ports", "numbers of ports with commas between them", |text| text.split(',').map(port).collect())
    }

    /// How many times as fast as recorded; `max` is infinite.
    pub(super) fn speed(&mut self) -> Result<Option<f64>, String> {
        self.read("speed", "recorded, max or a number above 0", |text| match text {
            "recorded" => Some(1.0),
            "max" => Some(f64::INFINITY),
            times => above_zero(times),
        })
    }

    /// Refuses the options that were not read.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.unread.first() {
            Some((name, _)) if self.known.is_empty() => {
                Err(format!("unknown option {name:?}; this source has no options"))
            }
            Some((name, _)) => Err(format!("unknown option {name:?}; use one of {}", self.known.join(", "))),
            None => Ok(()),
        }
    }
}

fn above_zero(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
