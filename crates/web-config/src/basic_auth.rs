//! Basic authentication with bcrypt hashes. A bcrypt comparison takes tens of milliseconds by design. So only one runs at a
//! time, on a thread for blocking work, and results are cached, because a scraper sends the same password with every request.

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::error::{Error, Refusal};
use crate::turns::{ClientAddress, Turns};

/// The highest cost of a hash that is accepted. A comparison of this cost takes about a second, and other requests wait for it.
/// Each further step doubles the time: a cost of 31 takes a day.
const MAX_COST: u32 = 14;
/// Maximum number of cached results, for right and for wrong passwords each, so that guesses cannot evict right ones.
const CACHED: usize = 100;
/// The end of a valid hash that belongs to no user. Passwords of unknown users are compared with it, so that the response time
/// does not reveal which users exist.
const DECOY: &str = "$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

/// `basic_auth_users`: names and bcrypt hashes.
pub(crate) struct Users {
    hashes: BTreeMap<String, String>,
    /// The highest cost of all hashes.
    max_cost: u32,
}

impl Users {
    /// Fails if a hash is not a bcrypt hash.
    pub(crate) fn new(hashes: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut max_cost = 4;
        for (user, hash) in &hashes {
            let cost = match bcrypt::HashParts::from_str(hash).map(|parts| parts.get_cost()) {
                Ok(cost @ 4..=MAX_COST) => Ok(cost),
                Ok(cost) => Err(format!("cost {cost} is not between 4 and {MAX_COST}")),
                Err(error) => Err(error.to_string()),
            };
            let cost = cost.map_err(|why| {
                let remedy = "create one with `htpasswd -nbBC 10 USER PASSWORD`";
                Error::new(format!("basic_auth_users.{user}"), format!("is not a bcrypt hash: {why}; {remedy}"))
            })?;
            max_cost = max_cost.max(cost);
        }
        Ok(Self { hashes, max_cost })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Compares `password` with `hash`. A wrong password takes equally long for every user.
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

/// The costs of further comparisons, so that all comparisons together take as long as one of `max_cost`. Each doubles the
/// work done so far.
const fn padding_costs(cost: u32, max_cost: u32) -> std::ops::Range<u32> {
    cost..max_cost
}

fn decoy(cost: u32) -> String {
    format!("$2y${cost:02}{DECOY}")
}

/// Checks passwords and caches the results.
#[derive(Default)]
pub(crate) struct BasicAuth {
    cache: Mutex<Cache>,
    turns: Turns,
}

/// Digests of user, hash and password. A changed hash has another digest, so a reload does not have to clear the cache.
#[derive(Default)]
struct Cache {
    accepted: HashSet<Vec<u8>>,
    rejected: HashSet<Vec<u8>>,
}

impl BasicAuth {
    /// Checks the `Authorization` header of a request from `client`. Without users, every request is accepted.
    pub(crate) async fn check(
        self: &Arc<Self>,
        users: &Users,
        authorization: Option<&HeaderValue>,
        client: ClientAddress,
    ) -> Result<(), Refusal> {
        if users.is_empty() {
            return Ok(());
        }
        let (user, password) = authorization.and_then(credentials).ok_or(Refusal::Unauthorized)?;
        let (hash, known_user) = match users.hashes.get(&user) {
            Some(hash) => (hash.clone(), true),
            None => (decoy(users.max_cost), false),
        };
        // Neither a user nor a hash contains a colon, so different inputs have different digests.
        let digest = digest(&SHA256, &[user.as_bytes(), hash.as_bytes(), &password].join(&b':')).as_ref().to_vec();
        let result = |accepted: bool| if accepted { Ok(()) } else { Err(Refusal::Unauthorized) };
        if let Some(accepted) = self.cached(&digest) {
            return result(accepted);
        }
        let turn = self.turns.wait(client).await.ok_or(Refusal::Overloaded)?;
        // A request that waited before this one may have had the same password.
        if let Some(accepted) = self.cached(&digest) {
            return result(accepted);
        }
        let (auth, max_cost) = (Arc::clone(self), users.max_cost);
        let compared = tokio::task::spawn_blocking(move || {
            // This continues even if the client disconnects. So the turn lasts as long as the comparison, and the result is kept.
            let _turn = turn;
            let accepted = verify(&password, &hash, max_cost) && known_user;
            auth.turns.compared(client, accepted);
            auth.store(digest, accepted);
            accepted
        });
        result(compared.await.unwrap_or(false))
    }

    /// Whether the password was accepted before. `None` if it was not compared yet.
    fn cached(&self, digest: &[u8]) -> Option<bool> {
        let cache = self.cache.lock();
        if cache.accepted.contains(digest) {
            return Some(true);
        }
        cache.rejected.contains(digest).then_some(false)
    }

    fn store(&self, digest: Vec<u8>, accepted: bool) {
        let mut cache = self.cache.lock();
        let digests = if accepted { &mut cache.accepted } else { &mut cache.rejected };
        // Evicts any entry: the order of a set is random.
        if digests.len() >= CACHED
            && let Some(one) = digests.iter().next().cloned()
        {
            digests.remove(&one);
        }
        digests.insert(digest);
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
    use std::task::Poll;

    use super::*;

    const UNAUTHORIZED: Result<(), Refusal> = Err(Refusal::Unauthorized);

    fn authorization(user: &str, password: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).unwrap()
    }

    fn users(password: &str) -> Users {
        let hash = bcrypt::hash_with_salt(password, 4, *b"sixteen bytes---").unwrap().to_string();
        Users::new(BTreeMap::from([("ann".to_owned(), hash)])).unwrap()
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_authorized() {
        let (auth, users) = (Arc::new(BasicAuth::default()), users("secret:with colon"));
        let check = async |user: &str, password: &str| {
            auth.check(&users, Some(&authorization(user, password)), ClientAddress::default()).await
        };
        for _ in 0..2 {
            assert_eq!(check("ann", "secret:with colon").await, Ok(()));
            assert_eq!(check("ann", "secret").await, UNAUTHORIZED);
            assert_eq!(check("bob", "secret:with colon").await, UNAUTHORIZED);
            assert_eq!(check("", "fakepassword").await, UNAUTHORIZED, "the decoy's own password");
        }
        assert_eq!(auth.check(&users, None, ClientAddress::default()).await, UNAUTHORIZED);
        for junk in ["Basic", "Basic !", "Basic YQ==", "Bearer YTpi"] {
            assert_eq!(
                auth.check(&users, Some(&HeaderValue::from_static(junk)), ClientAddress::default()).await,
                UNAUTHORIZED,
                "{junk}"
            );
        }
    }

    #[tokio::test]
    async fn a_changed_password_invalidates_the_old_one_at_once() {
        let auth = Arc::new(BasicAuth::default());
        let old = authorization("ann", "old");
        assert_eq!(auth.check(&users("old"), Some(&old), ClientAddress::default()).await, Ok(()));
        assert_eq!(auth.check(&users("new"), Some(&old), ClientAddress::default()).await, UNAUTHORIZED);
    }

    #[tokio::test]
    async fn guessing_neither_grows_memory_nor_evicts_valid_passwords() {
        let (auth, users) = (Arc::new(BasicAuth::default()), users("secret"));
        let check = async |password: &str| {
            auth.check(&users, Some(&authorization("ann", password)), ClientAddress::default()).await
        };
        check("secret").await.unwrap();
        for guess in 0..CACHED + 50 {
            check(&guess.to_string()).await.unwrap_err();
        }
        let cache = auth.cache.lock();
        assert_eq!((cache.accepted.len(), cache.rejected.len()), (1, CACHED));
    }

    #[test]
    fn the_result_of_a_comparison_is_kept_if_the_client_disconnects() {
        let (auth, users) = (Arc::new(BasicAuth::default()), users("secret"));
        let (right, client) = (authorization("ann", "secret"), ClientAddress::default());
        // The only thread that can compare is busy until the client has disconnected. Otherwise a fast comparison might
        // end before that.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (disconnected, busy) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async {
            let mut check = Box::pin(auth.check(&users, Some(&right), client));
            let first = std::future::poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
            assert_eq!(first, Poll::Pending);
            drop(check);
            drop(disconnected);
            let _after_the_comparison = auth.turns.wait(client).await;
        });
        assert_eq!(auth.cache.lock().accepted.len(), 1);
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
