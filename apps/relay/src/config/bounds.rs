//! How much of something is still meant: beyond, it is a slip of the pen, and is said where the file is read.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::values::Span;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A number, if it is one of these.
pub(super) fn within<T>(name: &str, value: T, range: RangeInclusive<T>) -> Result<T, String>
where
    T: PartialOrd + Debug,
{
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("{name} = {value:?}: write {:?} to {:?}", range.start(), range.end()))
    }
}

/// The same of one that may have been left out.
pub(super) fn if_within<T>(
    name: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
) -> Result<Option<T>, String>
where
    T: PartialOrd + Debug,
{
    value.map(|value| within(name, value, range)).transpose()
}

/// The same of a length of time.
pub(super) fn time(
    name: &str,
    span: Option<Span>,
    range: RangeInclusive<Duration>,
) -> Result<Option<Duration>, String> {
    if_within(name, span.map(|span| span.0), range)
}
