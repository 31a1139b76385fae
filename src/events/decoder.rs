//! Decodes the messages that a server pushes: events of expired and changed keys, and wake-ups.

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;
use keylapse_connection::{PushInfo, PushKind, Value};

use crate::backlog::Item;
use crate::escape::glob;
use crate::events::event::{Change, Event};
use crate::figures::MAX_DESTINATION;
use crate::id::Token;
use crate::limits::MAX_KEY;
use crate::wire::{Index, LeaseRef, PartitionNames, names};

/// A decoded message.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A heartbeat with its number and the previous one. The hash tag identifies a slot of its server.
    #[allow(missing_docs)] // stated above
    Canary { tag: u32, number: u64, before: u64 },
    /// The `set` event of a heartbeat key, which needs the flags `K` and `$`.
    CanarySet,
    /// The `expire` event of a heartbeat key, which needs the flags `K` and `g`.
    CanaryExpire,
    /// The number of messages that the full queue has dropped.
    Dropped(u64),
    /// An event for the listener.
    Event(Event),
    /// The slot of this partition has moved, and its wake-ups with it.
    Moved(usize),
    /// The server has emptied its data set, to load another or for good.
    Reloaded,
    /// The connection was lost.
    Disconnected,
}

impl Item for Decoded {
    fn split(self) -> Result<(u32, Bytes), Self> {
        match self {
            Self::Event(Event::Expired(key)) => Ok((0, key)),
            Self::Event(Event::Changed(key, Change::Written)) => Ok((1, key)),
            Self::Event(Event::Changed(key, Change::Deleted)) => Ok((2, key)),
            other => Err(other),
        }
    }

    fn join(tag: u32, key: Bytes) -> Self {
        Self::Event(match tag {
            0 => Event::Expired(key),
            1 => Event::Changed(key, Change::Written),
            _ => Event::Changed(key, Change::Deleted),
        })
    }

    fn size(&self) -> usize {
        let more = match self {
            Self::Event(Event::KeysRead(reply)) => reply.size(),
            Self::Event(Event::Fence { held, .. }) => held.key.len(),
            _ => 0,
        };
        size_of::<Self>() + more
    }
}

/// The channels of a subscription, and the decoder of their messages.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The channel of expired keys.
    pub(super) expired: String,
    /// The prefix of all heartbeat keys.
    canary: String,
    /// The wake-up channels, in the order of the partitions.
    pub(super) wake: Vec<String>,
    /// The index of the partition of each wake-up channel.
    partitions: HashMap<String, usize>,
    /// The prefix of keyspace channels.
    keyspace: String,
    /// Patterns of the keyspace channels of attached topics, and then of heartbeat keys. Empty without attached
    /// topics.
    pub(super) patterns: Vec<String>,
}

impl Decoder {
    /// Creates a decoder. `several` is true for a cluster, in which each server has its own heartbeat keys.
    pub fn new(
        namespace: &str,
        db: i64,
        partitions: &[PartitionNames],
        attached: &[String],
        several: bool,
    ) -> Self {
        let canary = names::canary_prefix(namespace);
        let keyspace = names::keyspace_channel(db);
        let heartbeats = if several { canary.clone() } else { format!("{}:", names::canary(namespace, 0)) };
        let prefixes = attached.iter().chain((!attached.is_empty()).then_some(&heartbeats));
        let patterns = prefixes.map(|prefix| format!("{keyspace}{}*", glob(prefix))).collect();
        Self {
            expired: names::expired_channel(db),
            keyspace,
            patterns,
            canary,
            wake: partitions.iter().map(|at| at.wake.clone()).collect(),
            partitions: partitions.iter().enumerate().map(|(place, at)| (at.wake.clone(), place)).collect(),
        }
    }

    /// Decodes a pushed message. Returns `None` for an irrelevant or invalid message, as any client may publish.
    pub fn decode_push(&self, mut push: PushInfo) -> Option<Decoded> {
        use Value::BulkString as Text;
        match (push.kind, &mut push.data[..]) {
            (PushKind::Disconnection, _) => Some(Decoded::Disconnected),
            (PushKind::Message | PushKind::SMessage, [Text(channel), Text(payload)]) => {
                self.decode_message(channel, mem::take(payload).into())
            }
            // No key is tracked, so the message is about the whole data set.
            (PushKind::Invalidate, [Value::Nil]) => Some(Decoded::Reloaded),
            // The server ended the subscription without a request, as the slot has moved.
            (PushKind::SUnsubscribe, [Text(channel), ..]) => self.partition(channel).map(Decoded::Moved),
            (PushKind::PMessage, [_, Text(channel), Text(event)]) => {
                channel.starts_with(self.keyspace.as_bytes()).then_some(())?;
                self.decode_change(Bytes::from(mem::take(channel)).slice(self.keyspace.len()..), event)
            }
            _ => None,
        }
    }

    /// Returns the partition of a wake-up channel.
    pub(super) fn partition(&self, channel: &[u8]) -> Option<usize> {
        self.partitions.get(std::str::from_utf8(channel).ok()?).copied()
    }

    fn decode_message(&self, channel: &[u8], payload: Bytes) -> Option<Decoded> {
        if channel == self.expired.as_bytes() {
            return Some(match self.canary_number(&payload) {
                Some((tag, number, before)) => Decoded::Canary { tag, number, before },
                None if payload.len() <= MAX_KEY => Decoded::Event(Event::Expired(payload)),
                // A longer key belongs to no topic, and would fill the queue.
                None => Decoded::Event(Event::Expired(Bytes::new())),
            });
        }
        decode_wake_up(self.partition(channel)?, &payload).map(Decoded::Event)
    }

    /// Decodes an event of a keyspace channel. Only events that change the deadline or delete the key matter. `expired` has
    /// its own channel, and `evicted` does not count as a deletion.
    fn decode_change(&self, key: Bytes, event: &[u8]) -> Option<Decoded> {
        if self.canary_number(&key).is_some() {
            return match event {
                b"set" => Some(Decoded::CanarySet),
                b"expire" => Some(Decoded::CanaryExpire),
                _ => None,
            };
        }
        let change = match event {
            b"set" | b"expire" | b"persist" | b"rename_to" | b"copy_to" | b"move_to" | b"restore" => {
                Change::Written
            }
            b"del" | b"rename_from" | b"move_from" => Change::Deleted,
            _ => return None,
        };
        (key.len() <= MAX_KEY).then_some(Decoded::Event(Event::Changed(key, change)))
    }

    /// Returns the hash tag, the number and the previous number in the name of a heartbeat key. None for other keys.
    fn canary_number(&self, key: &[u8]) -> Option<(u32, u64, u64)> {
        let (tag, name) =
            std::str::from_utf8(key.strip_prefix(self.canary.as_bytes())?).ok()?.split_once("}:")?;
        let (number, before) = numbers_of(name)?;
        Some((tag.parse().ok()?, number, before))
    }
}

/// Returns the number and the previous number in the last part of a heartbeat key's name.
pub(super) fn numbers_of(name: &str) -> Option<(u64, u64)> {
    let (number, before) = name.split_once(':')?;
    Some((number.parse().ok()?, before.parse().ok()?))
}

/// Decodes a message of a wake-up channel: `w`, `q` or `l` and a time in ms; `f`, a token and a key; or `o` and a
/// destination.
fn decode_wake_up(partition: usize, payload: &Bytes) -> Option<Event> {
    let ms = || std::str::from_utf8(&payload[1..]).ok()?.parse().ok();
    match payload.first()? {
        b'w' => Some(Event::Wake { partition, index: Index::Due, at: ms()? }),
        b'q' => Some(Event::Wake { partition, index: Index::Quarantine, at: ms()? }),
        b'l' => Some(Event::Unclaimed { partition, at: ms()? }),
        b'o' if payload.len() <= 1 + MAX_DESTINATION => {
            let destination = std::str::from_utf8(&payload[1..]).ok()?.to_owned();
            Some(Event::TryNow { partition, destination })
        }
        b'f' if (9..=9 + MAX_KEY).contains(&payload.len()) => {
            let token = Token::from_bytes(&payload[1..9])?;
            Some(Event::Fence { partition, held: LeaseRef { key: payload.slice(9..), token } })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoder() -> Decoder {
        Decoder::new(
            "keylapse",
            0,
            &[0, 1].map(|index| PartitionNames::new("keylapse", "a", index, 2, false)),
            &["order:*:".into()],
            false,
        )
    }

    fn message(channel: &str, payload: &[u8]) -> PushInfo {
        let data = vec![Value::BulkString(channel.into()), Value::BulkString(payload.to_vec())];
        PushInfo { kind: PushKind::Message, data }
    }

    #[test]
    fn each_kind_of_message_is_decoded() {
        let decoder = decoder();
        let expired = |key: &[u8]| decoder.decode_push(message("__keyevent@0__:expired", key));
        for (canary, tag) in
            [(&b"keylapse:{heartbeat/0}:17:16"[..], 0), (b"keylapse:{heartbeat/4711}:17:16", 4711)]
        {
            assert_eq!(
                expired(canary),
                Some(Decoded::Canary { tag, number: 17, before: 16 }),
                "of any primary"
            );
        }
        assert_eq!(expired(b"a:b"), Some(Decoded::Event(Event::Expired(Bytes::from_static(b"a:b")))));
        for (payload, index) in [(b"w1700000000000", Index::Due), (b"q1700000000000", Index::Quarantine)] {
            assert_eq!(
                decoder.decode_push(message("keylapse:{a/1}:wake", payload)),
                Some(Decoded::Event(Event::Wake { partition: 1, index, at: 1_700_000_000_000 }))
            );
        }
        assert_eq!(
            decoder.decode_push(message("keylapse:{a/1}:wake", b"l1700000000000")),
            Some(Decoded::Event(Event::Unclaimed { partition: 1, at: 1_700_000_000_000 }))
        );
        assert_eq!(
            decoder.decode_push(message("keylapse:{a/0}:wake", b"oshop.example:443")),
            Some(Decoded::Event(Event::TryNow { partition: 0, destination: "shop.example:443".to_owned() }))
        );
        assert_eq!(
            decoder.decode_push(message("keylapse:{a/0}:wake", b"f12345678some:key")),
            Some(Decoded::Event(Event::Fence {
                partition: 0,
                held: LeaseRef { key: Bytes::from_static(b"some:key"), token: Token(*b"12345678") },
            }))
        );
    }

    #[test]
    fn a_message_is_as_long_as_what_it_names_can_be_and_no_longer() {
        for (head, most) in [("o", MAX_DESTINATION), ("f12345678", MAX_KEY)] {
            let decoded = |length| decode_wake_up(0, &Bytes::from(head.to_owned() + &"k".repeat(length)));
            assert!(decoded(most).is_some() && decoded(most + 1).is_none(), "{head}");
        }
    }

    fn of_key(channel: &str, event: &str) -> Option<Decoded> {
        let data = ["pattern", channel, event].map(|text| Value::BulkString(text.into())).to_vec();
        decoder().decode_push(PushInfo { kind: PushKind::PMessage, data })
    }

    #[test]
    fn changes_of_attached_keys_are_decoded_and_those_of_heartbeat_keys_prove_the_flags() {
        assert_eq!(
            decoder().patterns,
            ["__keyspace@0__:order:\\*:*", "__keyspace@0__:keylapse:{heartbeat/0}:*"]
        );
        let key = Bytes::from_static(b"order:*:1");
        for (event, change) in [
            ("set", Some(Change::Written)),
            ("del", Some(Change::Deleted)),
            ("expired", None),
            ("incrby", None),
        ] {
            let decoded = change.map(|change| Decoded::Event(Event::Changed(key.clone(), change)));
            assert_eq!(of_key("__keyspace@0__:order:*:1", event), decoded, "{event}");
        }
        let canary = "__keyspace@0__:keylapse:{heartbeat/0}:17:16";
        assert_eq!(of_key(canary, "set"), Some(Decoded::CanarySet));
        assert_eq!(of_key(canary, "expire"), Some(Decoded::CanaryExpire));
        assert_eq!(of_key("__keyspace@1__:order:*:1", "set"), None);
    }

    #[test]
    fn what_is_not_ours_is_ignored() {
        let decoder = decoder();
        for (channel, payload) in [
            ("__keyevent@1__:expired", &b"a"[..]),
            ("keylapse:{b/0}:wake", b"w1"),
            ("keylapse:{a/0}:wake", b""),
            ("keylapse:{a/0}:wake", b"w"),
            ("keylapse:{a/0}:wake", b"w-1"),
            ("keylapse:{a/0}:wake", b"q"),
            ("keylapse:{a/0}:wake", b"l"),
            ("keylapse:{a/0}:wake", b"lx"),
            ("keylapse:{a/0}:wake", b"w99999999999999999999999"),
            ("keylapse:{a/0}:wake", b"fshort"),
            ("keylapse:{a/0}:wake", b"x"),
            // An entry of the live tail, which listeners ignore.
            (
                "keylapse:{a/0}:wake",
                b"t\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\0B\0\0\0\x01ident001\0\0\x01\x8b\xcf\xe5\x68\0\0\x01a",
            ),
        ] {
            assert_eq!(decoder.decode_push(message(channel, payload)), None, "{channel} {payload:?}");
        }
    }

    /// No name is split at a colon: the whole channel is compared, and the whole payload is the key.
    #[test]
    fn a_key_named_like_a_channel_is_a_key_and_a_channel_named_nearly_so_is_none() {
        let decoder = decoder();
        for key in ["__keyevent@0__:expired", "keylapse:{a/0}:wake", "a:b:c", ":"] {
            let expired = Decoded::Event(Event::Expired(Bytes::from_static(key.as_bytes())));
            assert_eq!(decoder.decode_push(message("__keyevent@0__:expired", key.as_bytes())), Some(expired));
        }
        for channel in [
            "__keyevent@00__:expired",
            "__keyevent@0__:expired:a",
            "__keyevent@0__:",
            "__keyevent@0__:EXPIRED",
            "__keyspace@0__:expired",
            "x:__keyevent@0__:expired",
        ] {
            assert_eq!(decoder.decode_push(message(channel, b"expired")), None, "{channel}");
        }
    }

    #[test]
    fn no_message_fills_the_queue_with_more_than_a_key_of_ours() {
        let long = vec![b'a'; MAX_KEY + 1];
        let nameless = Decoded::Event(Event::Expired(Bytes::new()));
        assert_eq!(decoder().decode_push(message("__keyevent@0__:expired", &long)), Some(nameless));
        let fence = [b"f12345678", &long[..]].concat();
        assert_eq!(decoder().decode_push(message("keylapse:{a/0}:wake", &fence)), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_decoder_panic(channel in 0usize..3, payload: Vec<u8>) {
            let channel = ["__keyevent@0__:expired", "keylapse:{a/0}:wake", "x"][channel];
            decoder().decode_push(message(channel, &payload));
        }
    }
}
