//! The outcome of all checks of one request.

/// What the checks of a request found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Verdict {
    /// Adds a reason to refuse the request. The same reason counts once.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.errors.contains(&reason) {
            self.errors.push(reason);
        }
    }

    /// Refuses the request if the check failed.
    pub fn require<E: std::fmt::Display>(&mut self, check: Result<(), E>) {
        if let Err(error) = check {
            self.refuse(error.to_string());
        }
    }

    /// Refuses a change of a field that is fixed once the object exists.
    pub fn require_unchanged<T: PartialEq>(&mut self, field: &str, old: &T, new: &T) {
        if old != new {
            self.refuse(format!("cannot change {field} after deployment"));
        }
    }

    /// Adds a warning. It is shown to the user whether or not the request is refused.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// The reasons to refuse the request as one message; `None` if there are none.
    pub fn refusal(&self) -> Option<String> {
        match self.errors.as_slice() {
            [] => None,
            [error] => Some(error.clone()),
            errors => Some(format!("[{}]", errors.join(", "))),
        }
    }

    /// The warnings.
    pub fn into_warnings(self) -> Vec<String> {
        self.warnings
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn several_reasons_are_one_message_in_the_order_of_the_checks() {
        let mut verdict = Verdict::default();
        assert_eq!(verdict.refusal(), None);
        verdict.refuse("b is wrong");
        verdict.refuse("b is wrong");
        assert_eq!(verdict.refusal().as_deref(), Some("b is wrong"));
        verdict.refuse("a is wrong");
        assert_eq!(verdict.refusal().as_deref(), Some("[b is wrong, a is wrong]"));
    }
}
