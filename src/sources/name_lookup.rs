//! Resolves host names without blocking anything: `getaddrinfo` may take half a minute and cannot be cancelled.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use tokio::sync::oneshot;

type Addresses = io::Result<Vec<SocketAddr>>;

/// Looks up the addresses of one `HOST:PORT`, at most once at a time.
#[derive(Debug)]
pub(super) struct NameLookup {
    resolve: fn(&str) -> Addresses,
    /// A look-up whose poll reached its deadline. The next poll waits for it: a new one would leave another thread behind.
    pending: Option<oneshot::Receiver<Addresses>>,
}

impl NameLookup {
    pub(super) const fn new() -> Self {
        Self { resolve: |authority| authority.to_socket_addrs().map(Iterator::collect), pending: None }
    }

    /// The addresses of `authority`. Cancel-safe.
    pub(super) async fn addresses(&mut self, authority: &str) -> Addresses {
        if let Ok(address) = authority.parse() {
            return Ok(vec![address]);
        }
        let pending = match &mut self.pending {
            Some(pending) => pending,
            None => self.pending.insert(start(self.resolve, authority.to_owned())?),
        };
        let addresses = pending.await;
        self.pending = None;
        addresses.unwrap_or_else(|_| Err(io::Error::other("the thread of the name look-up ended")))
    }
}

/// On a thread of its own, not on the runtime's blocking pool: the runtime waits for that pool when it shuts down.
fn start(resolve: fn(&str) -> Addresses, authority: String) -> io::Result<oneshot::Receiver<Addresses>> {
    let (reply, pending) = oneshot::channel();
    std::thread::Builder::new().name("name-lookup".to_owned()).spawn(move || {
        let _ = reply.send(resolve(&authority));
    })?;
    Ok(pending)
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
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 1))])
    }

    #[tokio::test]
    async fn polls_that_reach_their_deadline_share_one_slow_look_up() {
        let mut lookup = NameLookup { resolve, pending: None };
        for _ in 0..3 {
            let poll = tokio::time::timeout(Duration::from_millis(5), lookup.addresses("engine:8000")).await;
            assert!(poll.is_err(), "the deadline ends the poll, not the name server");
        }
        ANSWERS.store(true, Ordering::SeqCst);
        assert_eq!(lookup.addresses("engine:8000").await.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 1))]);
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 1);
        lookup.addresses("engine:8000").await.unwrap();
        assert_eq!(LOOK_UPS.load(Ordering::SeqCst), 2, "each connection resolves the name again");
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_look_up() {
        let mut lookup = NameLookup { resolve: |_| Err(io::ErrorKind::NotFound.into()), pending: None };
        assert_eq!(lookup.addresses("127.0.0.1:80").await.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 80))]);
        assert_eq!(lookup.addresses("[::1]:80").await.unwrap().len(), 1);
    }
}
