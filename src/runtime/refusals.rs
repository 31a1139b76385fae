//! What the server refuses to let a listener learn of a topic's attached keys.

use std::sync::Mutex;

use bytes::Bytes;
use tokio::time::Instant;

use crate::escape::of_error;
use crate::lock::lock;
use crate::wire::NodeId;

/// What a user needs a right for, beside the rights to read keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To find keys.
    Scan,
    /// To hear of their changes.
    Changes,
}

/// A right to read keys that is missing.
#[derive(Clone, Debug)]
pub(crate) struct RefusedRead {
    /// The server that has refused to read them.
    pub(crate) by: NodeId,
    /// The rule that is missing: `+<command>`, or `~<prefix>*`.
    pub(crate) rule: String,
    /// A key that was to be read.
    pub(crate) key: Bytes,
    /// When the latest refused read was sent.
    pub(crate) last: Instant,
}

/// Why each is refused at present, if it is.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    /// A server has each rule once, so these are no more than commands that read keys, and one.
    reads: Vec<(RefusedRead, String)>,
    /// Where a right was granted last, and when the read was sent that showed it.
    granted: Option<(NodeId, Instant)>,
    others: [Option<String>; 2],
}

impl Refusals {
    /// It is refused; whether that is news.
    pub(crate) fn begin(&self, asked: Asked, what: &str) -> bool {
        lock(&self.0).others[asked as usize].replace(of_error(what)).is_none()
    }

    /// It is granted; whether it was not until now.
    pub(crate) fn end(&self, asked: Asked) -> bool {
        lock(&self.0).others[asked as usize].take().is_some()
    }

    /// A read is refused; whether it is news that this right is missing. A listener may process answers in another order than
    /// the server gave them, so a read that was sent before one that showed a grant is no news.
    pub(crate) fn begin_read(&self, read: RefusedRead, what: &str) -> bool {
        let mut refused = lock(&self.0);
        if refused.granted.is_some_and(|(by, sent)| by == read.by && read.last <= sent) {
            return false;
        }
        let same = |(one, _): &&mut (RefusedRead, String)| one.by == read.by && one.rule == read.rule;
        if let Some((one, _)) = refused.reads.iter_mut().find(same) {
            one.last = one.last.max(read.last);
            return false;
        }
        refused.reads.push((read, of_error(what)));
        true
    }

    /// Ends the refusals that an answer disproves. `by` is the server that has answered, `sent` when the read was sent.
    pub(crate) fn end_reads(&self, by: NodeId, sent: Instant, is_granted: impl Fn(&RefusedRead) -> bool) {
        let mut refused = lock(&self.0);
        let before = refused.reads.len();
        refused.reads.retain(|(read, _)| !is_granted(read));
        if refused.reads.len() < before {
            refused.granted = Some((by, sent));
        }
    }

    /// Whether keys cannot be read or found.
    pub(crate) fn hide_keys(&self) -> bool {
        let refused = lock(&self.0);
        !refused.reads.is_empty() || refused.others[Asked::Scan as usize].is_some()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let refused = lock(&self.0);
        refused.reads.iter().map(|(_, what)| what).chain(refused.others.iter().flatten()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_news_once_until_it_is_granted() {
        let (refusals, by, start) = (Refusals::default(), NodeId::NONE, Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let begin = |rule: &str, ms, what| {
            let read = RefusedRead { by, rule: rule.into(), key: "a".into(), last: at(ms) };
            refusals.begin_read(read, what)
        };
        assert!(refusals.begin(Asked::Changes, "c") && !refusals.hide_keys());
        assert!(begin("+get", 1, "a") && !begin("+get", 2, "b"));
        assert!(begin("+type", 3, "t") && refusals.hide_keys());
        assert_eq!(refusals.all(), ["a", "t", "c"]);
        refusals.end_reads(by, at(4), |read| read.rule == "+get");
        assert_eq!(refusals.all(), ["t", "c"]);
        refusals.end_reads(by, at(6), |_| true);
        assert!(!begin("+get", 5, "a") && !refusals.hide_keys());
        refusals.end_reads(by, at(8), |_| true);
        assert!(begin("+get", 7, "a") && refusals.hide_keys());
        assert!(refusals.end(Asked::Changes) && !refusals.end(Asked::Changes));
    }
}
