//! The producer: arms notices, and changes its mind about some.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keylapse::timers::ArmingId;
use keylapse::{ArmResult, Cancelled, NewArm, Rescheduled, Schedule, Topic};
use tokio::time::{MissedTickBehavior, interval};

use crate::Result;
use crate::clock::Clock;
use crate::ledger::{Bound, By, Ledger, Withdrawn};
use crate::merchants::{Merchants, Notice};

/// Notices armed at the start, in one call, to be due over [`SPAN_MS`].
const AT_ONCE: u64 = 240;
const SPAN_MS: u64 = 6_000;
/// Notices armed after that, one by one, half of them due at once: who is to run them must hear of
/// them, or find them.
const ONE_BY_ONE: u64 = 240;
const EVERY: Duration = Duration::from_millis(30);
/// After so many of these, the producer changes its mind about one of the first.
const SECOND_THOUGHTS: u64 = 4;

/// A payment service that tells merchants of payments, and writes down what it was promised.
pub(crate) struct Producer {
    pub(crate) schedule: Schedule,
    pub(crate) topic: Topic<Notice>,
    pub(crate) merchants: Merchants,
    pub(crate) clock: Clock,
    pub(crate) ledger: Arc<Ledger>,
    /// The arming that each trade had last.
    pub(crate) last: HashMap<u64, ArmingId>,
}

/// How many trades there are.
pub(crate) const TRADES: u64 = AT_ONCE + ONE_BY_ONE;

impl Producer {
    pub(crate) async fn run(&mut self) -> Result<()> {
        self.arm_at_once().await?;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for trade in AT_ONCE..TRADES {
            ticks.tick().await;
            let delay = if trade % 2 == 0 { 0 } else { scatter(trade, 1000) };
            self.arm(trade, Duration::from_millis(delay)).await?;
            if trade % SECOND_THOUGHTS == 0 {
                self.change_mind((trade - AT_ONCE) / SECOND_THOUGHTS).await?;
            }
        }
        Ok(())
    }

    async fn arm_at_once(&mut self) -> Result<()> {
        let before = self.clock.now().await?;
        let delays: Vec<_> =
            (0..AT_ONCE).map(|trade| Duration::from_millis(500 + scatter(trade, SPAN_MS))).collect();
        let arms = delays
            .iter()
            .zip(0..)
            .map(|(delay, trade)| NewArm::new([trade.to_string()], *delay, self.merchants.notice(trade)));
        let armings = self.schedule.arm_many(&self.topic, arms).await?;
        for ((arming, delay), trade) in armings.into_iter().zip(delays).zip(0..) {
            self.note(trade, &arming?, before, delay).await?;
        }
        Ok(())
    }

    async fn arm(&mut self, trade: u64, delay: Duration) -> Result<()> {
        let before = self.clock.now().await?;
        let notice = self.merchants.notice(trade);
        let arming = self.schedule.arm(&self.topic, [trade.to_string()], delay, &notice).await?;
        self.note(trade, &arming, before, delay).await
    }

    /// Writes down what an arm has done, to this arming and to the one before it.
    async fn note(
        &mut self,
        trade: u64,
        arming: &ArmResult,
        before: SystemTime,
        delay: Duration,
    ) -> Result<()> {
        let receipt = arming.receipt().ok_or("nobody else arms these keys")?;
        self.ledger.armed(receipt, trade, before, delay);
        let before = self.last.insert(trade, receipt.id);
        let since = match arming {
            ArmResult::Replaced(_) => Some(self.clock.now().await?),
            // It may go on; if it fails, the new one comes in place of a retry.
            ArmResult::AfterRunning(_) => None,
            _ => return Ok(()),
        };
        if let Some(before) = before {
            self.ledger.withdrawn(before, Withdrawn { by: By::Rearm, since });
        }
        Ok(())
    }

    /// Cancels, reschedules or re-arms one of the first notices, whatever has become of it.
    async fn change_mind(&mut self, step: u64) -> Result<()> {
        let trade = step * 37 % AT_ONCE; // each at most once: no step takes the same
        match step % 3 {
            0 => self.cancel(trade).await,
            1 => self.reschedule(trade).await,
            _ => self.arm(trade, Duration::from_millis(200 + scatter(trade, 2000))).await,
        }
    }

    async fn cancel(&self, trade: u64) -> Result<()> {
        let since = match self.schedule.cancel(&self.topic, [trade.to_string()]).await? {
            Cancelled::Cancelled => Some(self.clock.now().await?),
            Cancelled::Claimed | Cancelled::InFlight => None,
            // It was handled, or has died.
            _ => return Ok(()),
        };
        let id = self.last[&trade];
        self.ledger.withdrawn(id, Withdrawn { by: By::Cancel, since });
        Ok(())
    }

    async fn reschedule(&self, trade: u64) -> Result<()> {
        let delay = Duration::from_secs(3);
        let before = self.clock.now().await?;
        let reply = self.schedule.reschedule(&self.topic, [trade.to_string()], delay).await?;
        if let Rescheduled::Rescheduled(deadline) = reply {
            let bound = Bound { since: self.clock.now().await?, until: before + delay };
            self.ledger.rescheduled(self.last[&trade], deadline, bound);
        }
        Ok(())
    }
}

/// A number below `bound` that looks random and is the same in each run.
fn scatter(trade: u64, bound: u64) -> u64 {
    (trade.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % bound
}
