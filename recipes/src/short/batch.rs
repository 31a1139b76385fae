use std::time::Duration;

use anyhow::Context;
use futures::future::{self, Either};
use futures::{Stream, StreamExt};
use keylapse::Outcome;

use super::pull::Job;
use crate::stage::World;

/// Handles jobs in batches: up to 100, or those that arrive within 50 ms after the first. Each batch is one insert.
pub async fn in_batches(jobs: impl Stream<Item = Job<u64>> + Unpin, world: World) -> anyhow::Result<()> {
    let mut jobs = jobs.fuse();
    while let Some(first) = jobs.next().await {
        let (mut batch, mut timeout) = (vec![first], Box::pin(tokio::time::sleep(Duration::from_millis(50))));
        while batch.len() < 100 {
            match future::select(jobs.next(), &mut timeout).await {
                Either::Left((Some(job), _)) => batch.push(job),
                _ => break,
            }
        }
        let amounts: Vec<_> = batch.iter().map(|job| job.lapse.payload().to_string()).collect();
        let booked = world.act(&amounts.join("+"), "batch").await;
        for job in batch {
            let verdict =
                booked.as_ref().map(|()| Outcome::Done).map_err(|error| format!("{error:#}").into());
            job.verdict.send(verdict).ok().context("the handler of a job in the batch has stopped")?;
        }
    }
    Ok(())
}
