//! How much of the world is explored.

use super::world::Purse;

/// The bounds of one exploration. Within them it is complete.
///
/// Crashes and pauses are not counted: they may happen at any step, for ever.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Listeners, at most three.
    pub workers: usize,
    /// Keys, at most two.
    pub keys: usize,
    /// Lost leases that put a timer in quarantine.
    pub quarantine_at: u8,
    /// Lost leases that bury. Those that have one to lose run alone; the others in quarantine, in groups.
    pub poison: u8,
    /// Whether timers may be claimed a little ahead of their deadline.
    pub lookahead: bool,
    /// Whether a lease may run out under a worker that lives.
    pub pauses: bool,
    /// Whether any worker may crash at any time.
    pub crashes: bool,
    /// The key whose handler takes its worker down, each time. With a pill,
    /// nothing else goes wrong.
    pub pill: Option<usize>,
    /// Whether handlers arm their own keys.
    pub own: bool,
    /// Whether arms come if-absent, too.
    pub absent: bool,
    /// How many dead letters are replayed at most.
    pub replays: u8,
    /// What may happen only so often.
    pub purse: Purse,
}

impl Scope {
    /// Three workers and two keys, with a little of everything. Here one lost
    /// lease puts into quarantine and two bury: the script's 2 and 5 have the same
    /// structure, and are explored by [`real`](Self::real) and
    /// [`pill`](Self::pill).
    pub const fn whole() -> Self {
        let purse = Purse {
            arms: 3,
            cancels: 1,
            losses: 1,
            retries: 0,
            snoozes: 0,
            releases: 0,
            deaths: 0,
            agains: 0,
        };
        Self {
            workers: 3,
            keys: 2,
            quarantine_at: 1,
            poison: 2,
            lookahead: false,
            pauses: true,
            crashes: true,
            pill: None,
            own: false,
            absent: false,
            replays: 0,
            purse,
        }
    }

    /// One key with the real constants, and arms if-absent.
    pub const fn real() -> Self {
        let purse = Purse {
            arms: 2,
            cancels: 1,
            losses: 1,
            retries: 1,
            snoozes: 0,
            releases: 0,
            deaths: 1,
            agains: 0,
        };
        Self { keys: 1, quarantine_at: 2, poison: 5, absent: true, purse, ..Self::whole() }
    }

    /// One key, and an arm whose reply is lost twice.
    pub const fn repeated() -> Self {
        let purse = Purse { arms: 2, losses: 2, cancels: 0, retries: 0, deaths: 0, ..Self::real().purse };
        Self { workers: 1, purse, ..Self::real() }
    }

    /// One key whose dead letters are replayed, and nothing but replies and requests is lost.
    pub const fn replayed() -> Self {
        let purse = Purse { arms: 2, cancels: 1, losses: 2, retries: 0, deaths: 2, ..Self::real().purse };
        Self { workers: 1, pauses: false, crashes: false, absent: false, replays: 2, purse, ..Self::real() }
    }

    /// One key with the real constants and all ends of an attempt, two lost
    /// replies: minutes of work, for whoever asks for it.
    pub const fn wide() -> Self {
        let purse = Purse {
            arms: 2,
            cancels: 1,
            losses: 2,
            retries: 1,
            snoozes: 1,
            releases: 1,
            deaths: 1,
            agains: 1,
        };
        Self { purse, ..Self::real() }
    }

    /// One key that may be claimed ahead of its deadline.
    pub const fn ahead() -> Self {
        let purse = Purse {
            arms: 2,
            cancels: 1,
            losses: 1,
            retries: 1,
            snoozes: 0,
            releases: 1,
            deaths: 0,
            agains: 0,
        };
        Self { keys: 1, lookahead: true, purse, ..Self::whole() }
    }

    /// A pill and a bystander, each armed once, with the real constants.
    pub const fn pill() -> Self {
        let purse = Purse {
            arms: 2,
            cancels: 0,
            losses: 2,
            retries: 1,
            snoozes: 0,
            releases: 1,
            deaths: 0,
            agains: 0,
        };
        Self {
            quarantine_at: 2,
            poison: 5,
            pauses: false,
            crashes: false,
            pill: Some(0),
            purse,
            ..Self::whole()
        }
    }

    /// A pill that arms its own key, and perhaps somebody else does.
    pub const fn pill_of_its_own() -> Self {
        Self { keys: 1, own: true, purse: Purse { arms: 4, ..Self::pill().purse }, ..Self::pill() }
    }

    /// The same as [`pill`](Self::pill), and one of them is armed once more.
    pub const fn pill_again() -> Self {
        Self { purse: Purse { arms: 3, losses: 0, retries: 0, ..Self::pill().purse }, ..Self::pill() }
    }
}
