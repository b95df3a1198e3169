//! Characters of a query, read one after the other. What a word is depends on where it stands: a dot separates names, and belongs to numbers.

use super::{QUERY_MAX, QueryError};

pub(super) struct Scanner {
    chars: Vec<char>,
    at: usize,
}

/// A word and whether it stood in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) quoted: bool,
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | ':' | '+' | '@') || (!c.is_ascii() && !c.is_whitespace())
}

impl Scanner {
    pub(super) fn new(text: &str) -> Result<Self, QueryError> {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() > QUERY_MAX {
            let found = format!("{} characters", chars.len());
            return Err(QueryError { position: QUERY_MAX, found, allowed: format!("at most {QUERY_MAX} characters") });
        }
        Ok(Self { chars, at: 0 })
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    pub(super) fn is_end(&mut self) -> bool {
        self.skip_blanks();
        self.at >= self.chars.len()
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn go_to(&mut self, position: usize) {
        self.at = position;
    }

    /// An error at `position`, showing at most 20 characters from there.
    pub(super) fn error_at(&self, position: usize, allowed: impl Into<String>) -> QueryError {
        let found: String = self.chars.iter().skip(position).take(20).collect();
        QueryError { position: position + 1, found, allowed: allowed.into() }
    }

    pub(super) fn error(&mut self, allowed: impl Into<String>) -> QueryError {
        self.skip_blanks();
        self.error_at(self.at, allowed)
    }

    /// Takes `text` when it comes next (after blanks).
    pub(super) fn take(&mut self, text: &str) -> bool {
        self.skip_blanks();
        let matches = text.chars().enumerate().all(|(offset, c)| self.chars.get(self.at + offset) == Some(&c));
        if matches {
            self.at += text.chars().count();
        }
        matches
    }

    /// Takes `text` only when it comes at once, without blanks.
    pub(super) fn take_adjacent(&mut self, text: char) -> bool {
        let matches = self.chars.get(self.at) == Some(&text);
        self.at += usize::from(matches);
        matches
    }

    /// Takes a bare word when it equals `keyword`, in any case.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        self.skip_blanks();
        let start = self.at;
        let text: String = self.chars[start..].iter().take_while(|c| is_word_char(**c)).collect();
        let matches = text.eq_ignore_ascii_case(keyword);
        if matches {
            self.at = start + text.chars().count();
        }
        matches
    }

    /// The next word; `dots` says whether a dot belongs to a bare one.
    pub(super) fn word(&mut self, dots: bool, allowed: &str) -> Result<Word, QueryError> {
        self.skip_blanks();
        match self.chars.get(self.at).copied() {
            Some(quote @ ('\'' | '"' | '`')) => self.quoted(quote),
            _ => {
                let start = self.at;
                while self.chars.get(self.at).is_some_and(|c| is_word_char(*c) || (dots && *c == '.')) {
                    self.at += 1;
                }
                if start == self.at {
                    return Err(self.error_at(start, allowed));
                }
                Ok(Word { text: self.chars[start..self.at].iter().collect(), quoted: false })
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Word, QueryError> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.chars.get(self.at).copied() {
                None => return Err(self.error_at(start, format!("a closing {quote}"))),
                Some(c) if c == quote && self.chars.get(self.at + 1) == Some(&quote) => {
                    text.push(quote);
                    self.at += 2;
                }
                Some(c) if c == quote => {
                    self.at += 1;
                    return Ok(Word { text, quoted: true });
                }
                Some(c) => {
                    text.push(c);
                    self.at += 1;
                }
            }
        }
    }
}
