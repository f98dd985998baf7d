//! Password comparisons run one at a time. Who waits for one gets it in turn by address, so one address that guesses passwords
//! cannot shut out the others; addresses that guessed wrong come last.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Requests of one address that may wait. Further ones are refused.
const MAX_PER_PEER: usize = 8;
/// All requests that may wait.
const MAX_WAITING: usize = 256;
/// Addresses remembered because they guessed wrong.
const MAX_FAILED: usize = 1024;

/// Who sends a request: an IPv4 address, an IPv6 network of 64 bits, or anybody on a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    #[must_use]
    pub fn new(address: Option<IpAddr>) -> Self {
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => v4,
        }))
    }
}

/// Who waits for a comparison.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    is_taken: bool,
    /// The peers that wait, in the order of their turns, each with its requests.
    peers: VecDeque<(Peer, VecDeque<oneshot::Sender<Turn>>)>,
    failed: HashSet<Peer>,
}

/// The right to compare one password. Dropping it gives the turn to the next peer.
#[derive(Debug)]
pub(super) struct Turn(Arc<Turns>);

impl Turns {
    /// Waits for a turn; `None` if too many requests wait already.
    pub(super) async fn wait(self: &Arc<Self>, peer: Peer) -> Option<Turn> {
        let turn = {
            let mut queue = self.0.lock();
            if !queue.is_taken {
                queue.is_taken = true;
                return Some(Turn(Arc::clone(self)));
            }
            queue.join(peer)?
        };
        // An error means that the request lost its place to another peer.
        turn.await.ok()
    }

    /// Remembers whether the password of `peer` was right.
    pub(super) fn compared(&self, peer: Peer, accepted: bool) {
        let mut queue = self.0.lock();
        if accepted {
            queue.failed.remove(&peer);
            return;
        }
        if queue.failed.len() >= MAX_FAILED {
            queue.failed.clear();
        }
        queue.failed.insert(peer);
    }
}

impl Queue {
    fn join(&mut self, peer: Peer) -> Option<oneshot::Receiver<Turn>> {
        // Clients that have disconnected need no turn.
        self.peers.iter_mut().for_each(|(_, requests)| requests.retain(|request| !request.is_closed()));
        self.peers.retain(|(_, requests)| !requests.is_empty());
        let own = self.peers.iter().find(|(other, _)| *other == peer).map_or(0, |(_, requests)| requests.len());
        if own >= MAX_PER_PEER {
            return None;
        }
        if self.peers.iter().map(|(_, requests)| requests.len()).sum::<usize>() >= MAX_WAITING {
            let (_, most) = self.peers.iter_mut().max_by_key(|(_, requests)| requests.len())?;
            if most.len() <= own + 1 {
                return None;
            }
            most.pop_back();
        }
        let (request, turn) = oneshot::channel();
        match self.peers.iter_mut().find(|(other, _)| *other == peer) {
            Some((_, requests)) => requests.push_back(request),
            None => self.peers.push_back((peer, VecDeque::from([request]))),
        }
        Some(turn)
    }

    /// The request whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let trusted = self.peers.iter().position(|(peer, _)| !self.failed.contains(peer));
        let (peer, mut requests) = self.peers.remove(trusted.unwrap_or(0))?;
        let request = requests.pop_front();
        if !requests.is_empty() {
            self.peers.push_back((peer, requests));
        }
        request
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.0.0.lock();
            let next = queue.next();
            queue.is_taken = next.is_some();
            next
        };
        // If the client has disconnected, the turn comes back and is dropped here: the next one gets it.
        if let Some(next) = next {
            let _ = next.send(Self(Arc::clone(&self.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::new(Some(address.parse().unwrap()))
    }

    /// Starts to wait as each of `peers`, in this order, and returns the order in which they get a turn.
    async fn order(turns: &Arc<Turns>, peers: &[Peer]) -> Vec<Peer> {
        let first = turns.wait(Peer::default()).await.unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for peer in peers.iter().copied() {
            let (turns, got) = (Arc::clone(turns), Arc::clone(&got));
            waiting.push(tokio::spawn(async move {
                let Some(_turn) = turns.wait(peer).await else { return };
                got.lock().push(peer);
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
    async fn peers_take_turns_and_one_that_floods_is_refused() {
        let turns = Arc::new(Turns::default());
        let (flood, scraper) = (peer("10.0.0.1"), peer("10.0.0.2"));
        let mut peers = vec![flood; 60];
        peers.push(scraper);
        let order = order(&turns, &peers).await;
        assert_eq!(order.len(), MAX_PER_PEER + 1);
        assert_eq!(order[1], scraper);
        assert!(!turns.0.lock().is_taken);
    }

    #[tokio::test]
    async fn peers_that_guessed_wrong_come_last() {
        let turns = Arc::new(Turns::default());
        let guessers: Vec<Peer> = (1..=60).map(|last| peer(&format!("10.0.0.{last}"))).collect();
        guessers.iter().for_each(|guesser| turns.compared(*guesser, false));
        let (scraper, forgiven) = (peer("10.0.1.1"), guessers[59]);
        turns.compared(forgiven, true);
        let order = order(&turns, &[&guessers[..], &[scraper]].concat()).await;
        assert_eq!(order[..2], [forgiven, scraper]);
        assert_eq!(order[2..], guessers[..59]);
    }

    #[tokio::test]
    async fn when_all_places_are_taken_the_peer_with_most_requests_gives_one_up() {
        let turns = Arc::new(Turns::default());
        let mut peers: Vec<Peer> =
            (0..MAX_WAITING / MAX_PER_PEER).flat_map(|last| [peer(&format!("10.0.0.{last}")); MAX_PER_PEER]).collect();
        let late = peer("10.0.1.1");
        peers.push(late);
        let order = order(&turns, &peers).await;
        assert_eq!(order.len(), MAX_WAITING);
        assert!(order.contains(&late));
    }

    #[tokio::test]
    async fn a_client_that_disconnects_does_not_stop_the_turns() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(Peer::default()).await.unwrap();
        let gone = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.wait(peer("10.0.0.1")).await.is_some() }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        assert!(turns.wait(peer("10.0.0.2")).await.is_some());
    }

    #[test]
    fn one_network_of_ipv6_addresses_is_one_peer() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
    }
}
