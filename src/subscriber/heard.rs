//! From a pushed message to what it means.

use bytes::Bytes;
use redis::{PushInfo, PushKind, Value};

use crate::id::Token;
use crate::store::keys::Partition;
use crate::store::{Held, Hint};
use crate::topic::MAX_KEY;

/// A message, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The canary of this number.
    Canary(u64),
    /// Something for the listener.
    Hint(Hint),
    /// The server has closed the connection.
    Disconnected,
}

/// What to listen for.
#[derive(Clone, Debug)]
pub(crate) struct Ear {
    /// The channel of expired keys.
    pub(super) expired: String,
    /// The names of canaries up to their number.
    pub(super) canary: String,
    /// The wake-up channels, in the order of the partitions.
    pub(super) wake: Vec<String>,
}

impl Ear {
    pub(crate) fn new(namespace: &str, db: i64, partitions: &[Partition]) -> Self {
        Self {
            expired: crate::store::keys::expired_channel(db),
            canary: format!("{}:", crate::store::keys::canary(namespace, 0)),
            wake: partitions.iter().map(|at| at.wake.clone()).collect(),
        }
    }

    /// What a pushed message means; `None` for what is of no interest or not
    /// of our making: anybody may publish.
    pub(crate) fn hear(&self, push: PushInfo) -> Option<Heard> {
        match push.kind {
            PushKind::Disconnection => Some(Heard::Disconnected),
            PushKind::Message | PushKind::SMessage => {
                let [Value::BulkString(channel), Value::BulkString(payload)] =
                    <[Value; 2]>::try_from(push.data).ok()?
                else {
                    return None;
                };
                self.message(&channel, payload.into())
            }
            _ => None,
        }
    }

    fn message(&self, channel: &[u8], payload: Bytes) -> Option<Heard> {
        if channel == self.expired.as_bytes() {
            return Some(match self.canary_number(&payload) {
                Some(number) => Heard::Canary(number),
                None if payload.len() <= MAX_KEY => Heard::Hint(Hint::Expired(payload)),
                // No key of ours, and too long to be kept in a queue.
                None => Heard::Hint(Hint::Expired(Bytes::new())),
            });
        }
        let partition = self.wake.iter().position(|wake| wake.as_bytes() == channel)?;
        signal(partition, &payload).map(Heard::Hint)
    }

    fn canary_number(&self, key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(self.canary.as_bytes())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// `w` and a time in ms, or `f`, a token and a key.
fn signal(partition: usize, payload: &Bytes) -> Option<Hint> {
    match payload.first()? {
        b'w' => {
            let at = std::str::from_utf8(&payload[1..]).ok()?.parse().ok()?;
            Some(Hint::Wake { partition, at })
        }
        b'f' if (9..=9 + MAX_KEY).contains(&payload.len()) => {
            let token = Token::from_bytes(&payload[1..9])?;
            Some(Hint::Fence { partition, held: Held { key: payload.slice(9..), token } })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ear() -> Ear {
        Ear::new(
            "keylapse",
            0,
            &[Partition::new("keylapse", "a", 0, 2), Partition::new("keylapse", "a", 1, 2)],
        )
    }

    fn message(channel: &str, payload: &[u8]) -> PushInfo {
        let data = vec![Value::BulkString(channel.into()), Value::BulkString(payload.to_vec())];
        PushInfo { kind: PushKind::Message, data }
    }

    #[test]
    fn messages_are_told_apart() {
        let ear = ear();
        let expired = |key: &[u8]| ear.hear(message("__keyevent@0__:expired", key));
        assert_eq!(expired(b"keylapse:{canary/0}:17"), Some(Heard::Canary(17)));
        assert_eq!(expired(b"a:b"), Some(Heard::Hint(Hint::Expired(Bytes::from_static(b"a:b")))));
        assert_eq!(
            ear.hear(message("keylapse:{a/1}:wake", b"w1700000000000")),
            Some(Heard::Hint(Hint::Wake { partition: 1, at: 1_700_000_000_000 }))
        );
        assert_eq!(
            ear.hear(message("keylapse:{a/0}:wake", b"f12345678some:key")),
            Some(Heard::Hint(Hint::Fence {
                partition: 0,
                held: Held { key: Bytes::from_static(b"some:key"), token: Token(*b"12345678") },
            }))
        );
    }

    #[test]
    fn what_is_not_ours_is_ignored() {
        let ear = ear();
        for (channel, payload) in [
            ("__keyevent@1__:expired", &b"a"[..]),
            ("keylapse:{b/0}:wake", b"w1"),
            ("keylapse:{a/0}:wake", b""),
            ("keylapse:{a/0}:wake", b"w"),
            ("keylapse:{a/0}:wake", b"w-1"),
            ("keylapse:{a/0}:wake", b"w99999999999999999999999"),
            ("keylapse:{a/0}:wake", b"fshort"),
            ("keylapse:{a/0}:wake", b"x"),
        ] {
            assert_eq!(ear.hear(message(channel, payload)), None, "{channel} {payload:?}");
        }
    }

    /// Nothing is split at a colon: a channel is compared whole, and what it carries is a key.
    #[test]
    fn a_key_named_like_a_channel_is_a_key_and_a_channel_named_nearly_so_is_none() {
        let ear = ear();
        for key in ["__keyevent@0__:expired", "keylapse:{a/0}:wake", "a:b:c", ":"] {
            let expired = Heard::Hint(Hint::Expired(Bytes::from_static(key.as_bytes())));
            assert_eq!(ear.hear(message("__keyevent@0__:expired", key.as_bytes())), Some(expired));
        }
        for channel in [
            "__keyevent@00__:expired",
            "__keyevent@0__:expired:a",
            "__keyevent@0__:",
            "__keyevent@0__:EXPIRED",
            "__keyspace@0__:expired",
            "x:__keyevent@0__:expired",
        ] {
            assert_eq!(ear.hear(message(channel, b"expired")), None, "{channel}");
        }
    }

    #[test]
    fn no_message_fills_the_queue_with_more_than_a_key_of_ours() {
        let long = vec![b'a'; MAX_KEY + 1];
        let nameless = Heard::Hint(Hint::Expired(Bytes::new()));
        assert_eq!(ear().hear(message("__keyevent@0__:expired", &long)), Some(nameless));
        let fence = [b"f12345678", &long[..]].concat();
        assert_eq!(ear().hear(message("keylapse:{a/0}:wake", &fence)), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_ear_panic(channel in 0usize..3, payload: Vec<u8>) {
            let channel = ["__keyevent@0__:expired", "keylapse:{a/0}:wake", "x"][channel];
            ear().hear(message(channel, &payload));
        }
    }
}
