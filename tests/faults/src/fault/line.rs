//! What befalls the line between one process and the server.

use std::num::NonZeroUsize;
use std::time::Duration;

use keylapse_support::{Direction, Proxy, Then, command};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use crate::harness::Troupe;

/// A fault, and whose line it befalls (modulo how many there are).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// Whose line.
    pub whose: u8,
    /// What befalls it.
    pub what: Interruption,
}

/// What befalls a line. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// All connections are closed.
    Cut,
    /// All connections are reset.
    Reset,
    /// Nothing gets through this way for so long, and then everything does.
    Stall(Direction, u64),
    /// Everything is late by so much, for so long.
    Delay(Direction, u64, u64),
    /// Everything comes in pieces of so many bytes, for so long.
    Split(usize, u64),
    /// Each connection is closed behind so many bytes of what the server says on it, for so long.
    Tear(usize, u64),
    /// The replies to so many script calls are lost after the server has executed them.
    Lose(usize, Then),
    /// All connections are closed, and new ones refused for so long.
    Refuse(u64),
}

/// How long is waited for a reply to lose.
const FOR_A_REPLY: Duration = Duration::from_secs(1);

impl LineFault {
    /// Any of them; none lasts longer than a lease and a half.
    pub(crate) fn any(random: &mut StdRng, lease_ms: u64) -> Self {
        let whose = random.random();
        let direction = match random.random_range(0..3) {
            0 => Direction::Requests,
            1 => Direction::Replies,
            _ => Direction::Both,
        };
        let for_ms = random.random_range(20..lease_ms * 3 / 2);
        let what = match random.random_range(0..14) {
            0 => Interruption::Cut,
            1 => Interruption::Reset,
            2..4 => Interruption::Stall(direction, for_ms),
            4 => Interruption::Delay(direction, random.random_range(1..150), for_ms),
            5 => Interruption::Split(random.random_range(1..20), for_ms),
            6 => Interruption::Refuse(for_ms),
            7 => Interruption::Lose(random.random_range(1..4), Then::Stall),
            8 => Interruption::Lose(random.random_range(1..4), Then::Reset),
            9 => Interruption::Lose(random.random_range(1..4), Then::Tear(random.random_range(1..200))),
            10 => Interruption::Lose(random.random_range(1..4), Then::Halt(random.random_range(1..200))),
            11 => Interruption::Tear(random.random_range(0..600), for_ms),
            _ => Interruption::Lose(random.random_range(1..6), Then::Close),
        };
        Self { whose, what }
    }

    /// Makes it happen, ends it, and puts it on record.
    pub async fn strike(self, troupe: &Troupe) {
        let since = crate::clock::now();
        let actor = troupe.actor(self.whose);
        self.what.strike(actor.line()).await;
        actor.line().heal().await;
        troupe.record_fault(since, Some(actor.name()), &self.what, true);
    }
}

impl Interruption {
    /// Makes it happen, and lets it last.
    pub(crate) async fn strike(self, line: &Proxy) {
        let lasting = |ms| sleep(Duration::from_millis(ms));
        match self {
            Self::Cut => line.cut(),
            Self::Reset => line.reset(),
            Self::Stall(direction, ms) => {
                line.stall(direction);
                lasting(ms).await;
            }
            Self::Delay(direction, by, ms) => {
                line.delay(direction, Duration::from_millis(by));
                lasting(ms).await;
            }
            Self::Split(bytes, ms) => {
                line.split(Direction::Both, NonZeroUsize::new(bytes));
                lasting(ms).await;
            }
            Self::Refuse(ms) => {
                line.refuse().await;
                line.cut();
                lasting(ms).await;
            }
            Self::Tear(bytes, ms) => {
                line.tear(Some(bytes));
                lasting(ms).await;
            }
            Self::Lose(count, then) => {
                let before = line.lost();
                line.lose_replies(count, command("EVALSHA"), then);
                // An idle line may have no reply to lose.
                let _ = timeout(FOR_A_REPLY, line.until_lost(before + count)).await;
            }
        }
    }
}
