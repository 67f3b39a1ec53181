//! Rust source as words and punctuation, without comments, literals and test code.

use std::iter::Peekable;
use std::str::Chars;

/// A word, or one character of punctuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// The tokens of a file that are compiled outside tests.
pub fn tokens_outside_tests(source: &str) -> Vec<Token> {
    let tokens = tokenize(source);
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(end) = end_of_test_item(&tokens, at) {
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Where the item ends whose `#[cfg(test)]` begins at `at`; `None` if no such attribute begins there.
fn end_of_test_item(tokens: &[Token], at: usize) -> Option<usize> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    if [text(at), text(at + 1), text(at + 2)] != ["#", "[", "cfg"] {
        return None;
    }
    let end_of_attribute = end_of_group(tokens, at + 1);
    let condition: Vec<&str> = (at + 3..end_of_attribute).map(text).collect();
    if !condition.contains(&"test") || condition.contains(&"not") {
        return None;
    }
    let mut end = end_of_attribute;
    while end < tokens.len() {
        match text(end) {
            ";" => return Some(end + 1),
            "{" => return Some(end_of_group(tokens, end)),
            "[" | "(" => end = end_of_group(tokens, end),
            _ => end += 1,
        }
    }
    Some(end)
}

/// The index behind the bracket that closes the one at `open`.
pub fn end_of_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

fn tokenize(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: source.chars().peekable(), line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Lexer<'_> {
    fn next_token(&mut self) -> Option<Token> {
        loop {
            let line = self.line;
            let token = |text: String| Some(Token { text, line });
            match self.take()? {
                '/' if self.rest.peek() == Some(&'/') => while self.take()? != '\n' {},
                '/' if self.rest.peek() == Some(&'*') => self.skip_block_comment(),
                '"' => self.skip_string(0, true),
                '\'' => self.skip_character(),
                c if c.is_alphanumeric() || c == '_' => {
                    let word = self.word(c);
                    let is_prefix = ["r", "b", "br", "c", "cr"].contains(&word.as_str());
                    if !(is_prefix && self.skip_prefixed_string(word.contains('r'))) {
                        return token(word);
                    }
                }
                c if c.is_whitespace() => {}
                c => return token(c.to_string()),
            }
        }
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
        }
        word
    }

    /// Skips the string behind a prefix such as `br`; false if there is none, as in the raw identifier `r#type`.
    fn skip_prefixed_string(&mut self, is_raw: bool) -> bool {
        let mut ahead = self.rest.clone();
        let mut hashes = 0;
        while ahead.next_if_eq(&'#').is_some() {
            hashes += 1;
        }
        if ahead.peek() != Some(&'"') || (hashes > 0 && !is_raw) {
            return false;
        }
        self.rest = ahead;
        self.take();
        self.skip_string(hashes, !is_raw);
        true
    }

    /// Skips a string to its end: a quote and as many hashes as it began with.
    fn skip_string(&mut self, hashes: usize, has_escapes: bool) {
        while let Some(c) = self.take() {
            if c == '\\' && has_escapes {
                self.take();
            } else if c == '"' && (0..hashes).all(|_| self.rest.next_if_eq(&'#').is_some()) {
                return;
            }
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 1;
        self.take();
        while depth > 0
            && let Some(c) = self.take()
        {
            match (c, self.rest.peek()) {
                ('*', Some('/')) => depth -= 1,
                ('/', Some('*')) => depth += 1,
                _ => continue,
            }
            self.take();
        }
    }

    /// Skips a character literal; of a lifetime only the quote.
    fn skip_character(&mut self) {
        let mut ahead = self.rest.clone();
        let (first, second) = (ahead.next(), ahead.next());
        if first == Some('\\') {
            self.take();
            self.take();
            while self.take().is_some_and(|c| c != '\'') {}
        } else if second == Some('\'') {
            self.take();
            self.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tokens_outside_tests;

    fn words(source: &str) -> String {
        let tokens = tokens_outside_tests(source).into_iter();
        tokens.map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_left_out() {
        let source = "a // b\n/* c /* d */ e */ f \"g \\\" h\" 'i' '\\'' '{' r#\"j \" k\"# b\"l\" &'m n";
        assert_eq!(words(source), "a f & m n");
        assert_eq!(words("r#type"), "r # type");
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let tokens = tokens_outside_tests("a /*\n*/ \"\n\\n\" // x\nb");
        assert_eq!(tokens.iter().map(|token| token.line).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn items_for_tests_are_left_out_and_others_stay() {
        let source =
            "a #[cfg(test)] mod tests { fn x() {} } #[cfg(test)] #[allow(y)] use z; #[cfg(unix)] mod b;";
        assert_eq!(words(source), "a # [ cfg ( unix ) ] mod b ;");
        assert_eq!(words("#[cfg(not(test))] c"), "# [ cfg ( not ( test ) ) ] c");
        assert_eq!(words("#[cfg(any(test, feature))] fn f(a: [u8; 2]) { b } d"), "d");
    }
}
