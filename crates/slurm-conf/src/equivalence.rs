//! Compares configuration files as Slurm reads them.

use crate::text::{Pair, logical_lines, pairs};

/// True if the files differ only in comments, spacing, quotes around words, or the case of keys.
///
/// The order of lines matters: Slurm uses the last value of a key.
pub fn is_equivalent(one: &str, other: &str) -> bool {
    parse(one) == parse(other)
}

/// The keys and values of each line; a line that Slurm cannot read is compared word by word.
fn parse(text: &str) -> Vec<Vec<(String, String)>> {
    logical_lines(text)
        .iter()
        .map(|line| match pairs(&line.text) {
            Some(pairs) => pairs.iter().map(|pair| (key(pair), pair.value.to_owned())).collect(),
            None => line.text.split_whitespace().map(|word| (String::new(), word.to_owned())).collect(),
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
    fn files_are_equivalent_if_slurm_reads_the_same_values(
        #[case] one: &str,
        #[case] other: &str,
        #[case] same: bool,
    ) {
        assert_eq!(is_equivalent(one, other), same);
        assert_eq!(is_equivalent(other, one), same);
    }
}
