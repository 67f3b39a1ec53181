//! A hash that every version of every binary computes alike.

use sha2::{Digest, Sha256};

/// Never part of UTF-8, so that no two lists of parts read the same.
const END_OF_PART: [u8; 1] = [0xff];

/// The hash of some texts in their order.
pub fn stable_hash<const N: usize>(parts: [&str; N]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update(END_OF_PART);
    }
    hasher.finalize().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::stable_hash;

    #[test]
    fn the_hash_is_pinned() {
        assert_eq!(stable_hash(["slurm/cluster", "replica"]), 6_577_705_405_493_872_293);
    }

    #[test]
    fn where_a_part_ends_matters() {
        assert_ne!(stable_hash(["ab", "c"]), stable_hash(["a", "bc"]));
    }
}
