//! Objectives: latencies that the users of an engine were promised.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest objective that is accepted. No request takes longer than a day.
const MOST: Duration = Duration::from_secs(24 * 3600);

/// Upper limits of latencies. A limit that is absent is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Objectives {
    /// Time from the arrival of a request to its first token.
    pub ttft: Option<Duration>,
    /// Time per output token after the first one.
    pub tpot: Option<Duration>,
    /// Time from the arrival of a request to its last token.
    pub e2e: Option<Duration>,
}

impl Objectives {
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// All objectives with their names.
    #[must_use]
    pub fn limits(&self) -> [(&'static str, Option<Duration>); 3] {
        [("ttft", self.ttft), ("tpot", self.tpot), ("e2e", self.e2e)]
    }

    /// Sets the objective `name` to a time such as `500ms`.
    ///
    /// # Errors
    /// The name is unknown or the time is invalid. The message says what to write.
    pub fn set(&mut self, name: &str, time: &str) -> Result<(), String> {
        let limit = match name {
            "ttft" => &mut self.ttft,
            "tpot" => &mut self.tpot,
            "e2e" => &mut self.e2e,
            _ => return Err(format!("unknown objective {name:?}; use ttft, tpot or e2e")),
        };
        let parsed = humantime::parse_duration(time)
            .map_err(|_| format!("objective {name} {time:?} is not a time; write 50ms, 0.5s or 10s"))?;
        if parsed < Duration::from_micros(1) || parsed > MOST {
            return Err(format!("objective {name} {time:?} must be between 1us and {MOST:?}; correct it"));
        }
        *limit = Some(parsed);
        Ok(())
    }
}

/// Parses the syntax of `--objectives`: `ttft=500ms,tpot=50ms`.
impl FromStr for Objectives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut objectives, mut names) = (Self::default(), Vec::new());
        for part in text.split(',') {
            let (name, time) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} has no time; write ttft=500ms,tpot=50ms,e2e=10s"))?;
            if names.contains(&name.trim()) {
                return Err(format!("{name} is given twice; remove one of them"));
            }
            names.push(name.trim());
            objectives.set(name.trim(), time.trim())?;
        }
        Ok(objectives)
    }
}

/// Writes the syntax of `--objectives`.
impl fmt::Display for Objectives {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, limit) in self.limits() {
            if let Some(limit) = limit {
                write!(formatter, "{separator}{name}={limit:?}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_in_any_order() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let read = |text: &str| text.parse::<Objectives>();
        assert_eq!(read("tpot=50ms, ttft=500ms"), Ok(Objectives { ttft: ms(500), tpot: ms(50), e2e: None }));
        assert_eq!(read("e2e=10s"), Ok(Objectives { e2e: ms(10_000), ..Objectives::default() }));
        assert_eq!(read("e2e=1500ms,ttft=20ms").unwrap().to_string(), "ttft=20ms,e2e=1.5s");
    }

    #[test]
    fn a_wrong_objective_is_named_with_its_remedy() {
        for (text, names) in [
            ("ttft", "\"ttft\" has no time"),
            ("", "has no time"),
            ("itl=5ms", "unknown objective \"itl\"; use ttft"),
            ("ttft=fast", "objective ttft \"fast\""),
            ("ttft=5", "objective ttft \"5\""),
            ("ttft=0s", "between"),
            ("e2e=2days", "between"),
            ("ttft=1s,ttft=2s", "given twice"),
        ] {
            let error = text.parse::<Objectives>().unwrap_err();
            assert!(error.contains(names), "{error}");
        }
    }
}
