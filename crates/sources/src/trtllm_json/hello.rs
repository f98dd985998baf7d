//! Parses the first line of a publisher, which names its engine. A publisher that sends such a line must never share the
//! engine of the publishers without a name, whatever is wrong with the line.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::value::RawValue;

use trtllm_records::{EngineSettings, RejectReason};

use super::super::engine_settings::parse_settings;
use super::read_message;

/// Limit of the characters of a model's name and of a version, which become the values of labels.
pub(crate) const MAX_NAME: usize = 64;

/// The optional first line of a publisher, which names its engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    pub model: Option<String>,
    pub version: Option<String>,
    pub pid: Option<u64>,
    /// The name was not chosen by a person: it comes from the directory of an engine, for example. It needs no version.
    pub derived: bool,
    /// Settings of the engine.
    pub config: EngineSettings,
    /// The first field that cannot be read and without which the name of the engine is unknown.
    pub unclear: Option<&'static str>,
}

impl Hello {
    /// A hello that cannot be read at all.
    pub fn unreadable() -> Self {
        Self { unclear: Some("hello"), ..Self::default() }
    }
}

/// The fields of a hello. Each is read on its own, so that the first one that is unclear can be named.
#[derive(serde::Deserialize)]
struct SentHello<'t> {
    #[serde(borrow)]
    model: Option<&'t RawValue>,
    version: Option<&'t RawValue>,
    pid: Option<&'t RawValue>,
    derived: Option<&'t RawValue>,
    config: Option<&'t RawValue>,
}

impl From<SentHello<'_>> for Hello {
    fn from(sent: SentHello<'_>) -> Self {
        let mut unclear = None;
        let mut unless_unclear = |name, is_read: bool| unclear = unclear.or((!is_read).then_some(name));
        let [model, version] = [("model", sent.model), ("version", sent.version)].map(|(name, field)| {
            let text = field.and_then(text_of);
            unless_unclear(name, field.is_none() || text.is_some());
            text
        });
        let derived = sent.derived.map_or(Some(false), |derived| serde_json::from_str(derived.get()).ok());
        unless_unclear("derived", derived.is_some());
        let pid = sent.pid.and_then(|pid| serde_json::from_str(pid.get()).ok());
        let config = sent.config.map(|config| parse_settings(config.get())).unwrap_or_default();
        Self { model, version, pid, derived: derived.unwrap_or_default(), config, unclear }
    }
}

/// The text of a value, or the digits of a number. `None` for other types.
fn text_of(value: &RawValue) -> Option<String> {
    let json = value.get();
    let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { Some(json.to_owned()) } else { serde_json::from_str(json).ok() }
}

/// The key of a hello.
static HELLO: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"hello\""));

/// Parses the line as a hello. `None` if it is not one. Other keys of the line are ignored. Fails with the reason to
/// count: the line is not JSON, or its hello is not an object.
pub fn parse_hello(line: &[u8]) -> Result<Option<Hello>, RejectReason> {
    #[derive(serde::Deserialize)]
    struct HelloLine {
        hello: Option<Box<RawValue>>,
    }
    if HELLO.find(line).is_none() {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|_| RejectReason::NotJson)?;
    let Some(hello) = read_message::<HelloLine>(text)?.hello else { return Ok(None) };
    let sent = serde_json::from_str::<SentHello<'_>>(hello.get()).ok().filter(|_| hello.get().starts_with('{'));
    sent.map(|sent| Some(sent.into())).ok_or(RejectReason::NotARecord)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(fields: &str) -> Hello {
        parse_hello(format!("{{\"hello\":{{{fields}}}}}").as_bytes()).unwrap().unwrap()
    }

    fn name(fields: &str) -> (Option<String>, Option<String>, Option<u64>, bool, Option<&'static str>) {
        let Hello { model, version, pid, derived, unclear, .. } = hello(fields);
        (model, version, pid, derived, unclear)
    }

    #[test]
    fn a_field_of_another_type_is_read_as_what_its_text_clearly_means() {
        let text = |text: &str| Some(text.to_owned());
        let all = name(r#""model":8,"version":2,"pid":77,"derived":true"#);
        assert_eq!(all, (text("8"), text("2"), Some(77), true, None));
        assert_eq!(name(r#""version":2.5,"derived":null"#), (None, text("2.5"), None, false, None));
        for pid in ["-1", "1.5", "\"x\"", "[7]", "99999999999999999999", "null"] {
            assert_eq!(name(&format!("\"model\":\"m\",\"pid\":{pid}")), (text("m"), None, None, false, None), "{pid}");
        }
        assert_eq!(hello(r#""model":"m","config":{"dtype":NaN,"quantization":"FP8"}"#).model, text("m"));
        assert_eq!(hello(r#""model":"m","config":[1]"#).config, EngineSettings::default());
    }

    #[test]
    fn a_field_that_decides_the_name_and_cannot_be_read_is_told() {
        for (fields, field) in [
            (r#""model":["m"]"#, "model"),
            (r#""model":"m","version":{"major":1}"#, "version"),
            (r#""model":true"#, "model"),
            (r#""model":"m","derived":"perhaps""#, "derived"),
            (r#""model":"\ud800""#, "model"),
        ] {
            assert_eq!(hello(fields).unclear, Some(field), "{fields}");
        }
        for line in [r#"{"hello":["m","2"]}"#, r#"{"hello":"m"}"#, r#"{"hello":7}"#, r#"{"hello":{"model":"a "b""}}"#] {
            assert!(parse_hello(line.as_bytes()).is_err(), "{line}");
        }
        for line in [r#"{"iter":1}"#, r#"{"iter":1,"note":"hello"}"#] {
            assert_eq!(parse_hello(line.as_bytes()), Ok(None), "{line}");
        }
    }
}
