//! Writes the lines of a generated file.

use std::fmt::Display;

/// A configuration file under construction: sections of `Key<separator>Value` lines.
///
/// The header lines are part of the content hashes that pods carry, so their bytes never change.
pub(crate) struct Writer {
    text: String,
    separator: char,
}

impl Writer {
    /// Starts a file whose keys and values are joined by `separator`.
    pub fn new(separator: char) -> Self {
        Self { text: String::new(), separator }
    }

    /// Starts a section.
    pub fn section(&mut self, title: &str) {
        self.raw("#");
        self.raw(&header(title));
    }

    /// Writes one line with a key and its value.
    pub fn entry(&mut self, key: &str, value: impl Display) {
        let separator = self.separator;
        self.raw(&format!("{key}{separator}{value}"));
    }

    /// Writes text verbatim and a line break.
    pub fn raw(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Writes a section of free text, if there is any.
    pub fn extra(&mut self, text: &str) {
        if !text.is_empty() {
            self.section(EXTRA_SECTION);
            self.raw(text);
        }
    }

    /// The finished file.
    pub fn finish(self) -> String {
        self.text
    }
}

/// The header line of a section.
pub(crate) fn header(title: &str) -> String {
    format!("### {title} ###")
}

/// Title of the section with the user's free text.
pub(crate) const EXTRA_SECTION: &str = "EXTRA CONFIG";
/// Title of the section that restores required options after the user's text.
pub(crate) const MERGED_SECTION: &str = "MERGED CONFIG";
