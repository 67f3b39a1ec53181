//! Whether two configuration files say the same to Slurm.

use crate::text::{Pair, logical_lines, pairs};

/// True if the files differ in comments, spacing, quotes around words, or the case of keys only.
///
/// The order of lines counts: Slurm takes the last value of a key.
pub fn is_equivalent(one: &str, other: &str) -> bool {
    meaning(one) == meaning(other)
}

/// Each line as keys and values; a line that Slurm would refuse stands for its words.
fn meaning(text: &str) -> Vec<Vec<(String, String)>> {
    logical_lines(text)
        .iter()
        .map(|line| match pairs(&line.text) {
            Ok(pairs) => pairs.iter().map(|pair| (key(pair), pair.value.to_owned())).collect(),
            Err(_) => line.text.split_whitespace().map(|word| (String::new(), word.to_owned())).collect(),
        })
        .collect()
}

fn key(pair: &Pair<'_>) -> String {
    pair.key.to_lowercase() + pair.operator.map(String::from).as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("A=1\nB=2\n", "# header\n\nA=1   # one\n  b = 2", true)]
    #[case("A=1,2", "A=1,\\\n2", true)]
    #[case("A=\"x\"", "A=x", true)]
    #[case("PartitionName=a Nodes=b \n", "PartitionName=a  Nodes=b\n", true)]
    #[case("Include  /x", "Include /x", true)]
    #[case("A=1", "A=2", false)]
    #[case("A=x", "A=X", false)]
    #[case("A=1\nA=2", "A=2\nA=1", false)]
    #[case("A=\"x y\"", "A=x y", false)]
    #[case("A=1", "A=1\nB=2", false)]
    #[case("A=1 B=2", "A=1\nB=2", false)]
    #[case("A+=1", "A=1", false)]
    fn meaning_is_what_slurm_reads(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!(is_equivalent(one, other), same);
        assert_eq!(is_equivalent(other, one), same);
    }
}
