//! Creates the token of each request from the signing key and renews it well before it expires.

use http::HeaderValue;
use http::header::HeaderName;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use slurm_jwt::{Claims, SigningKey};
use std::sync::Arc;

/// The header from which slurmrestd reads the token.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-slurm-user-token");

/// Lifetime of a token.
const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

/// Age at which a token is renewed: four fifths of its lifetime.
const RENEW_AFTER: SignedDuration = SignedDuration::from_mins(12);

/// Returns the current time.
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
    created: Timestamp,
}

impl TokenSource {
    /// Tokens for `user`, signed with `key`.
    pub fn new(user: impl Into<String>, key: SigningKey, clock: Clock) -> Self {
        Self { user: user.into(), clock, state: Mutex::new(State { key, current: None }) }
    }

    /// Signs all further tokens with this key.
    pub fn replace_key(&self, key: SigningKey) {
        *self.state.lock() = State { key, current: None };
    }

    /// A token that stays valid for at least three more minutes.
    pub(crate) fn token(&self) -> HeaderValue {
        let now = (self.clock)();
        let mut state = self.state.lock();
        // After the clock was set back, a token must not be used beyond its renewal age.
        let current =
            state.current.take().filter(|token| (token.created..token.created + RENEW_AFTER).contains(&now));
        let token = current.unwrap_or_else(|| Token::mint(&self.user, now, &state.key));
        state.current = Some(token.clone());
        token.value
    }

    /// Discards the current token after Slurm rejected it.
    pub(crate) fn discard(&self) {
        self.state.lock().current = None;
    }
}

impl Token {
    fn mint(user: &str, now: Timestamp, key: &SigningKey) -> Self {
        let token = slurm_jwt::mint(&Claims::new(user, now, LIFETIME), key);
        // Base64 and dots are always a valid header value.
        let mut value = HeaderValue::try_from(token).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        Self { value, created: now }
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
    fn token_is_renewed_after_four_fifths_of_its_lifetime() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        assert_eq!(fixture.token_after(719), first);
        let second = fixture.token_after(720);
        assert_ne!(second, first);
        let claims = parse(second.to_str().unwrap(), &key("old")).unwrap();
        assert_eq!((claims.sun.as_deref(), claims.exp), (Some("slurm"), Some(START + 720 + 900)));
    }

    #[test]
    fn clock_set_back_renews_the_token() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        assert_ne!(fixture.token_after(-60), first);
    }

    #[test]
    fn replaced_key_signs_the_next_token() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        fixture.source.replace_key(key("new"));
        let second = fixture.token_after(1);
        assert!(parse(second.to_str().unwrap(), &key("new")).is_ok());
        assert!(matches!(parse(first.to_str().unwrap(), &key("new")), Err(JwtError::Signature)));
    }

    #[test]
    fn discarded_token_is_not_reused() {
        let fixture = fixture();
        let first = fixture.token_after(0);
        fixture.source.discard();
        assert_ne!(fixture.token_after(1), first);
    }

    #[test]
    fn debug_output_does_not_show_the_token() {
        assert_eq!(format!("{:?}", fixture().token_after(0)), "Sensitive");
    }
}
