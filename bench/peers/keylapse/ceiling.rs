//! The highest rate that the scripts allow: pipelined claims and acks, and nothing else.

use std::time::{Duration, Instant};

use keylapse::Schedule;
use keylapse_connection::id::{SlotId, Token};
use keylapse_wire::names::PartitionNames;
use keylapse_wire::{Claim, DeadLetterLimits, Index, LeaseRef, MAX_BATCH, QuarantineGroup, Store};
use serde_json::json;

use crate::orders::Orders;
use crate::server_cpu::ServerCpu;
use crate::{Outcome, jobs};

/// The default lease of a listener.
const LEASE_MS: u64 = 30_000;
const DEAD_LETTERS: DeadLetterLimits =
    DeadLetterLimits { count: 10_000, age_ms: 90 * 86_400_000, pause_when_full: false };

/// `run throughput`
pub(crate) async fn throughput(orders: &Orders) -> Outcome {
    let orders = Orders { marker_keys: false, ..orders.clone() };
    let (topic, schedule) = (jobs::topic(&orders)?, Schedule::connect(&orders.url).await?);
    jobs::offer_overdue(&schedule, &topic, &orders).await?;
    let (store, at) = (Store::at(&orders.url)?, PartitionNames::new("keylapse", topic.name(), 0, 1, false));
    // Claims are as large as those of a busy listener, which claims when about half of its concurrency slots are free.
    let (slot, limit) = (SlotId::random(), (orders.concurrency / 2).clamp(1, MAX_BATCH));
    let mut cpu = ServerCpu::of(&orders).await?;
    let used = cpu.seconds().await?;
    let mut handled = 0;
    let mut held: Vec<LeaseRef> = Vec::new();
    // The time counts from the answer of the first batch, so the jobs of that batch do not count.
    let mut first: Option<(Instant, usize)> = None;
    let mut seconds = Duration::ZERO;
    loop {
        let claim = Claim {
            index: Index::Due,
            slot,
            token: Token::random(),
            repeat: false,
            limit,
            bytes: 1 << 20,
            lookahead_ms: 10,
            lease_ms: LEASE_MS,
            letters: DEAD_LETTERS,
            group: QuarantineGroup::ALONE,
        };
        let ack =
            async { if held.is_empty() { Ok(None) } else { store.ack(&at, false, &held).await.map(Some) } };
        let (claimed, _acked) = tokio::try_join!(store.claim(&at, claim), ack)?;
        if claimed.timers.is_empty() {
            break;
        }
        handled += claimed.timers.len();
        let (since, _) = *first.get_or_insert((Instant::now(), handled));
        seconds = since.elapsed();
        held =
            claimed.timers.into_iter().map(|timer| LeaseRef { key: timer.key, token: claim.token }).collect();
    }
    let server_us = (cpu.seconds().await? - used) * 1e6 / handled as f64;
    let counted = handled - first.map_or(0, |(_, count)| count);
    let seconds = seconds.as_secs_f64();
    let per_s = counted as f64 / seconds;
    Ok(json!({
        "handled": handled, "seconds": seconds, "per_s": per_s, "per_claim": limit, "server_us": server_us,
    }))
}
