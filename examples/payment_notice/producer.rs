//! The producer, which arms notices, and cancels, moves or replaces some of them.

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
/// Notices armed after that, one by one. Half of them are due immediately, so listeners need an event or a sweep to find
/// them.
const ONE_BY_ONE: u64 = 240;
const EVERY: Duration = Duration::from_millis(30);
/// After each of this many, the producer changes one of the first notices.
const CHANGE_EVERY: u64 = 4;

/// A payment service that arms notices to merchants, and records the receipts.
pub(crate) struct Producer {
    pub(crate) schedule: Schedule,
    pub(crate) topic: Topic<Notice>,
    pub(crate) merchants: Merchants,
    pub(crate) clock: Clock,
    pub(crate) ledger: Arc<Ledger>,
    /// The arming that each trade had last.
    pub(crate) last: HashMap<u64, ArmingId>,
}

/// Number of trades.
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
            if trade % CHANGE_EVERY == 0 {
                self.change_one((trade - AT_ONCE) / CHANGE_EVERY).await?;
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

    /// Records the result of an arm, for this arming and for the one before it.
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
            // The running attempt may continue. If it fails, the new arming replaces the retry.
            ArmResult::AfterRunning(_) => None,
            _ => return Ok(()),
        };
        if let Some(before) = before {
            self.ledger.withdrawn(before, Withdrawn { by: By::Rearm, since });
        }
        Ok(())
    }

    /// Cancels, reschedules or re-arms one of the first notices, whatever its state.
    async fn change_one(&mut self, step: u64) -> Result<()> {
        let trade = step * 37 % AT_ONCE; // no two steps choose the same trade
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
            // The notice was handled, or is a dead letter.
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

/// Returns a number below `bound` that looks random and is the same in each run.
fn scatter(trade: u64, bound: u64) -> u64 {
    (trade.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % bound
}
