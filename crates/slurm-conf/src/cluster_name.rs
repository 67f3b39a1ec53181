//! Names that a new Slurm cluster can have.

/// Longest name of a cluster, in bytes: slurmdbd has it in the names of tables.
const LONGEST: usize = 40;

/// Why a new cluster cannot have a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterNameError {
    /// The name becomes part of paths and of SQL statements.
    #[error(
        "clusterName {name:?} must not contain {character:?}: Slurm before 25.11.8 is safe with letters, digits, '_' and '-' only"
    )]
    Character {
        /// The name.
        name: String,
        /// The character.
        character: char,
    },
    /// slurmdbd would not accept the cluster.
    #[error("clusterName {name:?} must not exceed {LONGEST} characters, but has {}", name.len())]
    Length {
        /// The name.
        name: String,
    },
}

/// Checks the name of a cluster that does not run yet.
pub fn check_new_cluster_name(name: &str) -> Result<(), ClusterNameError> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if let Some(character) = name.chars().find(|c| !is_safe(*c)) {
        return Err(ClusterNameError::Character { name: name.to_owned(), character });
    }
    if name.len() > LONGEST { Err(ClusterNameError::Length { name: name.to_owned() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::check_new_cluster_name;
    use rstest::rstest;

    #[rstest]
    #[case::derived("slurm_my-cluster1", None)]
    #[case::longest(&"a".repeat(40), None)]
    #[case::too_long(&"a".repeat(41), Some("must not exceed 40 characters, but has 41"))]
    #[case::path("../a", Some("must not contain '.'"))]
    #[case::line_break("a\nb", Some("must not contain '\\n'"))]
    fn names_are_short_and_safe(#[case] name: &str, #[case] problem: Option<&str>) {
        let error = check_new_cluster_name(name).err().map(|error| error.to_string());
        match problem {
            None => assert_eq!(error, None),
            Some(problem) => {
                assert!(error.as_ref().is_some_and(|error| error.contains(problem)), "{error:?}");
            }
        }
    }
}
