use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_700_000_000_000;
const KEYS: [&[u8]; 2] = [b"a", b"b"];

fn stamp(ms: u64) -> ServerTime {
    ServerTime::from_ms(ms)
}

fn at(seconds: u64) -> u64 {
    NOW + 1000 * seconds
}

/// Adds an entry and confirms it.
fn known(deadlines: &KnownDeadlines, key: &[u8], deadline: u64) {
    deadlines.confirm(deadlines.add_pending(key, deadline, stamp(NOW)).expect("there is room"));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_its_writing_until_shortly_before_it() {
    let deadlines = KnownDeadlines::new();
    let pending = deadlines.add_pending(b"a", at(10), stamp(NOW)).expect("there is room");
    assert!(!deadlines.is_new(b"a") && deadlines.is_new(b"b"));
    assert!(!deadlines.covers(b"a", at(10), stamp(NOW)), "it is not written");
    deadlines.confirm(pending);
    for (read, now, covered) in [
        (at(10), NOW, true),
        (at(20), NOW, true),
        (at(10) - 1, NOW, false),
        (at(20), at(9) - 1, true),
        (at(20), at(9), false),
    ] {
        assert_eq!(deadlines.covers(b"a", read, stamp(now)), covered, "{read} at {now}");
    }
    deadlines.invalidate_all();
    assert!(!deadlines.covers(b"a", at(20), stamp(NOW)), "all entries are invalid");
    assert!(!deadlines.is_new(b"a"), "the index mostly still has its value");
    known(&deadlines, b"a", at(10));
    assert!(deadlines.covers(b"a", at(20), stamp(NOW)));
}

#[tokio::test(start_paused = true)]
async fn an_enrolment_is_made_again_after_a_minute() {
    let deadlines = KnownDeadlines::new();
    known(&deadlines, b"a", at(3600));
    tokio::time::advance(CONFIRMATION_LIFETIME - Duration::from_secs(1)).await;
    assert!(deadlines.covers(b"a", at(3601), stamp(NOW)) && deadlines.is_covered_if_extended(b"a"));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!deadlines.covers(b"a", at(3601), stamp(NOW)) && !deadlines.is_covered_if_extended(b"a"));
}

#[tokio::test(start_paused = true)]
async fn a_full_table_is_rid_of_what_has_passed_and_takes_no_key_for_a_new_one() {
    let deadlines = KnownDeadlines::new();
    for number in 0..MAX_KNOWN_KEYS {
        let deadline = if number % 2 == 0 { at(1) } else { at(100) };
        assert!(deadlines.add_pending(&number.to_be_bytes(), deadline, stamp(NOW)).is_some());
    }
    assert!(deadlines.add_pending(b"one more", at(100), stamp(NOW)).is_none());
    assert!(
        !deadlines.is_new(b"one more"),
        "the key may be tracked: its value is read if the index has none"
    );
    assert!(deadlines.add_pending(b"one more", at(100), stamp(at(11))).is_some(), "half of them have passed");
    assert_eq!(lock(&deadlines.table).entries.len(), MAX_KNOWN_KEYS / 2 + 1);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The key was read with a deadline, which is about to be written.
    Remember(usize, u64),
    /// The key has expired or was deleted, and this is about to be recorded.
    End(usize),
    /// The next write succeeds, is refused, or has no answer.
    Written,
    Refused,
    Lost,
    Gap,
    /// A key was read with a deadline after an event of its change.
    Prompt(usize, u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let (key, deadline) = (|| 0..KEYS.len(), || 10_u64..14);
    prop_oneof![
        3 => (key(), deadline()).prop_map(|(key, deadline)| Step::Remember(key, deadline)),
        1 => key().prop_map(Step::End),
        3 => Just(Step::Written),
        1 => Just(Step::Refused),
        1 => Just(Step::Lost),
        1 => Just(Step::Gap),
        3 => (key(), deadline()).prop_map(|(key, deadline)| Step::Prompt(key, deadline)),
    ]
}

/// The pending writes of a writer, in order, and the deadlines in the index.
#[derive(Clone, Default)]
struct Index {
    queue: VecDeque<(usize, Option<u64>, Option<PendingDeadline>)>,
    remembered: [Option<u64>; KEYS.len()],
}

impl Index {
    /// Returns the deadlines that the index may have of a key after all writes, if any of them may be refused.
    fn outcomes(mut self, key: usize) -> Vec<Option<u64>> {
        let Some((of, deadline, _)) = self.queue.pop_front() else { return vec![self.remembered[key]] };
        let refused = self.clone();
        self.remembered[of] = deadline;
        // Writes that end the tracking are retried until they succeed.
        if deadline.is_some() && of == key {
            let mut all = self.outcomes(key);
            all.append(&mut refused.outcomes(key));
            return all;
        }
        self.outcomes(key)
    }
}

proptest! {
    #[test]
    fn neither_a_deadline_that_was_brought_forward_nor_a_new_life_is_ever_passed_over(
        steps in proptest::collection::vec(steps(), 1..40)
    ) {
        let deadlines = KnownDeadlines::new();
        let mut index = Index::default();
        for step in steps {
            match step {
                Step::Remember(_, _) if index.queue.len() >= 6 => {}
                Step::Remember(key, deadline) => {
                    let pending = deadlines.add_pending(KEYS[key], at(deadline), stamp(NOW));
                    index.queue.push_back((key, Some(at(deadline)), pending));
                }
                Step::End(key) => {
                    deadlines.forget(KEYS[key]);
                    index.queue.push_back((key, None, None));
                }
                Step::Gap => deadlines.invalidate_all(),
                Step::Written | Step::Refused | Step::Lost => {
                    let Some((key, deadline, pending)) = index.queue.pop_front() else { continue };
                    let refused = matches!(step, Step::Refused) && deadline.is_some();
                    if !refused {
                        index.remembered[key] = deadline;
                    }
                    match pending {
                        Some(pending) if matches!(step, Step::Written) => deadlines.confirm(pending),
                        Some(pending) => deadlines.remove_pending(pending),
                        None => {}
                    }
                }
                Step::Prompt(key, deadline) => {
                    if deadlines.covers(KEYS[key], at(deadline), stamp(NOW)) {
                        for left in index.clone().outcomes(key) {
                            prop_assert!(left.is_some_and(|left| left <= at(deadline)), "{left:?} {deadline}");
                        }
                    }
                }
            }
        }
    }
}
