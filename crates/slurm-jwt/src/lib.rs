//! JSON web tokens for Slurm's auth/jwt: HS256, with the user in the claim `sun`.
//!
//! Pure functions: the time is an argument, no I/O.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_with::skip_serializing_none;
use sha2::Sha256;
use std::fmt;

/// The claim `iss` of every token minted here.
pub const ISSUER: &str = "slurm-operator";

/// The longest lifetime of a token: one second less than the value that Slurm reads as "infinite".
pub const MAX_LIFETIME: SignedDuration = SignedDuration::from_secs(2_147_483_646);

/// Why a key or a token is invalid.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// slurmctld does not start with an empty key.
    #[error("the signing key is empty")]
    EmptyKey,
    /// Not three base64 parts with JSON in the first two, or a claim of the wrong type.
    #[error("not a JSON web token")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The algorithm is not HS256.
    #[error("unexpected algorithm {0:?}")]
    Algorithm(String),
    /// Signed with another key, or modified.
    #[error("the signature does not match the key")]
    Signature,
}

/// The key that slurmctld shares with the issuers of tokens. Never printed.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Uses the bytes verbatim: no trimming, no decoding, any length but zero.
    pub fn new(bytes: &[u8]) -> Result<Self, JwtError> {
        if bytes.is_empty() {
            return Err(JwtError::EmptyKey);
        }
        // HMAC accepts keys of any length; only other MACs return this error.
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| JwtError::EmptyKey)
    }

    fn mac(&self, message: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update(message)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey(..)")
    }
}

/// The claims of a token. Times are whole seconds: Slurm rejects fractions.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Issuer.
    pub iss: Option<String>,
    /// Unique id.
    pub jti: Option<String>,
    /// Time of issue.
    pub iat: Option<i64>,
    /// Start of validity.
    pub nbf: Option<i64>,
    /// Expiry.
    pub exp: Option<i64>,
    /// The Slurm user of the token.
    pub sun: Option<String>,
}

impl Claims {
    /// Claims of a new token for `user`, valid from `now`. The lifetime is limited to [`MAX_LIFETIME`].
    pub fn new(user: &str, now: Timestamp, lifetime: SignedDuration) -> Self {
        let issued = now.as_second();
        let lifetime = lifetime.clamp(SignedDuration::ZERO, MAX_LIFETIME);
        Self {
            iss: Some(ISSUER.to_owned()),
            jti: Some(uuid::Uuid::new_v4().to_string()),
            iat: Some(issued),
            nbf: Some(issued),
            exp: Some(issued.saturating_add(lifetime.as_secs())),
            sun: Some(user.to_owned()),
        }
    }

    /// Time of issue, if the token has one.
    pub fn issued_at(&self) -> Option<Timestamp> {
        timestamp(self.iat)
    }

    /// Expiry, if the token has one.
    pub fn expires_at(&self) -> Option<Timestamp> {
        timestamp(self.exp)
    }
}

/// `None` also for seconds outside of the range of `Timestamp`.
fn timestamp(seconds: Option<i64>) -> Option<Timestamp> {
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok())
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Signs a token with these claims.
pub fn mint(claims: &Claims, key: &SigningKey) -> String {
    let header = json!({ "alg": ALGORITHM, "typ": "JWT" });
    let message = format!("{}.{}", encode(&header), encode(claims));
    let signature = key.mac(&message).finalize().into_bytes();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The claims of a token that was signed with `key`, expired or not.
///
/// For inspection, for example of the expiry; not to authenticate a user.
pub fn parse(token: &str, key: &SigningKey) -> Result<Claims, JwtError> {
    let Parts { message, header, claims, signature } = split(token)?;
    let header: Header = decode(header)?;
    if header.alg != ALGORITHM {
        return Err(JwtError::Algorithm(header.alg));
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(malformed)?;
    key.mac(message).verify_slice(&signature).map_err(|_| JwtError::Signature)?;
    decode(claims)
}

/// The claims of a token, whatever its signature: only to report them.
pub fn parse_unverified(token: &str) -> Result<Claims, JwtError> {
    decode(split(token)?.claims)
}

/// The parts of a token.
struct Parts<'a> {
    /// What is signed: header and claims.
    message: &'a str,
    header: &'a str,
    claims: &'a str,
    signature: &'a str,
}

fn split(token: &str) -> Result<Parts<'_>, JwtError> {
    let (message, signature) = token.rsplit_once('.').ok_or_else(|| malformed("fewer than three parts"))?;
    let (header, claims) = message.split_once('.').ok_or_else(|| malformed("fewer than three parts"))?;
    Ok(Parts { message, header, claims, signature })
}

const ALGORITHM: &str = "HS256";

fn encode(part: &impl Serialize) -> String {
    // Strings and numbers only: serialization cannot fail.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(part).unwrap_or_default())
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(malformed)?;
    serde_json::from_slice(&json).map_err(malformed)
}

fn malformed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> JwtError {
    JwtError::Malformed(source.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NOW: i64 = 1_800_000_000;
    const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn key() -> SigningKey {
        SigningKey::new(b"a key of thirty-two bytes, or so").unwrap()
    }

    fn token() -> String {
        mint(&Claims::new("slurm", at(NOW), LIFETIME), &key())
    }

    fn signed(header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = key().mac(&message).finalize().into_bytes();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The example of RFC 7515, appendix A.1.
    #[test]
    fn rfc_7515_example_is_accepted() {
        let key = URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let message = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
            eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let token = format!("{message}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let claims = parse(&token, &SigningKey::new(&key).unwrap()).unwrap();
        assert_eq!((claims.iss.as_deref(), claims.exp), (Some("joe"), Some(1_300_819_380)));
    }

    #[test]
    fn token_has_the_claims_that_slurm_requires() {
        let token = token();
        let parts: Vec<&str> = token.split('.').collect();
        let json = |part: &str| -> serde_json::Value { decode(part).unwrap() };
        assert_eq!(json(parts[0]), serde_json::json!({ "alg": "HS256", "typ": "JWT" }));
        let mut claims = json(parts[1]);
        let id = claims.as_object_mut().unwrap().remove("jti").unwrap();
        assert_eq!(uuid::Uuid::parse_str(id.as_str().unwrap()).unwrap().get_version_num(), 4);
        let expected = serde_json::json!({
            "iss": "slurm-operator", "iat": NOW, "nbf": NOW, "exp": NOW + 900, "sun": "slurm"
        });
        assert_eq!(claims, expected);
    }

    #[test]
    fn tokens_of_the_same_second_differ() {
        assert_ne!(token(), token());
    }

    #[rstest]
    #[case::negative(SignedDuration::from_secs(-5), 0)]
    #[case::above_the_maximum(SignedDuration::MAX, 2_147_483_646)]
    #[case::fraction(SignedDuration::from_millis(1500), 1)]
    fn lifetime_is_limited_to_whole_seconds_within_the_maximum(
        #[case] life: SignedDuration,
        #[case] seconds: i64,
    ) {
        assert_eq!(Claims::new("slurm", at(NOW), life).exp, Some(NOW + seconds));
    }

    #[test]
    fn parsed_token_has_its_expiry() {
        assert_eq!(parse(&token(), &key()).unwrap().expires_at(), Some(at(NOW + 900)));
    }

    #[test]
    fn wrong_key_and_modified_claims_fail_the_signature_check() {
        let other = SigningKey::new(b"x").unwrap();
        let token = token();
        assert!(matches!(parse(&token, &other), Err(JwtError::Signature)));
        assert_eq!(parse_unverified(&token).unwrap(), parse(&token, &key()).unwrap());
        let parts: Vec<&str> = token.split('.').collect();
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sun":"root","exp":4000000000}"#);
        let changed = format!("{}.{claims}.{}", parts[0], parts[2]);
        assert!(matches!(parse(&changed, &key()), Err(JwtError::Signature)));
    }

    #[rstest]
    #[case::empty("")]
    #[case::two_parts("a.b")]
    #[case::not_base64("!.!.!")]
    #[case::not_json("YQ.YQ.YQ")]
    fn invalid_text_is_malformed(#[case] text: &str) {
        assert!(matches!(parse(text, &key()), Err(JwtError::Malformed(_))));
        assert!(matches!(parse_unverified(text), Err(JwtError::Malformed(_))));
    }

    #[rstest]
    #[case::none("none")]
    #[case::longer_hash("HS512")]
    fn other_algorithms_are_rejected(#[case] algorithm: &str) {
        let token = signed(&format!(r#"{{"alg":"{algorithm}"}}"#), "{}");
        assert!(matches!(parse(&token, &key()), Err(JwtError::Algorithm(name)) if name == algorithm));
    }

    #[test]
    fn fractional_expiry_is_malformed() {
        let token = signed(r#"{"alg":"HS256"}"#, r#"{"exp":1800000000.5}"#);
        assert!(matches!(parse(&token, &key()), Err(JwtError::Malformed(_))));
    }

    #[test]
    fn key_is_not_empty_and_never_printed() {
        assert!(matches!(SigningKey::new(b""), Err(JwtError::EmptyKey)));
        assert_eq!(format!("{:?}", key()), "SigningKey(..)");
    }
}
