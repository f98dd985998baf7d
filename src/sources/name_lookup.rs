//! Resolves the host name of one engine. `getaddrinfo` may take half a minute and cannot be cancelled, so a look-up can
//! outlive the poll that started it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tower::Service;

type Addresses = io::Result<std::vec::IntoIter<SocketAddr>>;

/// The resolver of one HTTP client. At most one look-up runs at a time. hyper-util's own resolver starts a new one for each
/// poll, and each would hold a thread.
#[derive(Debug, Clone)]
pub(super) struct NameLookup {
    resolve: fn(&str) -> Addresses,
    /// A look-up whose poll reached its deadline. The next poll waits for it.
    pending: Arc<Mutex<Option<JoinHandle<Addresses>>>>,
}

impl NameLookup {
    pub(super) fn new() -> Self {
        // The connector replaces port 0 by the port of the URL.
        Self { resolve: |host| (host, 0).to_socket_addrs(), pending: Arc::default() }
    }
}

impl Service<Name> for NameLookup {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Addresses> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, host: Name) -> Self::Future {
        let Self { resolve, pending } = self.clone();
        Box::pin(async move {
            let mut pending = pending.lock().await;
            let start = || tokio::task::spawn_blocking(move || resolve(host.as_str()));
            let addresses = pending.get_or_insert_with(start).await;
            *pending = None;
            addresses?
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
    static ANSWERS: AtomicBool = AtomicBool::new(false);

    fn resolve(_: &str) -> Addresses {
        LOOK_UPS.fetch_add(1, Ordering::SeqCst);
        while !ANSWERS.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))].into_iter())
    }

    #[tokio::test]
    async fn polls_that_reach_their_deadline_share_one_slow_look_up() {
        let host: Name = "engine".parse().unwrap();
        let mut lookup = NameLookup { resolve, pending: Arc::default() };
        for _ in 0..3 {
            let poll = tokio::time::timeout(Duration::from_millis(5), lookup.call(host.clone())).await;
            assert!(poll.is_err(), "the deadline ends the poll, not the name server");
        }
        ANSWERS.store(true, Ordering::SeqCst);
        let addresses: Vec<_> = lookup.call(host.clone()).await.unwrap().collect();
        assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], 0))]);
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 1);
        lookup.call(host).await.unwrap();
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 2, "each connection resolves the name again");
    }
}
