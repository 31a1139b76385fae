//! Rules that a model keeps, all but one perhaps: to see that none is there for nothing.

/// The rules in force.
#[derive(Clone, Copy, Debug)]
pub struct Rules<R> {
    without: Option<R>,
}

impl<R> Default for Rules<R> {
    fn default() -> Self {
        Self { without: None }
    }
}

impl<R: Copy + PartialEq> Rules<R> {
    /// All but one.
    pub const fn without(rule: R) -> Self {
        Self { without: Some(rule) }
    }

    /// Whether a rule is in force.
    pub(crate) fn has(self, rule: R) -> bool {
        self.without != Some(rule)
    }
}
