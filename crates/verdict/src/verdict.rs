//! The verdict: one cause with its severity, confidence, evidence, cost and remedy.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

use super::blind::BlindSpot;
use super::cause::Cause;

named_variants! {
    /// JSON of `/api/v1`: how bad the cause is.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        None = "none",
        /// Worth knowing while working on the engine.
        Info = "info",
        /// Users are served worse than they could be, or soon will be.
        Warning = "warning",
        /// Users are hurt now, and an operator can do something about it.
        Critical = "critical",
    }
}

/// JSON of `/api/v1`: how sure the verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Another cause would look similar, or a number is missing that would prove this cause.
    Low,
    High,
}

/// JSON of `/api/v1`: the unit in which a number is shown. A share is from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Count,
    Seconds,
    Share,
    Ratio,
    Watts,
    Bytes,
}

/// JSON of `/api/v1`: a number, and the limit from which it shows the cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub name: Cow<'static, str>,
    pub value: f64,
    pub unit: Unit,
    /// Absent for a number that only explains the cause, and does not decide it.
    pub threshold: Option<f64>,
}

/// JSON of `/api/v1`: what limits one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub cause: Cause,
    pub severity: Severity,
    pub confidence: Confidence,
    /// The cause in one sentence, with the numbers that matter.
    pub says: String,
    pub evidence: Vec<Evidence>,
    /// What users notice.
    pub cost: Option<String>,
    pub remedy: String,
    /// What the remedy costs or makes worse. Empty if nothing.
    #[serde(default)]
    pub trade_off: Cow<'static, str>,
    /// What shows that the remedy helped. Empty if there is none.
    #[serde(default)]
    pub helped_if: Cow<'static, str>,
    /// The settings that the remedy names.
    pub settings: Vec<Cow<'static, str>>,
    /// Other causes that follow from this one.
    pub consequences: Vec<Cause>,
    /// What cannot be seen of the engine.
    #[serde(default)]
    pub blind: Vec<BlindSpot>,
    /// When the engine got this cause, in seconds since 1970.
    pub since: f64,
}

/// What a rule has found.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Found {
    pub severity: Severity,
    pub confidence: Confidence,
    pub says: String,
    pub evidence: Vec<Evidence>,
    pub remedy: String,
    pub settings: Vec<Cow<'static, str>>,
}

impl Found {
    pub fn new(severity: Severity, says: impl Into<String>) -> Self {
        Self {
            severity,
            confidence: Confidence::High,
            says: says.into(),
            evidence: Vec::new(),
            remedy: String::new(),
            settings: Vec::new(),
        }
    }

    pub fn warning(says: impl Into<String>) -> Self {
        Self::new(Severity::Warning, says)
    }

    /// Adds a number, if it is known.
    pub fn with(
        mut self,
        name: &'static str,
        value: impl Into<Option<f64>>,
        unit: Unit,
        threshold: impl Into<Option<f64>>,
    ) -> Self {
        let evidence = |value| Evidence { name: name.into(), value, unit, threshold: threshold.into() };
        self.evidence.extend(value.into().map(evidence));
        self
    }

    /// Sets the remedy, which is never empty, and the settings that it names.
    pub fn remedy(mut self, remedy: impl Into<String>, settings: &[&'static str]) -> Self {
        self.remedy = remedy.into();
        debug_assert!(!self.remedy.is_empty(), "cause.md has no remedy for: {}", self.says);
        self.settings = settings.iter().map(|name| Cow::Borrowed(*name)).collect();
        self
    }

    pub fn unsure(mut self, is_unsure: bool) -> Self {
        if is_unsure {
            self.confidence = Confidence::Low;
        }
        self
    }
}

/// A time for people: `340 ms`, `2.1 s`, `14 min`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// A share for people: `84 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
