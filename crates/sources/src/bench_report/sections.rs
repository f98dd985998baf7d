//! The values of a report by section and key. A section or a value that is null counts as missing. An error names the key.

use serde_json::{Map, Value};

use trtllm_model::bench_report::Distribution;

use super::BenchReportError;

/// Characters of a value that an error quotes.
const MAX_QUOTE: usize = 40;

/// The keys of a distribution, in the order of [`Distribution`].
pub(super) type Statistics = [&'static str; 7];

pub(super) struct Sections<'a> {
    pub(super) report: &'a Map<String, Value>,
    pub(super) statistics: Statistics,
}

impl Sections<'_> {
    /// # Errors
    /// If it is not a finite number, or is below 0.
    pub(super) fn number(&self, section: &str, key: &str) -> Result<Option<f64>, BenchReportError> {
        self.value(section, key)?.map(|value| number(value, &[section, key])).transpose()
    }

    /// # Errors
    /// If it is not a string.
    pub(super) fn text(&self, section: &str, key: &str) -> Result<Option<String>, BenchReportError> {
        match self.value(section, key)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(invalid(&[section, key], other, "a string")),
        }
    }

    /// # Errors
    /// If it is not an object, or one of its values is not a number.
    pub(super) fn distribution(&self, section: &str, key: &str) -> Result<Distribution, BenchReportError> {
        let values = match self.value(section, key)? {
            None => return Ok(Distribution::default()),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(invalid(&[section, key], other, "an object")),
        };
        let [p50, p90, p95, p99, min, max, avg] = self.statistics.map(|name| {
            let value = values.get(name).filter(|value| !value.is_null());
            value.map(|value| number(value, &[section, key, name])).transpose()
        });
        Ok(Distribution { p50: p50?, p90: p90?, p95: p95?, p99: p99?, min: min?, max: max?, avg: avg? })
    }

    fn value(&self, section: &str, key: &str) -> Result<Option<&Value>, BenchReportError> {
        match self.report.get(section) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(values)) => Ok(values.get(key).filter(|value| !value.is_null())),
            Some(other) => Err(invalid(&[section], other, "an object")),
        }
    }
}

fn number(value: &Value, path: &[&str]) -> Result<f64, BenchReportError> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| invalid(path, value, "a number of 0 or more"))
}

fn invalid(path: &[&str], value: &Value, expected: &str) -> BenchReportError {
    let found = value.to_string();
    let mut quoted: String = found.chars().take(MAX_QUOTE).collect();
    if quoted.len() < found.len() {
        quoted.push('…');
    }
    BenchReportError::Invalid(format!("{} is {quoted}, not {expected}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(report: &Value) -> Sections<'_> {
        Sections { report: report.as_object().unwrap(), statistics: ["p50", "p90", "p95", "p99", "min", "max", "avg"] }
    }

    #[test]
    fn what_is_null_or_missing_is_absent() {
        let report = serde_json::json!({"a": null, "b": {"x": null, "d": {"p50": null, "max": 3}}});
        let report = of(&report);
        for (section, key) in [("a", "x"), ("b", "x"), ("b", "y"), ("c", "x")] {
            assert_eq!(report.number(section, key), Ok(None));
            assert_eq!(report.text(section, key), Ok(None));
            assert_eq!(report.distribution(section, key), Ok(Distribution::default()));
        }
        assert_eq!(report.distribution("b", "d"), Ok(Distribution { max: Some(3.0), ..Distribution::default() }));
    }

    #[test]
    fn an_error_names_the_key_and_what_it_should_be() {
        let long = "x".repeat(500);
        let report = serde_json::json!({"a": 7, "b": {"x": "fast", "y": -1, "z": [long], "d": {"p50": true}}});
        let report = of(&report);
        for (error, words) in [
            (report.number("a", "x").unwrap_err(), "a is 7, not an object"),
            (report.number("b", "x").unwrap_err(), "b.x is \"fast\", not a number of 0 or more"),
            (report.number("b", "y").unwrap_err(), "b.y is -1, not a number of 0 or more"),
            (report.text("b", "y").unwrap_err(), "b.y is -1, not a string"),
            (report.distribution("b", "x").unwrap_err(), "b.x is \"fast\", not an object"),
            (report.distribution("b", "d").unwrap_err(), "b.d.p50 is true, not a number of 0 or more"),
        ] {
            assert_eq!(error, BenchReportError::Invalid(words.to_owned()));
        }
        assert!(report.text("b", "z").unwrap_err().to_string().len() < 120);
    }
}
