//! User text that is safe on a configuration line.
//!
//! Each type holds only text that Slurm reads back unchanged. Errors name the field and the offending character, never
//! the text itself: it may be a password.

use crate::text;
use std::fmt;

/// The longest options of a line. All lines together have to fit into a ConfigMap of 1 MiB.
const LONGEST_LINE: usize = 16 * 1024;

/// Why a text cannot be written on a configuration line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// A character that Slurm would not read as part of the value.
    #[error("must not contain {0:?}")]
    Character(char),
    /// An unescaped `#` starts a comment.
    #[error("must not contain '#', which starts a comment (write \\# to mean the character)")]
    Comment,
    /// A blank ends an unquoted value.
    #[error("must not contain {0:?} unless the whole value is in double quotes")]
    Blank(char),
    /// A trailing backslash joins the line with the next one.
    #[error("must not end in a backslash, which joins the line with the next one")]
    Continuation,
    /// The text has several lines.
    #[error("must be a single line")]
    SeveralLines,
    /// The options of a line are longer than [`LONGEST_LINE`].
    #[error("must not be longer than {LONGEST_LINE} bytes")]
    TooLong,
}

/// A field with invalid text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct ValueError {
    /// The field, by its name in the API.
    pub field: String,
    /// What is wrong with its text.
    pub problem: Problem,
}

/// One value: a word, or text in double quotes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfValue(String);

/// The name of a node set, partition or file: a word without the separators of lists and options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfName(String);

/// The options of one line, possibly none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfLine(String);

/// A value that must not be printed, such as a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(ConfValue);

impl ConfValue {
    fn parse(text: &str) -> Result<Self, Problem> {
        reject_control_characters(text)?;
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let inner = quoted.unwrap_or(text);
        if inner.is_empty() {
            return Err(Problem::Empty);
        }
        if let Some(blank) = inner.chars().find(|c| quoted.is_none() && c.is_whitespace()) {
            return Err(Problem::Blank(blank));
        }
        if inner.starts_with('"') || (quoted.is_some() && inner.contains('"')) {
            return Err(Problem::Character('"'));
        }
        if text::unescaped(text, '#').is_some() {
            return Err(Problem::Comment);
        }
        if text::continues(text) {
            return Err(Problem::Continuation);
        }
        Ok(Self(text.to_owned()))
    }
}

impl ConfName {
    fn parse(text: &str) -> Result<Self, Problem> {
        if text.is_empty() {
            return Err(Problem::Empty);
        }
        match text.chars().find(|c| c.is_whitespace() || c.is_control() || "#=,\"'\\[]()".contains(*c)) {
            Some(character) => Err(Problem::Character(character)),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl ConfLine {
    /// Removes comments and line breaks that Slurm ignores.
    fn parse(text: &str) -> Result<Self, Problem> {
        if text.len() > LONGEST_LINE {
            return Err(Problem::TooLong);
        }
        let mut lines = text::logical_lines(text).into_iter();
        let line = lines.next().map(|line| line.text).unwrap_or_default();
        if lines.next().is_some() {
            return Err(Problem::SeveralLines);
        }
        reject_control_characters(line.replace('\t', " ").as_str())?;
        Ok(Self(line))
    }

    /// For the options of a partition: the same options with `State=DRAIN`, which rejects new jobs and lets existing
    /// ones run. A line that Slurm cannot read is returned unchanged.
    #[must_use]
    pub fn closed_to_new_jobs(&self) -> Self {
        let Some(pairs) = text::pairs(&self.0) else { return self.clone() };
        let others =
            pairs.iter().filter(|pair| !pair.key.eq_ignore_ascii_case("State")).map(text::Pair::to_string);
        Self(others.chain(["State=DRAIN".to_owned()]).collect::<Vec<_>>().join(" "))
    }
}

impl Secret {
    /// Checks `text` as the secret value of `field`.
    pub fn new(field: &str, text: &str) -> Result<Self, ValueError> {
        ConfValue::new(field, text).map(Self)
    }

    /// The text; write it into the configuration file only.
    pub(crate) fn expose(&self) -> &str {
        self.0.as_ref()
    }
}

fn reject_control_characters(text: &str) -> Result<(), Problem> {
    text.chars().find(|c| c.is_control()).map_or(Ok(()), |character| Err(Problem::Character(character)))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Check, access and display of the three text types.
macro_rules! checked_text {
    ($($name:ident),*) => {$(
        impl $name {
            /// Checks the `text` of `field`.
            pub fn new(field: &str, text: &str) -> Result<Self, ValueError> {
                Self::parse(text).map_err(|problem| ValueError { field: field.to_owned(), problem })
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

checked_text!(ConfValue, ConfName, ConfLine);

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("plain")]
    #[case("a=b,c=/d")]
    #[case("\"two words\"")]
    #[case("it's")]
    #[case("a\"b")]
    #[case("p\\#w")]
    #[case("back\\\\")]
    fn value_that_slurm_reads_back_is_accepted(#[case] text: &str) {
        assert_eq!(ConfValue::new("f", text).unwrap().as_ref(), text);
    }

    #[rstest]
    #[case("", Problem::Empty)]
    #[case("\"\"", Problem::Empty)]
    #[case("a\nSlurmUser=root", Problem::Character('\n'))]
    #[case("a\rb", Problem::Character('\r'))]
    #[case("a\0", Problem::Character('\0'))]
    #[case("a#b", Problem::Comment)]
    #[case("a\\\\#b", Problem::Comment)]
    #[case("two words", Problem::Blank(' '))]
    #[case("\"open end", Problem::Blank(' '))]
    #[case("\"open", Problem::Character('"'))]
    #[case("\"a\"b\"", Problem::Character('"'))]
    #[case("a\\", Problem::Continuation)]
    fn value_that_slurm_would_read_differently_is_rejected(#[case] text: &str, #[case] problem: Problem) {
        assert_eq!(ConfValue::new("f", text).unwrap_err().problem, problem);
    }

    #[rstest]
    #[case("gpu-a100.x_1", None)]
    #[case("", Some(Problem::Empty))]
    #[case("a b", Some(Problem::Character(' ')))]
    #[case("a,b", Some(Problem::Character(',')))]
    #[case("a=b", Some(Problem::Character('=')))]
    #[case("n[1-2]", Some(Problem::Character('[')))]
    fn name_is_a_single_word(#[case] text: &str, #[case] problem: Option<Problem>) {
        assert_eq!(ConfName::new("f", text).err().map(|error| error.problem), problem);
    }

    #[rstest]
    #[case("", Ok(""))]
    #[case("State=UP MaxTime=UNLIMITED", Ok("State=UP MaxTime=UNLIMITED"))]
    #[case("State=UP\n", Ok("State=UP"))]
    #[case("State=UP # for all\n", Ok("State=UP"))]
    #[case("State=UP \\\nMaxTime=1\n", Ok("State=UP MaxTime=1"))]
    #[case("State=UP\\", Ok("State=UP"))]
    #[case("State=UP\nSlurmUser=root", Err(Problem::SeveralLines))]
    #[case("State=UP\0", Err(Problem::Character('\0')))]
    #[case(&"A=1 ".repeat(5000), Err(Problem::TooLong))]
    fn options_are_one_logical_line(#[case] text: &str, #[case] expected: Result<&str, Problem>) {
        let found = ConfLine::new("f", text);
        assert_eq!(found.as_ref().map(AsRef::as_ref).map_err(|error| error.problem), expected);
    }

    #[rstest]
    #[case::added("Default=YES", "Default=YES State=DRAIN")]
    #[case::no_options("", "State=DRAIN")]
    #[case::replaced("state=UP Default=YES", "Default=YES State=DRAIN")]
    #[case::already_drained("Default=YES State=DRAIN", "Default=YES State=DRAIN")]
    #[case::others_unchanged(r#"AllowGroups="a b" X+=1 State=UP"#, r#"AllowGroups="a b" X+=1 State=DRAIN"#)]
    #[case::empty_values_unchanged(r#"State=UP QOS="" Default=YES"#, r#"QOS="" Default=YES State=DRAIN"#)]
    #[case::unreadable("State=UP junk", "State=UP junk")]
    fn partition_is_closed_by_state_drain(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(ConfLine::new("f", line).unwrap().closed_to_new_jobs().as_ref(), expected);
    }

    #[test]
    fn error_names_field_and_character_but_not_the_text() {
        let message = Secret::new("storageConfig.passwordKeyRef", "hush hush").unwrap_err().to_string();
        assert_eq!(
            message,
            "storageConfig.passwordKeyRef must not contain ' ' unless the whole value is in double quotes"
        );
        assert_eq!(format!("{:?}", Secret::new("f", "hush").unwrap()), "Secret(..)");
    }
}
