use proptest::prelude::*;

use super::*;
use crate::attached::request::Taken;
use crate::id::ArmingId;
use crate::runtime::Gauge;
use crate::time::ServerTime;
use crate::wire::{Enrolment, Identity, NodeId, Note, Position};

fn key(key: u8) -> Bytes {
    vec![key].into()
}

fn note(of: u8) -> Write {
    Write::Note(Note { key: key(of), identity: Identity::Unknown(NodeId::NONE), arming: ArmingId([0; 8]) })
}

fn enrolment(of: u8, copy: usize) -> Write {
    let (at, stamp, copy) = (Position::default(), ServerTime::from_ms(1), vec![0; copy].into());
    Write::Enrol(Enrolment { key: key(of), deadline: 1, at, stamp, asked: ServerTime::default(), copy }, None)
}

fn waiting(writes: impl IntoIterator<Item = Write>) -> Waiting {
    let mut waiting = Waiting::default();
    for what in writes {
        waiting.push(Writing { what, _waits: (None, Gauge::default().add(0)), _read: Taken::default() });
    }
    waiting
}

/// Each call, as the kind and the key of each of its writes.
fn calls(mut waiting: Waiting) -> Vec<Vec<(char, u8)>> {
    let mut calls = Vec::new();
    loop {
        let call = waiting.next();
        if call.is_empty() {
            return calls;
        }
        let one = |writing: &Writing| match &writing.what {
            Write::Note(note) => ('n', note.key[0]),
            Write::Enrol(one, _) => ('e', one.key[0]),
            Write::Judge(one) => ('j', one.watch.key[0]),
            Write::Done(_) => ('d', 0),
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
    assert_eq!(rest.last(), Some(&('e', 7)), "what came after the note");
}

#[test]
fn a_call_takes_few_keys_and_few_bytes() {
    let of = |writes: Vec<Write>| calls(waiting(writes)).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(of((0..=2 * FEW as u8).map(|n| enrolment(n, 0)).collect()), [FEW, FEW, 1]);
    assert_eq!(of((0..3).map(|n| enrolment(n, CALL_BYTES / 2)).collect()), [1, 1, 1]);
    assert_eq!(of((0..3).map(|n| enrolment(n, CALL_BYTES / 2 - 2 * 1000)).collect()), [2, 1]);
    assert_eq!(of(vec![enrolment(0, 2 * CALL_BYTES)]), [1], "one always goes");
    assert_eq!(of((0..=2 * FEW as u8).map(note).collect()), [FEW, FEW, 1]);
    assert_eq!(of(vec![note(1), note(1), note(2), note(1)]), [4], "nothing was between them");
}

/// Each key that is written is read by itself, and its reader waits until that is written down.
#[test]
fn readings_of_a_key_each_go_in_one_call() {
    let done = || Write::Done(tokio::sync::oneshot::channel().0);
    let readings = |keys: u8| (0..keys).flat_map(move |key| [enrolment(key, 0), done()]);
    let of = |writes: Vec<Write>| calls(waiting(writes));
    assert_eq!(of(readings(2).collect()), [[('e', 0), ('d', 0), ('e', 1), ('d', 0)]]);
    let lengths: Vec<_> = of(readings(FEW as u8 + 1).collect()).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2 * FEW, 2], "each end goes with what was read");
    assert_eq!(of([done()].into_iter().chain(readings(1)).collect()), [[('d', 0), ('e', 0), ('d', 0)]]);
}

#[test]
fn a_call_takes_more_where_the_last_was_long() {
    let of = |notes: bool, took| {
        let write = |n| if notes { note(n) } else { enrolment(n, 0) };
        let mut waiting = waiting((0..=MANY as u8).map(write));
        let other = 2 * LONG_FOR_NOTES;
        waiting.noting = if notes { took } else { other };
        waiting.writing = if notes { other } else { took };
        calls(waiting)[0].len()
    };
    for (notes, long) in [(false, LONG), (true, LONG_FOR_NOTES)] {
        assert_eq!(of(notes, long - Duration::from_millis(1)), FEW);
        assert_eq!(of(notes, long), MANY);
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

/// Else one that waits makes a call of each note of a key that ends again and again, and all others wait behind it.
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
