//! What stands before the first capture: where a pattern's keys lie, and what its topic is called.

use crate::pattern::Pattern;
use crate::pattern::segment::{SEPARATOR, Segment};

impl Pattern {
    /// What every matching key starts with: the leading literal segments and, when more follows,
    /// the `:` after them.
    ///
    /// ```
    /// use keylapse::Pattern;
    ///
    /// let prefix = |source: &str| Pattern::new(source).map(|p| p.literal_prefix().to_owned());
    /// assert_eq!(prefix("app:trans:{id}:x")?, "app:trans:");
    /// assert_eq!(prefix("app:config")?, "app:config");
    /// assert_eq!(prefix("{app}:config")?, "");
    /// # Ok::<(), keylapse::PatternError>(())
    /// ```
    pub fn literal_prefix(&self) -> &str {
        &self.0.prefix
    }

    /// The name a topic has unless it is given another: the leading literal segments joined by `.`.
    ///
    /// `None` if the pattern begins with a capture, or if the name would hold anything but
    /// `A-Z a-z 0-9 _ . -`.
    ///
    /// ```
    /// use keylapse::Pattern;
    ///
    /// let name = |source: &str| Pattern::new(source).map(|p| p.default_name());
    /// assert_eq!(name("app:trans:notice:{id}")?.as_deref(), Some("app.trans.notice"));
    /// assert_eq!(name("{app}:notice")?, None);
    /// assert_eq!(name("café:{id}")?, None);
    /// # Ok::<(), keylapse::PatternError>(())
    /// ```
    pub fn default_name(&self) -> Option<String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let name = leading_literals(self.segments()).collect::<Vec<_>>().join(".");
        (!name.is_empty() && name.chars().all(allowed)).then_some(name)
    }
}

fn leading_literals(segments: &[Segment]) -> impl Iterator<Item = &str> {
    segments.iter().map_while(Segment::as_literal)
}

pub(super) fn of(segments: &[Segment]) -> String {
    let mut prefix = String::new();
    for (at, literal) in leading_literals(segments).enumerate() {
        prefix.push_str(literal);
        if at + 1 < segments.len() {
            prefix.push(char::from(SEPARATOR));
        }
    }
    prefix
}
