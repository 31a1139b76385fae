//! Bounds of settings. A value beyond them is most likely a mistake, and is refused when the file is read.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::values::Span;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Returns the value if it is in this range.
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

/// Checks the value of an optional setting.
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

/// Checks the length of time of an optional setting.
pub(super) fn time(
    name: &str,
    span: Option<Span>,
    range: RangeInclusive<Duration>,
) -> Result<Option<Duration>, String> {
    if_within(name, span.map(|span| span.0), range)
}
