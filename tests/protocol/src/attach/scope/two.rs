//! Scopes of two servers: the key's slot moves, or a replica takes the place of
//! its primary.

use super::{Purse, Scope, Second};

/// One life, and next to nothing beside.
const SHORT: Purse = Purse { writes: 1, deeds: 0, ticks: 1, ..Purse::CALM };
const MOVED: Scope =
    Scope { second: Second::Primary, purse: Purse { writes: 1, moves: 1, ..Purse::CALM }, ..Scope::calm() };
const REPLACED: Scope =
    Scope { second: Second::Replica, purse: Purse { promotions: 1, ..SHORT }, ..Scope::calm() };

impl Scope {
    /// The key's slot moves, and nothing goes wrong.
    pub const fn moved() -> Self {
        MOVED
    }

    /// The same, to a server whose clock is ahead.
    pub const fn moved_ahead() -> Self {
        Self { ahead: 1, ..MOVED }
    }

    /// The same, of a topic that fires what vanished, too.
    pub const fn moved_vanishing() -> Self {
        Self { vanished: true, purse: Purse { moves: 1, ..SHORT }, ..MOVED }
    }

    /// Two lives, one on either server perhaps.
    pub const fn moved_lives() -> Self {
        Self { purse: Purse { writes: 2, moves: 1, ..SHORT }, ..MOVED }
    }

    /// It moves, and moves back.
    pub const fn moved_back() -> Self {
        Self { purse: Purse { moves: 2, ticks: 2, ..SHORT }, ..MOVED }
    }

    /// It moves, and a connection breaks.
    pub const fn moved_broken() -> Self {
        Self { purse: Purse { moves: 1, gaps: 1, ..SHORT }, ..MOVED }
    }

    /// One listener, two lives, and a gap.
    pub const fn moved_alone() -> Self {
        Self { listeners: 1, purse: Purse { writes: 2, moves: 1, gaps: 1, ticks: 2, ..SHORT }, ..MOVED }
    }

    /// A primary is stopped, replaced, and continued.
    pub const fn replaced() -> Self {
        REPLACED
    }

    /// The same, while another server is late to know it.
    pub const fn replaced_late() -> Self {
        Self { purse: Purse { lags: 1, ..REPLACED.purse }, ..REPLACED }
    }

    /// The same, and the one that was replaced has a canary heard before it knows it.
    pub const fn replaced_loud() -> Self {
        Self { listeners: 1, loud: true, purse: Purse { canaries: 2, ..REPLACED.purse }, ..REPLACED }
    }

    /// A primary is replaced, and a connection breaks.
    pub const fn replaced_broken() -> Self {
        Self { purse: Purse { gaps: 1, ..REPLACED.purse }, ..REPLACED }
    }

    /// The same, and nobody else has heard it.
    pub const fn replaced_alone() -> Self {
        Self { listeners: 1, purse: Purse { gaps: 1, canaries: 2, ..REPLACED.purse }, ..REPLACED }
    }

    /// More of it all.
    pub const fn wide_of_two() -> [Self; 6] {
        let lives = Purse { writes: 2, moves: 1, ticks: 2, ..SHORT };
        let broken = Purse { moves: 1, gaps: 1, ticks: 2, ..SHORT };
        let alone = Purse { canaries: 2, ..Self::moved_alone().purse };
        let replaced = Purse { writes: 2, canaries: 2, ticks: 2, ..REPLACED.purse };
        let deeds = Purse { deeds: 1, ticks: 2, ..Self::replaced_alone().purse };
        [
            Self { purse: lives, ..MOVED },
            Self { purse: broken, ..MOVED },
            Self { purse: alone, ..Self::moved_alone() },
            Self { listeners: 1, purse: replaced, ..REPLACED },
            Self { purse: deeds, ..Self::replaced_alone() },
            Self { listeners: 2, ..Self::replaced_loud() },
        ]
    }

    /// A limit: a slot that moves there and back before anybody was told.
    pub const fn unseen() -> Self {
        Self { purse: Purse { moves: 2, ticks: 2, ..Self::moved_alone().purse }, ..Self::moved_alone() }
    }

    /// A limit: a server that was replaced has a canary heard, while another is late to know.
    pub const fn deceived() -> Self {
        Self { purse: Purse { lags: 1, ..Self::replaced_loud().purse }, ..Self::replaced_loud() }
    }
}
