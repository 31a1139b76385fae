//! Arguments that name the key of a timer.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::schedule::Schedule;
use crate::topic::TopicConfig;

/// A whole Redis key, which must match the topic's pattern.
///
/// ```no_run
/// use keylapse::{Key, Schedule, Topic};
///
/// # async fn cancel(schedule: Schedule) -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let paid = "order:unpaid:42"; // the key of a message from another program
/// println!("{:?}", schedule.cancel(&orders, Key(paid)).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Key<K>(pub K);

/// Names the key of a timer.
///
/// - A string or an integer is the value of the pattern's only capture.
/// - An array, slice or vector has the values of several captures in their order.
/// - [`Key`] is a whole key.
///
/// ```
/// # use std::time::Duration;
/// # use keylapse::{Key, Schedule, Topic};
/// # async fn arm(schedule: Schedule) -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// schedule.arm(&orders, "42", Duration::from_secs(900), &1999).await?;
/// schedule.arm(&orders, 42, Duration::from_secs(900), &1999).await?;
/// schedule.arm(&orders, Key("order:unpaid:42"), Duration::from_secs(900), &1999).await?;
///
/// let seats = Topic::<u64>::new("seat:{hall}:{seat}")?;
/// schedule.arm(&seats, ["main", "17"], Duration::from_secs(900), &1999).await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a timer",
    note = "pass the pattern's only capture as a string or an integer, several as an array such as `[hall, seat]`, \
            or a whole key as `Key(…)`"
)]
pub trait KeyArgs {
    #[doc(hidden)]
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes>;
}

pub(crate) mod private {
    /// Prevents calls of the trait's method outside this crate.
    #[derive(Clone, Copy, Debug)]
    #[allow(unnameable_types, reason = "other crates must not name it")]
    pub struct Scope<'a>(pub(crate) &'a crate::pattern::Pattern);
}

impl<K: AsRef<[u8]>> KeyArgs for Key<K> {
    fn key(&self, _: private::Scope<'_>) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(self.0.as_ref()))
    }
}

impl<V: AsRef<[u8]>> KeyArgs for [V] {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        Ok(scope.0.build(self.iter().map(AsRef::as_ref))?.into())
    }
}

impl<V: AsRef<[u8]>, const N: usize> KeyArgs for [V; N] {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        self[..].key(scope)
    }
}

impl<V: AsRef<[u8]>> KeyArgs for Vec<V> {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        self[..].key(scope)
    }
}

/// Builds the key of a pattern with one capture.
fn key_of_one(value: &[u8], scope: private::Scope<'_>) -> Result<Bytes> {
    let private::Scope(pattern) = scope;
    let captures = pattern.capture_names().count();
    if captures != 1 {
        return Err(Error::invalid(format!(
            "pattern {pattern} has {captures} captures, but one value was given; \
             pass an array with a value for each, or a whole key as Key(…)"
        )));
    }
    [value].key(scope)
}

macro_rules! one_capture {
    ($($of:ty),*) => {$(
        impl KeyArgs for $of {
            fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
                key_of_one(self.to_string().as_bytes(), scope)
            }
        }
    )*};
}

one_capture!(str, String, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

impl<A: KeyArgs + ?Sized> KeyArgs for &A {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        (**self).key(scope)
    }
}

impl Schedule {
    /// Returns the key that `args` name, or an error if it does not belong to the topic.
    pub(crate) fn key_of(&self, config: &TopicConfig, args: &impl KeyArgs) -> Result<Bytes> {
        let key = args.key(private::Scope(&config.pattern))?;
        config.check_key(&self.client.namespace, &key)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::topic::Topic;

    fn key(pattern: &str, args: impl KeyArgs) -> Result<String> {
        let topic = Topic::<()>::named("test", pattern).unwrap();
        let schedule = Schedule::new(Client::new("redis://localhost").unwrap());
        let key = schedule.key_of(&topic.config, &args)?;
        Ok(String::from_utf8(key.to_vec()).unwrap())
    }

    #[test]
    fn one_capture_takes_a_string_or_a_number() {
        let text = "42".to_owned();
        for named in [
            key("order:{id}", "42"),
            key("order:{id}", &text),
            key("order:{id}", text.as_str()),
            key("order:{id}", text.clone()),
            key("order:{id}", 42),
            key("order:{id}", 42u64),
            key("order:{id}", 42usize),
            key("order:{id}", ["42"]),
            key("order:{id}", Key("order:42")),
        ] {
            assert_eq!(named.unwrap(), "order:42");
        }
        assert_eq!(key("order:{id}", -1i64).unwrap(), "order:-1");
        assert_eq!(key("path:{rest..}", "a:b").unwrap(), "path:a:b");
    }

    #[test]
    fn a_value_is_still_checked() {
        assert!(key("order:{id}", "4:2").is_err());
        assert!(key("order:{id:[0-9]+}", "x").is_err());
        assert!(key("order:{id}", "").is_err());
    }

    #[test]
    fn another_number_of_captures_is_refused_by_name() {
        for (pattern, captures) in [("seat:{hall}:{seat}", 2), ("nightly:report", 0)] {
            let refused = key(pattern, "main").unwrap_err();
            assert!(
                refused.to_string().contains(&format!("pattern {pattern} has {captures} captures")),
                "{refused}"
            );
            assert_eq!(refused.kind(), crate::ErrorKind::Invalid);
        }
    }
}
