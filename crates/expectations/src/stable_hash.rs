//! A hash that is the same in every version of every binary.

use sha2::{Digest, Sha256};

/// Not valid in UTF-8, so that two different lists of parts never hash the same bytes.
const END_OF_PART: [u8; 1] = [0xff];

/// Hashes the parts in order.
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
    fn hash_is_pinned() {
        assert_eq!(stable_hash(["slurm/cluster", "replica"]), 6_577_705_405_493_872_293);
    }

    #[test]
    fn part_boundaries_change_the_hash() {
        assert_ne!(stable_hash(["ab", "c"]), stable_hash(["a", "bc"]));
    }
}
