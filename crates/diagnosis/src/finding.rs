//! What a rule is, and what it finds.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::observation::{Engine, Exporter, Gpu, SourceAnswer};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing: the engine could do better.
    Info,
    /// Requests are slower than they could be, or numbers are wrong.
    Warning,
    /// Requests fail, or will fail soon.
    Critical,
}

impl Severity {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The exit code of a report whose worst finding this is.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Info => 0,
            Self::Warning => 3,
            Self::Critical => 4,
        }
    }
}

/// A value that shows a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Text(String),
}

/// The unit in which a value is printed. Numbers are in base units: seconds, shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Count,
    Seconds,
    Share,
    Text,
}

/// One of the numbers of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: Value,
    pub unit: Unit,
}

impl fmt::Display for Fact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, self.unit) {
            (Value::Text(text), _) => write!(out, "{}: {text}", self.name),
            (Value::Number(share), Unit::Share) => write!(out, "{}: {:.0} %", self.name, share * 100.0),
            (Value::Number(seconds), Unit::Seconds) if *seconds < 1.0 => {
                write!(out, "{}: {:.1} ms", self.name, seconds * 1e3)
            }
            (Value::Number(seconds), Unit::Seconds) => write!(out, "{}: {seconds:.1} s", self.name),
            (Value::Number(count), _) if count.fract() == 0.0 => write!(out, "{}: {count:.0}", self.name),
            (Value::Number(number), _) => write!(out, "{}: {number:.2}", self.name),
        }
    }
}

/// A number without a unit.
#[must_use]
pub fn count(name: &'static str, value: f64) -> Fact {
    Fact { name, value: Value::Number(value), unit: Unit::Count }
}

#[must_use]
pub fn seconds(name: &'static str, value: f64) -> Fact {
    Fact { name, value: Value::Number(value), unit: Unit::Seconds }
}

/// A share of 1.
#[must_use]
pub fn share(name: &'static str, value: f64) -> Fact {
    Fact { name, value: Value::Number(value), unit: Unit::Share }
}

#[must_use]
pub fn text(name: &'static str, value: impl Into<String>) -> Fact {
    Fact { name, value: Value::Text(value.into()), unit: Unit::Text }
}

/// The facts that show the finding; `None` if the rule does not apply.
pub type Facts = Option<Vec<Fact>>;

/// What a rule looks at. Each check is a pure function.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    Engine(fn(&Engine) -> Facts),
    Gpu(fn(&Gpu) -> Facts),
    Exporter(fn(&Exporter) -> Facts),
    Source(fn(&SourceAnswer) -> Facts),
}

impl Check {
    #[must_use]
    pub const fn subject(&self) -> &'static str {
        match self {
            Self::Engine(_) => "engine",
            Self::Gpu(_) => "GPU",
            Self::Exporter(_) => "exporter",
            Self::Source(_) => "source",
        }
    }
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub name: &'static str,
    pub severity: Severity,
    pub check: Check,
    /// The problem in one sentence.
    pub says: &'static str,
    /// When it applies, with the numbers and their limits.
    pub when: &'static str,
    /// Where the limits come from.
    pub guideline: &'static str,
    /// What to change, by its own name.
    pub change: &'static str,
    /// The alerts of `deploy/prometheus` for the same problem.
    pub alerts: &'static [&'static str],
}

/// A rule that applies.
#[derive(Debug, Clone)]
pub struct Finding {
    pub rule: &'static Rule,
    /// The URL of the exporter; empty for a source.
    pub exporter: String,
    /// The engine, GPU, exporter or source.
    pub subject: String,
    pub facts: Vec<Fact>,
}

impl Finding {
    /// The problem in one sentence, with the error that shows it, if there is one.
    #[must_use]
    pub fn says(&self) -> Cow<'static, str> {
        let error = self.facts.iter().find(|fact| fact.name == "error").map(|fact| &fact.value);
        match error {
            Some(Value::Text(error)) => format!("{}: {error}", self.rule.says.trim_end_matches('.')).into(),
            _ => self.rule.says.into(),
        }
    }
}
