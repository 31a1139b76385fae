//! Tales of keys that other programs write where there are several servers.

use super::*;
use crate::job::shard_of;
use crate::ledger::{Life, Wrote};

const KEY: &str = "app:order:1";

impl Tale {
    /// Written at this time by this server for two seconds, and answered at once.
    fn ordered(self, ms: u64, by: u16, reached: Option<bool>) -> Self {
        self.tried(ms, ms, Wrote::Done, Some(by), reached)
    }

    fn tried(self, ms: u64, told: u64, wrote: Wrote, by: Option<u16>, reached: Option<bool>) -> Self {
        let (key, how) = (KEY.to_owned(), "SET".to_owned());
        let asked = Entry::WriteAsked { key: key.clone(), how, life: Life::Until((ms + 2000) * 1000) };
        self.then(ms, HARNESS, asked).then(told, HARNESS, Entry::WriteTold { key, wrote, by, reached })
    }

    fn order_fired(self, ms: u64, id: &str, expiry: &str) -> Self {
        let (key, id, expiry) = (KEY.to_owned(), id.to_owned(), expiry.to_owned());
        let ended = Entry::FiredEnded { key: key.clone(), id: id.clone(), attempt: 1, end: End::Done };
        let fired = Entry::Fired { key, id, attempt: 1, deadline: 0, expiry };
        self.then(ms, LISTENER, fired).then(ms + 10, LISTENER, ended)
    }

    /// `SERVER` falls at this time; another has its place two seconds later, and had these orders.
    fn replaced(self, since: u64, keys: &[&str], partitions: Vec<u32>) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let held = Held { keys, looked: since * 1000 + 100_000, ..Held::default() };
        self.replaced_by(since, held, partitions)
    }

    fn replaced_by(self, since: u64, held: Held, partitions: Vec<u32>) -> Self {
        self.fell(since, SERVER, partitions, held, false)
    }
}

#[test]
fn an_order_that_fired_once_is_counted_and_one_that_did_not_is_lost() {
    let report = Tale::new().ordered(0, SERVER, None).order_fired(2_004, "a", "Announced").judged(&[]);
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!((report.attached, report.fired, report.armed, report.late.len()), (1, 1, 0, 0));
    finds(Tale::new().ordered(0, SERVER, None), &[Wrong::Lost]);
}

#[test]
fn an_order_that_fires_before_its_deadline_is_early() {
    finds(Tale::new().ordered(0, SERVER, None).order_fired(1_999, "a", "Announced"), &[Wrong::Early]);
}

#[test]
fn what_fires_twice_is_explained_if_that_was_said() {
    let twice = |expiry| {
        let tale = Tale::new().ordered(0, SERVER, None).order_fired(2_004, "a", "Announced");
        tale.order_fired(2_500, "b", expiry)
    };
    for said in ["Ambiguous", "Recovered"] {
        let report = twice(said).judged(&[]);
        assert_eq!((report.is_valid(), report.duplicated, report.explained), (true, 1, 1));
    }
    finds(twice("Announced"), &[Wrong::Unexplained]);
}

#[test]
fn what_was_written_again_has_had_two_lives_and_fires_at_least_once() {
    let again = |tale: Tale| tale.tried(0, 1_000, Wrote::Unknown, None, None).ordered(1_050, SERVER, None);
    let fired = |tale: Tale| tale.order_fired(2_004, "a", "Announced");
    finds(fired(again(Tale::new())), &[]);
    finds(fired(again(Tale::new())).order_fired(3_060, "b", "Announced"), &[]);
    finds(again(Tale::new()), &[Wrong::Lost]);
    finds(again(Tale::new()).order_fired(1_990, "a", "Announced"), &[Wrong::Early]);
}

#[test]
fn what_was_refused_has_had_no_life() {
    let refused = || Tale::new().tried(0, 10, Wrote::Nothing, None, None);
    finds(refused(), &[]);
    finds(refused().order_fired(2_004, "a", "Announced"), &[Wrong::Unexpected]);
}

#[test]
fn what_only_the_fallen_server_had_is_unreplicated_and_what_the_replicas_had_is_lost() {
    let tale =
        |by, reached, held: &[&str]| Tale::new().ordered(100, by, reached).replaced(130, held, Vec::new());
    let report = tale(SERVER, None, &[]).judged(&[]);
    assert_eq!((report.is_valid(), report.shards.unreplicated), (true, vec![30_000]));
    finds(tale(SERVER, Some(false), &[]), &[]);
    finds(tale(SERVER, Some(true), &[]), &[Wrong::Lost]);
    // The replica had it, and it was expected; else it may have come and gone unheard, see below.
    let enrolled = Entry::Enrolled { key: KEY.to_owned() };
    finds(tale(SERVER, None, &[KEY]).then(120, HARNESS, enrolled), &[Wrong::Lost]);
    finds(tale(ANOTHER, None, &[]), &[Wrong::Lost]);
    // Nobody knows whether it was there: it had expired when that was looked at.
    finds(Tale::new().ordered(100, SERVER, None).replaced(2_050, &[], Vec::new()), &[Wrong::Lost]);
}

#[test]
fn what_a_server_takes_that_has_lost_its_place_is_unreplicated() {
    finds(Tale::new().ordered(2_300, SERVER, None).replaced(130, &[], Vec::new()), &[]);
    finds(Tale::new().ordered(2_700, SERVER, None).replaced(130, &[], Vec::new()), &[Wrong::Lost]);
}

#[test]
fn an_attempt_may_run_again_where_the_server_that_keeps_it_fell() {
    let kept = shard_of(KEY).expect("it is an order");
    let again = |partition| {
        let tale = Tale::new().ordered(0, ANOTHER, None).order_fired(2_004, "a", "Announced");
        tale.order_fired(4_500, "a", "Announced").replaced(2_100, &[], vec![partition])
    };
    finds(again(kept), &[]);
    finds(again(kept - 1), &[Wrong::Unexplained]);
}

/// The server's line was cut for 50 ms.
fn cut(tale: Tale, since: u64, node: u16) -> Tale {
    cut_until(tale, since, since + 50, node)
}

fn cut_until(tale: Tale, since: u64, until: u64, node: u16) -> Tale {
    let (fault, partitions) = ("Cut".to_owned(), Some(Vec::new()));
    let since = since * 1000;
    let cut = Entry::Fault { since, actor: None, fault, is_outage: true, partitions, node: Some(node) };
    tale.then(until, HARNESS, cut)
}

/// Where two listeners that enrolled have died, and the server's line was cut when the key expired: but for one of these it is
/// lost. Where it was also cut when the key was written, one that scanned is enough; or its partition's server is away.
#[test]
fn what_nobody_could_enrol_or_hear_is_unknowable() {
    let listener = |number: u32| format!("listener {number}");
    let died = |tale: Tale, number: u32| {
        let (child, actor) = (100 + number, listener(number));
        let tale = tale.then(0, HARNESS, Entry::Born { child, actor });
        tale.then(500, HARNESS, Entry::Died { child, status: String::new() })
    };
    let ordered = || Tale::new().ordered(1_000, SERVER, None);
    let tale = |deaths: u32, node, at: u64| cut((0..deaths).fold(ordered(), died), at, node);
    let report = tale(2, SERVER, 3_002).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(tale(1, SERVER, 3_002), &[Wrong::Lost]);
    finds(tale(2, ANOTHER, 3_002), &[Wrong::Lost]);
    finds(tale(2, SERVER, 500), &[Wrong::Lost]);
    let enrolled = Entry::Enrolled { key: KEY.to_owned() };
    finds(tale(2, SERVER, 3_002).then(1_200, HARNESS, enrolled), &[Wrong::Lost]);
    // Where the server announced its end is known, that counts.
    let announced = |tale: Tale, at, by| {
        tale.then(at, HARNESS, Entry::Heard { key: KEY.to_owned(), by: Some(by) }).judged(&[])
    };
    let late = announced(tale(2, SERVER, 4_502), 4_520, SERVER);
    assert_eq!((late.unknowable, late.is_valid()), (1, true), "{:?}", late.findings);
    for (cut_at, node, announced_at, by) in
        [(3_002, SERVER, 4_520, SERVER), (4_502, ANOTHER, 4_520, SERVER), (4_502, SERVER, 4_520, ANOTHER)]
    {
        let report = announced(tale(2, node, cut_at), announced_at, by);
        assert_eq!(report.unknowable, 0, "{cut_at} {node} {announced_at} {by}");
        assert_eq!(report.findings.iter().map(|one| one.wrong).collect::<Vec<_>>(), [Wrong::Lost]);
    }
    let report = cut(tale(1, SERVER, 3_002), 990, SERVER).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(cut(tale(0, SERVER, 3_002), 990, SERVER), &[Wrong::Lost]);
    let kept = shard_of(KEY).unwrap();
    let away =
        |since, at| cut(ordered().fell(since, ANOTHER, vec![kept], Held::default(), false), at, SERVER);
    let report = away(999, 3_002).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(away(999, 500), &[Wrong::Lost]);
    finds(away(1_001, 3_002), &[Wrong::Lost]);
}

/// The line to its server was cut before the key was written, and listeners were not back when it expired. A key that was
/// written before the cut, or expired after their return, is lost.
#[test]
fn what_came_and_went_while_its_line_was_cut_is_unknowable() {
    let cut = |since, until, node| cut_until(Tale::new().ordered(1_000, SERVER, None), since, until, node);
    let report = cut(999, 2_990, SERVER).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(cut(999, 2_990, ANOTHER), &[Wrong::Lost]);
    finds(cut(1_001, 2_990, SERVER), &[Wrong::Lost]);
    finds(cut(900, 1_500, SERVER), &[Wrong::Lost]);
    let enrolled = Entry::Enrolled { key: KEY.to_owned() };
    finds(cut(999, 2_990, SERVER).then(1_200, HARNESS, enrolled), &[Wrong::Lost]);
}

/// Its server fell just after it was written, and the other was heard only when the key had expired there. What was enrolled, or
/// lived on, or had been there for long is lost.
#[test]
fn what_came_and_went_around_a_fall_is_unknowable() {
    let held = |enrolled: &[&str]| {
        let enrolled = enrolled.iter().map(|key| (*key).to_owned()).collect();
        Held { keys: vec![KEY.to_owned()], enrolled, looked: 230_000, ..Held::default() }
    };
    let tale = |written, by, enrolled: &[&str]| {
        Tale::new().ordered(written, by, None).replaced_by(130, held(enrolled), Vec::new())
    };
    let report = tale(129, SERVER, &[]).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(tale(129, SERVER, &[KEY]), &[Wrong::Lost]);
    finds(tale(129, ANOTHER, &[]), &[Wrong::Lost]);
    let seen = Entry::Enrolled { key: KEY.to_owned() };
    finds(tale(129, SERVER, &[]).then(400, HARNESS, seen), &[Wrong::Lost]);
    let for_long = Tale::new().ordered(100, SERVER, None).replaced_by(1_200, held(&[]), Vec::new());
    finds(for_long, &[Wrong::Lost]);
    // Another key shows by when it is enrolled how far behind enrolling was when the server fell.
    let behind = |seen| {
        let other = format!("{KEY}7");
        let (how, life) = ("SET".to_owned(), Life::Until(9_000_000));
        let asked = Entry::WriteAsked { key: other.clone(), how, life };
        let told =
            Entry::WriteTold { key: other.clone(), wrote: Wrote::Done, by: Some(SERVER), reached: None };
        let fired = Entry::Fired {
            key: other.clone(),
            id: "a".into(),
            attempt: 1,
            deadline: 0,
            expiry: "Announced".into(),
        };
        let ended = Entry::FiredEnded { key: other.clone(), id: "a".into(), attempt: 1, end: End::Done };
        let tale = Tale::new().then(50, HARNESS, asked).then(51, HARNESS, told).ordered(100, SERVER, None);
        let tale = tale.then(seen, HARNESS, Entry::Enrolled { key: other });
        let tale = tale.replaced_by(1_200, held(&[]), Vec::new());
        tale.then(9_001, LISTENER, fired).then(9_010, LISTENER, ended)
    };
    let report = behind(1_190).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(behind(900), &[Wrong::Lost]);
    finds(behind(1_210), &[Wrong::Lost]);
    let lived_on = Tale::new().tried(1_100, 1_101, Wrote::Done, Some(SERVER), None);
    let promoted_early = Succession {
        node: SERVER,
        since: 1_102_000,
        sole_until: 1_200_000,
        promoted: 1_300_000,
        held: held(&[]),
        ..Succession::default()
    };
    finds(lived_on.then(1_400, HARNESS, Entry::Succession(promoted_early)), &[Wrong::Lost]);
}

/// The new primary acknowledged it, and it expired there before listeners had subscribed, a second after its promotion was
/// seen at 2,130. A key that was enrolled, expired later, or was written elsewhere is lost.
#[test]
fn what_came_and_went_at_a_new_server_is_unknowable() {
    let tale =
        |written, by| Tale::new().ordered(written, by, None).replaced_by(130, Held::default(), Vec::new());
    let report = tale(1_000, SUCCESSOR).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(tale(1_000, ANOTHER), &[Wrong::Lost]);
    finds(tale(1_131, SUCCESSOR), &[Wrong::Lost]);
    finds(tale(129, SUCCESSOR), &[Wrong::Lost]);
    let seen = Entry::Enrolled { key: KEY.to_owned() };
    finds(tale(1_000, SUCCESSOR).then(1_500, HARNESS, seen), &[Wrong::Lost]);
}

/// The deadline is at 3,131, and a second after the promotion was seen is 3,130.
#[test]
fn what_expires_before_a_listener_subscribes_to_a_new_server_is_unknowable() {
    let tale = |node, subscribed: &[(u64, usize)]| {
        let tale = Tale::new().ordered(1_131, SUCCESSOR, None).replaced_by(130, Held::default(), Vec::new());
        let subscribed = subscribed.iter().copied();
        subscribed
            .fold(tale, |tale, (ms, listeners)| tale.then(ms, HARNESS, Entry::Subscribed { node, listeners }))
    };
    let report = tale(SUCCESSOR, &[(1_500, 0), (3_131, 1)]).judged(&[]);
    assert_eq!((report.unknowable, report.is_valid()), (1, true), "{:?}", report.findings);
    finds(tale(ANOTHER, &[(1_500, 0), (3_131, 1)]), &[Wrong::Lost]);
    finds(tale(SUCCESSOR, &[(1_500, 0), (3_130, 1)]), &[Wrong::Lost]);
    finds(tale(SUCCESSOR, &[(1_500, 1), (2_500, 0), (3_131, 1)]), &[Wrong::Lost]);
}
