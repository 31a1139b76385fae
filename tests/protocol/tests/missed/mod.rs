//! What the tests of single rules share: each rule is needed, as a promise breaks without it.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// Explores a model without this rule until the promise named breaks.
pub(crate) fn breaks<M>(model: M, rule: impl Debug, promise: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([promise].into())).spawn_bfs().join();
    let path = checker.discovery(promise).unwrap_or_else(|| panic!("{rule:?} is not missed"));
    println!("{rule:?}: {promise}, found among {} states:", checker.unique_state_count());
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

/// A test for each of these rules: without it, in this scope, this promise is broken.
macro_rules! each_is_missed {
    ($($test:ident: $rule:ident, $scope:ident, $promise:expr;)*) => {
        $(#[test]
        fn $test() {
            breaks(Rule::$rule, Scope::$scope(), $promise);
        })*
    };
}
