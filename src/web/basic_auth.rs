//! Basic authentication against bcrypt hashes. A bcrypt comparison takes tens of milliseconds by design. So one runs at a
//! time, on a blocking thread, and the verdict is cached: a scraper sends the same password with every request.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use super::turns::{Peer, Turns};

/// Cached verdicts of each kind. Guesses have their own cache, so they cannot evict valid passwords.
const CACHED: usize = 100;
/// The end of a valid hash that belongs to no user. Unknown users are compared with it, so that the response time does not
/// reveal which users exist.
const DECOY: &str = "$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

/// `basic_auth_users`: names and bcrypt hashes.
#[derive(Default)]
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// The highest cost of all hashes.
    max_cost: u32,
}

/// A user whose password hash is not a bcrypt hash.
#[derive(Debug, thiserror::Error)]
#[error("is not a bcrypt hash: {why}; create one with `htpasswd -nbBC 10 USER PASSWORD`")]
pub struct BadHash {
    pub user: String,
    pub why: String,
}

impl fmt::Debug for Users {
    /// Shows the names only.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.hashes.keys()).finish()
    }
}

impl Users {
    /// # Errors
    /// When a hash is not a bcrypt hash.
    pub fn new(hashes: BTreeMap<String, String>) -> Result<Self, BadHash> {
        let mut max_cost = 4;
        for (user, hash) in &hashes {
            let bad = |why: String| BadHash { user: user.clone(), why };
            let cost = bcrypt::HashParts::from_str(hash).map_err(|error| bad(error.to_string()))?.get_cost();
            if !(4..=31).contains(&cost) {
                return Err(bad(format!("cost {cost} is not between 4 and 31")));
            }
            max_cost = max_cost.max(cost);
        }
        Ok(Self { hashes, max_cost })
    }

    /// Compares `password` with `hash`. A mismatch takes equally long for every user.
    fn verify(password: &[u8], hash: &str, max_cost: u32) -> bool {
        if bcrypt::verify(password, hash).unwrap_or(false) {
            return true;
        }
        let cost = bcrypt::HashParts::from_str(hash).map_or(max_cost, |parts| parts.get_cost());
        for cost in padding_costs(cost, max_cost) {
            let _ = bcrypt::verify(password, &decoy(cost));
        }
        false
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// The costs of further comparisons that add up to one of `max_cost`: each one doubles the work done before.
const fn padding_costs(cost: u32, max_cost: u32) -> std::ops::Range<u32> {
    cost..max_cost
}

fn decoy(cost: u32) -> String {
    format!("$2y${cost:02}{DECOY}")
}

/// The result of checking a request's credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Authorized,
    Unauthorized,
    /// Too many requests wait for a comparison already.
    Busy,
}

/// Checks passwords and caches the verdicts.
#[derive(Debug, Default)]
pub struct BasicAuth {
    cache: Mutex<Verdicts>,
    turns: Turns,
}

/// Digests of user, hash and password. A changed hash gives another digest, so a reload needs no invalidation.
#[derive(Debug, Default)]
struct Verdicts {
    accepted: HashSet<Vec<u8>>,
    rejected: HashSet<Vec<u8>>,
}

impl BasicAuth {
    /// Checks the `Authorization` header of `peer` against `users`.
    pub async fn check(&self, users: &Users, authorization: Option<&HeaderValue>, peer: Peer) -> Verdict {
        let Some((user, password)) = authorization.and_then(credentials) else { return Verdict::Unauthorized };
        let (hash, known_user) = match users.hashes.get(&user) {
            Some(hash) => (hash.clone(), true),
            None => (decoy(users.max_cost), false),
        };
        let max_cost = users.max_cost;
        // Neither a user nor a hash contains a colon.
        let digest = digest(&SHA256, &[user.as_bytes(), hash.as_bytes(), &password].join(&b':')).as_ref().to_vec();
        if let Some(verdict) = self.cached(&digest) {
            return verdict;
        }
        let Some(turn) = self.turns.wait(peer).await else { return Verdict::Busy };
        // A request that waited before this one may have had the same password.
        if let Some(verdict) = self.cached(&digest) {
            return verdict;
        }
        let compared = tokio::task::spawn_blocking(move || {
            // Held until the comparison ends, even if the client disconnects meanwhile.
            let _turn = turn;
            Users::verify(&password, &hash, max_cost)
        });
        let accepted = compared.await.unwrap_or(false) && known_user;
        self.turns.compared(peer, accepted);
        self.store(digest, accepted)
    }

    fn cached(&self, digest: &[u8]) -> Option<Verdict> {
        let cache = self.cache.lock();
        if cache.accepted.contains(digest) {
            return Some(Verdict::Authorized);
        }
        cache.rejected.contains(digest).then_some(Verdict::Unauthorized)
    }

    fn store(&self, digest: Vec<u8>, accepted: bool) -> Verdict {
        let mut cache = self.cache.lock();
        let verdicts = if accepted { &mut cache.accepted } else { &mut cache.rejected };
        // Evict any entry: the set's order is random.
        if verdicts.len() >= CACHED
            && let Some(one) = verdicts.iter().next().cloned()
        {
            verdicts.remove(&one);
        }
        verdicts.insert(digest);
        if accepted { Verdict::Authorized } else { Verdict::Unauthorized }
    }
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
    use super::*;

    fn authorization(user: &str, password: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).unwrap()
    }

    fn users(password: &str) -> Users {
        let hash = bcrypt::hash_with_salt(password, 4, *b"sixteen bytes---").unwrap().to_string();
        Users::new(BTreeMap::from([("ann".to_owned(), hash)])).unwrap()
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_authorized() {
        let (auth, users) = (BasicAuth::default(), users("secret:with colon"));
        let check = async |user: &str, password: &str| {
            auth.check(&users, Some(&authorization(user, password)), Peer::default()).await
        };
        for _ in 0..2 {
            assert_eq!(check("ann", "secret:with colon").await, Verdict::Authorized);
            assert_eq!(check("ann", "secret").await, Verdict::Unauthorized);
            assert_eq!(check("bob", "secret:with colon").await, Verdict::Unauthorized);
            assert_eq!(check("", "fakepassword").await, Verdict::Unauthorized, "the decoy's own password");
        }
        assert_eq!(auth.check(&users, None, Peer::default()).await, Verdict::Unauthorized);
        for junk in ["Basic", "Basic !", "Basic YQ==", "Bearer YTpi"] {
            assert_eq!(
                auth.check(&users, Some(&HeaderValue::from_static(junk)), Peer::default()).await,
                Verdict::Unauthorized,
                "{junk}"
            );
        }
    }

    #[tokio::test]
    async fn a_changed_password_invalidates_the_old_one_at_once() {
        let auth = BasicAuth::default();
        let old = authorization("ann", "old");
        assert_eq!(auth.check(&users("old"), Some(&old), Peer::default()).await, Verdict::Authorized);
        assert_eq!(auth.check(&users("new"), Some(&old), Peer::default()).await, Verdict::Unauthorized);
    }

    #[tokio::test]
    async fn guessing_neither_grows_memory_nor_evicts_valid_passwords() {
        let (auth, users) = (BasicAuth::default(), users("secret"));
        auth.check(&users, Some(&authorization("ann", "secret")), Peer::default()).await;
        for guess in 0..CACHED + 50 {
            auth.check(&users, Some(&authorization("ann", &format!("{guess}"))), Peer::default()).await;
        }
        let cache = auth.cache.lock();
        assert_eq!((cache.accepted.len(), cache.rejected.len()), (1, CACHED));
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
