//! Structured logs on stderr, as logfmt or JSON.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogFormat;

/// Installs the subscriber; a second call does nothing.
pub fn init(level: tracing::Level, format: LogFormat) {
    let registry = tracing_subscriber::registry().with(LevelFilter::from_level(level));
    let installed = match format {
        LogFormat::Logfmt => {
            let layer = tracing_logfmt::builder().with_target(false).with_span_name(false).layer();
            registry.with(layer.with_writer(std::io::stderr)).try_init()
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry.with(layer.with_writer(std::io::stderr)).try_init()
        }
    };
    // Only tests call this twice.
    let _ = installed;
}
