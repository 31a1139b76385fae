use super::*;

const KEY: Bytes = Bytes::from_static(b"a");
const OTHER: Bytes = Bytes::from_static(b"b");

fn placed(key: Bytes, count: u32) -> PositionedExpiry {
    let at = Position { node: NodeId::new(b"one").unwrap(), canary: 7, count };
    PositionedExpiry { partition: 0, key, at, since: 7 }
}

fn batch(keys: &[(Bytes, u32)], canary: Option<u64>) -> GapBatch {
    GapBatch { keys: keys.iter().cloned().collect(), canary }
}

#[test]
fn what_is_heard_in_a_gap_is_called_by_the_first_canary_after_it() {
    let mut held = PendingExpiries::new(true);
    assert!(held.add_in_gap(KEY) && held.add_in_gap(OTHER) && held.add_in_gap(KEY));
    assert_eq!((held.name(3000), held.name(4000)), (2, 0));
    assert_eq!(held.canary(), Some(3000));
    assert_eq!((held.remove(&KEY), held.remove(&KEY)), (Some(2), None));
    assert_eq!((held.take_one(&OTHER), held.take_one(&OTHER)), (true, false));
    assert!(held.is_empty() && held.canary().is_none());
}

#[test]
fn what_has_its_name_keeps_it_through_another_gap_and_what_has_none_has_none() {
    let mut held = PendingExpiries::new(false);
    held.add_in_gap(KEY);
    held.close_gap(false);
    assert!(held.has(&KEY), "no event was missed, so a heartbeat may still identify it");
    held.name(3000);
    held.close_gap(false);
    held.add_in_gap(OTHER);
    held.close_gap(true);
    held.close_gap(true);
    assert_eq!(held.take_closed_gaps(), [batch(&[(KEY, 1)], Some(3000)), batch(&[(OTHER, 1)], None)]);
    assert!(held.is_empty());
}

#[test]
fn one_of_several_needs_the_word_of_another_after_each_gap_and_one_alone_does_not() {
    let (mut alone, mut several) = (PendingExpiries::new(true), PendingExpiries::new(false));
    assert!(alone.is_confirmed() && !several.is_confirmed());
    several.confirm();
    assert!(several.is_confirmed());
    alone.mark_unconfirmed();
    several.mark_unconfirmed();
    assert!(alone.is_confirmed() && !several.is_confirmed());
}

#[test]
fn what_a_server_has_announced_that_was_replaced_is_given_up_as_a_whole() {
    let mut held = PendingExpiries::new(false);
    held.add_in_gap(KEY);
    held.name(3000);
    held.close_gap(true);
    held.add_in_gap(OTHER);
    held.add_positioned(placed(KEY, 1));
    assert_eq!(held.take_all_keys(), [KEY, OTHER]);
    assert!(held.is_empty() && held.take_positioned().is_empty() && held.take_closed_gaps().is_empty());
}

#[test]
fn what_has_its_place_comes_out_in_its_order() {
    let mut held = PendingExpiries::new(false);
    let all = [placed(KEY, 1), placed(OTHER, 1), placed(KEY, 2)];
    all.iter().for_each(|one| assert!(held.add_positioned(one.clone())));
    assert_eq!(held.take_positioned(), all);
    assert!(held.is_empty());
}

#[test]
fn what_is_held_is_bounded_and_what_goes_makes_room() {
    let mut held = PendingExpiries::new(false);
    let key = |number: u8| Bytes::from(vec![number; 1 << 20]);
    let most = (0..=255).take_while(|number| held.add_in_gap(key(*number))).count();
    assert_eq!(most, 63);
    assert!(held.add_in_gap(key(0)), "a key that is already pending takes no more space");
    assert!(!held.add_positioned(placed(key(99), 1)));
    held.close_gap(true);
    assert_eq!(held.take_closed_gaps().len(), 1);
    assert!(held.add_positioned(placed(key(99), 1)));
    held.take_positioned();
    held.add_in_gap(key(1));
    held.remove(&key(1));
    assert_eq!(held.kept.bytes(), 0);
}

#[test]
fn keys_that_are_being_read_are_of_the_last_gap_until_they_are_noted() {
    let mut held = PendingExpiries::new(true);
    assert!(["a", "b", "c", "d", "e"].into_iter().all(|key| held.add_in_gap(key.into())));
    assert!(held.next_to_read(2).is_empty(), "no key is read before a heartbeat");
    held.name(3000);
    let mut read = held.next_to_read(2);
    read.extend(held.next_to_read(2));
    assert_eq!((read.len(), read.iter().all(|key| held.has(key))), (4, true));
    assert_eq!((held.remove(&read[0]), held.take_one(&read[1])), (Some(1), true));
    assert!(!held.has(&read[0]) && !held.has(&read[1]));
    let last = held.next_to_read(2);
    assert_eq!((last.len(), held.next_to_read(2).len()), (1, 0));
    held.close_gap(false);
    let torn = held.take_closed_gaps();
    assert_eq!((torn.len(), torn[0].keys.len(), torn[0].canary), (1, 3, Some(3000)));
    assert!(held.is_empty() && held.kept.bytes() == 0 && held.canary().is_none());
}

#[test]
fn what_finds_no_room_is_told_and_there_is_room_again_when_all_is_taken() {
    let (mut replaced, key) = (ReplacedServerKeys::default(), Bytes::from(vec![0; 4096]));
    let fitting = MAX_PENDING_BYTES / (4096 + EACH_LISTED);
    for _ in 0..2 {
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); fitting - 1]), 0);
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); 3]), 2);
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone()]), 1);
        assert_eq!(replaced.len(), fitting);
        let taken: usize = replaced.take().iter().map(|(_, keys)| keys.len()).sum();
        assert_eq!((taken, replaced.is_empty()), (fitting, true));
    }
}
