//! Who calls: checks ServiceAccount tokens by TokenReview, and remembers the answers.
//!
//! An accepted token is remembered until it expires, a refused one for a moment. The unknown tokens of one address are
//! reviewed at a limited rate, so that a caller without a valid token neither makes this process flood the API server nor
//! keeps others from being authenticated.

use super::args::ServiceAccount;
use super::metrics::AUTHENTICATIONS;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Api;
use kube::api::PostParams;
use operator_runtime::Runtime;
use operator_runtime::error::chain;
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::future::ready;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

/// The audience that tokens must have been made for.
const AUDIENCE: &str = "expectations.slinky.slurm.net";
/// How long a refused token is remembered.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long an accepted token is remembered that does not tell when it expires.
const UNKNOWN_EXPIRY: Duration = Duration::from_secs(10);
/// How long a call waits for a TokenReview: less than the time limit of a replica's call.
const ANSWER_LIMIT: Duration = Duration::from_millis(1_500);
/// Time limit of a TokenReview. Its outcome is there for the next call, even if it was too late for the first.
const REVIEW_LIMIT: Duration = Duration::from_secs(10);
/// Reviews per second and address.
const REVIEWS: NonZeroU32 = NonZeroU32::new(20).unwrap();
/// How many tokens are remembered.
const CAPACITY: usize = 1_000;

/// A caller whose token was accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// The user name of its service account.
    pub user: Arc<str>,
    /// When its token expires.
    pub valid_until: Instant,
}

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    Rejected(String),
    Forbidden(String),
    TooManyReviews,
    ReviewFailed(String),
}

impl Refusal {
    fn status(&self) -> Status {
        match self {
            Self::NoToken => Status::unauthenticated("a ServiceAccount token is missing"),
            Self::Rejected(why) => Status::unauthenticated(format!("the token was rejected: {why}")),
            Self::Forbidden(user) => Status::permission_denied(format!("{user} may not call this service")),
            Self::TooManyReviews => {
                Status::resource_exhausted("too many unknown tokens from this address: repeat the call later")
            }
            Self::ReviewFailed(why) => Status::unavailable(format!("the token could not be reviewed: {why}")),
        }
    }

    /// The `outcome` label of metrics.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::NoToken => "missing",
            Self::Rejected(_) => "rejected",
            Self::Forbidden(_) => "forbidden",
            Self::TooManyReviews => "limited",
            Self::ReviewFailed(_) => "failed",
        }
    }
}

/// Checks tokens.
pub struct Authenticator {
    runtime: Runtime,
    reviews: Api<TokenReview>,
    /// User names of the accounts that may call.
    users: Vec<String>,
    tokens: Mutex<Tokens>,
    rate: DefaultKeyedRateLimiter<IpAddr>,
}

type Outcome = Result<Caller, Refusal>;

#[derive(Default)]
struct Tokens {
    known: Known,
    /// Reviews in progress, so that calls that arrive together share one.
    under_review: BTreeMap<Hash, Shared<BoxFuture<'static, Outcome>>>,
}

/// The SHA-256 of a token.
type Hash = [u8; 32];

/// What is remembered of tokens, by their hash.
#[derive(Debug, Default)]
struct Known(BTreeMap<Hash, (Outcome, Instant)>);

impl Known {
    fn get(&self, token: &Hash, now: Instant) -> Option<Outcome> {
        self.0.get(token).filter(|(_, until)| now < *until).map(|(outcome, _)| outcome.clone())
    }

    fn insert(&mut self, token: Hash, outcome: Outcome, now: Instant) {
        let until = match &outcome {
            Ok(caller) => caller.valid_until,
            Err(_) => now + REFUSED_FOR,
        };
        if self.0.len() >= CAPACITY {
            self.0.retain(|_, (_, until)| now < *until);
        }
        // Still full: refused tokens make room, they are reviewed again if need be.
        if self.0.len() >= CAPACITY {
            self.0.retain(|_, (outcome, _)| outcome.is_ok());
        }
        if self.0.len() < CAPACITY {
            self.0.insert(token, (outcome, until));
        }
    }
}

impl Authenticator {
    /// Accepts tokens of these accounts.
    pub fn new(runtime: &Runtime, accounts: &[ServiceAccount]) -> Self {
        Self {
            runtime: runtime.clone(),
            reviews: Api::all(runtime.no_retry_client()),
            users: accounts.iter().map(ServiceAccount::user).collect(),
            tokens: Mutex::default(),
            rate: RateLimiter::keyed(Quota::per_second(REVIEWS)),
        }
    }

    /// Forgets addresses that sent no unknown token for a while.
    pub fn forget_idle(&self) {
        self.rate.retain_recent();
        self.rate.shrink_to_fit();
    }

    /// The caller with the token in these headers, at this address.
    pub async fn authenticate(self: &Arc<Self>, headers: &HeaderMap, peer: IpAddr) -> Result<Caller, Status> {
        let outcome = self.check(headers, peer).await;
        AUTHENTICATIONS.count(outcome.as_ref().map_or_else(Refusal::outcome, |_| "accepted"));
        outcome.map_err(|refusal| refusal.status())
    }

    async fn check(self: &Arc<Self>, headers: &HeaderMap, peer: IpAddr) -> Outcome {
        let token = bearer_token(headers).ok_or(Refusal::NoToken)?;
        let hash: Hash = Sha256::digest(token).into();
        let review = self.known_or_reviewed(hash, token, peer)?;
        tokio::time::timeout(ANSWER_LIMIT, review).await.unwrap_or_else(|_| Err(unanswered()))
    }

    /// The outcome of a review: an earlier one, one in progress, or a new one.
    fn known_or_reviewed(
        self: &Arc<Self>,
        hash: Hash,
        token: &str,
        peer: IpAddr,
    ) -> Result<Shared<BoxFuture<'static, Outcome>>, Refusal> {
        let mut tokens = self.tokens.lock();
        if let Some(known) = tokens.known.get(&hash, Instant::now()) {
            return Ok(ready(known).boxed().shared());
        }
        if let Some(review) = tokens.under_review.get(&hash) {
            return Ok(review.clone());
        }
        self.rate.check_key(&peer).map_err(|_| Refusal::TooManyReviews)?;
        let (this, token) = (self.clone(), token.to_owned());
        // A task, so that it ends even if all its callers are gone.
        let (sender, outcome) = oneshot::channel();
        self.runtime.spawn("token review", async move {
            let outcome = this.review(&token).await;
            let mut tokens = this.tokens.lock();
            tokens.under_review.remove(&hash);
            if !matches!(outcome, Err(Refusal::ReviewFailed(_))) {
                tokens.known.insert(hash, outcome.clone(), Instant::now());
            }
            let _ = sender.send(outcome);
        });
        let aborted = |_| Err(Refusal::ReviewFailed("this process stops".to_owned()));
        let review = outcome.map(move |outcome| outcome.unwrap_or_else(aborted)).boxed().shared();
        tokens.under_review.insert(hash, review.clone());
        Ok(review)
    }

    async fn review(&self, token: &str) -> Outcome {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let params = PostParams::default();
        let answer = tokio::time::timeout(REVIEW_LIMIT, self.reviews.create(&params, &review)).await;
        let answer = answer.map_err(|_| unanswered())?;
        let answer = answer.map_err(|error| Refusal::ReviewFailed(chain(&error)))?;
        let user = accepted_user(answer.status.unwrap_or_default(), &self.users)?;
        let left = expiry(token).map(|expiry| expiry.duration_since(now()));
        let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(UNKNOWN_EXPIRY);
        Ok(Caller { user: user.into(), valid_until: Instant::now() + left })
    }
}

fn unanswered() -> Refusal {
    Refusal::ReviewFailed("the API server did not answer in time".to_owned())
}

/// The user of a reviewed token, if it may call.
fn accepted_user(review: TokenReviewStatus, users: &[String]) -> Result<String, Refusal> {
    if review.authenticated != Some(true) {
        return Err(Refusal::Rejected(review.error.unwrap_or_else(|| "it is not valid".to_owned())));
    }
    if !review.audiences.iter().flatten().any(|audience| audience == AUDIENCE) {
        return Err(Refusal::Rejected("it was made for another audience".to_owned()));
    }
    let user = review.user.and_then(|user| user.username).unwrap_or_default();
    if users.contains(&user) { Ok(user) } else { Err(Refusal::Forbidden(user)) }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// When a token that the API server accepted expires.
fn expiry(token: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let Claims { exp } = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(exp).ok()
}

#[expect(clippy::disallowed_methods, reason = "tokens expire in wall-clock time")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::{
        AUDIENCE, CAPACITY, Caller, Known, REFUSED_FOR, Refusal, accepted_user, bearer_token, expiry,
    };
    use axum::http::HeaderMap;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jiff::Timestamp;
    use k8s_openapi::api::authentication::v1::TokenReviewStatus;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::time::Duration;
    use tokio::time::Instant;

    const USER: &str = "system:serviceaccount:slinky:nodesets";

    fn review(status: Value) -> Result<String, Refusal> {
        let status: TokenReviewStatus = serde_json::from_value(status).unwrap();
        accepted_user(status, &[USER.to_owned()])
    }

    #[test]
    fn token_of_a_configured_account_is_accepted() {
        let user = json!({ "username": USER });
        let status = json!({ "authenticated": true, "audiences": ["other", AUDIENCE], "user": user });
        assert_eq!(review(status).as_deref(), Ok(USER));
    }

    #[rstest]
    #[case::not_authenticated(json!({ "error": "expired" }), Refusal::Rejected("expired".into()))]
    #[case::without_error(json!({ "authenticated": false }), Refusal::Rejected("it is not valid".into()))]
    #[case::another_audience(
        json!({ "authenticated": true, "audiences": ["other"], "user": { "username": USER } }),
        Refusal::Rejected("it was made for another audience".into())
    )]
    #[case::no_audience(
        json!({ "authenticated": true, "user": { "username": USER } }),
        Refusal::Rejected("it was made for another audience".into())
    )]
    #[case::another_account(
        json!({ "authenticated": true, "audiences": [AUDIENCE], "user": { "username": "root" } }),
        Refusal::Forbidden("root".into())
    )]
    fn other_tokens_are_refused(#[case] status: Value, #[case] refusal: Refusal) {
        assert_eq!(review(status), Err(refusal));
    }

    #[rstest]
    #[case("Bearer abc", Some("abc"))]
    #[case("bearer  abc ", Some("abc"))]
    #[case("Basic abc", None)]
    #[case("Bearer ", None)]
    #[case("abc", None)]
    fn token_is_that_of_the_bearer_scheme(#[case] header: &str, #[case] token: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        assert_eq!(bearer_token(&headers), token);
    }

    #[test]
    fn expiry_is_read_from_the_claims() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"exp":1800000000}"#);
        assert_eq!(expiry(&format!("h.{claims}.s")), Some(Timestamp::constant(1_800_000_000, 0)));
        assert_eq!(expiry("opaque"), None);
        assert_eq!(expiry("a.b.c"), None);
    }

    #[test]
    fn accepted_tokens_are_remembered_until_they_expire_and_refused_ones_for_a_moment() {
        let (mut known, now) = (Known::default(), Instant::now());
        let until = now + Duration::from_hours(1);
        let caller = Caller { user: USER.into(), valid_until: until };
        known.insert([1; 32], Ok(caller.clone()), now);
        known.insert([2; 32], Err(Refusal::NoToken), now);
        assert_eq!(known.get(&[1; 32], until - Duration::from_secs(1)), Some(Ok(caller)));
        assert_eq!(known.get(&[1; 32], until), None);
        assert_eq!(known.get(&[2; 32], now), Some(Err(Refusal::NoToken)));
        assert_eq!(known.get(&[2; 32], now + REFUSED_FOR), None);
        assert_eq!(known.get(&[3; 32], now), None);
    }

    #[test]
    fn refused_tokens_never_displace_accepted_ones() {
        let (mut known, now) = (Known::default(), Instant::now());
        let caller = Caller { user: USER.into(), valid_until: now + Duration::from_hours(1) };
        known.insert([255; 32], Ok(caller.clone()), now);
        for number in 0..u32::try_from(CAPACITY).unwrap() * 3 {
            let mut token = [0; 32];
            token[..4].copy_from_slice(&number.to_be_bytes());
            known.insert(token, Err(Refusal::NoToken), now);
            assert!(known.0.len() <= CAPACITY);
        }
        assert_eq!(known.get(&[255; 32], now), Some(Ok(caller)));
    }
}
