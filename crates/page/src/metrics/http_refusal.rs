//! Why the HTTP server refused a peer.

use trtllm_records::named_variants::named_variants;

named_variants! {
    /// Why a request or a connection was refused.
    pub enum HttpRefusal {
        /// The TLS handshake failed, or the client certificate was missing or invalid.
        TlsHandshake = "tls_handshake",
        /// The user or the password was missing or wrong.
        Unauthorized = "unauthorized",
        RateLimited = "rate_limited",
        /// The limit of connections or of concurrent requests was reached.
        Overloaded = "overloaded",
        /// The peer sent or read too slowly.
        Timeout = "timeout",
        /// The request was not valid HTTP or exceeded a limit.
        BadRequest = "bad_request",
        /// The web configuration is invalid.
        WebConfig = "web_config",
    }
}
