//! What the tests of this repository know and nobody else should: names, records and calls of scripts. Not part
//! of the library's promises; it changes at any time.

pub use crate::events::event;
pub use crate::id::{CancelId, SlotId, Token};
pub use crate::policy::{Capture, Policy};
pub use crate::time::{MAX_DEADLINE_MS, ServerTime, WireWhen};
pub use crate::wire::calls::arm::{Arm, NewTimer};
pub use crate::wire::calls::cancel::{Cancel, CancelReply};
pub use crate::wire::calls::claim::{Claim, Claimed, ClaimedTimer, DEAD_AT, Heads, Index, QUARANTINE_AT};
pub use crate::wire::calls::letters::{LetterBounds, LetterPosition, RawLetter};
pub use crate::wire::calls::look::Look;
pub use crate::wire::calls::partition::TopicEntry;
pub use crate::wire::calls::repair::{RepairStep, Repaired, Scan};
pub use crate::wire::calls::settle::{AckReply, End, Followed, Held, Settle, SettleReply};
pub use crate::wire::calls::triggers::{Trigger, TriggerReply};
pub use crate::wire::calls::write_back::WrittenBack;
pub use crate::wire::calls::{MAX_BATCH, attached};
pub use crate::wire::store::{DEFAULT_ANSWER_WITHIN, Store};
pub use crate::wire::{names, record, scripts};

use tokio::sync::mpsc;

use crate::client::Client;

/// The store that a client speaks to.
pub fn store_of(client: &Client) -> Store {
    client.store().clone()
}

/// A client that speaks to this store, with the other defaults.
pub fn client_of(store: Store) -> Client {
    Client::over(store)
}

/// Looks at a server's settings, as a listener does.
///
/// # Errors
/// When the server cannot be reached.
pub async fn check_settings(store: &Store) -> crate::Result<()> {
    store.check_settings(false).await
}

/// What is heard about these partitions, which there are.
///
/// # Panics
/// Without any.
pub fn events(store: &Store, partitions: &[names::PartitionNames]) -> mpsc::Receiver<event::Event> {
    crate::events::open(
        store.address(),
        &partitions[0].namespace,
        partitions,
        &[],
        crate::rounds::Rounds::default(),
    )
    .events
}
