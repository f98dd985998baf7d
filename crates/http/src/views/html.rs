//! `/`: the page for people. It is one document without outside resources. Its script reads the API while the page is visible.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

const DOCUMENT: &str = include_str!("html/index.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = concat!(include_str!("html/charts.js"), include_str!("html/live.js"));

/// The document and the policy that it is sent with.
#[derive(Debug, Clone)]
pub struct HtmlPage {
    pub html: String,
    /// Value of the header `Content-Security-Policy`. A name from a publisher must never run as a script, so only this script
    /// and this style are allowed.
    pub policy: String,
}

impl HtmlPage {
    /// Links are relative, so the page also works behind a proxy that adds a prefix to the path.
    pub fn new(telemetry_path: &str) -> Self {
        let html = DOCUMENT
            .replace("{version}", env!("CARGO_PKG_VERSION"))
            .replace("{metrics}", &escape(telemetry_path.trim_start_matches('/')))
            .replace("{style}", STYLE)
            .replace("{script}", SCRIPT);
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        Self { html, policy }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
