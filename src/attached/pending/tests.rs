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
    let mut pending = PendingExpiries::new(true);
    assert!(pending.add_in_gap(KEY) && pending.add_in_gap(OTHER) && pending.add_in_gap(KEY));
    assert_eq!((pending.identify_last_gap(3000), pending.identify_last_gap(4000)), (2, 0));
    assert_eq!(pending.last_gap_canary(), Some(3000));
    assert_eq!((pending.remove_key(&KEY), pending.remove_key(&KEY)), (Some(2), None));
    assert_eq!((pending.remove_one_expiry(&OTHER), pending.remove_one_expiry(&OTHER)), (true, false));
    assert!(pending.is_empty() && pending.last_gap_canary().is_none());
}

#[test]
fn what_has_its_name_keeps_it_through_another_gap_and_what_has_none_has_none() {
    let mut pending = PendingExpiries::new(false);
    pending.add_in_gap(KEY);
    pending.close_gap(false);
    assert!(pending.has_in_last_gap(&KEY), "no event was missed, so a heartbeat may still identify it");
    pending.identify_last_gap(3000);
    pending.close_gap(false);
    pending.add_in_gap(OTHER);
    pending.close_gap(true);
    pending.close_gap(true);
    assert_eq!(pending.take_closed_gaps(), [batch(&[(KEY, 1)], Some(3000)), batch(&[(OTHER, 1)], None)]);
    assert!(pending.is_empty());
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
    let mut pending = PendingExpiries::new(false);
    pending.add_in_gap(KEY);
    pending.identify_last_gap(3000);
    pending.close_gap(true);
    pending.add_in_gap(OTHER);
    pending.add_positioned(placed(KEY, 1));
    assert_eq!(pending.take_all_keys(), [KEY, OTHER]);
    assert!(
        pending.is_empty() && pending.take_positioned().is_empty() && pending.take_closed_gaps().is_empty()
    );
}

#[test]
fn what_has_its_place_comes_out_in_its_order() {
    let mut pending = PendingExpiries::new(false);
    let all = [placed(KEY, 1), placed(OTHER, 1), placed(KEY, 2)];
    all.iter().for_each(|one| assert!(pending.add_positioned(one.clone())));
    assert_eq!(pending.take_positioned(), all);
    assert!(pending.is_empty());
}

#[test]
fn what_is_held_is_bounded_and_what_goes_makes_room() {
    let mut pending = PendingExpiries::new(false);
    let key = |number: u8| Bytes::from(vec![number; 1 << 20]);
    let most = (0..=255).take_while(|number| pending.add_in_gap(key(*number))).count();
    assert_eq!(most, 63);
    assert!(pending.add_in_gap(key(0)), "a key that is already pending takes no more space");
    assert!(!pending.add_positioned(placed(key(99), 1)));
    pending.close_gap(true);
    assert_eq!(pending.take_closed_gaps().len(), 1);
    assert!(pending.add_positioned(placed(key(99), 1)));
    pending.take_positioned();
    pending.add_in_gap(key(1));
    pending.remove_key(&key(1));
    assert_eq!(pending.buffers.bytes(), 0);
}

#[test]
fn keys_that_are_being_read_are_of_the_last_gap_until_they_are_noted() {
    let mut pending = PendingExpiries::new(true);
    assert!(["a", "b", "c", "d", "e"].into_iter().all(|key| pending.add_in_gap(key.into())));
    assert!(pending.next_to_read(2).is_empty(), "no key is read before a heartbeat");
    pending.identify_last_gap(3000);
    let mut read = pending.next_to_read(2);
    read.extend(pending.next_to_read(2));
    assert_eq!((read.len(), read.iter().all(|key| pending.has_in_last_gap(key))), (4, true));
    assert_eq!((pending.remove_key(&read[0]), pending.remove_one_expiry(&read[1])), (Some(1), true));
    assert!(!pending.has_in_last_gap(&read[0]) && !pending.has_in_last_gap(&read[1]));
    let last = pending.next_to_read(2);
    assert_eq!((last.len(), pending.next_to_read(2).len()), (1, 0));
    pending.close_gap(false);
    let closed_gaps = pending.take_closed_gaps();
    assert_eq!((closed_gaps.len(), closed_gaps[0].keys.len(), closed_gaps[0].canary), (1, 3, Some(3000)));
    assert!(pending.is_empty() && pending.buffers.bytes() == 0 && pending.last_gap_canary().is_none());
}

#[test]
fn what_finds_no_room_is_told_and_there_is_room_again_when_all_is_taken() {
    let (mut replaced, key) = (ReplacedServerKeys::default(), Bytes::from(vec![0; 4096]));
    let fitting = MAX_PENDING_BYTES / (4096 + LISTED_KEY_OVERHEAD);
    for _ in 0..2 {
        assert_eq!(replaced.add(NodeId::NONE, vec![key.clone(); fitting - 1]), 0);
        assert_eq!(replaced.add(NodeId::NONE, vec![key.clone(); 3]), 2);
        assert_eq!(replaced.add(NodeId::NONE, vec![key.clone()]), 1);
        assert_eq!(replaced.len(), fitting);
        let taken: usize = replaced.take_all().iter().map(|(_, keys)| keys.len()).sum();
        assert_eq!((taken, replaced.is_empty()), (fitting, true));
    }
}
