//! Pure functions that choose the format and the content encoding from a request's headers. Tested with those of real
//! scrapers.

/// The formats of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text. Versions 1.0.0 and 0.0.4 differ only in names that need quotes, and our names never need them.
    Text,
    /// OpenMetrics text 1.0.0.
    OpenMetrics,
    /// Prometheus protobuf: delimited `MetricFamily` messages.
    Protobuf,
}

/// The content encodings of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// A format, and how the `Content-Type` of the response names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub format: Format,
    media_type: &'static str,
    /// One of [`ESCAPINGS`].
    escaping: Option<&'static str>,
}

impl Offer {
    const fn new(format: Format, media_type: &'static str) -> Self {
        Self { format, media_type, escaping: None }
    }

    #[must_use]
    pub fn content_type(&self) -> String {
        let escaping = self.escaping.map(|scheme| format!("; escaping={scheme}"));
        format!("{}{}", self.media_type, escaping.unwrap_or_default())
    }
}

/// `Content-Type` of text 0.0.4.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const OPENMETRICS: &str = "application/openmetrics-text";
const PROTOBUF: &str = "application/vnd.google.protobuf";

/// How a reader wants names that need quotes to be escaped. Our names never need quotes, so every scheme is supported,
/// and the response repeats it.
const ESCAPINGS: [&str; 4] = ["allow-utf-8", "underscores", "dots", "values"];

const AS_TEXT: Offer = Offer::new(Format::Text, TEXT);
const AS_TEXT_1: Offer = Offer::new(Format::Text, "text/plain; version=1.0.0; charset=utf-8");
const AS_OPENMETRICS: Offer =
    Offer::new(Format::OpenMetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8");
const AS_PROTOBUF: Offer = Offer::new(
    Format::Protobuf,
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
);

/// The supported format with the highest `q`. If several have the same `q`, the first one in the header. Without
/// `Accept`, for `*/*` and for unsupported formats it is text 0.0.4, because the gateway's endpoint picker and AIPerf
/// parse nothing else.
#[must_use]
pub fn format(accept: Option<&str>) -> Offer {
    let (mut best, mut text_refused) = ((AS_TEXT, 0.0), false);
    for range in accept.unwrap_or_default().split(',') {
        let Some((offer, q)) = supported(range) else { continue };
        // A wildcard does not include a format that is refused by name.
        text_refused |= !range.contains("/*") && q == 0.0 && offer == AS_TEXT;
        if q > best.1 {
            best = (offer, q);
        }
    }
    if text_refused && best.0 == AS_TEXT { AS_OPENMETRICS } else { best.0 }
}

/// What a media range of the header asks for, and its `q`. Absent if it is not supported.
fn supported(range: &str) -> Option<(Offer, f64)> {
    let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
    let (mut q, mut escaping) = (1.0, None);
    let (mut version, mut proto, mut encoding) = (None, None, None);
    for (name, value) in parameters.split(';').filter_map(|parameter| parameter.split_once('=')) {
        let value = value.trim().trim_matches('"');
        match one_of(name, &["q", "version", "proto", "encoding", "escaping"]) {
            "q" => q = value.parse().unwrap_or(0.0),
            "version" => version = Some(value),
            "proto" => proto = Some(value),
            "encoding" => encoding = Some(value),
            "escaping" => escaping = ESCAPINGS.into_iter().find(|scheme| *scheme == value),
            _ => {}
        }
    }
    let offer = match one_of(media_type, &[OPENMETRICS, PROTOBUF, "text/plain", "*/*", "text/*"]) {
        OPENMETRICS if matches!(version, None | Some("1.0.0")) => Offer { escaping, ..AS_OPENMETRICS },
        PROTOBUF if proto == Some("io.prometheus.client.MetricFamily") && encoding == Some("delimited") => {
            Offer { escaping, ..AS_PROTOBUF }
        }
        "text/plain" if version == Some("1.0.0") => Offer { escaping, ..AS_TEXT_1 },
        "text/plain" if matches!(version, None | Some("0.0.4")) => AS_TEXT,
        "*/*" | "text/*" => AS_TEXT,
        _ => return None,
    };
    Some((offer, q))
}

/// The element of `names` that equals `found` without regard to case; empty if there is none.
fn one_of<'a>(found: &str, names: &[&'a str]) -> &'a str {
    names.iter().find(|name| name.eq_ignore_ascii_case(found.trim())).copied().unwrap_or_default()
}

/// The encoding with the highest `q`. If several have the same `q`: zstd, which is cheapest for both sides, then gzip,
/// then none. `*` means gzip, which every client supports; if the header also names gzip, `*` means zstd.
#[must_use]
pub fn encoding(accept_encoding: Option<&str>) -> Encoding {
    let (mut gzip, mut zstd, mut identity, mut any) = (None, None, None, None);
    for coding in accept_encoding.unwrap_or_default().split(',') {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let q: f64 = parameters.split_once('=').map_or(1.0, |(_, q)| q.trim().parse().unwrap_or(0.0));
        match one_of(name, &["gzip", "x-gzip", "zstd", "identity", "*"]) {
            "gzip" | "x-gzip" => gzip = Some(q),
            "zstd" => zstd = Some(q),
            "identity" => identity = Some(q),
            "*" => any = Some(q),
            _ => {}
        }
    }
    let mut best = (Encoding::Identity, identity.unwrap_or(0.0));
    let zstd = zstd.or(any.filter(|_| gzip.is_some()));
    for (encoding, q) in [(Encoding::Gzip, gzip.or(any)), (Encoding::Zstd, zstd)] {
        if let Some(q) = q.filter(|q| *q > 0.0 && *q >= best.1) {
            best = (encoding, q);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
        text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const OPENMETRICS_1: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const DELIMITED: &str =
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

    #[test]
    fn real_scrapers_get_what_they_ask_for() {
        let native_2 = format!(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,{}",
            PROMETHEUS_2.replace("1.0.0", "1.0.0;q=0.8")
        );
        let native_3 = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;\
            escaping=allow-utf-8;q=0.7,\
            application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.2";
        for (accept, format, content_type) in [
            (PROMETHEUS_2, Format::OpenMetrics, OPENMETRICS_1.to_owned()),
            (PROMETHEUS_3, Format::OpenMetrics, format!("{OPENMETRICS_1}; escaping=allow-utf-8")),
            (native_2.as_str(), Format::Protobuf, DELIMITED.to_owned()),
            (native_3, Format::Protobuf, format!("{DELIMITED}; escaping=allow-utf-8")),
        ] {
            let offer = super::format(Some(accept));
            assert_eq!((offer.format, offer.content_type()), (format, content_type), "{accept}");
        }
        for accept in [None, Some("*/*"), Some("text/plain"), Some("text/html,*/*;q=0.8"), Some(""), Some("\u{7f};;q=")]
        {
            assert_eq!(super::format(accept), AS_TEXT, "{accept:?}");
        }
    }

    #[test]
    fn text_1_0_0_repeats_the_escaping_scheme_and_0_0_4_has_none() {
        let content_type = |accept| format(Some(accept)).content_type();
        for scheme in ["allow-utf-8", "underscores", "dots", "values"] {
            let accept = format!("text/plain;version=1.0.0;escaping={scheme}");
            let wanted = format!("text/plain; version=1.0.0; charset=utf-8; escaping={scheme}");
            assert_eq!(super::format(Some(&accept)).content_type(), wanted);
        }
        assert_eq!(content_type("text/plain;version=1.0.0"), "text/plain; version=1.0.0; charset=utf-8");
        assert_eq!(
            content_type("text/plain;version=1.0.0;escaping=sideways"),
            "text/plain; version=1.0.0; charset=utf-8"
        );
        assert_eq!(content_type("text/plain;version=0.0.4;escaping=values"), TEXT);
    }

    #[test]
    fn the_highest_q_wins_and_0_refuses() {
        let format = |accept: &str| super::format(Some(accept)).format;
        assert_eq!(format("application/openmetrics-text;q=0.1, text/plain;q=0.9"), Format::Text);
        assert_eq!(format("application/openmetrics-text;q=0, */*;q=0.1"), Format::Text);
        assert_eq!(format("application/openmetrics-text; version=0.0.1"), Format::Text);
        assert_eq!(format("text/plain;q=0, */*"), Format::OpenMetrics);
        assert_eq!(format("text/plain;version=0.0.4;q=0, */*;q=0.5"), Format::OpenMetrics);
        assert_eq!(format("text/plain;version=1.0.0;q=0, */*;q=0.5"), Format::Text);
    }

    #[test]
    fn protobuf_needs_its_message_and_its_framing_in_the_header() {
        let format = |accept: &str| super::format(Some(accept)).format;
        let named = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=";
        assert_eq!(format(&format!("{named}\"delimited\"")), Format::Protobuf);
        assert_eq!(format(&format!("{named}text")), Format::Text);
        assert_eq!(format("application/vnd.google.protobuf; proto=another.Message; encoding=delimited"), Format::Text);
        assert_eq!(format("application/vnd.google.protobuf"), Format::Text);
    }

    #[test]
    fn the_best_accepted_encoding_is_chosen() {
        for (accept, wanted) in [
            (Some("gzip, deflate"), Encoding::Gzip),
            (Some("deflate, *;q=0.5"), Encoding::Gzip),
            (Some("gzip;q=0, *"), Encoding::Zstd),
            (Some("identity;q=0, gzip;q=0, *"), Encoding::Zstd),
            (Some("gzip, *;q=0"), Encoding::Gzip),
            (Some("gzip;q=0, zstd;q=0, *"), Encoding::Identity),
            (Some("identity"), Encoding::Identity),
            (None, Encoding::Identity),
            (Some("gzip, deflate, br, zstd"), Encoding::Zstd),
            (Some("zstd;q=0.5, gzip"), Encoding::Gzip),
            (Some("GZIP;q=0.2, identity;q=0.9"), Encoding::Identity),
            (Some("identity, gzip"), Encoding::Gzip),
            (Some("zstd;q=0, gzip;q=0"), Encoding::Identity),
        ] {
            assert_eq!(encoding(accept), wanted, "{accept:?}");
        }
    }
}
