//! Condition messages: clauses with numbers and few names, joined to one sentence.

/// How many names a message shows.
const MOST_NAMES: usize = 3;

/// One clause of a condition's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The condition's reason, if this is the first clause.
    pub reason: &'static str,
    /// Its text.
    pub text: String,
}

impl Clause {
    /// A clause.
    pub const fn new(reason: &'static str, text: String) -> Self {
        Self { reason, text }
    }
}

/// Joins all clauses; the first one gives the reason. `None` without clauses.
pub fn joined(clauses: Vec<Clause>) -> Option<Clause> {
    let reason = clauses.first()?.reason;
    let texts: Vec<_> = clauses.into_iter().map(|clause| clause.text).collect();
    Some(Clause::new(reason, texts.join("; ")))
}

/// `1 worker`, `2 workers`.
pub fn workers(count: usize) -> String {
    if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") }
}

/// The first few, and how many more there are: `a, b, c and 2 more`.
pub fn few<T: AsRef<str>>(items: &[T]) -> String {
    let shown: Vec<_> = items.iter().take(MOST_NAMES).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match items.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
