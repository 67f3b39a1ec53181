//! Hashes for annotations of pod templates, so that pods restart when content changes that they read at start.
//!
//! The algorithms are fixed: the templates of running pods have the hashes, and a different hash would restart them.

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// SHA-256 in lower-case hex.
pub fn hash_bytes(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Hash of the values of a map, concatenated in the order of their keys; empty if all values are empty.
pub fn hash_values<V: AsRef<[u8]>>(map: &BTreeMap<String, V>) -> String {
    let content: Vec<u8> = map.values().flat_map(AsRef::as_ref).copied().collect();
    if content.is_empty() { String::new() } else { hash_bytes(&content) }
}

/// Hash of all values of a Secret.
pub fn hash_secret(secret: &Secret) -> String {
    hash_values(&secret.data.iter().flatten().map(|(key, value)| (key.clone(), &value.0)).collect())
}

/// The name of a configuration: a hash of the names and contents of its files.
///
/// The reconfigure container computes the same hash of the mounted files (without keys), so that its log shows which
/// configuration slurmctld has loaded.
pub fn hash_files<V: AsRef<[u8]>>(files: &BTreeMap<String, V>) -> String {
    let listing = files.iter().fold(String::new(), |mut listing, (name, content)| {
        // Writing to a String cannot fail.
        let _ = writeln!(listing, "{}  {name}", hash_bytes(content.as_ref()));
        listing
    });
    hash_bytes(listing.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const HASH_OF_BUZZBAR: &str = "093635f9ad1c31773993253f0daf910da63189bb2cc120e0c89fbf2b57bb05fe";

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn hash_of_bytes_is_sha256() {
        assert_eq!(hash_bytes(b""), HASH_OF_NOTHING);
        assert_eq!(hash_bytes(b"buzzbar"), HASH_OF_BUZZBAR);
    }

    #[test]
    fn values_are_hashed_in_the_order_of_their_keys() {
        assert_eq!(hash_values(&map(&[("foo", "bar"), ("fizz", "buzz")])), HASH_OF_BUZZBAR);
        assert_eq!(hash_values(&map(&[])), "");
        assert_eq!(hash_values(&map(&[("foo", "")])), "");
    }
}
