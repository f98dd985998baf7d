//! Resolves the host name of one engine. `getaddrinfo` may take half a minute and cannot be cancelled, so a look-up can
//! outlive the poll that started it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

pub(super) type Addresses = std::vec::IntoIter<SocketAddr>;
pub(super) type Resolver = BoxCloneSyncService<Name, Addresses, io::Error>;

/// Runs at most one look-up at a time. hyper-util's own resolver starts a new look-up for each poll, and each of them
/// would occupy a thread.
pub(super) fn resolver(look_up: fn(&str) -> io::Result<Addresses>) -> Resolver {
    // A look-up that has outlived its poll. The next poll waits for it.
    let pending: Arc<Mutex<Option<JoinHandle<io::Result<Addresses>>>>> = Arc::default();
    BoxCloneSyncService::new(service_fn(move |host: Name| {
        let pending = Arc::clone(&pending);
        async move {
            let mut pending = pending.lock().await;
            let start = || spawn_blocking(move || look_up(host.as_str()));
            let addresses = pending.get_or_insert_with(start).await;
            *pending = None;
            addresses?
        }
    }))
}

pub(super) fn look_up(host: &str) -> io::Result<Addresses> {
    // The connector replaces port 0 by the port of the URL.
    (host, 0).to_socket_addrs()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use tower::Service as _;

    use super::*;

    static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
    static ANSWERS: AtomicBool = AtomicBool::new(false);

    fn slow(_: &str) -> io::Result<Addresses> {
        LOOK_UPS.fetch_add(1, Ordering::SeqCst);
        while !ANSWERS.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))].into_iter())
    }

    #[tokio::test]
    async fn polls_that_reach_their_deadline_share_one_slow_look_up() {
        let host: Name = "engine".parse().unwrap();
        let mut resolver = resolver(slow);
        for _ in 0..3 {
            let poll = tokio::time::timeout(Duration::from_millis(5), resolver.call(host.clone())).await;
            assert!(poll.is_err(), "the deadline ends the poll, not the name server");
        }
        ANSWERS.store(true, Ordering::SeqCst);
        let addresses: Vec<_> = resolver.call(host.clone()).await.unwrap().collect();
        assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], 0))]);
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 1);
        resolver.call(host).await.unwrap();
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 2, "each connection resolves the name again");
    }
}
