//! Reloads the web configuration while the server runs, so that certificates and passwords can be replaced without a restart.
//! Reading is off the runtime's threads, and each change of state is logged once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::server::ServerConfig;

use super::basic_auth::Users;
use super::config::{InvalidKey, Problem, WebConfig, WebConfigError};
use super::pem::Files;
use super::rate_limit::Rate;
use super::tls::{self, Identity};

/// How often the files are compared with what was read last.
const INTERVAL: Duration = Duration::from_millis(250);

/// What the acceptor and the layers work with.
#[derive(Debug)]
pub struct Settings {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) users: Users,
    pub(super) rate: Option<Rate>,
}

/// The configuration is invalid now; the log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the web configuration is invalid")]
pub struct InvalidConfig;

/// The settings of one file, reloaded by [`ReloadingConfig::watch`].
#[derive(Debug)]
pub struct ReloadingConfig {
    path: PathBuf,
    /// Fixed at start-up: connections never switch between TLS and plain HTTP.
    tls: bool,
    current: ArcSwap<Result<Arc<Settings>, InvalidConfig>>,
}

struct Loaded {
    settings: Settings,
    identity: Option<Identity>,
    /// Why the previous identity is still in use.
    warning: Option<InvalidKey>,
}

/// What is known between two loads.
#[derive(Debug)]
pub struct Watch {
    files: Files,
    identity: Option<Identity>,
    has_users: bool,
    /// The problem that was logged last.
    problem: Option<(String, Severity)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// The configuration works without the change.
    Warning,
    /// Every request is refused.
    Fatal,
}

impl ReloadingConfig {
    /// Reads the file at `path` and the files it names. The second value is for [`ReloadingConfig::watch`].
    ///
    /// # Errors
    /// When the file is unreadable or invalid; the error names the key.
    pub fn read(path: &Path) -> Result<(Arc<Self>, Watch), WebConfigError> {
        let mut files = Files::default();
        let loaded = load(path, None, &mut files).map_err(|problem| WebConfigError { path: path.to_owned(), problem });
        let Loaded { settings, identity, .. } = loaded?;
        let watch = Watch { files, identity, has_users: !settings.users.is_empty(), problem: None };
        let tls = settings.tls.is_some();
        let current = ArcSwap::from_pointee(Ok(Arc::new(settings)));
        Ok((Arc::new(Self { path: path.to_owned(), tls, current }), watch))
    }

    /// Whether connections use TLS.
    pub const fn has_tls(&self) -> bool {
        self.tls
    }

    /// # Errors
    /// When the files are invalid now.
    pub fn current(&self) -> Result<Arc<Settings>, InvalidConfig> {
        Result::clone(&self.current.load())
    }

    /// Reloads changed files, for ever. A file system that hangs delays reloads but no request.
    pub async fn watch(self: Arc<Self>, mut watch: Watch) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let config = Arc::clone(&self);
            let check = move || {
                config.reload_if_changed(&mut watch);
                watch
            };
            match tokio::task::spawn_blocking(check).await {
                Ok(checked) => watch = checked,
                // Only at shutdown.
                Err(_) => return,
            }
        }
    }

    fn reload_if_changed(&self, watch: &mut Watch) {
        if !watch.files.changed() {
            return;
        }
        watch.files = Files::default();
        let loaded = load(&self.path, watch.identity.as_ref(), &mut watch.files);
        let problem = match loaded.and_then(|new| self.check_switch(new, watch)) {
            Ok(Loaded { settings, identity, warning }) => {
                watch.identity = identity;
                watch.has_users = !settings.users.is_empty();
                self.current.store(Arc::new(Ok(Arc::new(settings))));
                warning.map(|warning| (warning.to_string(), Severity::Warning))
            }
            Err(problem) => {
                self.current.store(Arc::new(Err(InvalidConfig)));
                Some((problem.to_string(), Severity::Fatal))
            }
        };
        if problem != watch.problem {
            match &problem {
                Some((error, Severity::Warning)) => {
                    tracing::warn!(error, "new certificate is invalid; keeping the previous one");
                }
                Some((error, Severity::Fatal)) => {
                    tracing::error!(error, "web configuration is invalid; refusing all requests");
                }
                None => tracing::info!("web configuration is valid again"),
            }
            watch.problem = problem;
        }
    }

    /// A half-written file must not remove protection.
    fn check_switch(&self, new: Loaded, watch: &Watch) -> Result<Loaded, Problem> {
        let (key, what) = if new.settings.tls.is_some() != self.tls {
            ("tls_server_config", "TLS cannot be enabled or disabled")
        } else if watch.has_users && new.settings.users.is_empty() {
            ("basic_auth_users", "the last user cannot be removed")
        } else {
            return Ok(new);
        };
        Err(InvalidKey::new(key, format!("{what} at run time; restart the exporter or revert the change")).into())
    }
}

/// Reads everything. If only the server's own certificate is unusable, `previous` stays in use: the two files of a pair are
/// replaced one after the other.
fn load(path: &Path, previous: Option<&Identity>, files: &mut Files) -> Result<Loaded, Problem> {
    let text = String::from_utf8(files.read(path)?).map_err(std::io::Error::other)?;
    let config = WebConfig::parse(&text, path.parent().unwrap_or(Path::new("")))?;
    let (mut server, mut identity, mut warning) = (None, None, None);
    if let Some(tls) = &config.tls {
        let usable = match (tls::identity(tls, files), previous) {
            (Err(error), Some(previous)) => {
                warning = Some(error);
                Arc::clone(previous)
            }
            (found, _) => found?,
        };
        server = Some(Arc::new(tls::server_config(tls, Arc::clone(&usable), files)?));
        identity = Some(usable);
    }
    let settings = Settings { tls: server, headers: config.headers, users: config.users, rate: config.rate };
    Ok(Loaded { settings, identity, warning })
}
