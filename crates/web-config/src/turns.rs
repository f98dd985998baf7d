//! Decides which client may compare a password next. Comparisons run one at a time, and client addresses take turns, so one
//! address that guesses passwords does not delay the others for long. All addresses that guessed wrong share one turn.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync;

/// Maximum number of requests of one address that wait or are compared. Further requests are refused.
const MAX_PER_CLIENT: usize = 8;
/// Maximum number of addresses that are remembered because they guessed wrong.
const MAX_GUESSERS: usize = 1024;

/// Where a request comes from. Put it into the extensions of each request, outside of
/// [`WebConfig::layer`](crate::WebConfig::layer).
///
/// Password checks take time, so clients take turns and each may have 8 requests in the queue. An IPv4 address is one client, and
/// so is an IPv6 network of 64 bits. All requests without a `ClientAddress` or with the default value count as one client. Use the
/// default value for Unix sockets.
///
/// ```
/// use exporter_web_config::ClientAddress;
///
/// let mut request = http::Request::new(());
/// let peer: std::net::SocketAddr = "192.0.2.1:55000".parse().unwrap();
/// request.extensions_mut().insert(ClientAddress::from(peer));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClientAddress(Option<IpAddr>);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self(Some(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => v4,
        }))
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

/// The queue of comparisons. tokio's mutex is fair: requests lock it in the order in which they ask. A request first locks the mutex
/// of its own address, so only one request of each address waits for the shared mutex. If the address guessed wrong
/// before, the request locks the guessers' mutex in between.
#[derive(Default)]
pub(crate) struct Turns {
    shared: Arc<sync::Mutex<()>>,
    guessers: Arc<sync::Mutex<()>>,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    /// The mutexes of addresses with requests.
    waiting: HashMap<ClientAddress, Arc<sync::Mutex<()>>>,
    guessed_wrong: HashSet<ClientAddress>,
}

/// The right to compare one password. Dropping it gives the turn to the next address.
pub(crate) type Turn = Vec<sync::OwnedMutexGuard<()>>;

impl Turns {
    /// Waits for a turn. Returns `None` if too many requests of this client wait already.
    pub(crate) async fn wait(&self, client: ClientAddress) -> Option<Turn> {
        let mut turn = vec![self.mutex_of(client)?.lock_owned().await];
        let is_guesser = self.clients.lock().guessed_wrong.contains(&client);
        if is_guesser {
            turn.push(Arc::clone(&self.guessers).lock_owned().await);
        }
        turn.push(Arc::clone(&self.shared).lock_owned().await);
        Some(turn)
    }

    /// The mutex of `client`. Each of its requests holds a reference. `None` if there are too many requests.
    fn mutex_of(&self, client: ClientAddress) -> Option<Arc<sync::Mutex<()>>> {
        let waiting = &mut self.clients.lock().waiting;
        waiting.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        let mutex = waiting.entry(client).or_default();
        (Arc::strong_count(mutex) <= MAX_PER_CLIENT).then(|| Arc::clone(mutex))
    }

    /// Remembers whether the password of `client` was right.
    pub(crate) fn compared(&self, client: ClientAddress, accepted: bool) {
        let guessed_wrong = &mut self.clients.lock().guessed_wrong;
        if accepted {
            guessed_wrong.remove(&client);
            return;
        }
        if guessed_wrong.len() >= MAX_GUESSERS {
            guessed_wrong.clear();
        }
        guessed_wrong.insert(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientAddress {
        address.parse::<IpAddr>().unwrap().into()
    }

    /// Sends one request of each of `clients`, in this order. Returns the order in which they get a turn.
    async fn order(turns: &Arc<Turns>, clients: &[ClientAddress]) -> Vec<ClientAddress> {
        let first = turns.wait(ClientAddress::default()).await.unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for client in clients.iter().copied() {
            let (turns, got) = (Arc::clone(turns), Arc::clone(&got));
            waiting.push(tokio::spawn(async move {
                let Some(_turn) = turns.wait(client).await else { return };
                got.lock().push(client);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for waiting in waiting {
            waiting.await.unwrap();
        }
        Arc::into_inner(got).unwrap().into_inner()
    }

    #[tokio::test]
    async fn clients_take_turns_and_one_that_floods_is_refused() {
        let turns = Arc::new(Turns::default());
        let (flood, scraper) = (client("10.0.0.1"), client("10.0.0.2"));
        let mut clients = vec![flood; 60];
        clients.push(scraper);
        let order = order(&turns, &clients).await;
        assert_eq!(order.len(), MAX_PER_CLIENT + 1);
        assert_eq!(order[1], scraper);
        assert!(turns.shared.try_lock().is_ok());
    }

    #[tokio::test]
    async fn clients_that_guessed_wrong_share_one_turn() {
        let turns = Arc::new(Turns::default());
        let guessers: Vec<ClientAddress> = (1..=60).map(|last| client(&format!("10.0.0.{last}"))).collect();
        guessers.iter().for_each(|guesser| turns.compared(*guesser, false));
        let (scraper, forgiven) = (client("10.0.1.1"), guessers[59]);
        turns.compared(forgiven, true);
        let order = order(&turns, &[&guessers[..], &[scraper]].concat()).await;
        assert_eq!(order[..3], [guessers[0], forgiven, scraper]);
        assert_eq!(order[3..], guessers[1..59]);
    }

    #[tokio::test]
    async fn a_late_client_waits_for_one_comparison_of_each_other_client() {
        let turns = Arc::new(Turns::default());
        let mut clients: Vec<ClientAddress> =
            (0..32).flat_map(|last| [client(&format!("10.0.0.{last}")); MAX_PER_CLIENT]).collect();
        let late = client("10.0.1.1");
        clients.push(late);
        let order = order(&turns, &clients).await;
        assert_eq!((order.len(), order.iter().position(|client| *client == late)), (32 * MAX_PER_CLIENT + 1, Some(32)));
    }

    #[tokio::test]
    async fn a_client_that_disconnects_does_not_stop_the_turns() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(ClientAddress::default()).await.unwrap();
        let gone = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.wait(client("10.0.0.1")).await.is_some() }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        assert!(turns.wait(client("10.0.0.2")).await.is_some());
    }

    #[test]
    fn one_network_of_ipv6_addresses_is_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
    }
}
