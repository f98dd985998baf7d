//! Binds Unix sockets. A socket file that a dead process left behind is replaced; anything else at the path is kept. Finds the
//! sockets on which systemd listens already (socket activation).

use std::fs::{Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, fchmod};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// The mode of a socket's file: owner and group may connect.
const MODE: u32 = 0o660;
/// Limit of the connections that wait to be accepted. tokio uses the same number.
const BACKLOG: u32 = 1024;

/// The file of a bound socket. Dropping this value removes the file, unless another process has replaced it. Drop it before the
/// listener: once the socket is closed, its inode number may be given to another file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode. `None` if they cannot be read.
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), id: Self::id(path) }
    }

    fn id(path: &Path) -> Option<(u64, u64)> {
        std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && Self::id(&self.path) == self.id {
            // If this fails, the next start replaces the socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds `path` for the owner and the group: a sidecar's engine runs as another user of the same group. Fails if the path
/// cannot be bound, another process serves it, or the file there is not a socket.
pub async fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => must_be_socket(&found)?,
        // tokio connects without blocking: a served socket whose backlog is full fails with EAGAIN.
        Ok(_) => match UnixStream::connect(path).await.map_err(|error| (error.kind(), error)) {
            Err((io::ErrorKind::ConnectionRefused, _)) => std::fs::remove_file(path)?,
            Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it"));
            }
            Err((_, error)) => return Err(error),
        },
    }
    let (socket, file) = bind_closed(path)?;
    Ok((socket.listen(BACKLOG)?, file))
}

/// Binds `path`. A connection is refused until the socket listens, and by then the file has its own mode. The umask stays
/// as it is, because it belongs to the whole process and other threads create files at the same time.
fn bind_closed(path: &Path) -> io::Result<(UnixSocket, SocketFile)> {
    let socket = UnixSocket::new_stream()?;
    // Linux creates the file with the mode of the socket, without the bits of the umask. So the file never has more rights
    // than its own, not even before the socket listens. If another system refuses this, the mode below is still set in time.
    let _ = fchmod(&socket, Mode::from_raw_mode(MODE));
    socket.bind(path)?;
    let file = SocketFile::of(path);
    // The umask may have removed the rights of the group.
    std::fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok((socket, file))
}

/// Checks that [`bind`] can use the path, without touching it. Another process may listen there, because it may be the exporter
/// whose configuration is checked. Fails if the path is too long, is not a socket, or its folder is missing. Folders
/// below `/run` may be missing, because systemd and Kubernetes create them when the daemon starts.
pub fn check(path: &Path) -> io::Result<()> {
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) => must_be_socket(&found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.starts_with("/run")) {
                Some(folder) => std::fs::read_dir(folder).map(drop),
                None => Ok(()),
            }
        }
        Err(error) => Err(error),
    }
}

fn must_be_socket(found: &Metadata) -> io::Result<()> {
    match found.file_type().is_socket() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket has this name")),
    }
}

/// Unix sockets on which systemd listens already.
#[derive(Debug, Clone, Default)]
pub struct Activated(pub Arc<[std::os::unix::net::UnixListener]>);

impl Activated {
    /// The listener of `path`, if systemd has passed it. It is a duplicate, so that a reload of the configuration can open the
    /// socket again. Fails if there are no free descriptors.
    pub fn listener(&self, path: &Path) -> io::Result<Option<UnixListener>> {
        let is_path = |listener: &&std::os::unix::net::UnixListener| {
            listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
        };
        self.0.iter().find(is_path).map(|listener| UnixListener::from_std(listener.try_clone()?)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_served_socket_is_kept_even_when_its_backlog_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let _served = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // Nobody accepts, so the backlog fills up.
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 100_000, "the backlog does not fill up");
        }
        assert_eq!(bind(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(waiting);
        assert_eq!(bind(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    /// Set in the process that `a_socket_never_has_more_rights_than_its_own_whatever_the_umask` starts.
    const UMASK_IS_SET: &str = "UNIX_SOCKET_TEST_UMASK_IS_SET";

    #[tokio::test]
    async fn a_socket_never_has_more_rights_than_its_own_whatever_the_umask() {
        // The umask belongs to the whole process, so each umask gets a process of its own.
        if std::env::var_os(UMASK_IS_SET).is_none() {
            let test = std::env::current_exe().unwrap();
            for umask in ["0", "0022", "0077"] {
                let mut shell = std::process::Command::new("sh");
                shell.args(["-c", &format!("umask {umask} && exec \"$0\" --exact \"$1\"")]).arg(&test);
                let name = "unix_socket::tests::a_socket_never_has_more_rights_than_its_own_whatever_the_umask";
                let output = shell.arg(name).env(UMASK_IS_SET, "1").output().unwrap();
                assert!(output.status.success(), "umask {umask}: {}", String::from_utf8_lossy(&output.stdout));
            }
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        // Another thread looks at the file all the time. It sees each mode that the file has.
        let (watched, done) = (path.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let ends = Arc::clone(&done);
        let watching = std::thread::spawn(move || {
            let mut modes = std::collections::BTreeSet::new();
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                modes.extend(std::fs::symlink_metadata(&watched).map(|file| file.mode() & 0o777));
            }
            modes
        });
        for _ in 0..2000 {
            drop(bind(&path).await.unwrap());
        }
        let (_listener, _file) = bind(&path).await.unwrap();
        assert_eq!(mode(&path), MODE);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let modes = watching.join().unwrap();
        assert!(modes.iter().all(|mode| mode & !MODE == 0), "modes seen: {modes:?}");
    }

    #[tokio::test]
    async fn a_connection_is_refused_until_the_socket_has_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let (socket, _file) = bind_closed(&path).unwrap();
        let refused = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!((refused.kind(), mode(&path)), (io::ErrorKind::ConnectionRefused, MODE));
        let _listener = socket.listen(BACKLOG).unwrap();
        UnixStream::connect(&path).await.unwrap();
    }
}
