//! [`WebConfig`]: loads the file and the files that it names, and reloads them while the server runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, RwLock};
use tokio::time::MissedTickBehavior;

use crate::basic_auth::{Comparisons, Users};
use crate::error::{Error, Refusal};
use crate::file::ConfigFile;
use crate::pem::WatchedFiles;
use crate::rate_limit::{Rate, TokenBucket};
use crate::tls::Tls;

/// How often the files are compared with what was read last.
const INTERVAL: Duration = Duration::from_millis(250);

/// A web configuration in use. Clones share everything: the current settings and the rate limit. The [crate](crate) has an example.
#[derive(Clone)]
pub struct WebConfig {
    pub(crate) state: Arc<State>,
    on_refusal: Option<Arc<dyn Fn(Refusal) + Send + Sync>>,
}

pub(crate) struct State {
    path: PathBuf,
    pub(crate) uses_tls: bool,
    /// `None` while the files are invalid.
    settings: RwLock<Option<Arc<Settings>>>,
    reloads: Mutex<Reloads>,
    pub(crate) bucket: TokenBucket,
    pub(crate) comparisons: Comparisons,
}

/// The settings for the acceptor and the layer.
pub(crate) struct Settings {
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) users: Arc<Users>,
    pub(crate) rate: Option<Rate>,
}

/// State that is kept from one load to the next.
struct Reloads {
    files: WatchedFiles,
    last_valid: Arc<Settings>,
    /// What was logged last: why the files are invalid, or why the previous certificate is still in use.
    logged: Result<Option<String>, String>,
}

impl WebConfig {
    /// Reads the file at `path` and the files that it names. Relative paths in the file start at its folder.
    ///
    /// An empty file is valid and means plain HTTP without access rules.
    ///
    /// # Errors
    /// If a file cannot be read or a value is invalid.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut files = WatchedFiles::default();
        let (settings, _) = load(path, None, &mut files)?;
        let settings = Arc::new(settings);
        let state = State {
            path: path.to_owned(),
            uses_tls: settings.tls.is_some(),
            settings: RwLock::new(Some(Arc::clone(&settings))),
            reloads: Mutex::new(Reloads { files, last_valid: settings, logged: Ok(None) }),
            bucket: TokenBucket::default(),
            comparisons: Comparisons::default(),
        };
        Ok(Self { state: Arc::new(state), on_refusal: None })
    }

    /// Calls `hook` for each refused request and each failed handshake, for example to count them. It replaces an earlier hook,
    /// and applies to the layers and acceptors that are made from the returned value.
    ///
    /// ```
    /// # let path = tempfile::NamedTempFile::new().unwrap();
    /// let config = exporter_web_config::WebConfig::load(&path)?.on_refusal(|refusal| eprintln!("refused: {refusal:?}"));
    /// # Ok::<(), exporter_web_config::Error>(())
    /// ```
    #[must_use]
    pub fn on_refusal(mut self, hook: impl Fn(Refusal) + Send + Sync + 'static) -> Self {
        self.on_refusal = Some(Arc::new(hook));
        self
    }

    /// Reloads the files when their content changes, forever. Spawn it on a tokio runtime with timers; without it, nothing is
    /// reloaded.
    ///
    /// The files are compared four times per second, on a thread for blocking work: a file system that hangs delays reloads but no
    /// request. If a file becomes invalid, every request and handshake is refused until it is fixed. If only the server's own
    /// certificate becomes invalid, the previous one stays in use, because certificate and key are replaced one after the other.
    /// Each of these changes is logged once, with [`tracing`].
    pub async fn watch(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let state = Arc::clone(&self.state);
            match tokio::task::spawn_blocking(move || state.reload_if_changed()).await {
                Err(error) if error.is_panic() => tracing::error!("a bug: a reload panicked; please report it"),
                Err(_shutdown) => return,
                Ok(()) => {}
            }
        }
    }

    /// The current settings. `None` while the files are invalid.
    pub(crate) fn settings(&self) -> Option<Arc<Settings>> {
        self.state.settings.read().clone()
    }

    pub(crate) fn report(&self, refusal: Refusal) {
        if let Some(hook) = &self.on_refusal {
            hook(refusal);
        }
    }
}

impl fmt::Debug for WebConfig {
    /// Shows the path only: the settings contain secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WebConfig").field("path", &self.state.path).finish_non_exhaustive()
    }
}

impl State {
    fn reload_if_changed(&self) {
        let Reloads { files, last_valid, logged } = &mut *self.reloads.lock();
        if !files.changed() {
            return;
        }
        // Filled in place: if the load panics, the same content is not loaded again at each tick.
        *files = WatchedFiles::default();
        let outcome = match load(&self.path, Some(last_valid), files) {
            Ok((settings, warning)) => {
                *last_valid = Arc::new(settings);
                *self.settings.write() = Some(Arc::clone(last_valid));
                Ok(warning.map(|warning| warning.to_string()))
            }
            Err(error) => {
                *self.settings.write() = None;
                Err(error.to_string())
            }
        };
        if outcome != *logged {
            match &outcome {
                Ok(None) => tracing::info!("web configuration is valid again"),
                Ok(Some(error)) => tracing::warn!(error, "new certificate is invalid; keeping the previous one"),
                Err(error) => tracing::error!(
                    error,
                    "web configuration is invalid; refusing all requests until its file is fixed"
                ),
            }
            *logged = outcome;
        }
    }
}

/// Reads everything. If only the server's own certificate is invalid, the previous one stays in use, and the second value says
/// why.
fn load(
    path: &Path,
    previous: Option<&Settings>,
    files: &mut WatchedFiles,
) -> Result<(Settings, Option<Error>), Error> {
    let unreadable = |why: String| Error::without_key(why).in_file(path, "");
    let text = files.read(path);
    let text =
        text.map_err(|error| unreadable(format!("cannot be read: {error}; check the path and its permissions")))?;
    let text = String::from_utf8(text).map_err(|_| unreadable("is not UTF-8 text; save it as UTF-8".to_owned()))?;
    let error = |error: Error| error.in_file(path, &text);
    let folder = path.parent().unwrap_or(Path::new(""));
    let ConfigFile { tls, headers, users, rate } = ConfigFile::parse(&text, folder).map_err(error)?;
    let previous_tls = previous.and_then(|previous| previous.tls.as_ref());
    let tls = tls.map(|tls| Tls::load(&tls, previous_tls, files)).transpose().map_err(error)?;
    let (tls, warning) = tls.map_or((None, None), |(tls, warning)| (Some(tls), warning));
    let settings = Settings { tls, headers, users: Arc::new(users), rate };
    if let Some(previous) = previous {
        check_switch(&settings, previous).map_err(error)?;
    }
    Ok((settings, warning.map(error)))
}

/// Refuses to switch TLS on or off, or to remove all users: a half-written file must not remove protection.
fn check_switch(new: &Settings, previous: &Settings) -> Result<(), Error> {
    let (key, what) = if new.tls.is_some() != previous.tls.is_some() {
        ("tls_server_config", "TLS cannot be enabled or disabled")
    } else if new.users.is_empty() && !previous.users.is_empty() {
        ("basic_auth_users", "the last user cannot be removed")
    } else {
        return Ok(());
    };
    Err(Error::new(key, format!("{what} at run time; restart the program or revert the change")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_file_or_one_that_removes_protection_refuses_all_until_it_is_fixed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.yml");
        let good = "basic_auth_users:\n  ann: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n";
        std::fs::write(&path, good).unwrap();
        let config = WebConfig::load(&path).unwrap();
        // An empty file is valid, but it would remove the password.
        for invalid in ["basic_auth_users: {", "no_such_key: 1\n", "", "basic_auth_users:\n"] {
            std::fs::write(&path, invalid).unwrap();
            config.state.reload_if_changed();
            assert!(config.settings().is_none(), "{invalid:?}");
            std::fs::write(&path, good).unwrap();
            config.state.reload_if_changed();
            assert!(config.settings().is_some(), "{invalid:?}");
        }
        std::fs::write(&path, b"\xff").unwrap();
        let error = WebConfig::load(&path).unwrap_err().to_string();
        assert!(error.contains("save it as UTF-8") && !error.contains("permissions"), "{error}");
        std::fs::remove_file(&path).unwrap();
        config.state.reload_if_changed();
        assert!(config.settings().is_none(), "removed");
    }

    #[test]
    fn the_debug_output_shows_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.yml");
        let hash = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";
        std::fs::write(&path, format!("basic_auth_users:\n  ann: {hash}\n")).unwrap();
        let config = WebConfig::load(&path).unwrap();
        let shown = format!("{config:?} {:?} {:?}", config.layer(), config.tls_acceptor());
        assert!(shown.contains("web.yml") && !shown.contains(hash), "{shown}");
    }
}
