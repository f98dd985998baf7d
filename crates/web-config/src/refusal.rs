//! Why a request or a connection is refused.

use http::StatusCode;

/// Why a request or a connection was refused. [`WebConfig::on_refusal`](crate::WebConfig::on_refusal) reports each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The TLS handshake failed, or the client certificate was missing or invalid.
    TlsHandshake,
    /// The user or the password was missing or wrong. Status 401.
    Unauthorized,
    /// The rate limit was exceeded. Status 429.
    RateLimited,
    /// Too many requests of this client wait for a password check. Status 503.
    Overloaded,
    /// The configuration became invalid while the server was running. Status 500, or a failed handshake.
    InvalidConfig,
}

impl Refusal {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            // A failed handshake has no response.
            Self::InvalidConfig | Self::TlsHandshake => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
