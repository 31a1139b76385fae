use super::*;
use crate::time::ServerTime;

const KEY: Bytes = Bytes::from_static(b"a");
const OTHER: Bytes = Bytes::from_static(b"b");

fn node(name: &str) -> NodeId {
    NodeId::new(name.as_bytes()).unwrap()
}

fn at(name: &str, canary: u64, count: u32) -> Position {
    Position { node: node(name), canary, count }
}

fn canary(number: u64, before: u64) -> Canary {
    Canary { number, before, ..Canary::default() }
}

/// A server that is heard and believed from canary 1000 on, which was heard at that time.
fn trusted(name: &str) -> NodeStream {
    let mut server = NodeStream::new(node(name));
    server.told(Word::Primary);
    server.canary(canary(1000, 0));
    server.stream.anchored_at(ServerTime::from_ms(1000));
    server
}

fn watch(at: Position, deadline: u64) -> Watch {
    Watch { key: KEY, head: Bytes::new(), deadline, at, answered: false }
}

#[test]
fn who_is_believed_is_noted_at_once_and_who_missed_something_is_not() {
    let mut server = trusted("a");
    assert_eq!(server.expired(&KEY), Heard::Placed(at("a", 1000, 1), 1000));
    assert_eq!(server.stream().place(&KEY), at("a", 1000, 1));
    server.lost();
    assert_eq!(server.expired(&KEY), Heard::Held);
    assert!(!server.is_trusted() && server.release().is_empty());
}

#[test]
fn a_gap_ends_by_a_canary_and_another_servers_word_in_any_order() {
    for word_first in [true, false] {
        let mut server = trusted("a");
        server.lost();
        for _ in 0..2 {
            assert_eq!(server.expired(&KEY), Heard::Held);
        }
        if word_first {
            server.told(Word::Primary);
            assert!(server.release().is_empty(), "no canary was heard after it");
            server.canary(canary(3000, 2000));
        } else {
            server.canary(canary(3000, 2000));
            assert!(server.release().is_empty(), "nobody has named it since");
            server.told(Word::Primary);
        }
        assert_eq!(server.release(), [Released::Gap(KEY, 3000, 2)]);
        assert!(server.release().is_empty());
    }
}

#[test]
fn what_was_heard_behind_a_canary_keeps_its_place_until_another_server_is_heard() {
    let mut server = NodeStream::new(node("a"));
    assert_eq!(server.expired(&KEY), Heard::Held);
    server.canary(canary(3000, 2000));
    assert_eq!([server.expired(&KEY), server.expired(&OTHER), server.expired(&KEY)], [Heard::Held; 3]);
    server.canary(canary(4000, 3000));
    assert_eq!(server.expired(&KEY), Heard::Held);
    server.told(Word::Other);
    assert!(server.release().is_empty());
    server.told(Word::Primary);
    let placed = |key, canary, count| Released::Placed(key, at("a", canary, count), 3000);
    assert_eq!(
        server.release(),
        [
            Released::Gap(KEY, 3000, 1),
            placed(KEY, 3000, 1),
            placed(OTHER, 3000, 1),
            placed(KEY, 3000, 2),
            placed(KEY, 4000, 1)
        ]
    );
}

#[test]
fn what_has_its_name_keeps_it_through_another_gap_and_what_has_none_has_none() {
    let mut server = trusted("a");
    server.lost();
    server.expired(&KEY);
    server.canary(canary(3000, 2000));
    server.lost();
    server.expired(&OTHER);
    server.lost();
    server.told(Word::Primary);
    server.canary(canary(5000, 4000));
    assert_eq!(server.release(), [Released::Gap(KEY, 3000, 1), Released::Unknown(OTHER, 1)]);
}

#[test]
fn what_a_server_announces_that_was_replaced_is_dropped_and_what_it_said_before_is_not() {
    let mut server = trusted("a");
    assert!(server.told(Word::Replaced).is_empty());
    assert_eq!(server.expired(&KEY), Heard::Placed(at("a", 1000, 1), 1000));
    server.lost();
    server.expired(&KEY);
    server.expired(&OTHER);
    server.canary(canary(3000, 2000));
    server.expired(&KEY);
    assert!(server.told(Word::Other).is_empty(), "who says so may be late");
    assert_eq!(server.told(Word::Replaced), [KEY, OTHER]);
    server.told(Word::Primary);
    assert!(server.release().is_empty());
}

#[test]
fn a_canary_out_of_turn_is_a_gap_that_needs_another_servers_word_again() {
    let mut server = trusted("a");
    server.canary(canary(2000, 1000));
    assert!(server.is_trusted());
    server.canary(canary(4000, 3000));
    assert!(!server.is_trusted());
    assert_eq!(server.expired(&KEY), Heard::Held);
    server.told(Word::Primary);
    assert_eq!(server.release(), [Released::Placed(KEY, at("a", 4000, 1), 4000)]);
}

#[test]
fn what_is_held_is_bounded() {
    let mut server = NodeStream::new(node("a"));
    let key = Bytes::from(vec![7; 1 << 20]);
    let held = (0..32).take_while(|_| server.expired(&key) == Heard::Held).count();
    assert_eq!(held, 15);
    assert_eq!(server.expired(&key), Heard::NoRoom);
}

#[test]
fn of_a_key_that_has_moved_both_servers_have_to_be_whole() {
    let read = at("a", 1000, 0);
    let says = |there: &NodeStream, here: &NodeStream, deadline| {
        say_of_moved(here, there, &watch(read, deadline), 1000)
    };
    let (mut there, mut here) = (trusted("a"), trusted("b"));
    assert_eq!(says(&there, &here, 1500), Said::NothingYet);
    here.canary(canary(2000, 1000));
    assert_eq!(says(&there, &here, 1500), Said::Nothing);
    // It was anchored at its deadline or after.
    assert_eq!(says(&there, &here, 1000), Said::Broken);
    there.expired(&OTHER);
    assert_eq!(says(&there, &here, 1500), Said::Nothing);
    there.expired(&KEY);
    assert_eq!(says(&there, &here, 1500), Said::Expired);
    let there = trusted("a");
    here.lost();
    assert_eq!(says(&there, &here, 1500), Said::Broken);
    let mut there = trusted("a");
    there.lost();
    assert_eq!(says(&there, &trusted("b"), 1500), Said::Broken);
    let answered = Watch { answered: true, ..watch(read, 1500) };
    assert_eq!(say_of_moved(&here, &there, &answered, 1000), Said::Expired);
}

#[test]
fn what_another_server_has_announced_is_nothing_of_this_ones() {
    let (mut there, mut here) = (trusted("a"), trusted("b"));
    here.canary(canary(9000, 1000));
    here.expired(&KEY);
    // Which of its lives that was is not known: the note of it has left word, or comes before the watch.
    assert_eq!(say_of_moved(&here, &there, &watch(at("a", 1000, 0), 9500), 1000), Said::Nothing);
    there.expired(&KEY);
    assert_eq!(say_of_moved(&here, &there, &watch(at("a", 1000, 1), 9500), 1000), Said::Nothing);
}
