//! A finding, and the rule that reports it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

use crate::texts::Texts;
use crate::verdict::{Evidence, Found, Severity, Unit};

named_variants! {
    /// JSON of `/api/v1/findings`: what a finding is about.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Kind {
        Engine = "engine",
        #[serde(rename = "GPU")]
        Gpu = "GPU",
        Exporter = "exporter",
        /// A server that an exporter reads. `trtllm-doctor` also requests it directly.
        Source = "source",
    }
}

/// The texts of the rules of this crate.
pub(super) const TEXTS: Texts = Texts(include_str!("rules.md"));

/// A rule about one kind of subject.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub name: &'static str,
    pub kind: Kind,
    pub severity: Severity,
    /// The document with its texts.
    pub texts: Texts,
}

/// JSON of `/api/v1/findings`: a rule that applies to a subject, with the evidence.
#[must_use]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub rule: Cow<'static, str>,
    pub severity: Severity,
    pub kind: Kind,
    /// The engine, GPU, exporter or source.
    pub subject: String,
    pub says: String,
    pub evidence: Vec<Evidence>,
    pub when: Cow<'static, str>,
    pub remedy: Cow<'static, str>,
}

impl Rule {
    /// The problem in one sentence.
    pub fn says(&self) -> &'static str {
        self.texts.sentence(self.name)
    }

    /// When it applies, with the numbers and their limits.
    pub fn when(&self) -> &'static str {
        self.texts.item(self.name, "When")
    }

    pub fn remedy(&self) -> &'static str {
        self.texts.item(self.name, "Change")
    }

    pub fn about(&self, subject: impl Into<String>) -> Finding {
        Finding {
            rule: self.name.into(),
            severity: self.severity,
            kind: self.kind,
            subject: subject.into(),
            says: self.says().to_owned(),
            evidence: Vec::new(),
            when: self.when().into(),
            remedy: self.remedy().into(),
        }
    }
}

impl Finding {
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

    /// Adds a detail to the sentence, such as a name or an error.
    pub fn detail(mut self, detail: &str) -> Self {
        self.says = format!("{}: {}.", self.says.trim_end_matches('.'), detail.trim_end_matches('.'));
        self
    }

    /// Turns what the rule of a cause has found into a finding, for an engine whose verdict has another cause.
    pub(super) fn beside(rule: &Rule, subject: &str, found: Found) -> Self {
        let Found { severity, says, evidence, remedy, .. } = found;
        Self { severity, says, evidence, remedy: remedy.into(), ..rule.about(subject) }
    }
}
