//! From captures to a key: the way back.

use crate::pattern::Pattern;
use crate::pattern::error::PatternError;
use crate::pattern::excerpt::Excerpt;
use crate::pattern::kind::PatternErrorKind as Kind;
use crate::pattern::segment::{self, Capture, SEPARATOR, Segment, Takes};

impl Pattern {
    /// Puts a key together from one value per capture, in the order of
    /// [`capture_names`](Self::capture_names).
    ///
    /// The key always matches the pattern and gives back the same values.
    ///
    /// # Errors
    ///
    /// If there are too few or too many values, or if one of them would not come back: it is empty
    /// or has an empty segment, it contains a `:` where only one segment fits, or the regular
    /// expression does not match it.
    ///
    /// ```
    /// use keylapse::{Pattern, pattern::PatternErrorKind};
    ///
    /// let cart = Pattern::new("shop:{region:[a-z]+}:{path..}")?;
    /// assert_eq!(cart.build(["eu", "cart:7"])?, b"shop:eu:cart:7");
    ///
    /// let kind = |values: &[&str]| cart.build(values).map_err(|error| error.kind());
    /// assert_eq!(kind(&["eu"]), Err(PatternErrorKind::MissingValue));
    /// assert_eq!(kind(&["eu", "cart:"]), Err(PatternErrorKind::EmptyValue));
    /// assert_eq!(kind(&["EU", "cart"]), Err(PatternErrorKind::ValueMismatch));
    /// # Ok::<(), keylapse::PatternError>(())
    /// ```
    pub fn build<V: AsRef<[u8]>>(
        &self,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Vec<u8>, PatternError> {
        let mut values = values.into_iter();
        let mut key = Vec::new();
        for (at, segment) in self.segments().iter().enumerate() {
            if at > 0 {
                key.push(SEPARATOR);
            }
            match segment {
                Segment::Literal(text) => key.extend_from_slice(text.as_bytes()),
                Segment::Capture(capture) => {
                    let value = values.next().ok_or_else(|| self.missing(capture))?;
                    self.check(capture, value.as_ref())?;
                    key.extend_from_slice(value.as_ref());
                }
            }
        }
        if values.next().is_some() {
            return Err(self.surplus());
        }
        debug_assert!(self.is_match(&key));
        Ok(key)
    }

    fn check(&self, capture: &Capture, value: &[u8]) -> Result<(), PatternError> {
        let Some(kind) = fault(&capture.takes, value) else {
            return Ok(());
        };
        let detail = format!("`{{{}}}` given `{}`", capture.name, Excerpt(value));
        Err(PatternError::new(self.as_str(), kind, capture.offset, detail))
    }

    fn missing(&self, capture: &Capture) -> PatternError {
        let detail = format!("`{{{}}}`", capture.name);
        PatternError::new(self.as_str(), Kind::MissingValue, capture.offset, detail)
    }

    fn surplus(&self) -> PatternError {
        let detail = format!("{} expected", self.captures().count());
        PatternError::new(self.as_str(), Kind::SurplusValue, self.as_str().len(), detail)
    }
}

/// Why a value would not come back from the key as it went in.
fn fault(takes: &Takes, value: &[u8]) -> Option<Kind> {
    if !matches!(takes, Takes::Rest) && value.contains(&SEPARATOR) {
        Some(Kind::SeparatorInValue)
    } else if segment::split(value).any(<[u8]>::is_empty) {
        Some(Kind::EmptyValue)
    } else if !takes.accepts(value) {
        Some(Kind::ValueMismatch)
    } else {
        None
    }
}
