use proptest::prelude::*;

use super::*;
use crate::attached::request::ReadReservation;
use crate::id::ArmingId;
use crate::runtime::ByteGauge;
use crate::time::ServerTime;
use crate::wire::{AnnouncedExpiry, DeadlineReading, ExpiryIdentity, NodeId, Position};

fn key(key: u8) -> Bytes {
    vec![key].into()
}

fn note(of: u8) -> Write {
    Write::RecordExpiry(AnnouncedExpiry {
        key: key(of),
        identity: ExpiryIdentity::Unknown(NodeId::NONE),
        arming: ArmingId([0; 8]),
    })
}

fn enrolment(of: u8, copy: usize) -> Write {
    let (at, stamp, copy) = (Position::default(), ServerTime::from_ms(1), vec![0; copy].into());
    Write::Track(
        DeadlineReading { key: key(of), deadline: 1, at, stamp, requested_at: ServerTime::default(), copy },
        None,
    )
}

fn waiting(writes: impl IntoIterator<Item = Write>) -> WriteQueue {
    let mut waiting = WriteQueue::default();
    for write in writes {
        waiting.push(QueuedWrite {
            write,
            _waits: (None, ByteGauge::default().add(0)),
            _read: ReadReservation::default(),
        });
    }
    waiting
}

/// Returns the kind and the key of each write, by call.
fn calls(mut waiting: WriteQueue) -> Vec<Vec<(char, u8)>> {
    let mut calls = Vec::new();
    loop {
        let call = waiting.next_call();
        if call.is_empty() {
            return calls;
        }
        let one = |queued: &QueuedWrite| match &queued.write {
            Write::RecordExpiry(note) => ('n', note.key[0]),
            Write::Track(one, _) => ('e', one.key[0]),
            Write::ApplyCheck(one) => ('j', one.watch.key[0]),
            Write::Notify(_) => ('d', 0),
        };
        calls.push(call.iter().map(one).collect());
    }
}

#[test]
fn notes_do_not_wait_behind_enrolments_but_for_those_of_their_keys() {
    let all = (0..200).map(|key| enrolment(key, 0)).chain([note(7), note(9), enrolment(7, 0), note(201)]);
    let calls = calls(waiting(all));
    assert_eq!(calls[0], [('e', 7), ('e', 9)]);
    assert_eq!(calls[1], [('n', 7), ('n', 9), ('n', 201)]);
    let rest: Vec<_> = calls[2..].concat();
    assert_eq!(rest.len(), 199);
    assert_eq!(rest.last(), Some(&('e', 7)), "the write that arrived after the expiry");
}

#[test]
fn a_call_takes_few_keys_and_few_bytes() {
    let of = |writes: Vec<Write>| calls(waiting(writes)).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(
        of((0..=2 * MAX_WRITES_PER_CALL as u8).map(|n| enrolment(n, 0)).collect()),
        [MAX_WRITES_PER_CALL, MAX_WRITES_PER_CALL, 1]
    );
    assert_eq!(of((0..3).map(|n| enrolment(n, MAX_CALL_BYTES / 2)).collect()), [1, 1, 1]);
    assert_eq!(of((0..3).map(|n| enrolment(n, MAX_CALL_BYTES / 2 - 2 * 1000)).collect()), [2, 1]);
    assert_eq!(of(vec![enrolment(0, 2 * MAX_CALL_BYTES)]), [1], "a single write always fits");
    assert_eq!(
        of((0..=2 * MAX_WRITES_PER_CALL as u8).map(note).collect()),
        [MAX_WRITES_PER_CALL, MAX_WRITES_PER_CALL, 1]
    );
    assert_eq!(of(vec![note(1), note(1), note(2), note(1)]), [4], "no other write was between them");
}

/// Keys that change are often read one by one, and each requester waits until its key is written.
#[test]
fn readings_of_a_key_each_go_in_one_call() {
    let done = || Write::Notify(tokio::sync::oneshot::channel().0);
    let readings = |keys: u8| (0..keys).flat_map(move |key| [enrolment(key, 0), done()]);
    let of = |writes: Vec<Write>| calls(waiting(writes));
    assert_eq!(of(readings(2).collect()), [[('e', 0), ('d', 0), ('e', 1), ('d', 0)]]);
    let lengths: Vec<_> =
        of(readings(MAX_WRITES_PER_CALL as u8 + 1).collect()).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2 * MAX_WRITES_PER_CALL, 2], "each `Notify` goes with its deadline");
    assert_eq!(of([done()].into_iter().chain(readings(1)).collect()), [[('d', 0), ('e', 0), ('d', 0)]]);
}

#[test]
fn a_call_takes_more_where_the_last_was_long() {
    let of = |notes: bool, took| {
        let write = |n| if notes { note(n) } else { enrolment(n, 0) };
        let mut waiting = waiting((0..=MAX_WRITES_PER_SLOW_CALL as u8).map(write));
        let other = 2 * SLOW_EXPIRY_CALL;
        waiting.last_expiry_call = if notes { took } else { other };
        waiting.last_other_call = if notes { other } else { took };
        calls(waiting)[0].len()
    };
    for (notes, long) in [(false, SLOW_CALL), (true, SLOW_EXPIRY_CALL)] {
        assert_eq!(of(notes, long - Duration::from_millis(1)), MAX_WRITES_PER_CALL);
        assert_eq!(of(notes, long), MAX_WRITES_PER_SLOW_CALL);
    }
}

#[test]
fn the_second_end_of_a_key_waits_for_what_was_read_between_them() {
    let all = [enrolment(1, 0), note(1), enrolment(1, 0), note(1), note(2)];
    assert_eq!(
        calls(waiting(all)),
        [vec![('e', 1)], vec![('n', 1)], vec![('e', 1)], vec![('n', 1), ('n', 2)]]
    );
}

/// Otherwise each expiry of a key that expires again and again would take a call, and delay all other writes.
#[test]
fn what_comes_behind_all_notes_of_its_key_parts_none_of_them() {
    let ends = || (0..20).flat_map(|_| [note(1), note(2)]);
    let lengths = |writes: Vec<Write>| calls(waiting(writes)).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(ends().chain([enrolment(1, 0)]).collect()), [40, 1]);
    assert_eq!(lengths(ends().chain([enrolment(1, 0), note(1)]).collect()), [40, 1, 1]);
}

proptest! {
    #[test]
    fn of_each_key_everything_is_written_in_its_order_and_nothing_is_left_out(
        all in proptest::collection::vec((any::<bool>(), 0_u8..5), 0..60)
    ) {
        let writes = all.iter().map(|(is_note, key)| if *is_note { note(*key) } else { enrolment(*key, 0) });
        let written = calls(waiting(writes)).concat();
        prop_assert_eq!(written.len(), all.len());
        for key in 0..5 {
            let came: Vec<_> = all.iter().filter(|(_, of)| *of == key).map(|(note, _)| *note).collect();
            let went: Vec<_> = written.iter().filter(|(_, of)| *of == key).map(|(kind, _)| *kind == 'n').collect();
            prop_assert_eq!(came, went);
        }
    }
}
