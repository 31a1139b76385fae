//! What an exploration has come across, so that none is complete for want of
//! anything happening.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Protocol;
use super::judge::Heard;
use super::server::Claim;
use super::world::{Few, Index, KEYS, Phase, Timer, Told};

/// Something that has to be met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Seen {
    ArmTombstone,
    CancelTombstone,
    CancelInFlight,
    Kept,
    NextFollowed,
    ClaimRepeated,
    HandedBack,
    SettleRepeated,
    StaleRefused,
    LateButAccepted,
    Quarantined,
    Grouped,
    QuarantinedBuried,
    FollowedBuried,
    OwnBuried,
    HeldAhead,
    Replayed,
    ReplayTombstone,
    OwnLetterKept,
}

impl Seen {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::ArmTombstone,
        Self::CancelTombstone,
        Self::CancelInFlight,
        Self::Kept,
        Self::NextFollowed,
        Self::ClaimRepeated,
        Self::HandedBack,
        Self::SettleRepeated,
        Self::StaleRefused,
        Self::LateButAccepted,
        Self::Quarantined,
        Self::Grouped,
        Self::QuarantinedBuried,
        Self::FollowedBuried,
        Self::OwnBuried,
        Self::HeldAhead,
        Self::Replayed,
        Self::ReplayTombstone,
        Self::OwnLetterKept,
    ];

    /// Those that take a replay.
    pub const REPLAYS: [Self; 3] = [Self::Replayed, Self::ReplayTombstone, Self::OwnLetterKept];
}

/// How often each was met with. Beside the states and not in them: the number
/// of worlds must not grow by what led to them.
#[derive(Debug, Default)]
pub(super) struct Log([AtomicU64; Seen::ALL.len()]);

impl Log {
    pub(super) fn note(&self, seen: Seen) {
        self.0[seen as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, seen: Seen) -> u64 {
        self.0[seen as usize].load(Ordering::Relaxed)
    }
}

impl Protocol {
    pub(super) fn see_deed(&self, heard: Heard, before: &Timer) {
        match (heard.repeat, heard.told) {
            (true, Told::Superseded) => self.see(Seen::ArmTombstone),
            (true, Told::Cancelled | Told::InFlight) if heard.before.is_some() => {
                self.see(Seen::CancelTombstone);
            }
            (true, Told::Replayed) if heard.before == Some(Told::Replayed) => self.see(Seen::ReplayTombstone),
            (_, Told::Replayed) => self.see(Seen::Replayed),
            (_, Told::Occupied) if before.rec.is_some_and(|rec| before.grave.died.contains(&rec)) => {
                self.see(Seen::OwnLetterKept);
            }
            (_, Told::InFlight) => self.see(Seen::CancelInFlight),
            (_, Told::AfterRunning) => self.see(Seen::Kept),
            _ => {}
        }
    }

    pub(super) fn see_claim(&self, call: Claim, taken: Few, before: &[Timer; KEYS], after: &[Timer; KEYS]) {
        if call.repeat && !taken.is_empty() {
            self.see(Seen::ClaimRepeated);
            let handed_back = |(before, after): (&Timer, &Timer)| before.is_claimed() && !after.is_claimed();
            if before.iter().zip(after).any(handed_back) {
                self.see(Seen::HandedBack);
            }
        }
        let beside = call.beside.iter().flatten().count();
        if call.index == Index::Quarantine && beside + (0..8).filter(|key| taken.has(*key)).count() > 1 {
            self.see(Seen::Grouped);
        }
        for (before, after) in before.iter().zip(after) {
            let lost = before.is_claimed() && after.differs(before);
            if lost && before.state().lost + 1 >= self.scope.poison && after.rec != before.rec {
                if before.own && after.rec.is_none() {
                    self.see(Seen::OwnBuried);
                }
                self.see(if after.rec.is_some() { Seen::FollowedBuried } else { Seen::QuarantinedBuried });
            }
            if lost && !after.is_claimed() && after.rec.is_some() {
                self.see(Seen::Quarantined);
            }
        }
    }

    pub(super) fn see_settle(&self, before: &Timer, done: bool, repeated: bool) {
        match done {
            true if before.score == Phase::Past => self.see(Seen::LateButAccepted),
            true if before.next.is_some() => self.see(Seen::NextFollowed),
            false if before.is_claimed() && !repeated => self.see(Seen::StaleRefused),
            false if repeated => self.see(Seen::SettleRepeated),
            _ => {}
        }
    }
}
