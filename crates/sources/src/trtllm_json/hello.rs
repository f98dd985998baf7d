//! Parses the first line of a publisher, which names its engine. A publisher that sends such a line must never share the
//! engine of the publishers without a name, whatever is wrong with the line.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::{Deserialize, Deserializer, Error as _};
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
    #[must_use]
    pub fn unreadable() -> Self {
        Self { unclear: Some("hello"), ..Self::default() }
    }
}

impl<'de> Deserialize<'de> for Hello {
    /// Reads each field on its own. A field of another type counts as the value that its text clearly means.
    fn deserialize<D: Deserializer<'de>>(hello: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Sent<'t> {
            #[serde(borrow)]
            model: Option<&'t RawValue>,
            version: Option<&'t RawValue>,
            pid: Option<&'t RawValue>,
            derived: Option<&'t RawValue>,
            config: Option<&'t RawValue>,
        }
        let sent = Sent::deserialize(hello)?;
        let mut unclear = None;
        let mut read = |name, field: Option<&RawValue>| {
            let text = text_of(field?);
            if text.is_none() {
                unclear = unclear.or(Some(name));
            }
            text
        };
        let (model, version) = (read("model", sent.model), read("version", sent.version));
        let derived = sent.derived.map_or(Some(false), |derived| flag_of(derived.get()));
        Ok(Self {
            model,
            version,
            pid: sent.pid.and_then(text_of).and_then(|pid| pid.trim().trim_end_matches(".0").parse().ok()),
            derived: derived.unwrap_or_default(),
            config: sent.config.map(|config| parse_settings(config.get())).unwrap_or_default(),
            unclear: unclear.or(derived.is_none().then_some("derived")),
        })
    }
}

/// The text of a value, or the digits of a number. `None` for other types.
fn text_of(value: &RawValue) -> Option<String> {
    let json = value.get();
    let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { Some(json.to_owned()) } else { serde_json::from_str(json).ok() }
}

/// Yes or no, as people write them in JSON.
fn flag_of(json: &str) -> Option<bool> {
    match json.trim_matches('"').to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "" => Some(false),
        _ => None,
    }
}

/// The key of a hello.
static HELLO: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"hello\""));

/// Parses the line as a hello. `None` if it is not one. Other keys of the line are ignored.
///
/// # Errors
/// The reason to count: the line is not JSON, or its hello is not an object.
pub fn parse_hello(line: &[u8]) -> Result<Option<Hello>, RejectReason> {
    #[derive(serde::Deserialize)]
    struct HelloLine {
        #[serde(default, deserialize_with = "present")]
        hello: Option<Object>,
    }
    // Otherwise, serde would take null for a line without a hello.
    fn present<'de, D: Deserializer<'de>>(hello: D) -> Result<Option<Object>, D::Error> {
        Object::deserialize(hello).map(Some)
    }
    if HELLO.find(line).is_none() {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|_| RejectReason::NotJson)?;
    Ok(read_message::<HelloLine>(text)?.hello.map(|Object(hello)| hello))
}

/// A hello that is an object. serde would read an array as the fields in their order.
struct Object(Hello);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(hello: D) -> Result<Self, D::Error> {
        let json = <&RawValue as Deserialize>::deserialize(hello)?.get();
        match json.starts_with('{') {
            true => serde_json::from_str(json).map(Self).map_err(D::Error::custom),
            false => Err(D::Error::custom("not an object")),
        }
    }
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
        let all = name(r#""model":8,"version":2,"pid":"77","derived":"yes""#);
        assert_eq!(all, (text("8"), text("2"), Some(77), true, None));
        assert_eq!(name(r#""version":2.5,"pid":77.0"#), (None, text("2.5"), Some(77), false, None));
        for (derived, expected) in [("1", true), ("\"False\"", false), ("0", false), ("null", false)] {
            assert_eq!(name(&format!("\"derived\":{derived}")), (None, None, None, expected, None), "{derived}");
        }
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
        for line in [
            r#"{"hello":["m","2"]}"#,
            r#"{"hello":"m"}"#,
            r#"{"hello":7}"#,
            r#"{"hello":null}"#,
            r#"{"hello":{"model":"a "b""}}"#,
        ] {
            assert!(parse_hello(line.as_bytes()).is_err(), "{line}");
        }
        for line in [r#"{"iter":1}"#, r#"{"iter":1,"note":"hello"}"#] {
            assert_eq!(parse_hello(line.as_bytes()), Ok(None), "{line}");
        }
    }
}
