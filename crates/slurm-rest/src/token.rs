//! The token that goes with each request: made from the signing key when needed, and again well before it expires.

use http::HeaderValue;
use http::header::HeaderName;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use slurm_jwt::{Claims, SigningKey, mint};
use std::fmt;
use std::sync::Arc;

/// Where slurmrestd looks for the token.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-slurm-user-token");

/// How long a token is good.
const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

/// After this time a new one is made: four fifths of its life.
const RENEW_AFTER: SignedDuration = SignedDuration::from_mins(12);

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Tokens for one Slurm user.
pub struct TokenSource {
    user: String,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    key: SigningKey,
    current: Option<Token>,
}

#[derive(Clone)]
struct Token {
    value: HeaderValue,
    made: Timestamp,
}

impl TokenSource {
    /// Tokens for `user`, signed with `key`.
    pub fn new(user: impl Into<String>, key: SigningKey, clock: Clock) -> Self {
        Self { user: user.into(), clock, state: Mutex::new(State { key, current: None }) }
    }

    /// Signs with another key from now on.
    pub fn replace_key(&self, key: SigningKey) {
        *self.state.lock() = State { key, current: None };
    }

    /// A token that is good for some minutes.
    pub(crate) fn token(&self) -> HeaderValue {
        let now = (self.clock)();
        let mut state = self.state.lock();
        // A clock that was set back must not make a token live longer.
        let current =
            state.current.take().filter(|token| (token.made..token.made + RENEW_AFTER).contains(&now));
        let token = current.unwrap_or_else(|| Token::make(&self.user, now, &state.key));
        state.current = Some(token.clone());
        token.value
    }

    /// Forgets the current token: Slurm refused it.
    pub(crate) fn forget(&self) {
        self.state.lock().current = None;
    }
}

impl Token {
    fn make(user: &str, now: Timestamp, key: &SigningKey) -> Self {
        let token = mint(&Claims::new(user, now, LIFETIME), key);
        // Base64 and dots: always a valid header.
        let mut value = HeaderValue::try_from(token).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        Self { value, made: now }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSource").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slurm_jwt::{JwtError, parse};
    use std::sync::atomic::{AtomicI64, Ordering};

    const START: i64 = 1_800_000_000;

    struct Fixture {
        now: Arc<AtomicI64>,
        source: TokenSource,
    }

    fn key(text: &str) -> SigningKey {
        SigningKey::new(text.as_bytes()).unwrap()
    }

    fn fixture() -> Fixture {
        let now = Arc::new(AtomicI64::new(START));
        let shared = now.clone();
        let clock = Arc::new(move || Timestamp::from_second(shared.load(Ordering::Relaxed)).unwrap());
        Fixture { now, source: TokenSource::new("slurm", key("old"), clock) }
    }

    impl Fixture {
        fn token_after(&self, seconds: i64) -> HeaderValue {
            self.now.store(START + seconds, Ordering::Relaxed);
            self.source.token()
        }
    }

    #[test]
    fn one_token_serves_for_four_fifths_of_its_life() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        assert_eq!(fixture.token_after(719), first);
        let second = fixture.token_after(720);
        assert_ne!(second, first);
        let claims = parse(second.to_str().unwrap(), &key("old")).unwrap();
        assert_eq!((claims.sun.as_deref(), claims.exp), (Some("slurm"), Some(START + 720 + 900)));
    }

    #[test]
    fn a_clock_set_back_makes_a_new_token() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        assert_ne!(fixture.token_after(-60), first);
    }

    #[test]
    fn a_new_key_signs_at_once() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        fixture.source.replace_key(key("new"));
        let second = fixture.token_after(1);
        assert!(parse(second.to_str().unwrap(), &key("new")).is_ok());
        assert!(matches!(parse(first.to_str().unwrap(), &key("new")), Err(JwtError::Signature)));
    }

    #[test]
    fn a_refused_token_is_not_used_again() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        fixture.source.forget();
        assert_ne!(fixture.token_after(1), first);
    }

    #[test]
    fn neither_token_nor_key_is_ever_printed() {
        let fixture = fixture();
        assert_eq!(format!("{:?}", fixture.token_after(0)), "Sensitive");
        assert_eq!(format!("{:?}", fixture.source), r#"TokenSource { user: "slurm", .. }"#);
    }
}
