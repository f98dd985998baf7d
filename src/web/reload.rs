//! The web configuration as it stands on disk now, so that certificates and passwords are replaced without a restart.
//! Files are read anew when they have changed, off the runtime's threads. What is broken is logged once per change of state.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::rustls::server::ServerConfig;

use super::basic_auth::Users;
use super::config::{ParseError, Pem, WebConfig, WebConfigError, Wrong};
use super::rate_limit::Rate;
use super::tls::{self, Identity};

/// Files are looked at again after this time, when somebody asks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A file system that hangs must not hold up a scrape: what was known goes on.
const LOOK_DEADLINE: Duration = Duration::from_secs(1);
/// A file that changed this recently may change again without its time stamp telling.
const SETTLED: Duration = Duration::from_secs(2);

/// What the server goes by.
#[derive(Debug)]
pub struct Settings {
    pub tls: Option<Arc<ServerConfig>>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub users: Users,
    pub rate: Option<Rate>,
}

/// The configuration cannot be used now; the log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the web configuration cannot be used")]
pub struct Broken;

/// The settings of one file, or those of none.
#[derive(Debug)]
pub struct Live {
    /// Fixed at the start: connections are not switched between TLS and plain HTTP.
    tls: bool,
    now: Arc<ArcSwap<Result<Arc<Settings>, Broken>>>,
    looking: Option<Arc<Mutex<Watch>>>,
}

/// What is known of the files.
#[derive(Debug)]
struct Watch {
    path: PathBuf,
    tls: bool,
    /// Users must name themselves.
    guarded: bool,
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    settled: bool,
    looked: Instant,
    identity: Option<Identity>,
    complaint: Option<String>,
}

/// By what a file is known to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

struct Loaded {
    settings: Settings,
    files: Vec<PathBuf>,
    identity: Option<Identity>,
    /// Why the identity is still the one before.
    complaint: Option<String>,
}

impl Live {
    /// Plain HTTP for everybody.
    #[must_use]
    pub fn open_to_all() -> Self {
        let settings = Settings { tls: None, headers: Vec::new(), users: Users::default(), rate: None };
        Self { tls: false, now: Arc::new(ArcSwap::from_pointee(Ok(Arc::new(settings)))), looking: None }
    }

    /// Reads the file at `path` and all that it names.
    ///
    /// # Errors
    /// With the key that is wrong.
    pub fn read(path: &Path) -> Result<Self, WebConfigError> {
        let begun = SystemTime::now();
        let loaded = load(path, None)?;
        let (tls, stamps) = (loaded.settings.tls.is_some(), stamps(loaded.files));
        let watch = Watch {
            path: path.to_owned(),
            tls,
            guarded: !loaded.settings.users.is_empty(),
            settled: settled(&stamps, begun),
            stamps,
            looked: Instant::now(),
            identity: loaded.identity,
            complaint: None,
        };
        let now = Arc::new(ArcSwap::from_pointee(Ok(Arc::new(loaded.settings))));
        Ok(Self { tls, now, looking: Some(Arc::new(Mutex::new(watch))) })
    }

    /// Whether connections are TLS.
    #[must_use]
    pub const fn tls(&self) -> bool {
        self.tls
    }

    /// The settings as the files say now, at most [`LOOK_AGAIN`] late.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub async fn settings(&self) -> Result<Arc<Settings>, Broken> {
        // Whoever finds another one looking goes by what was known before: nobody queues behind a slow disk.
        if let Some(watch) = self.looking.as_ref().and_then(|looking| Arc::clone(looking).try_lock_owned().ok())
            && watch.looked.elapsed() >= LOOK_AGAIN
        {
            let (mut watch, now) = (watch, Arc::clone(&self.now));
            let look = tokio::task::spawn_blocking(move || {
                if let Some(found) = watch.look() {
                    now.store(Arc::new(found));
                }
            });
            let _ = tokio::time::timeout(LOOK_DEADLINE, look).await;
        }
        Result::clone(&self.now.load())
    }
}

impl Watch {
    /// What is new, if anything is.
    fn look(&mut self) -> Option<Result<Arc<Settings>, Broken>> {
        let begun = SystemTime::now();
        let unchanged = self.settled && self.stamps.iter().all(|(path, stamp)| stamp_of(path) == *stamp);
        self.looked = Instant::now();
        if unchanged {
            return None;
        }
        let loaded = load(&self.path, self.identity.as_ref()).and_then(|loaded| self.fits(loaded));
        let (found, complaint) = match loaded {
            Ok(loaded) => {
                self.guarded = !loaded.settings.users.is_empty();
                self.identity = loaded.identity;
                self.stamps = stamps(loaded.files);
                (Ok(Arc::new(loaded.settings)), loaded.complaint)
            }
            Err(error) => (Err(Broken), Some(error.to_string())),
        };
        // What is broken may name files that are not watched, so it is read again until it is not.
        self.settled = found.is_ok() && settled(&self.stamps, begun);
        self.complain(complaint, found.is_ok());
        Some(found)
    }

    /// A file caught half written must not open what was closed.
    fn fits(&self, loaded: Loaded) -> Result<Loaded, WebConfigError> {
        let refuse = |key, why| WebConfigError::Key { path: self.path.clone(), wrong: Wrong::new(key, why) };
        if loaded.settings.tls.is_some() != self.tls {
            let why = "TLS cannot be switched on or off while running; restart, or put it back as it was";
            return Err(refuse("tls_server_config", why));
        }
        if self.guarded && loaded.settings.users.is_empty() {
            let why = "the last user cannot be removed while running; restart, or put one back";
            return Err(refuse("basic_auth_users", why));
        }
        Ok(loaded)
    }

    fn complain(&mut self, complaint: Option<String>, serving: bool) {
        if complaint == self.complaint {
            return;
        }
        match &complaint {
            Some(error) if serving => tracing::warn!(error, "the certificate cannot be used; the one before goes on"),
            Some(error) => tracing::error!(error, "the web configuration cannot be used; every request is refused"),
            None => tracing::info!("the web configuration can be used again"),
        }
        self.complaint = complaint;
    }
}

/// Reads everything. Where only the server's own certificate cannot be used, `before` goes on: a pair of files is replaced
/// one after the other.
fn load(path: &Path, before: Option<&Identity>) -> Result<Loaded, WebConfigError> {
    let wrong = |wrong| WebConfigError::Key { path: path.to_owned(), wrong };
    let text =
        std::fs::read_to_string(path).map_err(|cause| WebConfigError::Unreadable { path: path.to_owned(), cause })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let config = WebConfig::parse(&text, folder).map_err(|error| match error {
        ParseError::Yaml(cause) => WebConfigError::Malformed { path: path.to_owned(), cause },
        ParseError::Key(key) => wrong(key),
    })?;
    let mut files = vec![path.to_owned()];
    let (mut identity, mut complaint, mut terms) = (None, None, None);
    if let Some(tls) = &config.tls {
        let pems = [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()];
        files.extend(pems.into_iter().flatten().filter_map(|pem| match pem {
            Pem::File(path) => Some(path.clone()),
            Pem::Inline(_) => None,
        }));
        let mine = match (tls::identity(tls), before) {
            (Ok(identity), _) => identity,
            (Err(error), Some(before)) => {
                complaint = Some(error.to_string());
                Arc::clone(before)
            }
            (Err(error), None) => return Err(wrong(error)),
        };
        terms = Some(Arc::new(tls::terms(tls, config.http2, Arc::clone(&mine)).map_err(wrong)?));
        identity = Some(mine);
    }
    let settings = Settings { tls: terms, headers: config.headers, users: config.users, rate: config.rate };
    Ok(Loaded { settings, files, identity, complaint })
}

fn stamps(files: Vec<PathBuf>) -> Vec<(PathBuf, Option<Stamp>)> {
    files.into_iter().map(|path| (stamp_of(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    let data = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: data.dev(),
        inode: data.ino(),
        length: data.len(),
        changed: (data.ctime(), data.ctime_nsec()),
        modified: (data.mtime(), data.mtime_nsec()),
    })
}

/// Whether a further change would surely move the stamps. `ctime` counts, for `mtime` can be set.
fn settled(stamps: &[(PathBuf, Option<Stamp>)], looked: SystemTime) -> bool {
    let Ok(now) = looked.duration_since(SystemTime::UNIX_EPOCH) else { return false };
    let latest = stamps.iter().filter_map(|(_, stamp)| stamp.map(|stamp| stamp.changed.0)).max();
    latest.is_none_or(|latest| latest.saturating_add(SETTLED.as_secs() as i64) < now.as_secs() as i64)
}
