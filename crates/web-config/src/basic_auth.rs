//! Basic authentication with bcrypt hashes. A bcrypt comparison takes tens of milliseconds by design. So only one runs at a
//! time, on a thread for blocking work. A scraper sends the same password with every request, so right ones are remembered.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::{self, Semaphore};

use crate::error::{Error, Refusal};

/// The highest cost of a hash that is accepted. A comparison of this cost takes about a second, and other requests wait for it.
/// Each further step doubles the time: a cost of 31 takes a day.
const MAX_COST: u32 = 14;
/// Maximum number of requests that wait for a comparison, including the running one. With more, guesses could use up all
/// connections of a server.
const MAX_WAITING: usize = 32;
/// The end of a valid hash that belongs to no user. Passwords of unknown users are compared with it, so that the response time
/// does not reveal which users exist.
const DECOY: &str = "$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

/// `basic_auth_users`, and which passwords were right. Each load of the file makes a new value, so a reload forgets them.
pub(crate) struct Users {
    users: BTreeMap<String, User>,
    /// The highest cost of all hashes.
    max_cost: u32,
    /// A random key for the digests of passwords, so that a digest alone cannot be looked up in a list.
    key: hmac::Key,
}

struct User {
    hash: String,
    /// Digest of the password that was right. Wrong ones are not remembered, so they cannot replace it.
    accepted: Mutex<Option<hmac::Tag>>,
}

/// The queue of comparisons. tokio's mutex is fair: requests lock it in the order in which they ask.
pub(crate) struct Comparisons {
    waiting: Semaphore,
    running: Arc<sync::Mutex<()>>,
}

impl Default for Comparisons {
    fn default() -> Self {
        Self { waiting: Semaphore::new(MAX_WAITING), running: Arc::default() }
    }
}

impl Users {
    /// Fails if a hash is not a bcrypt hash.
    pub(crate) fn new(hashes: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut max_cost = 4;
        for (user, hash) in &hashes {
            let cost = match bcrypt::HashParts::from_str(hash).map(|parts| parts.get_cost()) {
                Ok(cost @ 4..=MAX_COST) => Ok(cost),
                Ok(cost) => Err(format!("has the bcrypt cost {cost}, and this server supports 4 to {MAX_COST}")),
                Err(error) => Err(format!("is not a bcrypt hash: {error}")),
            };
            let cost = cost.map_err(|why| {
                let remedy = "create one with `htpasswd -nbBC 10 USER PASSWORD`";
                Error::new(format!("basic_auth_users.{user}"), format!("{why}; {remedy}"))
            })?;
            max_cost = max_cost.max(cost);
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| Error::without_key("the system has no random numbers; check getrandom(2) and /dev/urandom"))?;
        let users = hashes.into_iter().map(|(name, hash)| (name, User { hash, accepted: Mutex::default() })).collect();
        Ok(Self { users, max_cost, key })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Checks the `Authorization` header of a request. Without users, every request is accepted.
    pub(crate) async fn check(
        self: &Arc<Self>,
        comparisons: &Comparisons,
        authorization: Option<&HeaderValue>,
    ) -> Result<(), Refusal> {
        if self.is_empty() {
            return Ok(());
        }
        let (name, password) = authorization.and_then(credentials).ok_or(Refusal::Unauthorized)?;
        if self.was_accepted(&name, &password) {
            return Ok(());
        }
        let _waiting = comparisons.waiting.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let turn = Arc::clone(&comparisons.running).lock_owned().await;
        // A request that waited before this one may have had the same password.
        if self.was_accepted(&name, &password) {
            return Ok(());
        }
        let users = Arc::clone(self);
        let compared = tokio::task::spawn_blocking(move || {
            // This continues even if the client disconnects. So the turn lasts as long as the comparison, and the result is kept.
            let _turn = turn;
            users.compare(&name, &password)
        });
        if compared.await.unwrap_or(false) { Ok(()) } else { Err(Refusal::Unauthorized) }
    }

    fn was_accepted(&self, name: &str, password: &[u8]) -> bool {
        let accepted = self.users.get(name).and_then(|user| *user.accepted.lock());
        accepted.is_some_and(|tag| hmac::verify(&self.key, password, tag.as_ref()).is_ok())
    }

    /// Compares `password` with the hash of the user, and remembers it if it is right. A wrong password takes equally long for
    /// every user.
    fn compare(&self, name: &str, password: &[u8]) -> bool {
        let user = self.users.get(name);
        let hash = user.map_or_else(|| decoy(self.max_cost), |user| user.hash.clone());
        if bcrypt::verify(password, &hash).unwrap_or(false) {
            if let Some(user) = user {
                *user.accepted.lock() = Some(hmac::sign(&self.key, password));
            }
            return user.is_some();
        }
        let cost = bcrypt::HashParts::from_str(&hash).map_or(self.max_cost, |parts| parts.get_cost());
        for cost in padding_costs(cost, self.max_cost) {
            let _ = bcrypt::verify(password, &decoy(cost));
        }
        false
    }
}

/// The costs of further comparisons, so that all comparisons together take as long as one of `max_cost`. Each doubles the
/// work done so far.
const fn padding_costs(cost: u32, max_cost: u32) -> std::ops::Range<u32> {
    cost..max_cost
}

fn decoy(cost: u32) -> String {
    format!("$2y${cost:02}{DECOY}")
}

fn credentials(authorization: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = authorization.as_bytes().split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut user = STANDARD.decode(encoded).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.truncate(colon);
    Some((String::from_utf8(user).ok()?, password))
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const UNAUTHORIZED: Result<(), Refusal> = Err(Refusal::Unauthorized);

    fn authorization(user: &str, password: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).unwrap()
    }

    fn users(password: &str) -> Arc<Users> {
        let hash = bcrypt::hash_with_salt(password, 4, *b"sixteen bytes---").unwrap().to_string();
        Arc::new(Users::new(BTreeMap::from([("ann".to_owned(), hash)])).unwrap())
    }

    fn accepted(users: &Users) -> Option<Vec<u8>> {
        users.users["ann"].accepted.lock().map(|tag| tag.as_ref().to_vec())
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_authorized() {
        let (users, comparisons) = (users("secret:with colon"), Comparisons::default());
        let check =
            async |user: &str, password: &str| users.check(&comparisons, Some(&authorization(user, password))).await;
        for _ in 0..2 {
            assert_eq!(check("ann", "secret:with colon").await, Ok(()));
            assert_eq!(check("ann", "secret").await, UNAUTHORIZED);
            assert_eq!(check("bob", "secret:with colon").await, UNAUTHORIZED);
            assert_eq!(check("", "fakepassword").await, UNAUTHORIZED, "the decoy's own password");
        }
        assert_eq!(users.check(&comparisons, None).await, UNAUTHORIZED);
        for junk in ["Basic", "Basic !", "Basic YQ==", "Bearer YTpi"] {
            let junk = HeaderValue::from_static(junk);
            assert_eq!(users.check(&comparisons, Some(&junk)).await, UNAUTHORIZED, "{junk:?}");
        }
    }

    #[tokio::test]
    async fn only_the_digest_of_a_right_password_is_kept_and_each_load_has_its_own_key() {
        let comparisons = Comparisons::default();
        let mut digests = Vec::new();
        for users in [users("secret"), users("secret")] {
            users.check(&comparisons, Some(&authorization("ann", "guess"))).await.unwrap_err();
            assert_eq!(accepted(&users), None);
            users.check(&comparisons, Some(&authorization("ann", "secret"))).await.unwrap();
            digests.extend(accepted(&users));
            for guess in 0..100 {
                users.check(&comparisons, Some(&authorization("ann", &guess.to_string()))).await.unwrap_err();
            }
            assert_eq!(accepted(&users).as_ref(), digests.last(), "a guess replaced the right password");
        }
        assert_eq!(digests.len(), 2);
        assert_ne!(digests[0], digests[1]);
    }

    #[test]
    fn the_result_of_a_comparison_is_kept_if_the_client_disconnects() {
        let (users, comparisons, right) = (users("secret"), Comparisons::default(), authorization("ann", "secret"));
        // The only thread that can compare is busy until the client has disconnected. Otherwise a fast comparison might
        // end before that.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (disconnected, busy) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async {
            let mut check = Box::pin(users.check(&comparisons, Some(&right)));
            let first = std::future::poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
            assert_eq!(first, Poll::Pending);
            drop(check);
            assert!(comparisons.running.try_lock().is_err(), "another comparison could start");
            drop(disconnected);
            let _after_the_comparison = comparisons.running.lock().await;
        });
        assert!(accepted(&users).is_some());
    }

    #[tokio::test]
    async fn a_client_that_disconnects_while_it_waits_does_not_stop_the_queue() {
        let (users, comparisons) = (users("secret"), Comparisons::default());
        let comparing = comparisons.running.lock().await;
        let right = authorization("ann", "secret");
        let mut check = Box::pin(users.check(&comparisons, Some(&right)));
        let first = std::future::poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
        assert_eq!(first, Poll::Pending);
        drop((check, comparing));
        assert_eq!(users.check(&comparisons, Some(&right)).await, Ok(()));
    }

    #[test]
    fn a_wrong_password_takes_equally_long_for_every_user() {
        assert_eq!(users("a").max_cost, 4);
        for cost in 4..=12 {
            let spent = |cost: u32| 1_u64 << cost;
            assert_eq!(spent(cost) + padding_costs(cost, 12).map(spent).sum::<u64>(), spent(12), "{cost}");
            assert_eq!(bcrypt::HashParts::from_str(&decoy(cost)).unwrap().get_cost(), cost);
        }
    }
}
