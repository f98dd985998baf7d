//! The schema of the file, which is that of Prometheus's exporter-toolkit. The file is parsed strictly, and
//! checked as far as its text alone allows; `tls` checks the contents of certificates.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use crate::basic_auth::Users;
use crate::error::{Problem, Problems};
use crate::pem::Pem;
use crate::rate_limit::Rate;
use crate::yaml;

/// The parsed and checked file. An empty file means plain HTTP without access rules.
pub(crate) struct ConfigFile {
    pub(crate) tls: Option<TlsSection>,
    /// Added to every response.
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
pub(crate) struct RawFile {
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
    client_auth_type: Option<String>,
    client_ca_file: Option<String>,
    client_allowed_sans: Option<Vec<String>>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<String>>,
    min_version: Option<String>,
    max_version: Option<String>,
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
    /// Parses the text of a file in `folder`.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Self, Problems> {
        let (file, schema): (RawFile, _) = yaml::read(text);
        let RawFile { tls_server_config: tls, http_server_config: http, basic_auth_users: users, rate_limit: rate } =
            file;
        // Stops here, because a key that was left out because of a mistake would also be reported as missing.
        schema.unless_any(Some(()))?;
        let mut problems = Problems::default();
        let tls = problems.take(tls.map_or(Ok(None), |tls| tls.checked(folder)));
        let headers = problems.take(headers(http.and_then(|http| http.headers).unwrap_or_default()));
        let users = problems.take(Users::new(users.unwrap_or_default()));
        let rate = problems.take(rate.map_or(Ok(None), RawRate::checked));
        let all = tls.zip(headers).zip(users.zip(rate));
        problems.unless_any(all.map(|((tls, headers), (users, rate))| Self { tls, headers, users, rate }))
    }
}

impl RawTls {
    fn checked(self, folder: &Path) -> Result<Option<TlsSection>, Problems> {
        let invalid = |name: &str, why: &str| Problem::new(format!("tls_server_config.{name}"), why);
        let mut problems = Problems::default();
        let min = problems.take(named("min_version", self.min_version.as_deref(), Version::TLS12));
        let max = problems.take(named("max_version", self.max_version.as_deref(), Version::TLS13));
        let client_auth_type = self.client_auth_type.filter(|name| !name.is_empty());
        let client_auth = problems.take(named("client_auth_type", client_auth_type.as_deref(), ClientAuth::None));
        let cert = pem(folder, "cert", self.cert, self.cert_file);
        let private = pem(folder, "key", self.key, self.key_file);
        let client_ca = pem(folder, "client_ca", self.client_ca, self.client_ca_file);
        let sans = self.client_allowed_sans.as_ref().is_some_and(|names| !names.is_empty());
        let any = cert.is_some() || private.is_some() || client_ca.is_some() || client_auth_type.is_some();
        if !any && !sans {
            return problems.unless_any(Some(None));
        }
        let cert = problems.take(cert.ok_or_else(|| invalid("cert_file", "is missing; give it or cert")));
        let private = problems.take(private.ok_or_else(|| invalid("key_file", "is missing; give it or key")));
        // Stops here, because a rule about an invalid value would report a second mistake for the same line.
        let (Some(min), Some(max), Some(client_auth)) = (min, max, client_auth) else { return Err(problems) };
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
        let broken = rules.into_iter().filter(|(broken, ..)| *broken).map(|(_, key, why)| invalid(key, why));
        problems.take(Err::<(), Problems>(broken.collect()));
        problems.unless_any(cert.zip(private).map(|(cert, private)| {
            Some(TlsSection {
                cert,
                key: private,
                client_auth,
                client_ca,
                allowed_sans: self.client_allowed_sans,
                tls12: min <= Version::TLS12,
                tls13: max == Version::TLS13,
                cipher_suites: self.cipher_suites.unwrap_or_default(),
                prefer_server_order: self.prefer_server_cipher_suites.unwrap_or(true),
                curves: self.curve_preferences.unwrap_or_default(),
            })
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

/// The variant of `T` with this name, or `default` without a name.
fn named<T: DeserializeOwned>(key: &str, name: Option<&str>, default: T) -> Result<T, Problem> {
    let Some(name) = name else { return Ok(default) };
    T::deserialize(name.into_deserializer())
        .map_err(|error: serde::de::value::Error| Problem::new(format!("tls_server_config.{key}"), error.to_string()))
}

/// The headers that the toolkit allows, and the valid values of those that do not accept every value.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

fn headers(given: BTreeMap<String, Option<String>>) -> Result<Vec<(HeaderName, HeaderValue)>, Problems> {
    let mut problems = Problems::default();
    let checked = given.into_iter().map(|(name, value)| {
        let value = value.unwrap_or_default();
        let wrong = |why: String| Problem::new(format!("http_server_config.headers.{name}"), why);
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
    let headers = checked.filter_map(|header| problems.take(header)).collect();
    problems.unless_any(Some(headers))
}

impl RawRate {
    /// Returns `None`, which means no limit, if the interval is missing, 0 or negative.
    fn checked(self) -> Result<Option<Rate>, Problem> {
        let interval = match self.interval {
            None => Duration::ZERO,
            Some(Interval::Nanoseconds(nanoseconds)) => Duration::from_nanos(nanoseconds.try_into().unwrap_or(0)),
            Some(Interval::Text(text)) => duration(&text).ok_or_else(|| {
                Problem::new("rate_limit.interval", format!("{text:?} is not a duration; write 100ms, 1s or 1m30s"))
            })?,
        };
        match (interval.is_zero(), self.burst.unwrap_or_default()) {
            (true, _) => Ok(None),
            (false, 0) => {
                let why =
                    "is missing or 0, which would refuse every request; set it to at least 1 or remove rate_limit";
                Err(Problem::new("rate_limit.burst", why))
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

    #[test]
    fn an_error_about_a_duration_shows_valid_ones() {
        for text in ["5.5", "true", "[1s]"] {
            let found = mistakes(&format!("rate_limit:\n  interval: {text}\n"));
            assert!(found[0].contains("write 100ms"), "{text}: {found:?}");
        }
    }

    fn mistakes(text: &str) -> Vec<String> {
        let problems = ConfigFile::parse(text, Path::new("")).err().unwrap().in_text(text);
        crate::Error::new(Path::new("web.yml"), problems).mistakes().collect()
    }

    #[test]
    fn a_mistake_is_one_line_whatever_it_quotes() {
        let text = "tls_server_config:\n  cert_file: c\n  key_file: k\n  client_auth_type: \"Require\n\n    Any\"\n";
        let found = mistakes(text);
        assert!(found[0].contains("Require Any"), "{found:?}");
        assert!(found.iter().all(|mistake| !mistake.contains(char::is_control)), "{found:?}");
    }

    #[test]
    fn one_run_names_every_mistake_with_its_line() {
        let schema = "tls_server_config:\n  cert_fil: a\n  key_file: [a]\nbasic_auth: {}\nrate_limit:\n  burst: many\n";
        let found = mistakes(schema);
        for (found, start) in found.iter().zip([
            "web.yml line 2: cert_fil: ",
            "web.yml line 3: key_file: ",
            "web.yml line 4: basic_auth: ",
            "web.yml line 6: burst: ",
        ]) {
            assert!(found.starts_with(start), "{found}");
        }
        assert_eq!(found.len(), 4, "{found:?}");
        let values = "tls_server_config:\n  cert_file: a\n  min_version: TLS99\n  max_version: TLS10\nhttp_server_config:\n  headers:\n    \
                      Server: x\n    X-Frame-Options: y\nbasic_auth_users:\n  ann: x\n  bob: y\nrate_limit:\n  interval: 1s\n";
        let found = mistakes(values);
        for (found, start) in found.iter().zip([
            "web.yml line 1: tls_server_config.key_file: is missing",
            "web.yml line 3: tls_server_config.min_version: ",
            "web.yml line 7: http_server_config.headers.Server: ",
            "web.yml line 8: http_server_config.headers.X-Frame-Options: ",
            "web.yml line 10: basic_auth_users.ann: ",
            "web.yml line 11: basic_auth_users.bob: ",
            "web.yml line 12: rate_limit.burst: is missing",
        ]) {
            assert!(found.starts_with(start), "{found}");
        }
        assert_eq!(found.len(), 7, "{found:?}");
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
