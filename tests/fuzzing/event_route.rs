//! A pushed message as it comes over the wire: what the subscription makes of it, and where it leads.

use keylapse_connection::{PushInfo, PushKind, Value, parse_redis_value};

use crate::fuzzing::assert_fit_for_a_log;
use keylapse::inside::receiving::event::Event;
use keylapse::inside::receiving::{Decoded, Decoder};
use keylapse_connection::escape::Escaped;
use keylapse_pattern::Pattern;
use keylapse_pattern::Router;
use keylapse_wire::MAX_KEY;
use keylapse_wire::{Index, PartitionNames};

const PARTITIONS: usize = 2;
const EXPIRED: &[u8] = b"__keyevent@7__:expired";
const CANARY: &str = "keylapse:{heartbeat/";

/// Only the one channel speaks of expired keys, only the wake-up channels wake, and only keys of the
/// pattern have a route.
pub(crate) fn event_route(data: &[u8]) {
    let Ok(Value::Push { kind, data }) = parse_redis_value(data) else { return };
    let partitions = [0, 1].map(|index| PartitionNames::new("keylapse", "orders", index, 2, false));
    let decoder = Decoder::new("keylapse", 7, &partitions, &["app:order:".to_owned()], false);
    let heard = decoder.decode_push(PushInfo { kind: kind.clone(), data: data.clone() });
    let published = matches!(kind, PushKind::Message | PushKind::SMessage);
    let message = match &data[..] {
        [Value::BulkString(channel), Value::BulkString(payload)] if published => {
            Some((&channel[..], &payload[..]))
        }
        [_, Value::BulkString(channel), Value::BulkString(event)] if kind == PushKind::PMessage => {
            Some((&channel[..], &event[..]))
        }
        _ => None,
    };
    match heard {
        None => assert!(!published || message.is_none_or(|(channel, _)| channel != EXPIRED)),
        Some(Decoded::Disconnected) => assert_eq!(kind, PushKind::Disconnection),
        Some(Decoded::Reloaded) => assert_eq!((kind, data), (PushKind::Invalidate, vec![Value::Nil])),
        Some(heard) => {
            let (channel, payload) = message.expect("a message was published");
            check(heard, channel, payload);
        }
    }
}

/// The numbers of a canary of any primary.
fn canary(key: &[u8]) -> Option<(u32, u64, u64)> {
    let (tag, numbers) = str::from_utf8(key).ok()?.strip_prefix(CANARY)?.split_once("}:")?;
    let (number, before) = numbers.split_once(':')?;
    Some((tag.parse().ok()?, number.parse().ok()?, before.parse().ok()?))
}

fn check(heard: Decoded, channel: &[u8], payload: &[u8]) {
    let event = match heard {
        Decoded::Event(event) => event,
        Decoded::Canary { tag, number, before } => {
            assert_eq!((canary(payload), channel), (Some((tag, number, before)), EXPIRED));
            return;
        }
        Decoded::CanarySet | Decoded::CanaryExpire => {
            assert!(canary(key_of(channel)).is_some());
            return;
        }
        other => panic!("nobody publishes {other:?}"),
    };
    match event {
        Event::Changed(key, _) => {
            assert_eq!(key_of(channel), key);
            assert!(key.len() <= MAX_KEY);
            check_route(&key);
        }
        Event::Expired(key) => {
            assert_eq!(channel, EXPIRED);
            assert!(key == payload || (key.is_empty() && payload.len() > MAX_KEY));
            check_route(&key);
        }
        Event::Wake { partition, index, at } => {
            let letter: &[u8] = if index == Index::Due { b"w" } else { b"q" };
            let digits = payload.strip_prefix(letter).and_then(|digits| str::from_utf8(digits).ok());
            assert_eq!(
                (channel, digits.and_then(|digits| digits.parse().ok())),
                (&wake(partition)[..], Some(at))
            );
        }
        Event::Unclaimed { partition, at } => {
            let digits = payload.strip_prefix(b"l").and_then(|digits| str::from_utf8(digits).ok());
            let said = digits.and_then(|digits| digits.parse().ok());
            assert_eq!((channel, said), (&wake(partition)[..], Some(at)));
        }
        Event::TryNow { partition, destination } => {
            assert_eq!(
                (channel, payload),
                (&wake(partition)[..], &[b"o", destination.as_bytes()].concat()[..])
            );
        }
        Event::Fence { partition, held } => {
            assert_eq!(channel, wake(partition));
            assert_eq!([b"f", &held.token.as_bytes()[..], &held.key].concat(), payload);
            assert!(held.key.len() <= MAX_KEY);
        }
        event => panic!("nobody publishes {event:?}"),
    }
}

/// Whose keyspace channel this is.
fn key_of(channel: &[u8]) -> &[u8] {
    channel.strip_prefix(b"__keyspace@7__:").expect("a channel of this database")
}

fn wake(partition: usize) -> Vec<u8> {
    assert!(partition < PARTITIONS);
    format!("keylapse:{{orders/{partition}}}:wake").into_bytes()
}

/// As the listener finds the topic of an expired key, and as anybody would who reads the pattern.
fn check_route(key: &[u8]) {
    let mut router = Router::new();
    router.insert(Pattern::new("app:order:{id}").expect("a pattern"), ()).expect("the only one");
    let id = key.strip_prefix(b"app:order:");
    let ours = id.is_some_and(|id| !id.is_empty() && !id.contains(&b':'));
    assert_eq!(router.route(key).is_some(), ours, "{}", Escaped(key));
    assert_fit_for_a_log(&Escaped(key).to_string(), 4 * 128 + 40);
}
