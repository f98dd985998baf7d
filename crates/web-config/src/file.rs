//! The schema of the file, which is that of Prometheus's exporter-toolkit. The file is parsed strictly, and
//! checked as far as its text alone allows; `tls` checks the contents of certificates.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_path_to_error::Track;

use crate::basic_auth::Users;
use crate::error::Error;
use crate::pem::Pem;
use crate::rate_limit::Rate;

/// The parsed and checked file. An empty file means plain HTTP without access rules.
pub(crate) struct ConfigFile {
    pub(crate) tls: Option<TlsSection>,
    /// Added to every response, except to those of the access control itself for a rate limit or an invalid file.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) users: Users,
    pub(crate) rate: Option<Rate>,
}

/// `tls_server_config`.
pub(crate) struct TlsSection {
    pub(crate) cert: Pem,
    pub(crate) key: Pem,
    pub(crate) client_auth: ClientAuth,
    pub(crate) client_ca: Option<Pem>,
    pub(crate) allowed_sans: Option<Vec<String>>,
    pub(crate) tls12: bool,
    pub(crate) tls13: bool,
    pub(crate) cipher_suites: Vec<String>,
    pub(crate) prefer_server_order: bool,
    pub(crate) curves: Vec<String>,
}

/// `client_auth_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum ClientAuth {
    #[serde(rename = "NoClientCert")]
    None,
    #[serde(rename = "RequestClientCert")]
    Request,
    /// The alias is an older name in the toolkit.
    #[serde(rename = "RequireAnyClientCert", alias = "RequireClientCert")]
    RequireAny,
    #[serde(rename = "VerifyClientCertIfGiven")]
    VerifyIfGiven,
    #[serde(rename = "RequireAndVerifyClientCert")]
    RequireAndVerify,
    /// The same as a missing value.
    #[serde(rename = "")]
    Empty,
}

impl ClientAuth {
    pub(crate) const fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

/// The values of `min_version` and `max_version`. `TLS10` and `TLS11` are valid values but never enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Deserialize)]
#[allow(clippy::upper_case_acronyms, reason = "the names in the file")]
enum Version {
    TLS10,
    TLS11,
    TLS12,
    TLS13,
}

/// The file as it is written. A key without a value is the same as a missing key.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawFile {
    tls_server_config: Option<RawTls>,
    http_server_config: Option<RawHttp>,
    basic_auth_users: Option<BTreeMap<String, String>>,
    rate_limit: Option<RawRate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    client_auth_type: Option<ClientAuth>,
    client_ca_file: Option<String>,
    client_allowed_sans: Option<Vec<String>>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<String>>,
    min_version: Option<Version>,
    max_version: Option<Version>,
    prefer_server_cipher_suites: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHttp {
    /// Accepted and ignored, because only HTTP/1.1 is offered.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    headers: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRate {
    interval: Option<Interval>,
    burst: Option<u32>,
}

/// A duration. Go's YAML package accepts both forms.
#[derive(Deserialize)]
#[serde(untagged, expecting = "not a duration; write 100ms, 1s or 1m30s")]
enum Interval {
    Nanoseconds(i64),
    Text(String),
}

impl ConfigFile {
    /// Parses and checks the text of a file in `folder`. Fails with the first mistake.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Self, Error> {
        let mut track = Track::new();
        let file = serde_saphyr::with_deserializer_from_str(text, |yaml| {
            Option::<RawFile>::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
        });
        let file = file.map_err(|error| malformed(text, &error, &track.path().to_string()))?.unwrap_or_default();
        Ok(Self {
            tls: file.tls_server_config.map_or(Ok(None), |tls| tls.checked(folder))?,
            headers: headers(file.http_server_config.and_then(|http| http.headers).unwrap_or_default())?,
            users: Users::new(file.basic_auth_users.unwrap_or_default())?,
            rate: file.rate_limit.map_or(Ok(None), RawRate::checked)?,
        })
    }
}

/// The mistake behind an error of the schema or the syntax, at the `path` of a key. The value is left out because it may be a secret.
fn malformed(text: &str, error: &serde_saphyr::Error, path: &str) -> Error {
    let error = error.without_snippet();
    let line = error.location().and_then(|at| usize::try_from(at.line()).ok()).filter(|line| *line > 0);
    let is_template = line.and_then(|line| text.lines().nth(line - 1)).is_some_and(|line| line.contains("{{"));
    let key = match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(name), .. } => path.replace('?', name),
        _ => path.trim_end_matches('?').trim_matches('.').to_owned(),
    };
    let why = match is_template {
        true => "is an unrendered template; render it and use the result".to_owned(),
        false => in_words(error),
    };
    let mistake = match key.is_empty() {
        true if why == NO_SECTION => Error::without_key(SECTIONS),
        true => Error::without_key(why),
        false => Error::new(key, why),
    };
    mistake.at(line)
}

fn in_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error as Yaml;
    match error {
        Yaml::SerdeUnknownField { expected, .. } => {
            format!("is not a key of this section; use one of {}", expected.join(", "))
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            let known: Vec<&str> = expected.iter().copied().filter(|name| !name.is_empty()).collect();
            format!("\"{variant}\" is not a valid value; use one of {}", known.join(", "))
        }
        Yaml::DuplicateMappingKey { .. } => "is written twice; remove one".to_owned(),
        Yaml::MultipleDocuments { .. } => "a second document begins here; remove it, or the line ---".to_owned(),
        Yaml::InvalidScalar { ty: "boolean" | "bool", .. } => "is not true or false; write one of them".to_owned(),
        Yaml::InvalidScalar { .. } => "is not a whole number of 0 or more; write one".to_owned(),
        Yaml::Unexpected { expected, .. } if expected.contains("string") => {
            "is not a single value; write one text, in quotes if it has special characters".to_owned()
        }
        Yaml::Unexpected { expected, .. } if expected.contains("sequence") => {
            "is not a list; write [VALUE, VALUE], or a line with - for each value".to_owned()
        }
        Yaml::Unexpected { expected, .. } if expected.contains("mapping") => NO_SECTION.to_owned(),
        Yaml::NullIntoString { .. } => "has no value; write one, or remove the key".to_owned(),
        // Errors of the syntax, and of durations.
        error => {
            let text = error.to_string().lines().collect::<Vec<_>>().join(" ");
            let what = text.split(" at line ").next().unwrap_or_default();
            if what.contains("; ") { what.to_owned() } else { format!("{what}; {FORM}") }
        }
    }
}

const FORM: &str =
    "write KEY: VALUE, indent the keys of a section with spaces, and quote values with special characters";
const NO_SECTION: &str = "is not a section; write its keys below it, indented by two spaces";
const SECTIONS: &str = "the text is not a map; its keys are tls_server_config, http_server_config, basic_auth_users and rate_limit, as \
                        those of the exporter-toolkit";

impl RawTls {
    fn checked(self, folder: &Path) -> Result<Option<TlsSection>, Error> {
        let invalid = |name: &str, why: &str| Error::new(format!("tls_server_config.{name}"), why);
        let cert = pem(folder, "cert", self.cert, self.cert_file);
        let key = pem(folder, "key", self.key, self.key_file);
        let client_ca = pem(folder, "client_ca", self.client_ca, self.client_ca_file);
        let client_auth_type = self.client_auth_type.filter(|given| *given != ClientAuth::Empty);
        let client_auth = client_auth_type.unwrap_or(ClientAuth::None);
        let sans = self.client_allowed_sans.as_ref().is_some_and(|names| !names.is_empty());
        let any = cert.is_some() || key.is_some() || client_ca.is_some() || client_auth_type.is_some();
        if !any && !sans {
            return Ok(None);
        }
        let cert = cert.ok_or_else(|| invalid("cert_file", "is missing; give it or cert"))?;
        let key = key.ok_or_else(|| invalid("key_file", "is missing; give it or key"))?;
        let (min, max) = (self.min_version.unwrap_or(Version::TLS12), self.max_version.unwrap_or(Version::TLS13));
        let (has_ca, anonymous) = (client_ca.is_some(), client_auth == ClientAuth::None);
        let rules = [
            (max < Version::TLS12, "max_version", "is insecure and not supported; use TLS12 or TLS13"),
            (
                min > max,
                "min_version",
                "is higher than max_version, so no client could connect; lower it or raise max_version",
            ),
            (has_ca && anonymous, "client_ca_file", "has no effect alone; set client_auth_type or remove this key"),
            (
                !has_ca && client_auth.verifies(),
                "client_ca_file",
                "is missing; name the CA of the clients, or change client_auth_type",
            ),
            (sans && anonymous, "client_allowed_sans", "has no effect alone; set client_auth_type or remove this key"),
        ];
        if let Some((_, key, why)) = rules.into_iter().find(|(is_broken, ..)| *is_broken) {
            return Err(invalid(key, why));
        }
        Ok(Some(TlsSection {
            cert,
            key,
            client_auth,
            client_ca,
            allowed_sans: self.client_allowed_sans,
            tls12: min <= Version::TLS12,
            tls13: max == Version::TLS13,
            cipher_suites: self.cipher_suites.unwrap_or_default(),
            prefer_server_order: self.prefer_server_cipher_suites.unwrap_or(true),
            curves: self.curve_preferences.unwrap_or_default(),
        }))
    }
}

/// A file takes precedence over inline text, as in the toolkit.
fn pem(folder: &Path, name: &str, inline: Option<String>, file: Option<String>) -> Option<Pem> {
    let (inline, file) = (inline.filter(|text| !text.is_empty()), file.filter(|path| !path.is_empty()));
    if inline.is_some() && file.is_some() {
        tracing::debug!("tls_server_config.{name} ignored because {name}_file is set; remove one of them");
    }
    // `join` keeps an absolute path unchanged.
    file.map(|path| Pem::File(folder.join(path))).or(inline.map(Pem::Inline))
}

/// The headers that the toolkit allows, and the valid values of those that do not accept every value.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

fn headers(given: BTreeMap<String, Option<String>>) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
    let checked = given.into_iter().map(|(name, value)| {
        let value = value.unwrap_or_default();
        let wrong = |why: String| Error::new(format!("http_server_config.headers.{name}"), why);
        let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = HEADERS.iter().map(|(known, _)| *known).collect();
            return Err(wrong(format!(
                "cannot be set; the supported headers, in this spelling, are {}",
                known.join(", ")
            )));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            return Err(wrong(format!("{value:?} is not a valid value; use {}", values.join(" or "))));
        }
        let text = |_| wrong("is not a valid header value; remove control characters".to_owned());
        // A YAML block contains line breaks; a header has spaces instead.
        let value = HeaderValue::from_str(value.replace(['\r', '\n'], " ").trim()).map_err(text)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        Ok((name, value))
    });
    checked.collect()
}

impl RawRate {
    /// Returns `None`, which means no limit, if the interval is missing, 0 or negative.
    fn checked(self) -> Result<Option<Rate>, Error> {
        let interval = match self.interval {
            None => Duration::ZERO,
            Some(Interval::Nanoseconds(nanoseconds)) => Duration::from_nanos(nanoseconds.try_into().unwrap_or(0)),
            Some(Interval::Text(text)) => duration(&text).ok_or_else(|| {
                Error::new("rate_limit.interval", format!("{text:?} is not a duration; write 100ms, 1s or 1m30s"))
            })?,
        };
        match (interval.is_zero(), self.burst.unwrap_or_default()) {
            (true, _) => Ok(None),
            (false, 0) => {
                let why =
                    "is missing or 0, which would refuse every request; set it to at least 1 or remove rate_limit";
                Err(Error::new("rate_limit.burst", why))
            }
            (false, burst) => Ok(Some(Rate { interval, burst })),
        }
    }
}

/// Parses a duration in Go's syntax, such as `1m30s`. A negative one counts as zero. `humantime` is no replacement: it accepts
/// days, months and years, which Go rejects.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 8] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let (of_number, mut seconds) = (|sign: char| sign.is_ascii_digit() || sign == '.', 0.0);
    loop {
        let (number, more) = rest.split_at(rest.find(|sign| !of_number(sign))?);
        let (unit, more) = more.split_at(more.find(of_number).unwrap_or(more.len()));
        let (_, each) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * each;
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    if text.starts_with('-') { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_go_syntax() {
        for (text, wanted) in [
            ("100ms", Some(0.1)),
            ("1m30s", Some(90.0)),
            (".5s", Some(0.5)),
            ("1.5h", Some(5400.0)),
            ("250µs", Some(250e-6)),
            ("+2s", Some(2.0)),
            ("0", Some(0.0)),
            ("-1s", Some(0.0)),
        ] {
            assert_eq!(duration(text).map(|found| found.as_secs_f64()), wanted, "{text}");
        }
        for none in ["", "-", "1", "1d", "1y", "1M", "1min", "1 s", "s", "1s2", "..s", "1e3s", " 1s"] {
            assert_eq!(duration(none), None, "{none}");
        }
    }

    fn mistake(text: &str) -> String {
        ConfigFile::parse(text, Path::new("")).err().unwrap().in_file(Path::new("web.yml"), text).to_string()
    }

    #[test]
    fn an_error_about_a_duration_shows_valid_ones() {
        for text in ["5.5", "true", "[1s]"] {
            let found = mistake(&format!("rate_limit:\n  interval: {text}\n"));
            assert!(
                found.starts_with("web.yml line 2: rate_limit.interval: ") && found.contains("write 100ms"),
                "{found}"
            );
        }
    }

    #[test]
    fn a_mistake_is_one_line_whatever_it_quotes() {
        let text = "tls_server_config:\n  cert_file: c\n  key_file: k\n  client_auth_type: \"Require\n\n    Any\"\n";
        let found = mistake(text);
        assert!(found.contains("Require Any") && !found.contains(char::is_control), "{found}");
    }

    #[test]
    fn a_mistake_has_its_line_and_its_key() {
        let tls = "tls_server_config:\n  cert_file: a\n";
        let with_key = "tls_server_config:\n  cert_file: a\n  key_file: b\n";
        for (text, start) in [
            ("tls_server_config:\n  cert_fil: a\n", "web.yml line 2: tls_server_config.cert_fil: is not a key"),
            (&*format!("{tls}  key_file: [a]\n"), "web.yml line 3: tls_server_config.key_file: is not a single value"),
            (&format!("{tls}  cert_file: b\n"), "web.yml line 3: tls_server_config.cert_file: is written twice"),
            (tls, "web.yml line 1: tls_server_config.key_file: is missing"),
            (&format!("{with_key}  min_version: TLS99\n"), "web.yml line 4: tls_server_config.min_version: \"TLS99\""),
            ("basic_auth: {}\n", "web.yml line 1: basic_auth: is not a key"),
            ("basic_auth_users:\n  ann: x\n  bob: y\n", "web.yml line 2: basic_auth_users.ann: is not a bcrypt hash"),
            ("http_server_config:\n  headers:\n    Server: x\n", "web.yml line 3: http_server_config.headers.Server: "),
            ("rate_limit:\n  burst: many\n", "web.yml line 2: rate_limit.burst: is not a whole number"),
            ("rate_limit:\n  interval: 1s\n", "web.yml line 1: rate_limit.burst: is missing"),
            ("rate_limit: {{ .rate }}\n", "web.yml line 1: rate_limit: is an unrendered template"),
            (
                "tls_server_config:\n  client_auth_type: ''\nrate_limit: 5\n",
                "web.yml line 3: rate_limit: is not a section",
            ),
            (
                "tls_server_config:\n  client_auth_type: NoClientCert\n",
                "web.yml line 1: tls_server_config.cert_file: is missing",
            ),
            ("rate_limit: 5\n", "web.yml line 1: rate_limit: is not a section"),
            ("- a\n", "web.yml line 1: the text is not a map; its keys are tls_server_config"),
        ] {
            let found = mistake(text);
            assert!(found.starts_with(start), "{found} instead of {start}");
        }
    }

    #[test]
    fn a_key_without_a_value_is_ignored() {
        let text = "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type:\n  client_ca_file:\n  cert:\n  \
                    min_version:\n  max_version:\n  cipher_suites:\n  curve_preferences:\n  client_ca:\n  \
                    prefer_server_cipher_suites:\nhttp_server_config:\n  headers:\n    X-XSS-Protection:\n";
        let config = ConfigFile::parse(text, Path::new("/etc")).unwrap();
        let tls = config.tls.unwrap();
        assert!(tls.tls12 && tls.tls13 && tls.prefer_server_order && tls.client_auth == ClientAuth::None);
        assert_eq!(config.headers[0].1, "");
    }
}
