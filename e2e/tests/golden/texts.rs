//! Hides comments, keys and scripts in the files of ConfigMaps and Secrets.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

static PUBLIC_KEY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]{40,}").unwrap());

/// A file of a ConfigMap.
pub fn file(name: &str, text: &str) -> String {
    if text.starts_with("#!") {
        return script(name);
    }
    let line = |line: &str| {
        if line.trim_start().starts_with('#') { "<comment>".to_owned() } else { line.to_owned() }
    };
    if text.contains('\n') || text.starts_with('#') {
        text.split('\n').map(line).collect::<Vec<_>>().join("\n")
    } else {
        text.to_owned()
    }
}

/// A value of a Secret, decoded.
pub fn secret(name: &str, encoded: &str) -> Value {
    let bytes = BASE64_STANDARD.decode(encoded).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&bytes) else { return hidden(bytes.len()) };
    match jwt(text) {
        Some(jwt) => json!({ "jwt": jwt }),
        None if PUBLIC_KEY.is_match(text) || text.contains("PRIVATE KEY") => hidden(text.chars().count()),
        None => file(name, text).into(),
    }
}

/// The placeholder for a script, whose text is not compared.
pub fn script(name: &str) -> String {
    format!("<script: {name}>")
}

fn hidden(length: usize) -> Value {
    format!("<secret:{length}>").into()
}

/// Header, claims with placeholders for times, and the differences between the times.
fn jwt(text: &str) -> Option<Value> {
    let parts: Vec<&str> = text.trim().split('.').collect();
    let [header, claims, _signature] = parts[..] else { return None };
    let decode = |part: &str| -> Option<Value> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
    };
    let (header, mut claims) = (decode(header)?, decode(claims)?);
    let mut jwt = json!({ "header": header });
    let issued = claims["iat"].as_i64();
    for (claim, difference) in [("exp", "exp_minus_iat"), ("nbf", "nbf_minus_iat")] {
        if let (Some(time), Some(issued)) = (claims[claim].as_i64(), issued) {
            jwt[difference] = json!(time - issued);
        }
    }
    for (claim, placeholder) in [("iat", "<ts>"), ("exp", "<ts>"), ("nbf", "<ts>"), ("jti", "<rand>")] {
        if let Some(value) = claims.get_mut(claim) {
            *value = placeholder.into();
        }
    }
    jwt["claims"] = claims;
    Some(jwt)
}

#[test]
fn comments_and_scripts_are_hidden_and_other_text_kept() {
    assert_eq!(file("run.sh", "#!/bin/sh\necho"), "<script: run.sh>");
    assert_eq!(
        file("a.conf", "# about\n  # indented\nA=1 # not one\n"),
        "<comment>\n<comment>\nA=1 # not one\n"
    );
    assert_eq!(file("a", "one line # of text"), "one line # of text");
}

#[test]
fn keys_are_hidden_and_tokens_decoded() {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    assert_eq!(secret("k", &encode("-----BEGIN PRIVATE KEY-----")), "<secret:27>");
    let public = format!("ssh-ed25519 {}", "A".repeat(40));
    assert_eq!(secret("k", &encode(&public)), "<secret:52>");
    assert_eq!(secret("k", &BASE64_STANDARD.encode([0xff, 0xfe])), "<secret:2>");
    assert_eq!(secret("k", &encode("password")), "password");
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({ "iat": 100, "exp": 1000, "nbf": 100, "jti": "x", "sun": "alice" });
    let token = format!("{}.{}.signature", part(json!({ "alg": "HS256" })), part(claims));
    let expected = json!({ "jwt": {
        "header": { "alg": "HS256" },
        "claims": { "iat": "<ts>", "exp": "<ts>", "nbf": "<ts>", "jti": "<rand>", "sun": "alice" },
        "exp_minus_iat": 900, "nbf_minus_iat": 0,
    } });
    assert_eq!(secret("k", &encode(&token)), expected);
}
