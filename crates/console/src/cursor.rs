//! Where a page has ended.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::wire::PageFrom;
use crate::{Entry, EntryState, text};

/// Where a page has ended, and the next begins. As text it can be handed to anybody: `<ms>.<fraction>@<partition>/<name>`.
///
/// All that a topic holds has one order: by time, then by partition, then by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    pub(super) score: f64,
    pub(super) partition: u32,
    pub(super) name: Bytes,
}

impl Cursor {
    /// Behind an entry; none of running ones, whose pages are in the server's own order.
    pub(super) fn behind(entry: &Entry) -> Option<Self> {
        let Entry { score, partition, ref name, state, .. } = *entry;
        (state != EntryState::Running).then(|| Self { score, partition, name: name.clone() })
    }

    /// Where a partition's next entry is.
    pub(super) fn place_in(&self, partition: u32) -> PageFrom {
        match partition.cmp(&self.partition) {
            std::cmp::Ordering::Less => PageFrom::Behind(self.score),
            std::cmp::Ordering::Equal => PageFrom::After(self.score, self.name.clone()),
            std::cmp::Ordering::Greater => PageFrom::At(self.score),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}", self.score, self.partition, text::escape(&self.name))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read(text).ok_or_else(|| {
            Error::invalid("this is no place at which a page has ended: take it as it was written")
        })
    }
}

fn read(text: &str) -> Option<Cursor> {
    let (score, rest) = text.split_once('@')?;
    let (partition, name) = rest.split_once('/')?;
    let score: f64 = score.parse().ok().filter(|score: &f64| score.is_finite())?;
    let partition = partition.parse().ok().filter(|partition| *partition < crate::wire::MAX_PARTITIONS)?;
    Some(Cursor { score, partition, name: text::unescape(name).ok()?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(score in 0.0..9e12, partition in 0..1024_u32, name: Vec<u8>) {
            let cursor = Cursor { score, partition, name: name.into() };
            prop_assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<Cursor>();
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for bad in ["", "1", "1@", "1@0", "x@0/a", "NaN@0/a", "inf@0/a", "1@1024/a", "1@-1/a", "1@0/\\q"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
