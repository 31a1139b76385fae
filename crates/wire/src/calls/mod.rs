//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers. Lists go in portions that one call
//! takes.

mod arm;
mod attached;
mod attempts;
mod dead_letters;
mod expiries;
mod fleet;
mod journal;
mod markers;
mod page;
mod partition;
mod produce;
mod read_keys;
mod registry;
mod repartition;

pub use self::{
    arm::*, attached::*, attempts::*, dead_letters::*, expiries::*, fleet::*, journal::*, markers::*,
    page::*, partition::*, produce::*, read_keys::*, registry::*, repartition::*,
};

use crate::connection::MAX_ARGUMENTS;

/// The longest key that can be armed, in bytes.
pub const MAX_KEY: usize = 4096;
/// The largest payload limit that a topic can set, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;
/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;

/// All arguments of a call but its list are no more than these.
const MAX_FIXED_ARGUMENTS: usize = 60;
/// The keys and texts of one call, in bytes: the item that goes beyond goes into the next call. One that is larger goes
/// alone.
const MAX_CALL_BYTES: usize = 1 << 20;

/// One of a list in a call.
pub trait Item {
    /// How many arguments it takes.
    const ARGUMENTS: usize;

    /// How many bytes its keys and texts have.
    fn bytes(&self) -> usize;
}

/// How many go together in a call of so many bytes, by the largest of them: at least one, and at most `most`.
pub(crate) fn fit(bytes: usize, most: usize, largest: Option<usize>) -> usize {
    bytes.checked_div(largest.unwrap_or_default()).unwrap_or(most).clamp(1, most)
}

/// How many go in one call that take so many arguments each.
pub(crate) const fn most(arguments: usize) -> usize {
    let fitting = (MAX_ARGUMENTS - MAX_FIXED_ARGUMENTS) / arguments;
    if fitting < MAX_BATCH { fitting } else { MAX_BATCH }
}

/// These, in portions that one call takes.
pub fn portions<T: Item>(mut items: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&T| {
            bytes += item.bytes();
            bytes <= MAX_CALL_BYTES
        };
        let count = items.iter().take(most(T::ARGUMENTS)).take_while(fits).count();
        let (portion, others) = items.split_at(count.max(1).min(items.len()));
        items = others;
        (!portion.is_empty()).then_some(portion)
    })
}

impl Item for LeaseRef {
    const ARGUMENTS: usize = 2;

    fn bytes(&self) -> usize {
        self.key.len()
    }
}

impl Item for Settle {
    const ARGUMENTS: usize = 5;

    fn bytes(&self) -> usize {
        self.held.key.len() + self.end.history().len()
    }
}

impl Item for ImportEntry {
    const ARGUMENTS: usize = 5;

    fn bytes(&self) -> usize {
        match self {
            Self::Timer { key, record, state, .. } => {
                key.len() + record.len() + state.as_ref().map_or(0, |state| state.len())
            }
            Self::Letter { name, letter, .. } => name.len() + letter.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Large(usize);

    impl Item for Large {
        const ARGUMENTS: usize = 5;

        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn sizes(items: &[Large]) -> Vec<usize> {
        portions(items).map(<[Large]>::len).collect()
    }

    #[test]
    fn a_portion_has_as_many_as_a_call_takes_by_arguments_and_bytes_and_at_least_one() {
        let all = |count: usize, bytes| (0..count).map(|_| Large(bytes)).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&all(2000, 1)), [787, 787, 426]);
        assert_eq!(sizes(&all(5, MAX_CALL_BYTES / 2)), [2, 2, 1]);
        assert_eq!(sizes(&all(2, 2 * MAX_CALL_BYTES)), [1, 1]);
        assert_eq!(sizes(&[Large(1), Large(MAX_CALL_BYTES), Large(1)]), [1, 1, 1]);
    }

    #[test]
    fn short_items_go_together_by_the_thousand() {
        assert_eq!((most(1), most(2), most(3), most(4), most(10)), (1000, 1000, 1000, 984, 393));
    }

    #[test]
    fn a_call_takes_as_many_as_fit_and_at_least_one() {
        for (largest, fitting) in
            [(None, 10), (Some(0), 10), (Some(1), 10), (Some(30), 3), (Some(100), 1), (Some(101), 1)]
        {
            assert_eq!(fit(100, 10, largest), fitting, "{largest:?}");
        }
    }
}
