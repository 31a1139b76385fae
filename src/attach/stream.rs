//! A listener's place in its server's stream of expired keys, and what the stream has said of a key.
//!
//! Pure: no clock, no server. The rules are those of docs/attach-protocol.md.

use std::collections::HashMap;

use bytes::Bytes;

use super::decide::Stream as Said;
use crate::store::Canary;
use crate::store::foreign::{Place, Watch};
use crate::time::ServerTime;

/// For how long what was heard of a key is remembered, in the numbers of canaries: ms.
const MEMORY: u64 = 60_000;
/// Keys remembered at most; beyond, all but those since the last canary are forgotten.
const KEYS: usize = 500_000;

/// What one listener has heard, in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    anchor: Option<Anchor>,
    /// Whether it ever had one. Before, it is as if it had not subscribed yet.
    began: bool,
    /// The number of the last canary.
    number: u64,
    /// Counts all that is heard of keys.
    heard: u64,
    keys: HashMap<Bytes, Heard>,
}

/// From where on everything was heard.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// The first canary.
    number: u64,
    /// The server's time, read after it was heard; none until that is answered.
    time: Option<ServerTime>,
}

/// What was heard of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The last expiry.
    expired: Place,
    /// The last deletion.
    gone: Option<Place>,
    /// When anything was heard last.
    last: u64,
    /// The canary before that.
    since: u64,
}

/// What a canary means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// Nothing was missed.
    Unbroken,
    /// The stream begins here; what was known is not any more.
    Anchored,
}

/// What an expiry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It has a name.
    Identity(Place),
    /// It was heard in a gap.
    Unsure,
    /// It was heard before the stream began.
    Deaf,
}

impl Stream {
    /// A canary was heard.
    pub(super) fn canary(&mut self, canary: Canary) -> Ring {
        let unbroken = self.anchor.is_some() && canary.before == self.number;
        if !unbroken {
            self.lose();
            self.anchor = Some(Anchor { number: canary.number, time: None });
            self.began = true;
        }
        self.number = canary.number;
        self.keys.retain(|_, heard| heard.since + MEMORY > canary.number);
        if self.keys.len() > KEYS {
            self.keys.clear();
        }
        if unbroken { Ring::Unbroken } else { Ring::Anchored }
    }

    /// The server's time, read after the first canary was heard.
    pub(super) fn anchored_at(&mut self, time: ServerTime) {
        if let Some(anchor) = &mut self.anchor {
            anchor.time.get_or_insert(time);
        }
    }

    /// Something may have been missed.
    pub(super) fn lose(&mut self) {
        self.anchor = None;
        // A deletion is the last word on a key only as long as nothing after it can have been missed.
        self.keys.values_mut().for_each(|heard| heard.gone = None);
    }

    /// A key has expired.
    pub(super) fn expired(&mut self, key: &Bytes) -> Meaning {
        if self.anchor.is_none() {
            return if self.began { Meaning::Unsure } else { Meaning::Deaf };
        }
        let number = self.number;
        let heard = self.hear(key);
        let count = if heard.expired.canary == number { heard.expired.count + 1 } else { 1 };
        heard.expired = Place { canary: number, count };
        Meaning::Identity(heard.expired)
    }

    /// A key was deleted or renamed.
    pub(super) fn gone(&mut self, key: &Bytes) {
        if self.anchor.is_some() {
            let place = self.place(key);
            self.hear(key).gone = Some(place);
        }
    }

    fn hear(&mut self, key: &Bytes) -> &mut Heard {
        self.heard += 1;
        let (last, since) = (self.heard, self.number);
        let heard = self.keys.entry(key.clone()).or_default();
        (heard.last, heard.since) = (last, since);
        heard
    }

    /// Whether a canary was ever heard.
    pub(super) fn began(&self) -> bool {
        self.began
    }

    pub(super) fn is_anchored(&self) -> bool {
        self.anchor.is_some()
    }

    /// Where it is now, as far as this key is concerned; (0, 0) without an anchor.
    pub(super) fn place(&self, key: &Bytes) -> Place {
        if self.anchor.is_none() {
            return Place::default();
        }
        let count = self.keys.get(key).filter(|heard| heard.expired.canary == self.number);
        Place { canary: self.number, count: count.map_or(0, |heard| heard.expired.count) }
    }

    /// Where this key was last heard to be deleted, if nothing has happened to it since.
    pub(super) fn deleted_at(&self, key: &Bytes) -> Option<Place> {
        self.keys.get(key)?.gone
    }

    /// Where this key was last heard to expire.
    pub(super) fn expired_at(&self, key: &Bytes) -> Place {
        self.keys.get(key).map_or(Place::default(), |heard| heard.expired)
    }

    /// A moment of the stream.
    pub(super) fn now(&self) -> u64 {
        self.heard
    }

    /// Whether anything was heard of a key since.
    pub(super) fn heard_since(&self, key: &Bytes, moment: u64) -> bool {
        self.keys.get(key).is_some_and(|heard| heard.last > moment)
    }

    /// The number of the last canary.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What the stream says of a watched life, after a touch that was answered behind canary `touched`.
    pub(super) fn says(&self, watch: &Watch, touched: u64) -> Said {
        let Some(anchor) = self.anchor else { return Said::Broken };
        let heard = self.keys.get(&watch.key).copied().unwrap_or_default();
        if heard.expired > watch.at {
            return Said::Expired;
        }
        let proven = self.number > touched;
        // Deletions do not count: one at the very place of the reading may be that of the life before it.
        if heard.gone.is_some_and(|gone| gone > watch.at || gone == watch.at && proven) {
            return Said::Deleted;
        }
        let whole = watch.at.canary >= anchor.number;
        match anchor.time {
            None if !whole => Said::NothingYet,
            Some(time) if !whole && time.ms() >= watch.deadline => Said::Broken,
            _ if proven => Said::Nothing,
            _ => Said::NothingYet,
        }
    }
}

#[cfg(test)]
mod forgetting;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Bytes = Bytes::from_static(b"a");

    fn canary(number: u64, before: u64) -> Canary {
        Canary { number, before, writes: false, expires: false }
    }

    fn at(canary: u64, count: u32) -> Place {
        Place { canary, count }
    }

    fn watch(deadline: u64, at: Place) -> Watch {
        Watch { key: KEY, head: Bytes::new(), deadline, at }
    }

    fn anchored() -> Stream {
        let mut stream = Stream::default();
        assert_eq!(stream.canary(canary(1000, 7)), Ring::Anchored);
        stream.anchored_at(ServerTime::from_ms(1005));
        stream
    }

    #[test]
    fn before_its_first_canary_it_is_deaf_and_in_a_gap_unsure() {
        let mut stream = Stream::default();
        assert_eq!(stream.expired(&KEY), Meaning::Deaf);
        let mut stream = anchored();
        stream.lose();
        assert_eq!((stream.expired(&KEY), stream.place(&KEY)), (Meaning::Unsure, at(0, 0)));
    }

    #[test]
    fn expiries_of_a_key_are_counted_from_each_canary() {
        let mut stream = anchored();
        let other = Bytes::from_static(b"b");
        assert_eq!(stream.expired(&KEY), Meaning::Identity(at(1000, 1)));
        assert_eq!(stream.expired(&KEY), Meaning::Identity(at(1000, 2)));
        assert_eq!(stream.expired(&other), Meaning::Identity(at(1000, 1)));
        assert_eq!(stream.canary(canary(2000, 1000)), Ring::Unbroken);
        assert_eq!(stream.place(&KEY), at(2000, 0));
        assert_eq!(stream.expired(&KEY), Meaning::Identity(at(2000, 1)));
    }

    #[test]
    fn a_canary_whose_predecessor_was_not_heard_begins_anew() {
        let mut stream = anchored();
        assert_eq!(stream.canary(canary(3000, 2000)), Ring::Anchored);
        stream.lose();
        assert_eq!(stream.canary(canary(4000, 3000)), Ring::Anchored);
    }

    #[test]
    fn what_was_heard_of_a_watched_life_is_later_than_the_reading() {
        let mut stream = anchored();
        stream.expired(&KEY);
        assert_eq!(stream.says(&watch(1500, at(1000, 0)), 1000), Said::Expired);
        assert_eq!(stream.says(&watch(1500, at(1000, 1)), 1000), Said::NothingYet);
        stream.gone(&KEY);
        assert_eq!(stream.says(&watch(1500, at(1000, 1)), 1000), Said::NothingYet);
        assert_eq!(stream.says(&watch(1500, at(900, 1)), 1000), Said::Expired);
        stream.canary(canary(2000, 1000));
        assert_eq!(stream.says(&watch(1500, at(1000, 1)), 1000), Said::Deleted);
        assert_eq!(stream.says(&watch(1500, at(2000, 0)), 1000), Said::Nothing);
    }

    #[test]
    fn a_deletion_before_a_gap_says_nothing_after_it() {
        let mut stream = anchored();
        stream.gone(&KEY);
        stream.canary(canary(3000, 2000));
        stream.anchored_at(ServerTime::from_ms(3005));
        assert_eq!(stream.says(&watch(1500, at(1000, 0)), 3000), Said::Broken);
    }

    #[test]
    fn nothing_is_proven_from_an_anchor_before_the_deadline_to_a_canary_after_the_touch() {
        let mut stream = anchored();
        for (deadline, read, whole) in [(1006, 900, true), (1005, 900, false), (1, 1000, true)] {
            let watch = watch(deadline, at(read, 0));
            let expected = if whole { Said::NothingYet } else { Said::Broken };
            assert_eq!(stream.says(&watch, 1000), expected, "{deadline} {read}");
        }
        stream.canary(canary(2000, 1000));
        assert_eq!(stream.says(&watch(1006, at(900, 0)), 1000), Said::Nothing);
        assert_eq!(stream.says(&watch(1006, at(900, 0)), 2000), Said::NothingYet);
    }

    #[test]
    fn until_the_time_of_the_anchor_is_known_nothing_is_said() {
        let mut stream = Stream::default();
        stream.canary(canary(1000, 0));
        stream.canary(canary(2000, 1000));
        assert_eq!(stream.says(&watch(1, at(900, 0)), 1000), Said::NothingYet);
    }
}
