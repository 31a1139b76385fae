use super::*;

const KEY: Bytes = Bytes::from_static(b"a");
const OTHER: Bytes = Bytes::from_static(b"b");

fn placed(key: Bytes, count: u32) -> Placed {
    let at = Position { node: NodeId::new(b"one").unwrap(), canary: 7, count };
    Placed { partition: 0, key, at, since: 7 }
}

fn batch(keys: &[(Bytes, u32)], canary: Option<u64>) -> Batch {
    Batch { keys: keys.iter().cloned().collect(), canary }
}

#[test]
fn what_is_heard_in_a_gap_is_called_by_the_first_canary_after_it() {
    let mut held = Held::new(true);
    assert!(held.hear(KEY) && held.hear(OTHER) && held.hear(KEY));
    assert_eq!((held.name(3000), held.name(4000)), (2, 0));
    assert_eq!(held.canary(), Some(3000));
    assert_eq!((held.remove(&KEY), held.remove(&KEY)), (Some(2), None));
    assert_eq!((held.take_one(&OTHER), held.take_one(&OTHER)), (true, false));
    assert!(held.is_empty() && held.canary().is_none());
}

#[test]
fn what_has_its_name_keeps_it_through_another_gap_and_what_has_none_has_none() {
    let mut held = Held::new(false);
    held.hear(KEY);
    held.tear(false);
    assert!(held.has(&KEY), "nothing was missed, and a canary may still name it");
    held.name(3000);
    held.tear(false);
    held.hear(OTHER);
    held.tear(true);
    held.tear(true);
    assert_eq!(held.take_torn(), [batch(&[(KEY, 1)], Some(3000)), batch(&[(OTHER, 1)], None)]);
    assert!(held.is_empty());
}

#[test]
fn one_of_several_needs_the_word_of_another_after_each_gap_and_one_alone_does_not() {
    let (mut alone, mut several) = (Held::new(true), Held::new(false));
    assert!(alone.is_confirmed() && !several.is_confirmed());
    several.confirm();
    assert!(several.is_confirmed());
    alone.doubt();
    several.doubt();
    assert!(alone.is_confirmed() && !several.is_confirmed());
}

#[test]
fn what_a_server_has_announced_that_was_replaced_is_given_up_as_a_whole() {
    let mut held = Held::new(false);
    held.hear(KEY);
    held.name(3000);
    held.tear(true);
    held.hear(OTHER);
    held.place(placed(KEY, 1));
    assert_eq!(held.give_up(), [KEY, OTHER]);
    assert!(held.is_empty() && held.take_placed().is_empty() && held.take_torn().is_empty());
}

#[test]
fn what_has_its_place_comes_out_in_its_order() {
    let mut held = Held::new(false);
    let all = [placed(KEY, 1), placed(OTHER, 1), placed(KEY, 2)];
    all.iter().for_each(|one| assert!(held.place(one.clone())));
    assert_eq!(held.take_placed(), all);
    assert!(held.is_empty());
}

#[test]
fn what_is_held_is_bounded_and_what_goes_makes_room() {
    let mut held = Held::new(false);
    let key = |number: u8| Bytes::from(vec![number; 1 << 20]);
    let most = (0..=255).take_while(|number| held.hear(key(*number))).count();
    assert_eq!(most, 63);
    assert!(held.hear(key(0)), "one that is there already takes no more");
    assert!(!held.place(placed(key(99), 1)));
    held.tear(true);
    assert_eq!(held.take_torn().len(), 1);
    assert!(held.place(placed(key(99), 1)));
    held.take_placed();
    held.hear(key(1));
    held.remove(&key(1));
    assert_eq!(held.kept.bytes(), 0);
}

#[test]
fn keys_that_are_being_read_are_of_the_last_gap_until_they_are_noted() {
    let mut held = Held::new(true);
    assert!(["a", "b", "c", "d", "e"].into_iter().all(|key| held.hear(key.into())));
    assert!(held.next_to_read(2).is_empty(), "without a name nothing is read");
    held.name(3000);
    let mut read = held.next_to_read(2);
    read.extend(held.next_to_read(2));
    assert_eq!((read.len(), read.iter().all(|key| held.has(key))), (4, true));
    assert_eq!((held.remove(&read[0]), held.take_one(&read[1])), (Some(1), true));
    assert!(!held.has(&read[0]) && !held.has(&read[1]));
    let last = held.next_to_read(2);
    assert_eq!((last.len(), held.next_to_read(2).len()), (1, 0));
    held.tear(false);
    let torn = held.take_torn();
    assert_eq!((torn.len(), torn[0].keys.len(), torn[0].canary), (1, 3, Some(3000)));
    assert!(held.is_empty() && held.kept.bytes() == 0 && held.canary().is_none());
}

#[test]
fn what_finds_no_room_is_told_and_there_is_room_again_when_all_is_taken() {
    let (mut replaced, key) = (Replaced::default(), Bytes::from(vec![0; 4096]));
    let fitting = MOST / (4096 + EACH_LISTED);
    for _ in 0..2 {
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); fitting - 1]), 0);
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); 3]), 2);
        assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone()]), 1);
        assert_eq!(replaced.len(), fitting);
        let taken: usize = replaced.take().iter().map(|(_, keys)| keys.len()).sum();
        assert_eq!((taken, replaced.is_empty()), (fitting, true));
    }
}
