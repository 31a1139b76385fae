//! The judge finds what is wrong, and lets pass what is excused.

mod attached;
mod orders;
mod shards;

use super::{Letter, Report, Wrong, judge};
use crate::clock::{Micros, SECOND};
use crate::job::Work;
use crate::ledger::{End, Entry, Held, Line, Succession, Told};

const LEASE: Micros = 2 * SECOND;
const PRODUCER: u32 = 1;
const LISTENER: u32 = 2;
const OTHER: u32 = 3;
const HARNESS: u32 = 9;
/// The ports of a server, of another, and of one that takes the place of either.
const SERVER: u16 = 7000;
const ANOTHER: u16 = 7001;
const SUCCESSOR: u16 = 7002;

/// Ledger lines of a run with one key, in milliseconds.
struct Tale(Vec<Line>);

impl Tale {
    fn new() -> Self {
        let actors = [(PRODUCER, "producer 0"), (LISTENER, "listener 0"), (OTHER, "listener 1")];
        let born = |(child, actor): (u32, &str)| Entry::Born { child, actor: actor.to_owned() };
        Self(actors.into_iter().map(|actor| Line { at: 0, pid: HARNESS, entry: born(actor) }).collect())
    }

    fn then(mut self, ms: u64, pid: u32, entry: Entry) -> Self {
        self.0.push(Line { at: ms * 1000, pid, entry });
        self
    }

    /// Asked for at this time, for 100 ms later, and told at once.
    fn armed(self, ms: u64, n: u64, told: Told) -> Self {
        let key = "loud:a".to_owned();
        let asked = Entry::ArmAsked { n, key, work: Work::Succeed, delay_ms: 100 };
        let deadline = Some((ms + 100) * 1000);
        self.then(ms, PRODUCER, asked).then(ms, PRODUCER, Entry::ArmTold { n, told, deadline, reached: None })
    }

    fn cancelled(self, ms: u64, told: Told) -> Self {
        let key = "loud:a".to_owned();
        let asked = Entry::CancelAsked { key: key.clone() };
        self.then(ms, PRODUCER, asked).then(ms, PRODUCER, Entry::CancelTold { key, told })
    }

    fn started(self, ms: u64, pid: u32, (n, attempt): (u64, u32)) -> Self {
        let (key, source) = ("loud:a".to_owned(), "timer".to_owned());
        self.then(ms, pid, Entry::Started { n, key, attempt, deadline: 100_000, source })
    }

    fn ended(self, ms: u64, pid: u32, (n, attempt): (u64, u32), end: End) -> Self {
        self.then(ms, pid, Entry::Ended { n, attempt, end })
    }

    fn ran(self, ms: u64, pid: u32, which: (u64, u32)) -> Self {
        self.started(ms, pid, which).ended(ms + 10, pid, which, End::Done)
    }

    fn born(self, ms: u64, child: u32) -> Self {
        self.then(ms, HARNESS, Entry::Born { child, actor: "listener 1".to_owned() })
    }

    fn leased(self, since: u64, until: u64, n: u64) -> Self {
        self.then(until, LISTENER, Entry::Leased { n, since: since * 1000, until: until * 1000 })
    }

    fn died(self, ms: u64, child: u32) -> Self {
        self.then(ms, HARNESS, Entry::Died { child, status: "signal: 9".to_owned() })
    }

    fn outage(self, since: u64, until: u64, actor: Option<&str>) -> Self {
        let (actor, since) = (actor.map(str::to_owned), since * 1000);
        self.then(until, HARNESS, cut(since, actor, None))
    }

    /// This server falls at this time. Another has its place two seconds later, and the fallen one learns of it half a second
    /// after that.
    fn fell(self, ms: u64, node: u16, partitions: Vec<u32>, held: Held, is_orderly: bool) -> Self {
        self.followed(ms, succession(ms, node, partitions, held, is_orderly))
    }

    fn followed(self, ms: u64, one: Succession) -> Self {
        self.then(ms + 2_500, HARNESS, Entry::Succession(one))
    }

    fn judged(mut self, letters: &[Letter]) -> Report {
        self.0.sort_by_key(|line| line.at);
        judge(&self.0, letters, LEASE, 0)
    }
}

/// A server that falls at this time, and another that takes its place two seconds later, with this.
fn succession(ms: u64, node: u16, partitions: Vec<u32>, held: Held, is_orderly: bool) -> Succession {
    let (since, successor) = (ms * 1000, SUCCESSOR);
    let (sole_until, promoted) = (since + 1_900_000, since + 2_000_000);
    Succession { partitions, node, successor, is_orderly, since, sole_until, promoted, held }
}

/// A line that is cut: an actor's, or all of those to the server that keeps these.
fn cut(since: Micros, actor: Option<String>, partitions: Option<Vec<u32>>) -> Entry {
    Entry::Fault { since, actor, fault: "Cut".to_owned(), is_outage: true, partitions, node: None }
}

#[track_caller]
fn finds(tale: Tale, expected: &[Wrong]) {
    let report = tale.judged(&[]);
    let found: Vec<_> = report.findings.iter().map(|finding| finding.wrong).collect();
    assert_eq!(found, expected, "{report}: {:#?}", report.findings);
    assert_eq!(report.is_valid(), expected.is_empty());
}

#[test]
fn a_timer_that_ran_once_is_right() {
    let report = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1)).judged(&[]);
    let line = "armed=1 acknowledged=1 handled=1 lost=0 duplicated=0 explained=0 early=0 unexpected=0 \
                unknowable=0 late_p50_ms=1.0 late_p99_ms=1.0 late_max_ms=1.0 dead=0";
    assert_eq!((report.to_string().as_str(), report.is_valid()), (line, true));
}

#[test]
fn two_attempts_that_saw_that_they_held_the_lease_at_a_time_are_one_too_many() {
    let tale = |until| {
        let ran = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1));
        ran.leased(200, until, 1).leased(300, 400, 1).leased(101, 111, 2)
    };
    finds(tale(299), &[]);
    finds(tale(301), &[Wrong::Unexpected]);
}

#[test]
fn what_was_acknowledged_and_has_no_end_is_lost() {
    finds(Tale::new().armed(0, 1, Told::Armed), &[Wrong::Lost]);
    finds(Tale::new().armed(0, 1, Told::Armed).started(101, LISTENER, (1, 1)), &[Wrong::Lost]);
}

/// The call that arms timer 1 for 100 ms later, and its answer at this time, in ms.
fn slow_arm(told: u64, reached: Option<bool>) -> [Entry; 2] {
    let asked = Entry::ArmAsked { n: 1, key: "loud:a".to_owned(), work: Work::Succeed, delay_ms: 100 };
    [asked, Entry::ArmTold { n: 1, told: Told::Armed, deadline: Some((told + 100) * 1000), reached }]
}

#[test]
fn a_call_that_waited_too_long_was_made_again_and_may_have_armed_before() {
    let tale = |told: u64| {
        let [asked, answer] = slow_arm(told, None);
        let tale =
            Tale::new().then(0, PRODUCER, asked).ran(101, LISTENER, (1, 1)).then(told, PRODUCER, answer);
        tale.ran(told + 101, LISTENER, (1, 1))
    };
    finds(tale(500), &[]);
    finds(tale(499), &[Wrong::Early, Wrong::Unexplained]);
}

#[test]
fn a_durable_call_that_was_given_up_may_arm_after_its_repeat_was_answered() {
    let tale = |told: u64, reached, again: u64| {
        let [asked, answer] = slow_arm(told, reached);
        let tale = Tale::new().then(0, PRODUCER, asked).then(told, PRODUCER, answer);
        let (key, source) = ("loud:a".to_owned(), "timer".to_owned());
        let start = Entry::Started { n: 1, key, attempt: 1, deadline: (again + 100) * 1000, source };
        let tale = tale.ran(told + 101, LISTENER, (1, 1)).then(again + 101, LISTENER, start);
        tale.ended(again + 102, LISTENER, (1, 1), End::Done)
    };
    finds(tale(500, Some(true), 999), &[]);
    finds(tale(500, Some(true), 1_001), &[Wrong::Unexplained]);
    finds(tale(500, None, 999), &[Wrong::Unexplained]);
    finds(tale(499, Some(true), 998), &[Wrong::Unexplained]);
}

#[test]
fn what_was_never_acknowledged_may_vanish() {
    finds(Tale::new().armed(0, 1, Told::Unknown), &[]);
    finds(Tale::new().armed(0, 1, Told::Refused), &[]);
}

#[test]
fn what_was_cancelled_or_replaced_need_not_run() {
    finds(Tale::new().armed(0, 1, Told::Armed).cancelled(50, Told::Cancelled), &[]);
    let replaced = Tale::new().armed(0, 1, Told::Armed).armed(10, 2, Told::Replaced);
    finds(replaced.ran(111, LISTENER, (2, 1)), &[]);
}

#[test]
fn a_key_that_was_free_again_proves_that_its_timer_had_ended() {
    finds(Tale::new().armed(0, 1, Told::Armed).cancelled(50, Told::NotArmed), &[Wrong::Lost]);
    let again = Tale::new().armed(0, 1, Told::Armed).armed(10, 2, Told::Armed);
    finds(again.ran(111, LISTENER, (2, 1)), &[Wrong::Lost]);
}

#[test]
fn an_arm_whose_answer_was_lost_may_have_replaced_and_run_before_it_armed_again() {
    let asked = Entry::ArmAsked { n: 2, key: "loud:a".to_owned(), work: Work::Succeed, delay_ms: 0 };
    let told = Entry::ArmTold { n: 2, told: Told::Armed, deadline: Some(500_000), reached: None };
    let tale = || Tale::new().armed(0, 1, Told::Armed).then(10, PRODUCER, asked.clone());
    let twice = |tale: Tale| {
        tale.ran(150, LISTENER, (2, 1)).then(499, PRODUCER, told.clone()).ran(550, LISTENER, (2, 1))
    };
    finds(twice(tale().outage(10, 490, Some("producer 0"))), &[]);
    finds(twice(tale()), &[Wrong::Lost, Wrong::Early, Wrong::Unexplained]);
}

#[test]
fn an_arm_whose_answer_was_lost_may_have_followed_a_running_attempt() {
    let asked = Entry::ArmAsked { n: 2, key: "loud:a".to_owned(), work: Work::Succeed, delay_ms: 0 };
    let told = Entry::ArmTold { n: 2, told: Told::Armed, deadline: Some(110_000), reached: None };
    let tale = || Tale::new().armed(0, 1, Told::Armed).then(110, PRODUCER, asked.clone());
    let followed = |tale: Tale| tale.then(499, PRODUCER, told.clone()).ran(550, LISTENER, (2, 1));
    let running = || tale().started(101, LISTENER, (1, 1)).ended(120, LISTENER, (1, 1), End::Failed);
    finds(followed(running().outage(110, 490, Some("producer 0"))), &[]);
    finds(followed(tale().outage(110, 490, Some("producer 0"))), &[Wrong::Lost]);
    finds(followed(running()), &[Wrong::Lost]);
}

#[test]
fn what_an_arming_waits_behind_must_have_begun() {
    let behind = || Tale::new().armed(0, 1, Told::Armed).armed(10, 2, Told::AfterRunning);
    finds(behind().ran(111, LISTENER, (2, 1)), &[Wrong::Lost]);
    finds(behind().started(101, LISTENER, (1, 1)).ran(120, LISTENER, (2, 1)), &[]);
}

#[test]
fn a_start_before_the_deadline_is_early() {
    let early = Tale::new().armed(0, 1, Told::Armed).ran(99, LISTENER, (1, 1));
    finds(early, &[Wrong::Early]);
}

#[test]
fn a_retry_before_its_backoff_is_early() {
    let failed = |retry| {
        let tale = Tale::new().armed(0, 1, Told::Armed).started(101, LISTENER, (1, 1));
        tale.ended(110, LISTENER, (1, 1), End::Failed).ran(retry, LISTENER, (1, 2))
    };
    finds(failed(309), &[Wrong::Early]);
    finds(failed(310), &[]);
}

#[test]
fn what_nobody_armed_is_unexpected() {
    finds(Tale::new().ran(101, LISTENER, (1, 1)), &[Wrong::Unexpected]);
    finds(Tale::new().armed(0, 1, Told::Refused).ran(101, LISTENER, (1, 1)), &[Wrong::Unexpected]);
}

#[test]
fn a_start_after_a_cancel_is_unexpected() {
    let cancelled = Tale::new().armed(0, 1, Told::Armed).cancelled(50, Told::Cancelled);
    finds(cancelled.ran(101, LISTENER, (1, 1)), &[Wrong::Unexpected]);
    // It was claimed before, and fenced.
    let in_flight = || Tale::new().armed(0, 1, Told::Armed).cancelled(99, Told::InFlight);
    finds(in_flight().ran(101, LISTENER, (1, 1)), &[]);
}

#[test]
fn a_repetition_without_a_fault_is_unexplained() {
    let twice = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1)).ran(3000, OTHER, (1, 1));
    finds(twice, &[Wrong::Unexplained]);
    let on = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1)).ran(3000, OTHER, (1, 2));
    finds(on, &[Wrong::Unexplained]);
}

#[test]
fn a_process_that_died_with_it_explains_a_repetition() {
    let killed = |at| {
        let tale = Tale::new().armed(0, 1, Told::Armed).started(101, LISTENER, (1, 1));
        tale.died(at, LISTENER).ran(3000, OTHER, (1, 1))
    };
    finds(killed(150), &[]);
    // The kernel gave the pid to another.
    finds(killed(150).born(9000, LISTENER).died(9500, LISTENER), &[]);
    let killed_at_once = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1));
    let killed_at_once = killed_at_once.then(115, HARNESS, Entry::Killed { child: LISTENER });
    finds(killed_at_once.died(2000, LISTENER).ran(3000, OTHER, (1, 1)), &[]);
    let long_before = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1)).died(2000, LISTENER);
    finds(long_before.ran(3000, OTHER, (1, 1)), &[Wrong::Unexplained]);
}

#[test]
fn a_listener_that_was_dropped_explains_a_repetition_of_what_it_ran() {
    let let_go = |at, pid| {
        let tale =
            Tale::new().armed(0, 1, Told::Armed).started(100, LISTENER, (1, 1)).then(at, pid, Entry::LetGo);
        tale.ended(600, LISTENER, (1, 1), End::Dropped).ran(2600, OTHER, (1, 1))
    };
    finds(let_go(500, LISTENER), &[]);
    finds(let_go(500, OTHER), &[Wrong::Unexplained]);
    finds(let_go(2000, LISTENER), &[Wrong::Unexplained]);
}

#[test]
fn an_outage_explains_a_repetition_if_a_lease_may_have_run_out_in_it() {
    let cut_off = |until, actor| {
        let tale = Tale::new().armed(0, 1, Told::Armed).ran(101, LISTENER, (1, 1));
        tale.outage(105, until, actor).ran(5000, OTHER, (1, 1))
    };
    finds(cut_off(1500, Some("listener 0")), &[]);
    finds(cut_off(1500, None), &[]);
    finds(cut_off(1500, Some("listener 1")), &[Wrong::Unexplained]);
    finds(cut_off(200, Some("listener 0")), &[Wrong::Unexplained]);
}

#[test]
fn a_death_is_deserved_or_explained() {
    let letter = |by_lost_leases| [Letter { n: 1, by_lost_leases, died: 20 * SECOND }];
    let armed = || Tale::new().armed(0, 1, Told::Armed);
    let unexpected = |report: Report| report.count(Wrong::Unexpected);
    assert_eq!(unexpected(armed().judged(&letter(false))), 1, "its work was to succeed");
    assert_eq!(unexpected(armed().judged(&letter(true))), 1, "no lease of it was lost");
    let mut killed = armed();
    for (start, pid) in [(101, 20), (3000, 21), (6000, 22), (9000, 23), (12_000, 24)] {
        killed = killed.born(0, pid).started(start, pid, (1, 1)).died(start + 100, pid);
    }
    assert_eq!(unexpected(killed.judged(&letter(true))), 0, "five were");
    let unseen = armed().born(0, 20).born(0, 21).born(0, 22).started(101, 20, (1, 1)).died(200, 20);
    let unseen = unseen.died(3000, 21).died(6000, 22);
    assert_eq!(unexpected(unseen.judged(&letter(true))), 1, "three were, two of them before a start");
    let let_go = |tale: Tale, at| tale.then(at, LISTENER, Entry::LetGo);
    let dropped = [1000, 2000, 3000, 4000, 5000].into_iter().fold(armed(), let_go);
    assert_eq!(
        unexpected(dropped.judged(&letter(true))),
        0,
        "five were, by a listener that was dropped before a start"
    );
    let cut_off = |actor, until| {
        let runs = [1000, 5000, 9000, 13_000].into_iter();
        let runs = runs.fold(armed(), |tale, at| {
            tale.started(at, LISTENER, (1, 1)).outage(at + 5, at + 1500, Some("listener 0"))
        });
        unexpected(runs.outage(16_000, until, Some(actor)).judged(&letter(true)))
    };
    assert_eq!(cut_off("listener 1", 17_500), 0, "five were, one of them of a claim that had no answer");
    assert_eq!(cut_off("listener 1", 16_100), 1, "four were: that was too short to lose one");
    assert_eq!(cut_off("producer 0", 17_500), 1, "four were: producers claim nothing");
    let long = armed().started(1000, LISTENER, (1, 1)).outage(1005, 12_000, Some("listener 0"));
    assert_eq!(unexpected(long.judged(&letter(true))), 0, "five may have been: each takes two seconds");
    let short = armed().started(1000, LISTENER, (1, 1)).outage(1005, 8000, Some("listener 0"));
    assert_eq!(unexpected(short.judged(&letter(true))), 1, "no more than four were");
}

#[test]
fn a_finding_comes_with_its_story() {
    let report = Tale::new().armed(0, 1, Told::Armed).armed(10, 2, Told::Armed).judged(&[]);
    let story = &report.findings[0].story;
    assert_eq!((report.findings[0].n, story.len()), (1, 4), "both armings of the key: {story:#?}");
}

#[test]
fn who_stood_still_just_when_it_began_explains_that_it_began_late() {
    let tale = |stopped: u64| {
        let tale =
            Tale::new().armed(0, 1, Told::Armed).born(0, 77).outage(stopped, 7_000, Some("listener 1"));
        tale.ran(5_000, LISTENER, (1, 1)).ran(6_999, 77, (1, 1))
    };
    finds(tale(101), &[]);
    finds(tale(300), &[Wrong::Unexplained]);
}
