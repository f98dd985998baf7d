//! Basic authentication against bcrypt hashes. A hash costs tens of milliseconds on purpose, so one is computed at a time,
//! on a thread of its own, and what it said is kept: a poller asks twenty times a second with the same password.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use ring::digest;
use tokio::sync::Semaphore;

use super::config::Wrong;

/// Answers kept, right ones and wrong ones apart: guessing must not push out who is known.
const KEPT: usize = 100;
/// Requests that may wait for a hash. More of them are turned away.
const MAX_WAITING: usize = 32;
/// The rest of a valid hash of no user's password, compared with where the user is unknown, so that the time does not tell.
const DECOY: &str = "$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

/// `basic_auth_users`: names and bcrypt hashes.
#[derive(Default)]
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// The highest cost of them.
    dearest: u32,
}

impl fmt::Debug for Users {
    /// The names only.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.hashes.keys()).finish()
    }
}

impl Users {
    /// # Errors
    /// With the user whose hash is none.
    pub fn new(hashes: BTreeMap<String, String>) -> Result<Self, Wrong> {
        let mut dearest = 4;
        for (user, hash) in &hashes {
            let wrong = |why: String| {
                let remedy = "make one with `htpasswd -nbBC 10 USER PASSWORD`";
                Wrong::new(format!("basic_auth_users.{user}"), format!("is no bcrypt hash: {why}; {remedy}"))
            };
            let cost = bcrypt::HashParts::from_str(hash).map_err(|error| wrong(error.to_string()))?.get_cost();
            if !(4..=31).contains(&cost) {
                return Err(wrong(format!("cost {cost} is not between 4 and 31")));
            }
            dearest = dearest.max(cost);
        }
        Ok(Self { hashes, dearest })
    }

    /// Whether `hash` is that of `password`. No takes as long whoever the user is.
    fn verify(password: &[u8], hash: &str, dearest: u32) -> bool {
        if bcrypt::verify(password, hash).unwrap_or(false) {
            return true;
        }
        let cost = bcrypt::HashParts::from_str(hash).map_or(dearest, |parts| parts.get_cost());
        for cost in more_rounds(cost, dearest) {
            let _ = bcrypt::verify(password, &decoy(cost));
        }
        false
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// The costs of what makes a hash of `cost` as dear as the dearest: each doubles what was spent before.
const fn more_rounds(cost: u32, dearest: u32) -> std::ops::Range<u32> {
    cost..dearest
}

fn decoy(cost: u32) -> String {
    format!("$2y${cost:02}{DECOY}")
}

/// What a request's credentials are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Welcome,
    Unauthorized,
    /// Too many wait for a hash already.
    Busy,
}

/// Compares passwords, and remembers.
#[derive(Debug)]
pub struct Doorkeeper {
    known: Mutex<Known>,
    /// Makes a remembered password useless outside this process.
    salt: [u8; 32],
    one_at_a_time: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// By a digest of user, hash and password: a changed hash is another question.
#[derive(Debug, Default)]
struct Known {
    right: HashMap<[u8; 32], ()>,
    wrong: HashMap<[u8; 32], ()>,
}

impl Doorkeeper {
    #[must_use]
    pub fn new() -> Self {
        let mut salt = [0; 32];
        // Without randomness the digests are still only in this process's memory.
        let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut salt);
        Self {
            known: Mutex::new(Known::default()),
            salt,
            one_at_a_time: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether `authorization` names one of `users` with the right password.
    pub async fn judge(&self, users: &Users, authorization: Option<&HeaderValue>) -> Verdict {
        let Some((user, password)) = authorization.and_then(credentials) else { return Verdict::Unauthorized };
        let (hash, real) = match users.hashes.get(&user) {
            Some(hash) => (hash.clone(), true),
            None => (decoy(users.dearest), false),
        };
        let dearest = users.dearest;
        let question = self.question(&user, &hash, &password);
        if let Some(verdict) = self.remembered(&question) {
            return verdict;
        }
        let Some(_waiting) = Waiting::enter(&self.waiting) else { return Verdict::Busy };
        let Ok(turn) = Arc::clone(&self.one_at_a_time).acquire_owned().await else { return Verdict::Busy };
        // Whoever waited may find that the one before asked the same.
        if let Some(verdict) = self.remembered(&question) {
            return verdict;
        }
        let compared = tokio::task::spawn_blocking(move || {
            // The turn ends with the hash, even if the one who asked has gone meanwhile.
            let _turn = turn;
            Users::verify(&password, &hash, dearest)
        });
        let right = compared.await.unwrap_or(false) && real;
        self.remember(question, right)
    }

    fn question(&self, user: &str, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.salt);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut question = [0; 32];
        question.copy_from_slice(context.finish().as_ref());
        question
    }

    fn remembered(&self, question: &[u8; 32]) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.right.contains_key(question) {
            return Some(Verdict::Welcome);
        }
        known.wrong.contains_key(question).then_some(Verdict::Unauthorized)
    }

    fn remember(&self, question: [u8; 32], right: bool) -> Verdict {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = if right { &mut known.right } else { &mut known.wrong };
        // Any one makes room: the table's order is random.
        if answers.len() >= KEPT
            && let Some(one) = answers.keys().next().copied()
        {
            answers.remove(&one);
        }
        answers.insert(question, ());
        if right { Verdict::Welcome } else { Verdict::Unauthorized }
    }
}

impl Default for Doorkeeper {
    fn default() -> Self {
        Self::new()
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicUsize) -> Option<Self> {
        let entered = Self(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING).then_some(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    async fn only_the_right_password_of_a_known_user_is_welcome() {
        let (door, users) = (Doorkeeper::new(), users("secret:with colon"));
        let judge = async |user: &str, password: &str| door.judge(&users, Some(&authorization(user, password))).await;
        for _ in 0..2 {
            assert_eq!(judge("ann", "secret:with colon").await, Verdict::Welcome);
            assert_eq!(judge("ann", "secret").await, Verdict::Unauthorized);
            assert_eq!(judge("bob", "secret:with colon").await, Verdict::Unauthorized);
            assert_eq!(judge("", "fakepassword").await, Verdict::Unauthorized, "the decoy's own password");
        }
        assert_eq!(door.judge(&users, None).await, Verdict::Unauthorized);
        for junk in ["Basic", "Basic !", "Basic YQ==", "Bearer YTpi"] {
            assert_eq!(
                door.judge(&users, Some(&HeaderValue::from_static(junk))).await,
                Verdict::Unauthorized,
                "{junk}"
            );
        }
    }

    #[tokio::test]
    async fn a_changed_password_ends_the_old_one_at_once() {
        let door = Doorkeeper::new();
        let old = authorization("ann", "old");
        assert_eq!(door.judge(&users("old"), Some(&old)).await, Verdict::Welcome);
        assert_eq!(door.judge(&users("new"), Some(&old)).await, Verdict::Unauthorized);
    }

    #[tokio::test]
    async fn guessing_neither_grows_memory_nor_pushes_out_who_is_known() {
        let (door, users) = (Doorkeeper::new(), users("secret"));
        door.judge(&users, Some(&authorization("ann", "secret"))).await;
        for guess in 0..KEPT + 50 {
            door.judge(&users, Some(&authorization("ann", &format!("{guess}")))).await;
        }
        let known = door.known.lock().unwrap();
        assert_eq!((known.right.len(), known.wrong.len()), (1, KEPT));
    }

    #[test]
    fn a_wrong_password_costs_what_the_dearest_user_s_does() {
        assert_eq!(users("a").dearest, 4);
        for cost in 4..=12 {
            let spent = |cost: u32| 1_u64 << cost;
            assert_eq!(spent(cost) + more_rounds(cost, 12).map(spent).sum::<u64>(), spent(12), "{cost}");
            assert_eq!(bcrypt::HashParts::from_str(&decoy(cost)).unwrap().get_cost(), cost);
        }
    }
}
