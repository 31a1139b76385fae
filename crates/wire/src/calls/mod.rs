//! The calls: the parameters, the script or pipeline, and the result of each. Long lists are split into several calls.

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

/// The maximum length of a key, in bytes.
pub const MAX_KEY: usize = 4096;
/// The largest payload limit that a topic can set, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;
/// The maximum number of timers in one call.
pub const MAX_BATCH: usize = 1000;

/// The maximum number of arguments of a call, apart from its list.
const MAX_FIXED_ARGUMENTS: usize = 60;
/// The maximum length of the keys and texts in one call, in bytes. A larger item is sent alone.
const MAX_CALL_BYTES: usize = 1 << 20;

/// An item of a list in a call.
pub trait Item {
    /// The number of arguments that an item takes.
    const ARGUMENTS: usize;

    /// Returns the length of its keys and texts.
    fn bytes(&self) -> usize;
}

/// Returns how many items, the largest of which has `largest` bytes, fit into `bytes`: from 1 to `most`.
pub(crate) fn fit(bytes: usize, most: usize, largest: Option<usize>) -> usize {
    bytes.checked_div(largest.unwrap_or_default()).unwrap_or(most).clamp(1, most)
}

/// Returns how many items with this number of arguments fit into one call.
pub(crate) const fn items_per_call(arguments: usize) -> usize {
    let fitting = (MAX_ARGUMENTS - MAX_FIXED_ARGUMENTS) / arguments;
    if fitting < MAX_BATCH { fitting } else { MAX_BATCH }
}

/// Splits items into portions that fit into one call each.
pub fn portions<T: Item>(mut items: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&T| {
            bytes += item.bytes();
            bytes <= MAX_CALL_BYTES
        };
        let count = items.iter().take(items_per_call(T::ARGUMENTS)).take_while(fits).count();
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
        assert_eq!([1, 2, 3, 4, 10].map(items_per_call), [1000, 1000, 1000, 984, 393]);
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
