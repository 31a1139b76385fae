//! Exploring a model to its end.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, Model};

/// Whether to explore millions of states; says that it is skipped where not.
pub(crate) fn is_wide() -> bool {
    let is_wide = std::env::var("KEYLAPSE_MODEL").as_deref() == Ok("wide");
    if !is_wide {
        keylapse_support::skipped("millions of states; set KEYLAPSE_MODEL=wide");
    }
    is_wide
}

/// Explores all states. It must have met with all that is expected, and with so many states: what is
/// not explored keeps every promise.
pub(crate) fn explore<M, S>(name: &str, model: M, least: usize, seen: fn(&M, S) -> u64, expected: &[S])
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>,
    M: Send + Sync + 'static,
    S: Copy + Debug,
{
    let began = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {states} states, {steps} steps, {:.1} s", began.elapsed().as_secs_f64());
    for (promise, path) in checker.discoveries() {
        println!("broken: {promise}");
        path.into_actions().iter().for_each(|step| println!("    {step:?}"));
    }
    checker.assert_properties();
    assert!(checker.is_done() && states >= least, "{name} has no more than {states} states");
    for what in expected {
        assert!(seen(checker.model(), *what) > 0, "{name} never met with {what:?}");
    }
}
