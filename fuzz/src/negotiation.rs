//! Negotiates with the headers `Accept` and `Accept-Encoding`. Any text must give a valid answer.

use trtllm_page::exposition::negotiate::{Format, encoding, format};

pub fn run(data: &[u8]) {
    let Ok(header) = std::str::from_utf8(data) else { return };
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
