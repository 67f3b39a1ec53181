//! Parses a configuration file as Slurm does: logical lines of `Key=Value` pairs.
//!
//! A `#` starts a comment and a `\` at the end of a line joins it with the next one, unless a backslash escapes
//! them. A value is a word, or anything but `"` between double quotes.

use std::fmt::{self, Write};

/// A line without comments and with continuations joined; never blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogicalLine {
    /// Number of its first physical line, from 1.
    pub number: usize,
    /// Its text, without trailing blanks.
    pub text: String,
}

/// One `Key=Value` of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair<'a> {
    /// The key as written.
    pub key: &'a str,
    /// The operator before `=`, if any (`+=`, `-=`).
    pub operator: Option<char>,
    /// The value, without its double quotes.
    pub value: &'a str,
}

impl fmt::Display for Pair<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Slurm would read the next word as the value of an unquoted empty one.
        let is_quoted = self.value.is_empty() || self.value.contains(char::is_whitespace);
        let quote = if is_quoted { "\"" } else { "" };
        formatter.write_str(self.key)?;
        self.operator.map_or(Ok(()), |operator| formatter.write_char(operator))?;
        write!(formatter, "={quote}{}{quote}", self.value)
    }
}

/// Splits a file into its logical lines.
pub(crate) fn logical_lines(text: &str) -> Vec<LogicalLine> {
    let mut lines = Vec::new();
    let mut open: Option<LogicalLine> = None;
    for (index, physical) in text.lines().enumerate() {
        let (content, continues) = strip_continuation(strip_comment(physical).trim_end());
        let mut line = open.take().unwrap_or(LogicalLine { number: index + 1, text: String::new() });
        line.text.push_str(content);
        if continues {
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    for line in &mut lines {
        line.text.truncate(line.text.trim_end().len());
    }
    lines.retain(|line| !line.text.is_empty());
    lines
}

/// Cuts a line at the first unescaped `#`.
fn strip_comment(line: &str) -> &str {
    unescaped(line, '#').map_or(line, |at| &line[..at])
}

/// Position of the first `wanted` that is preceded by an even number of backslashes.
pub(crate) fn unescaped(text: &str, wanted: char) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if character == wanted && !escaped {
            return Some(at);
        }
        escaped = character == '\\' && !escaped;
    }
    None
}

/// True if the text ends in an unescaped backslash: Slurm joins it with the next line.
pub(crate) fn continues(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()) % 2 == 1
}

fn strip_continuation(line: &str) -> (&str, bool) {
    if continues(line) { (&line[..line.len() - 1], true) } else { (line, false) }
}

/// Parses the pairs of a logical line; `None` if a part of it is not a pair.
pub(crate) fn pairs(line: &str) -> Option<Vec<Pair<'_>>> {
    let mut pairs = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (pair, remainder) = pair(rest)?;
        pairs.push(pair);
        rest = remainder.trim_start();
    }
    Some(pairs)
}

fn pair(text: &str) -> Option<(Pair<'_>, &str)> {
    let key_end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))?;
    let (key, rest) = text.split_at(key_end);
    let rest = rest.trim_start();
    let operator = rest.chars().next().filter(|c| "-*+/".contains(*c));
    let rest = rest[operator.map_or(0, char::len_utf8)..].strip_prefix('=')?.trim_start();
    let (value, rest) = value(rest)?;
    (!key.is_empty()).then_some((Pair { key, operator, value }, rest))
}

/// A quoted value must end at a blank; otherwise the quotes are part of a word.
fn value(text: &str) -> Option<(&str, &str)> {
    let quoted = text.strip_prefix('"').and_then(|inner| inner.split_once('"'));
    if let Some((value, rest)) = quoted
        && (rest.is_empty() || rest.starts_with(char::is_whitespace))
    {
        return Some((value, rest));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn texts(text: &str) -> Vec<(usize, String)> {
        logical_lines(text).into_iter().map(|line| (line.number, line.text)).collect()
    }

    #[rstest]
    #[case::comments("# a\nA=1 # b\n\n B=2\t\n", &[(2, "A=1"), (4, " B=2")])]
    #[case::escaped_comment_sign("A=x\\#y # z", &[(1, "A=x\\#y")])]
    #[case::escaped_backslash_before_comment("A=x\\\\# z", &[(1, "A=x\\\\")])]
    #[case::carriage_returns("A=1\r\nB=2\r\n", &[(1, "A=1"), (2, "B=2")])]
    #[case::continuation("A=1,\\\n2,\\\n3\nB=4", &[(1, "A=1,2,3"), (4, "B=4")])]
    #[case::trailing_continuation("A=1\\", &[(1, "A=1")])]
    #[case::trailing_escaped_backslash("A=1\\\\\nB=2", &[(1, "A=1\\\\"), (2, "B=2")])]
    fn logical_lines_are_those_that_slurm_reads(#[case] text: &str, #[case] expected: &[(usize, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(number, text)| (*number, (*text).to_owned())).collect();
        assert_eq!(texts(text), expected);
    }

    #[rstest]
    #[case("A=1", &[("A", "1")])]
    #[case(" A = 1  B=2", &[("A", "1"), ("B", "2")])]
    #[case("A=x=1,y=2", &[("A", "x=1,y=2")])]
    #[case("A=\"b c\" D=e", &[("A", "b c"), ("D", "e")])]
    #[case("A=\"b\"c", &[("A", "\"b\"c")])]
    #[case("", &[])]
    fn line_is_split_into_pairs(#[case] line: &str, #[case] expected: &[(&str, &str)]) {
        let found: Vec<_> = pairs(line).unwrap().iter().map(|pair| (pair.key, pair.value)).collect();
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case("nonsense")]
    #[case("A=1 junk")]
    #[case("A=")]
    #[case("A=1 =2")]
    fn malformed_line_has_no_pairs(#[case] line: &str) {
        assert_eq!(pairs(line), None);
    }
}
