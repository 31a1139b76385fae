//! Attached topics: every state within the bounds, and every promise in each.

mod explore;

use keylapse_protocol::attach::decision::Verdict;
use keylapse_protocol::attach::{Attached, Scope, Seen};
use stateright::{Checker, HasDiscoveries, Model};

const LOST: &str = "no expiry is lost";

/// Explores a scope to its end, and must meet with all that is expected.
fn explore(name: &str, scope: Scope, least: usize, expected: &[Seen]) {
    explore::explore(name, Attached::new(scope), least, Attached::seen, expected);
}

/// Explores until something is lost: a limit, not a promise.
fn loses(scope: Scope) {
    let checker = Attached::new(scope).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyOf([LOST].into())).spawn_bfs().join();
    let path = checker.discovery(LOST).expect("the limit is gone: say so in the docs");
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

/// Every row of the table that needs no fault and no flags.
#[test]
fn listeners_are_late() {
    let rows = [
        Verdict::Extended,
        Verdict::NotYet,
        Verdict::Persisted,
        Verdict::Lapsed,
        Verdict::Vanished,
        Verdict::Unproven,
    ];
    let events = [Seen::LateListener, Seen::TwiceInAnInterval, Seen::StaleRefused];
    let expected: Vec<Seen> = rows.into_iter().map(Seen::Row).chain(events).collect();
    explore("late listeners", Scope::calm(), 150_000, &expected);
}

#[test]
fn a_key_has_three_lives() {
    explore("three lives", Scope::lives(), 120_000, &[Seen::LateListener, Seen::TwiceInAnInterval]);
}

#[test]
fn three_listeners() {
    explore("three listeners", Scope::crowd(), 35_000, &[Seen::LateListener, Seen::RecoveredBefore]);
}

#[test]
fn what_vanished_fires_by_policy() {
    explore("what vanished", Scope::vanishing(), 60_000, &[Seen::Row(Verdict::Vanished)]);
}

#[test]
fn deletions_are_heard() {
    let expected = [Seen::Row(Verdict::Deleted), Seen::Row(Verdict::Recovered)];
    explore("all flags", Scope::granted(), 400_000, &expected);
}

#[test]
fn what_was_deleted_is_written_again() {
    explore("written again", Scope::rewritten(), 200_000, &[Seen::Row(Verdict::Deleted)]);
}

#[test]
fn deletions_are_heard_no_more() {
    let expected = [Seen::Row(Verdict::Deleted), Seen::StaleRefused];
    explore("revoked flags", Scope::revoked(), 50_000, &expected);
}

#[test]
fn a_replica_speaks_too() {
    explore("a replica", Scope::replicated(), 120_000, &[Seen::ReplicaIgnored]);
}

#[test]
fn connections_break() {
    let expected = [Seen::Row(Verdict::Recovered), Seen::RecoveredBefore, Seen::UnsureFired];
    explore("broken connections", Scope::broken(), 250_000, &expected);
}

#[test]
fn flags_are_cleared() {
    explore("cleared flags", Scope::muted(), 60_000, &[Seen::JumpNoticed, Seen::Row(Verdict::Recovered)]);
}

#[test]
fn hints_are_dropped() {
    explore("dropped hints", Scope::crowded(), 50_000, &[Seen::UnsureFired]);
}

#[test]
fn listeners_die() {
    explore("deaths", Scope::mortal(), 50_000, &[Seen::RunAgain, Seen::KeptBeside, Seen::Deaf]);
}

#[test]
fn nobody_is_left_who_heard_it() {
    explore("a gap and a death", Scope::forsaken(), 50_000, &[Seen::Row(Verdict::Recovered)]);
}

/// A deadline that was brought forward unheard, and passed while the
/// connection was broken, is taken for a deletion: the one that is remembered
/// has not come yet, and since before *that* all was heard.
#[test]
fn a_deadline_that_was_brought_forward_can_be_lost_in_a_gap() {
    loses(Scope::shortened());
}

/// Whoever mends a subscription in silence makes its listener count wrongly
/// until the next canary shows it. We never do; a proxy might.
#[test]
fn a_connection_that_is_mended_in_silence_can_lose() {
    loses(Scope::mended());
}

/// Millions of states, for whoever sets `KEYLAPSE_MODEL=wide`.
#[test]
fn more_of_it_all() {
    if explore::is_wide() {
        Scope::wide().into_iter().for_each(|scope| explore("wide", scope, 500_000, &[]));
    }
}
