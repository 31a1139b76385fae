//! What the server refuses to let a listener learn of a topic's attached keys.

use std::sync::Mutex;

use crate::escape::of_error;
use crate::lock::lock;

/// What a user needs a right for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To read keys: deadlines and values.
    Read,
    /// To find them.
    Scan,
    /// To hear of their changes.
    Changes,
}

/// Why each is refused at present, if it is.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<[Option<String>; 3]>);

impl Refusals {
    /// It is refused; whether that is news.
    pub(crate) fn begin(&self, asked: Asked, what: &str) -> bool {
        lock(&self.0)[asked as usize].replace(of_error(what)).is_none()
    }

    /// It is granted; whether it was not until now.
    pub(crate) fn end(&self, asked: Asked) -> bool {
        lock(&self.0)[asked as usize].take().is_some()
    }

    /// Whether keys cannot be read or found.
    pub(crate) fn hide_keys(&self) -> bool {
        let refused = lock(&self.0);
        [Asked::Read, Asked::Scan].into_iter().any(|asked| refused[asked as usize].is_some())
    }

    pub(crate) fn all(&self) -> Vec<String> {
        lock(&self.0).iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_news_once_until_it_is_granted() {
        let refusals = Refusals::default();
        assert!(refusals.begin(Asked::Changes, "c") && !refusals.hide_keys());
        assert!(refusals.begin(Asked::Read, "a") && !refusals.begin(Asked::Read, "b"));
        assert!(refusals.hide_keys());
        assert_eq!(refusals.all(), ["b", "c"]);
        assert!(refusals.end(Asked::Read) && !refusals.end(Asked::Read));
        assert!(!refusals.hide_keys());
    }
}
