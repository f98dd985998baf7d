//! Password comparisons run one at a time, and addresses take turns. So one address that guesses passwords cannot shut out the
//! others, and all addresses that guessed wrong have one turn together.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one address that may wait or be compared. Further ones are refused.
const MAX_PER_PEER: usize = 8;
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

/// Who waits for a comparison. The semaphores have one permit each and give it in the order of asking. A peer needs its own before
/// it asks for the common one, so each peer waits there with one request. A peer that guessed wrong needs that of the guessers, too.
#[derive(Debug)]
pub(super) struct Turns {
    common: Arc<Semaphore>,
    guessers: Arc<Semaphore>,
    peers: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    /// Those with requests.
    own: HashMap<Peer, Arc<Semaphore>>,
    failed: HashSet<Peer>,
}

/// The right to compare one password. Dropping it gives the turn to the next peer.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "held until it is dropped")] Vec<OwnedSemaphorePermit>);

impl Default for Turns {
    fn default() -> Self {
        Self { common: one_permit(), guessers: one_permit(), peers: Mutex::default() }
    }
}

fn one_permit() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

impl Turns {
    /// Waits for a turn; `None` if too many requests of this peer wait already. The server's limit of connections limits all.
    pub(super) async fn wait(&self, peer: Peer) -> Option<Turn> {
        let own = self.own(peer)?;
        let mut permits = vec![own.acquire_owned().await.ok()?];
        let has_failed = self.peers.lock().failed.contains(&peer);
        if has_failed {
            permits.push(Arc::clone(&self.guessers).acquire_owned().await.ok()?);
        }
        permits.push(Arc::clone(&self.common).acquire_owned().await.ok()?);
        Some(Turn(permits))
    }

    /// The semaphore of `peer`, which each of its requests holds; `None` if it has too many.
    fn own(&self, peer: Peer) -> Option<Arc<Semaphore>> {
        let own = &mut self.peers.lock().own;
        own.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore = own.entry(peer).or_insert_with(one_permit);
        (Arc::strong_count(semaphore) <= MAX_PER_PEER).then(|| Arc::clone(semaphore))
    }

    /// Remembers whether the password of `peer` was right.
    pub(super) fn compared(&self, peer: Peer, accepted: bool) {
        let failed = &mut self.peers.lock().failed;
        if accepted {
            failed.remove(&peer);
            return;
        }
        if failed.len() >= MAX_FAILED {
            failed.clear();
        }
        failed.insert(peer);
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
        assert_eq!(turns.common.available_permits(), 1);
    }

    #[tokio::test]
    async fn peers_that_guessed_wrong_have_one_turn_together() {
        let turns = Arc::new(Turns::default());
        let guessers: Vec<Peer> = (1..=60).map(|last| peer(&format!("10.0.0.{last}"))).collect();
        guessers.iter().for_each(|guesser| turns.compared(*guesser, false));
        let (scraper, forgiven) = (peer("10.0.1.1"), guessers[59]);
        turns.compared(forgiven, true);
        let order = order(&turns, &[&guessers[..], &[scraper]].concat()).await;
        assert_eq!(order[..3], [guessers[0], forgiven, scraper]);
        assert_eq!(order[3..], guessers[1..59]);
    }

    #[tokio::test]
    async fn a_late_peer_waits_for_one_comparison_of_each_other() {
        let turns = Arc::new(Turns::default());
        let mut peers: Vec<Peer> = (0..32).flat_map(|last| [peer(&format!("10.0.0.{last}")); MAX_PER_PEER]).collect();
        let late = peer("10.0.1.1");
        peers.push(late);
        let order = order(&turns, &peers).await;
        assert_eq!((order.len(), order.iter().position(|peer| *peer == late)), (32 * MAX_PER_PEER + 1, Some(32)));
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
