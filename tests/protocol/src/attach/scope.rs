//! How much is explored.

mod two;

use super::world::{NODES, Server};

/// What may happen only so often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Purse {
    pub writes: u8,
    /// Extend, persist, delete or rename, shorten.
    pub deeds: u8,
    pub canaries: u8,
    pub ticks: u8,
    /// Connections that break, and are opened again.
    pub gaps: u8,
    /// The same behind a proxy, and nobody is told.
    pub silences: u8,
    /// Flags that are cleared, and set again after a canary has been missed.
    pub mutes: u8,
    /// Hints for which a queue has no place.
    pub drops: u8,
    pub crashes: u8,
    /// Moves of the key's slot to the other server.
    pub moves: u8,
    /// Primaries that are replaced.
    pub promotions: u8,
    /// Times that another server is late to know it.
    pub lags: u8,
}

impl Purse {
    /// Nothing goes wrong but that listeners are late.
    const CALM: Self = Self {
        writes: 2,
        deeds: 1,
        canaries: 1,
        ticks: 2,
        gaps: 0,
        silences: 0,
        mutes: 0,
        drops: 0,
        crashes: 0,
        moves: 0,
        promotions: 0,
        lags: 0,
    };
}

/// What there is beside the server that owns the key at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// Nothing.
    None,
    /// Another primary, to which the key's slot may move.
    Primary,
    /// Its replica, which may take its place.
    Replica,
}

/// The bounds of one exploration. Within them it is complete.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Listeners, at most three.
    pub listeners: usize,
    /// Whether the operator granted more than `Ex`: deletions are heard.
    pub flags: bool,
    /// Whether a replica's deletions are heard.
    pub replica: bool,
    /// Whether a writer may bring a deadline forward.
    pub shorten: bool,
    /// Whether the topic fires what vanished, too.
    pub vanished: bool,
    /// Whether a listener may write, after a gap, a deadline that it has read before.
    pub late: bool,
    /// Whether handlers take their time; without, nothing depends on them.
    pub runs: bool,
    /// How many ranges of what was noted are kept apart, at most four.
    pub ranges: usize,
    /// What there is beside the server that owns the key at first.
    pub second: Second,
    /// How far its clock is ahead.
    pub ahead: u8,
    /// Whether a server that was replaced may announce a canary before it knows it.
    pub loud: bool,
    /// What may happen only so often.
    pub purse: Purse,
}

impl Scope {
    /// How many servers there are.
    pub(super) fn nodes(&self) -> usize {
        if self.second == Second::None { 1 } else { 2 }
    }

    /// Them, at first.
    pub(super) fn servers(&self) -> [Server; NODES] {
        let replica = self.second == Second::Replica;
        [Server::default(), Server { replica, ..Server::default() }]
    }

    /// `Ex` alone, and nothing goes wrong.
    pub const fn calm() -> Self {
        let purse = Purse::CALM;
        Self {
            listeners: 2,
            flags: false,
            replica: false,
            shorten: false,
            vanished: false,
            late: false,
            runs: false,
            ranges: 4,
            second: Second::None,
            ahead: 0,
            loud: false,
            purse,
        }
    }

    /// Three lives.
    pub const fn lives() -> Self {
        Self { purse: Purse { writes: 3, deeds: 0, ..Purse::CALM }, ..Self::calm() }
    }

    /// Three listeners, one of which has a gap.
    pub const fn crowd() -> Self {
        let purse = Purse { writes: 1, deeds: 0, gaps: 1, ..Purse::CALM };
        Self { listeners: 3, purse, ..Self::calm() }
    }

    /// Three listeners, two of which have a gap.
    pub const fn gathered() -> Self {
        Self { purse: Purse { gaps: 2, ..Self::crowd().purse }, ..Self::crowd() }
    }

    /// Connections break, and a queue overflows: what was heard in a gap is followed by another.
    pub const fn torn() -> Self {
        Self { purse: Purse { drops: 1, ..Self::broken().purse }, ..Self::broken() }
    }

    /// A topic that fires what vanished, too.
    pub const fn vanishing() -> Self {
        Self { vanished: true, purse: Purse { writes: 1, canaries: 2, ..Purse::CALM }, ..Self::calm() }
    }

    /// All that an operator can grant, and a gap.
    pub const fn granted() -> Self {
        let purse = Purse { writes: 1, deeds: 2, gaps: 1, ..Purse::CALM };
        Self { flags: true, purse, ..Self::calm() }
    }

    /// A replica, and two gaps.
    pub const fn replicated() -> Self {
        let purse = Purse { writes: 1, gaps: 2, ..Purse::CALM };
        Self { replica: true, purse, ..Self::calm() }
    }

    /// Connections break twice.
    pub const fn broken() -> Self {
        Self { purse: Purse { deeds: 0, gaps: 2, ..Purse::CALM }, ..Self::calm() }
    }

    /// The same, and a deadline that was read before a gap may be written after it.
    pub const fn late() -> Self {
        Self { late: true, ..Self::broken() }
    }

    /// The operator clears the flags for a while.
    pub const fn muted() -> Self {
        Self { purse: Purse { deeds: 0, mutes: 1, ..Purse::CALM }, ..Self::calm() }
    }

    /// A queue overflows.
    pub const fn crowded() -> Self {
        Self { purse: Purse { deeds: 0, drops: 1, ..Purse::CALM }, ..Self::calm() }
    }

    /// A listener dies, perhaps with a handler that takes its time.
    pub const fn mortal() -> Self {
        Self {
            runs: true,
            purse: Purse { writes: 3, deeds: 0, canaries: 0, crashes: 1, ..Purse::CALM },
            ..Self::calm()
        }
    }

    /// One listener's connection breaks, another dies.
    pub const fn forsaken() -> Self {
        Self { purse: Purse { writes: 1, gaps: 1, crashes: 1, ..Purse::CALM }, ..Self::calm() }
    }

    /// One listener, deletions, and a key that is written again.
    pub const fn rewritten() -> Self {
        let purse = Purse { canaries: 2, gaps: 1, ..Purse::CALM };
        Self { listeners: 1, flags: true, purse, ..Self::calm() }
    }

    /// Deletions are heard, until the operator clears the flags.
    pub const fn revoked() -> Self {
        Self { flags: true, purse: Purse { canaries: 0, mutes: 1, ..Purse::CALM }, ..Self::calm() }
    }

    /// A connection breaks, and the operator clears the flags, too.
    pub const fn overtaken() -> Self {
        Self { purse: Purse { writes: 1, canaries: 3, gaps: 1, mutes: 1, ..Purse::CALM }, ..Self::calm() }
    }

    /// More of it all: minutes of work, for whoever asks for it.
    pub const fn wide() -> [Self; 8] {
        let calm = Purse { canaries: 2, ticks: 3, ..Purse::CALM };
        let broken = Purse { canaries: 2, ..Self::broken().purse };
        let granted = Purse { writes: 2, ..Self::granted().purse };
        let fragile = Purse { writes: 2, canaries: 1, drops: 1, ..Self::mortal().purse };
        [
            Self { purse: calm, ..Self::calm() },
            Self { purse: broken, ..Self::calm() },
            Self { purse: granted, ..Self::granted() },
            Self { purse: fragile, ..Self::mortal() },
            Self { purse: Purse { writes: 2, ..Self::crowd().purse }, ..Self::crowd() },
            Self { purse: Purse { mutes: 1, ..Self::rewritten().purse }, ..Self::rewritten() },
            Self::overtaken(),
            Self::parted(),
        ]
    }

    /// Three lives and a gap, and as many ranges as that can make.
    pub const fn parted() -> Self {
        let purse = Purse { ticks: 3, gaps: 1, ..Self::lives().purse };
        Self { ranges: 2, purse, ..Self::calm() }
    }

    /// A limit: the same, and a range less.
    pub const fn merged() -> Self {
        Self { ranges: 1, ..Self::parted() }
    }

    /// A limit: a writer that brings a deadline forward, and a gap.
    pub const fn shortened() -> Self {
        let purse = Purse { writes: 1, deeds: 2, gaps: 2, ..Purse::CALM };
        Self { shorten: true, purse, ..Self::calm() }
    }

    /// A limit: a connection that is mended behind a listener's back.
    pub const fn mended() -> Self {
        let purse = Purse { deeds: 0, canaries: 2, silences: 1, ..Purse::CALM };
        Self { purse, ..Self::calm() }
    }
}
