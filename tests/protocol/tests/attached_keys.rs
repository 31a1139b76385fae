//! Attached topics: every state within the bounds, and every promise in each.

use crate::explore;
use keylapse_protocol::attach::decision::Verdict;
use keylapse_protocol::attach::{Attached, Scope, Seen};
use stateright::{Checker, HasDiscoveries, Model};

const LOST: &str = "no expiry is lost";
const EARLY: &str = "nothing fires early, or for a deadline that was changed";

/// Explores a scope to its end, and must meet with all that is expected.
fn explore(name: &str, scope: Scope, least: usize, expected: &[Seen]) {
    explore::explore(name, Attached::new(scope), least, Attached::seen, expected);
}

/// Explores until something is lost: a limit, not a promise.
fn loses(scope: Scope) {
    breaks(scope, LOST);
}

fn breaks(scope: Scope, promise: &'static str) {
    let checker = Attached::new(scope).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyOf([promise].into())).spawn_bfs().join();
    let path = checker.discovery(promise).expect("the limit is gone: say so in the docs");
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

/// Every row of the table that needs no fault and no flags.
/// A test for each of these: what it is called, its scope, how many states there are at least, and what
/// some of them must have met with.
macro_rules! explored {
    ($($test:ident: $name:literal, $scope:ident, $least:literal, [$($seen:ident $(($row:ident))?),*];)*) => {
        $(#[test]
        fn $test() {
            explore($name, Scope::$scope(), $least, &[$(Seen::$seen $((Verdict::$row))?),*]);
        })*
    };
}

explored! {
    listeners_are_late: "late listeners", calm, 150_000, [
        Row(Extended), Row(NotYet), Row(Persisted), Row(Lapsed), Row(Vanished), Row(Unproven),
        LateListener, TwiceInAnInterval, StaleRefused
    ];
    a_key_has_three_lives: "three lives", lives, 120_000, [LateListener, TwiceInAnInterval];
    three_listeners: "three listeners", crowd, 35_000, [LateListener, RecoveredBefore];
    two_of_three_agree: "agreed", gathered, 100_000, [AgreedBefore, LateListener];
    what_vanished_fires_by_policy: "what vanished", vanishing, 60_000, [Row(Vanished)];
    deletions_are_heard: "all flags", granted, 400_000, [Row(Deleted), Row(Recovered)];
    what_was_deleted_is_written_again: "written again", rewritten, 200_000, [Row(Deleted)];
    deletions_are_heard_no_more: "revoked flags", revoked, 50_000, [Row(Deleted), StaleRefused];
    a_replica_speaks_too: "a replica", replicated, 120_000, [ReplicaIgnored];
    connections_break: "broken connections", broken, 250_000, [Row(Recovered), RecoveredBefore, UnsureFired];
    what_was_read_before_a_gap_is_written_after: "late readings", late, 500_000, [Row(Recovered), StaleRefused];
    what_was_heard_in_a_gap_is_followed_by_another: "torn", torn, 300_000, [UnsureFired, AgreedBefore];
    flags_are_cleared: "cleared flags", muted, 60_000, [JumpNoticed, Row(Recovered)];
    hints_are_dropped: "dropped hints", crowded, 50_000, [UnsureFired];
    listeners_die: "deaths", mortal, 50_000, [RunAgain, KeptBeside, Deaf];
    a_key_moves: "a key that moves", moved, 300_000, [TouchedAgain, StaleRefused, Row(Vanished), Row(Unproven)];
    a_key_moves_to_a_clock_that_is_ahead: "a clock ahead", moved_ahead, 300_000, [TouchedAgain, StaleRefused];
    what_vanished_may_have_moved: "moved and vanished", moved_vanishing, 20_000, [Row(Vanished)];
    a_key_has_lives_on_two_servers: "lives on two servers", moved_lives, 150_000, [TouchedAgain, LateListener];
    a_key_moves_back: "there and back", moved_back, 300_000, [TouchedAgain];
    connections_break_while_a_key_moves: "moved in a gap", moved_broken, 200_000, [Row(Recovered), UnsureFired];
    nobody_heard_it_before_it_moved: "moved unheard", moved_alone, 200_000, [Row(Recovered), UnsureFired];
    a_primary_is_replaced: "a stale primary", replaced, 60_000, [Missed, Dropped, DroppedKnown, UnsureFired];
    others_are_late_to_know_it: "a late topology", replaced_late, 200_000, [Missed, Dropped];
    who_was_replaced_is_heard: "a loud stale primary", replaced_loud, 30_000, [Missed, Dropped];
    connections_break_while_a_primary_is_replaced: "replaced in a gap", replaced_broken, 300_000, [Dropped];
    nobody_is_left_who_heard_who_was_replaced: "replaced unheard", replaced_alone, 60_000, [Dropped, Row(Recovered)];
    nobody_is_left_who_heard_it: "a gap and a death", forsaken, 50_000, [Row(Recovered)];
}

/// A deadline that was brought forward unheard, and passed while the
/// connection was broken, is taken for a deletion: the one that is remembered
/// has not come yet, and since before *that* all was heard.
#[test]
fn a_deadline_that_was_brought_forward_can_be_lost_in_a_gap() {
    loses(Scope::shortened());
}

/// What the merging of ranges costs: an expiry that only a listener heard that is late by as many gaps of
/// all the others as ranges are kept.
#[test]
fn who_is_late_by_as_many_gaps_as_ranges_are_kept_can_lose() {
    loses(Scope::merged());
}

/// Whoever mends a subscription in silence makes its listener count wrongly
/// until the next canary shows it. We never do; a proxy might.
#[test]
fn a_connection_that_is_mended_in_silence_can_lose() {
    loses(Scope::mended());
}

/// A slot that was elsewhere and is back before a listener was told: that it was elsewhere is not known, so what
/// expired there in the listener's gap is taken for a deletion.
#[test]
fn a_slot_that_moves_there_and_back_unseen_can_lose() {
    loses(Scope::unseen());
}

/// Neither a canary nor one other server's word is proof alone, and both can be wrong at once: real servers that were
/// replaced have had no canary heard.
#[test]
fn who_was_replaced_and_is_heard_and_believed_fires_early() {
    breaks(Scope::deceived(), EARLY);
}

/// Millions of states, for whoever sets `KEYLAPSE_MODEL=wide`.
#[test]
fn more_of_it_all() {
    if explore::is_wide() {
        Scope::wide().into_iter().for_each(|scope| explore("wide", scope, 500_000, &[]));
        Scope::wide_of_two().into_iter().for_each(|scope| explore("two servers", scope, 200_000, &[]));
    }
}
