//! What the tests of this repository know and nobody else should: names, records and calls of scripts. Not part
//! of the library's promises; it changes at any time.

pub use crate::connection::slot_of;
pub use crate::id::{CancelId, DestroyId, RepartitionId, ReplayId, SlotId, Token};
pub use crate::inside::hearing::{Overheard, TailLine, event, events, tail};
pub use crate::policy::{Capture, Counting, Fields, Policy, TopicPolicy};
pub use crate::time::{MAX_DEADLINE_MS, ServerTime, WireWhen};
pub use crate::trace::Traceparent;
pub use crate::wire::{
    AckReply, CancelReply, Cargo, Claim, Claimed, ClaimedTimer, Close, DEAD_AT, DEFAULT_ANSWER_WITHIN,
    DestroyStep, End, Ending, Entry, Followed, Forwarding, Group, Heads, Held, History, Holdings, Index,
    JournalBounds, JournalPosition, LetterBounds, LetterPosition, Listing, Look, MAX_BATCH, NewTimer, Op,
    OpCall, OpFlags, OpReply, QUARANTINE_AT, RawLetter, RepairStep, Repaired, Repartitioning, Replay,
    Reported, Reshape, Scan, Settle, SettleReply, SettledAll, Shape, Standing, StandingPolicy, Store, Told,
    ToldOf, TopicEntry, Trigger, TriggersSet, names, record, scripts,
};

pub use crate::wire::{ImportEntry, Imported, PageCall, PageFrom, PageOf};
pub use keylapse_wire::{self as attached, self as overview, self as page};

use crate::client::Client;

/// The store that a client speaks to.
pub fn store_of(client: &Client) -> Store {
    client.store.clone()
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
