//! Negotiates with the headers `Accept` and `Accept-Encoding`. Any text must give an answer. If a header has only known
//! ranges, the range with the highest `q` must be chosen; a second implementation of the rules finds this range.

use arbitrary::{Result, Unstructured};
use trtllm_page::exposition::negotiate::{Encoding, Format, encoding, format};

const MAX_RANGES: usize = 6;

/// Media ranges of an `Accept` header, and the formats that they match.
const RANGES: [(&str, Option<Format>); 12] = [
    ("application/openmetrics-text", Some(Format::OpenMetrics)),
    ("application/openmetrics-text;version=1.0.0", Some(Format::OpenMetrics)),
    ("application/OpenMetrics-Text; version=\"1.0.0\"; escaping=dots", Some(Format::OpenMetrics)),
    ("application/openmetrics-text;version=0.0.1", None),
    (
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
        Some(Format::Protobuf),
    ),
    ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", None),
    ("text/plain;version=1.0.0;escaping=allow-utf-8", Some(Format::Text)),
    ("text/plain;version=2.0.0", None),
    ("text/plain", Some(Format::Text)),
    ("text/plain;version=0.0.4", Some(Format::Text)),
    ("*/*", Some(Format::Text)),
    ("text/html", None),
];

const CODINGS: [&str; 8] = ["gzip", "X-Gzip", "zstd", "identity", "*", "br", "ZSTD", "deflate"];

pub fn run(data: &[u8]) {
    if let Ok(header) = std::str::from_utf8(data) {
        let offer = format(Some(header));
        let base = match offer.format {
            Format::Text => "text/plain; version=",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0",
            Format::Protobuf => "application/vnd.google.protobuf; ",
        };
        assert!(offer.content_type().starts_with(base), "{header:?}: {offer:?}");
        assert!(http::HeaderValue::from_str(&offer.content_type()).is_ok());
        let _ = encoding(Some(header));
    }
    let mut data = Unstructured::new(data);
    let _ = known_ranges(&mut data);
    let _ = known_codings(&mut data);
}

/// A parameter `q` of HTTP, and its weight in thousandths.
fn weight(data: &mut Unstructured<'_>) -> Result<(String, u16)> {
    let thousandths = data.int_in_range(0..=1000)?;
    let q = f64::from(thousandths) / 1000.0;
    Ok(match data.arbitrary::<u8>()? % 4 {
        0 => (String::new(), 1000),
        1 => (format!(" ; Q={q:.3} "), thousandths),
        _ => (format!(";q={q}"), thousandths),
    })
}

fn known_ranges(data: &mut Unstructured<'_>) -> Result<()> {
    let (mut header, mut best, mut refused) = (String::new(), (Format::Text, false, 0), false);
    for _ in 0..data.int_in_range(0..=MAX_RANGES)? {
        let (range, offer) = *data.choose(&RANGES)?;
        let (parameter, q) = weight(data)?;
        header.push_str(&format!("{range}{parameter},"));
        let Some(offer) = offer else { continue };
        // Text 0.0.4 is also the answer for a reader that accepts no known format, unless its header refuses this text.
        let default = offer == Format::Text && !range.contains("1.0.0");
        refused |= default && q == 0 && range != "*/*";
        if q > best.2 {
            best = (offer, !default, q);
        }
    }
    let wanted = if refused && !best.1 { Format::OpenMetrics } else { best.0 };
    assert_eq!(format(Some(&header)).format, wanted, "{header:?}");
    Ok(())
}

fn known_codings(data: &mut Unstructured<'_>) -> Result<()> {
    let mut header = String::new();
    let (mut gzip, mut zstd, mut identity, mut any) = (None, None, None, None);
    for _ in 0..data.int_in_range(0..=MAX_RANGES)? {
        let coding = *data.choose(&CODINGS)?;
        let (parameter, q) = weight(data)?;
        header.push_str(&format!("{coding}{parameter}, "));
        match coding.to_ascii_lowercase().trim_start_matches("x-") {
            "gzip" => gzip = Some(q),
            "zstd" => zstd = Some(q),
            "identity" => identity = Some(q),
            "*" => any = Some(q),
            _ => {}
        }
    }
    let of_zstd = zstd.or(any.filter(|_| gzip.is_some())).unwrap_or(0);
    let of_gzip = gzip.or(any).unwrap_or(0);
    let chosen = match encoding(Some(&header)) {
        Encoding::Identity => {
            let best = of_gzip.max(of_zstd);
            assert!(best == 0 || identity > Some(best), "{header:?}");
            return Ok(());
        }
        Encoding::Gzip => (of_gzip, of_zstd),
        Encoding::Zstd => (of_zstd, of_gzip),
    };
    assert!(chosen.0 > 0 && chosen.0 >= chosen.1 && Some(chosen.0) >= identity, "{header:?}");
    Ok(())
}
