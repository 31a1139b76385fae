//! Tales of keys that other programs write.

use super::*;
use crate::ledger::{Life, Wrote};

const KEY: &str = "foreign:1";

impl Tale {
    /// Written at this time, with this answer at once.
    fn wrote(self, ms: u64, life: Life, wrote: Wrote) -> Self {
        let (key, how) = (KEY.to_owned(), "SET".to_owned());
        let told = Entry::WriteTold { key: KEY.to_owned(), wrote, by: None, reached: None };
        self.then(ms, HARNESS, Entry::WriteAsked { key, how, life }).then(ms, HARNESS, told)
    }

    /// Written and enrolled long after all listeners have begun to hear, with this deadline.
    fn enrolled(self, until: u64) -> Self {
        let enrolled = Entry::Enrolled { key: KEY.to_owned() };
        self.wrote(20_000, Life::Until(until * 1000), Wrote::Done).then(20_100, HARNESS, enrolled)
    }

    fn heard(self, ms: u64) -> Self {
        self.then(ms, HARNESS, Entry::Heard { key: KEY.to_owned(), by: None })
    }

    fn fired(self, ms: u64, pid: u32, id: &str, expiry: &str) -> Self {
        let (key, id, attempt) = (KEY.to_owned(), id.to_owned(), 1);
        let ended = Entry::FiredEnded { key: key.clone(), id: id.clone(), attempt, end: End::Done };
        let fired = Entry::Fired { key, id, attempt, deadline: ms * 1000, expiry: expiry.to_owned() };
        self.then(ms, pid, fired).then(ms + 10, pid, ended)
    }

    fn muted(self, since: u64, until: u64) -> Self {
        let (since, fault) = (since * 1000, "Mute(1000)".to_owned());
        self.then(
            until,
            HARNESS,
            Entry::Fault { since, actor: None, fault, is_outage: false, partitions: None, node: None },
        )
    }
}

#[test]
fn a_key_that_fired_once_when_it_had_expired_is_right() {
    let report = Tale::new().enrolled(21_000).fired(21_004, LISTENER, "a", "Announced").judged(&[]);
    let line = "armed=1 acknowledged=1 handled=1 lost=0 duplicated=0 explained=0 early=0 unexpected=0 \
                unknowable=0 late_p50_ms=4.0 late_p99_ms=4.0 late_max_ms=4.0 dead=0";
    assert_eq!((report.to_string().as_str(), report.is_valid()), (line, true));
}

#[test]
fn an_enrolled_key_that_does_not_fire_is_lost() {
    finds(Tale::new().enrolled(21_000), &[Wrong::Lost]);
    finds(Tale::new().enrolled(21_000).outage(20_900, 21_100, None), &[Wrong::Lost]);
    finds(Tale::new().enrolled(21_000).then(22_000, HARNESS, Entry::Buried { key: KEY.to_owned() }), &[]);
}

#[test]
fn a_deadline_that_had_passed_when_it_was_given_deletes_the_key() {
    let (key, how, life) = (KEY.to_owned(), "PEXPIREAT".to_owned(), Life::Until(21_000_000));
    let tale = Tale::new().then(20_000, HARNESS, Entry::WriteAsked { key, how, life });
    let told = Entry::WriteTold { key: KEY.to_owned(), wrote: Wrote::Done, by: None, reached: None };
    finds(tale.then(21_500, HARNESS, told).heard(21_600), &[]);
}

#[test]
fn a_key_that_expires_as_its_deadline_is_given_must_fire_once() {
    let expired = || Tale::new().enrolled(60_000).wrote(21_000, Life::Expired, Wrote::Done).heard(21_000);
    finds(expired(), &[Wrong::Lost]);
    finds(expired().fired(21_004, LISTENER, "a", "Announced"), &[]);
    finds(expired().fired(20_900, LISTENER, "a", "Announced"), &[Wrong::Lost, Wrong::Early]);
    finds(Tale::new().enrolled(60_000).wrote(21_000, Life::Expired, Wrote::Nothing), &[Wrong::Lost]);
}

#[test]
fn of_two_lives_the_last_must_fire() {
    let again = Tale::new().enrolled(21_000).wrote(21_500, Life::For(1000), Wrote::Done);
    finds(again.heard(22_502).fired(21_004, LISTENER, "a", "Announced"), &[Wrong::Lost]);
}

#[test]
fn an_expiry_in_a_moment_without_flags_is_unknowable() {
    let muted = Tale::new().enrolled(21_000).muted(20_500, 21_200).judged(&[]);
    assert_eq!((muted.unknowable, muted.is_valid()), (1, true));
    finds(Tale::new().enrolled(21_000).muted(10_500, 11_200), &[Wrong::Lost]);
}

#[test]
fn a_key_that_was_never_enrolled_is_lost_only_if_a_listener_heard_it() {
    let written = || Tale::new().wrote(20_000, Life::Until(21_000_000), Wrote::Done);
    finds(written(), &[]);
    finds(written().heard(21_002), &[Wrong::Lost]);
    let one_is_cut_off = written().heard(21_002).outage(20_900, 21_100, Some("listener 0"));
    finds(one_is_cut_off, &[Wrong::Lost]);
    finds(written().heard(21_002).outage(20_900, 21_100, None), &[]);
}

#[test]
fn a_key_that_is_written_again_has_to_be_enrolled_again() {
    let fired = || Tale::new().enrolled(21_000).fired(21_004, LISTENER, "a", "Announced");
    let again = || fired().wrote(21_500, Life::Until(22_000_000), Wrote::Done).heard(22_002);
    finds(again().outage(21_900, 22_100, None), &[]);
    let enrolled = again().then(21_600, HARNESS, Entry::Enrolled { key: KEY.to_owned() });
    finds(enrolled.outage(21_900, 22_100, None), &[Wrong::Lost]);
    let extended = Tale::new().enrolled(21_000).wrote(20_500, Life::Until(22_000_000), Wrote::Done);
    finds(extended.heard(22_002).outage(21_900, 22_100, None), &[Wrong::Lost]);
}

#[test]
fn a_deadline_that_was_brought_forward_and_that_nobody_heard_pass_is_unknowable() {
    let forward = || Tale::new().enrolled(22_000).wrote(20_500, Life::Until(21_000_000), Wrote::Done);
    finds(forward().heard(21_002), &[Wrong::Lost]);
    finds(forward().heard(21_002).outage(20_900, 21_100, Some("listener 0")), &[Wrong::Lost]);
    let unheard = forward().heard(21_002).outage(20_900, 21_100, None).judged(&[]);
    assert_eq!((unheard.unknowable, unheard.is_valid()), (1, true));
    // Though it was extended in between.
    let extended = Tale::new().enrolled(22_000).wrote(20_300, Life::Until(23_000_000), Wrote::Done);
    let unheard = extended.wrote(20_500, Life::Until(21_000_000), Wrote::Done).heard(21_002);
    finds(unheard.outage(20_900, 21_100, None), &[]);
}

#[test]
fn a_start_before_any_deadline_of_the_key_is_early() {
    finds(
        Tale::new().enrolled(21_000).fired(20_999, LISTENER, "a", "Announced"),
        &[Wrong::Lost, Wrong::Early],
    );
    // It was extended before it could expire.
    let extended = Tale::new().enrolled(21_000).wrote(20_500, Life::Until(23_000_000), Wrote::Done);
    finds(extended.fired(21_004, LISTENER, "a", "Announced"), &[Wrong::Lost, Wrong::Early]);
    // Nobody knows whether it was.
    let perhaps = Tale::new().enrolled(21_000).wrote(20_500, Life::Until(23_000_000), Wrote::Unknown);
    finds(perhaps.fired(21_004, LISTENER, "a", "Announced"), &[]);
}

#[test]
fn a_key_that_was_taken_away_is_unexpected_unless_nobody_may_have_heard_it() {
    let deleted = || Tale::new().enrolled(21_000).wrote(20_500, Life::Gone, Wrote::Done);
    finds(deleted(), &[]);
    finds(deleted().fired(21_004, LISTENER, "a", "Announced"), &[Wrong::Unexpected]);
    finds(deleted().fired(21_004, LISTENER, "a", "Recovered"), &[Wrong::Unexpected]);
    let cut_off = deleted().outage(20_400, 20_600, Some("listener 0"));
    finds(cut_off.fired(21_004, LISTENER, "a", "Recovered"), &[]);
    let endless = Tale::new().enrolled(21_000).wrote(20_500, Life::Endless, Wrote::Done);
    finds(endless.fired(21_004, LISTENER, "a", "Announced"), &[Wrong::Unexpected]);
}

#[test]
fn a_second_lapse_of_one_life_is_unexplained_unless_it_was_said_that_it_might_be() {
    let fired = || Tale::new().enrolled(21_000).fired(21_004, LISTENER, "a", "Announced");
    finds(fired().fired(21_009, OTHER, "b", "Announced"), &[Wrong::Unexplained]);
    finds(fired().fired(21_009, OTHER, "b", "Ambiguous"), &[]);
    finds(fired().fired(21_009, OTHER, "b", "Recovered"), &[]);
    finds(
        fired().fired(21_009, OTHER, "b", "Ambiguous").fired(21_010, OTHER, "c", "Announced"),
        &[Wrong::Unexplained],
    );
    let second_life = fired().wrote(21_500, Life::Until(22_000_000), Wrote::Done);
    finds(second_life.fired(22_004, OTHER, "b", "Announced"), &[]);
}

#[test]
fn an_attempt_of_a_key_that_runs_again_needs_a_fault_like_any_other() {
    let twice = || {
        let tale = Tale::new().enrolled(21_000).fired(21_004, LISTENER, "a", "Announced");
        tale.fired(24_000, OTHER, "a", "Announced")
    };
    finds(twice(), &[Wrong::Unexplained]);
    finds(twice().died(21_100, LISTENER), &[]);
}
