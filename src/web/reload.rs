//! Reloads the web configuration while the server runs, so that certificates and passwords can be replaced without a restart.
//! Reading is off the runtime's threads, and each change of state is logged once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
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
    identity: Option<Identity>,
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
    watch: Mutex<Watch>,
    current: ArcSwap<Result<Arc<Settings>, InvalidConfig>>,
}

/// What is known between two loads.
#[derive(Debug)]
struct Watch {
    files: Files,
    /// The last valid ones.
    settings: Arc<Settings>,
    /// What was logged last: why the file is invalid, or why the previous certificate is still in use.
    outcome: Result<Option<String>, String>,
}

impl ReloadingConfig {
    /// Reads the file at `path` and the files it names.
    ///
    /// # Errors
    /// When the file is unreadable or invalid; the error names the key.
    pub fn read(path: &Path) -> Result<Arc<Self>, WebConfigError> {
        let mut files = Files::default();
        let loaded = load(path, None, &mut files).map_err(|problem| WebConfigError { path: path.to_owned(), problem });
        let settings = Arc::new(loaded?.0);
        let current = ArcSwap::from_pointee(Ok(Arc::clone(&settings)));
        let watch = Mutex::new(Watch { files, settings, outcome: Ok(None) });
        Ok(Arc::new(Self { path: path.to_owned(), watch, current }))
    }

    /// # Errors
    /// When the files are invalid now.
    pub fn current(&self) -> Result<Arc<Settings>, InvalidConfig> {
        Result::clone(&self.current.load())
    }

    /// Reloads changed files, for ever. A file system that hangs delays reloads but no request.
    pub async fn watch(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let config = Arc::clone(&self);
            let reload = move || config.reload_if_changed(&mut config.watch.lock());
            // Fails only at shutdown.
            let Ok(()) = tokio::task::spawn_blocking(reload).await else { return };
        }
    }

    fn reload_if_changed(&self, watch: &mut Watch) {
        if !watch.files.changed() {
            return;
        }
        watch.files = Files::default();
        let outcome = match load(&self.path, Some(&watch.settings), &mut watch.files) {
            Ok((settings, warning)) => {
                watch.settings = Arc::new(settings);
                self.current.store(Arc::new(Ok(Arc::clone(&watch.settings))));
                Ok(warning.map(|warning| warning.to_string()))
            }
            Err(problem) => {
                self.current.store(Arc::new(Err(InvalidConfig)));
                Err(problem.to_string())
            }
        };
        if outcome != watch.outcome {
            match &outcome {
                Ok(None) => tracing::info!("web configuration is valid again"),
                Ok(Some(error)) => tracing::warn!(error, "new certificate is invalid; keeping the previous one"),
                Err(error) => tracing::error!(error, "web configuration is invalid; refusing all requests"),
            }
            watch.outcome = outcome;
        }
    }
}

/// Reads everything. If only the server's own certificate is unusable, the previous one stays in use, and the error is the second
/// value: the two files of a pair are replaced one after the other.
fn load(
    path: &Path,
    previous: Option<&Settings>,
    files: &mut Files,
) -> Result<(Settings, Option<InvalidKey>), Problem> {
    let text = String::from_utf8(files.read(path)?).map_err(std::io::Error::other)?;
    let WebConfig { tls, headers, users, rate } = WebConfig::parse(&text, path.parent().unwrap_or(Path::new("")))?;
    let mut settings = Settings { tls: None, identity: None, headers, users, rate };
    let mut warning = None;
    if let Some(tls) = &tls {
        let identity = match (tls::identity(tls, files), previous.and_then(|previous| previous.identity.clone())) {
            (Err(error), Some(previous)) => {
                warning = Some(error);
                previous
            }
            (found, _) => found?,
        };
        settings.tls = Some(Arc::new(tls::server_config(tls, Arc::clone(&identity), files)?));
        settings.identity = Some(identity);
    }
    if let Some(previous) = previous {
        check_switch(&settings, previous)?;
    }
    Ok((settings, warning))
}

/// A half-written file must not remove protection.
fn check_switch(new: &Settings, previous: &Settings) -> Result<(), InvalidKey> {
    let (key, what) = if new.tls.is_some() != previous.tls.is_some() {
        ("tls_server_config", "TLS cannot be enabled or disabled")
    } else if new.users.is_empty() && !previous.users.is_empty() {
        ("basic_auth_users", "the last user cannot be removed")
    } else {
        return Ok(());
    };
    Err(InvalidKey::new(key, format!("{what} at run time; restart the exporter or revert the change")))
}
