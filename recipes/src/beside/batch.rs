use std::time::Duration;

use anyhow::Context;
use futures::future::{self, Either};
use futures::{Stream, StreamExt};
use keylapse::Outcome;

use super::pull::Job;
use crate::stage::World;

/// Up to 100 jobs at a time, or what there is 50 ms after the first: one insert for all of them.
pub async fn in_batches(jobs: impl Stream<Item = Job<u64>> + Unpin, world: World) -> anyhow::Result<()> {
    let mut jobs = jobs.fuse();
    while let Some(first) = jobs.next().await {
        let (mut batch, mut over) = (vec![first], Box::pin(tokio::time::sleep(Duration::from_millis(50))));
        while batch.len() < 100 {
            match future::select(jobs.next(), &mut over).await {
                Either::Left((Some(job), _)) => batch.push(job),
                _ => break,
            }
        }
        let amounts: Vec<_> = batch.iter().map(|job| job.lapse.payload().to_string()).collect();
        let booked = world.act(&amounts.join("+"), "batch").await;
        for job in batch {
            let verdict =
                booked.as_ref().map(|()| Outcome::Done).map_err(|error| format!("{error:#}").into());
            job.verdict.send(verdict).ok().context("a job that was taken away meanwhile")?;
        }
    }
    Ok(())
}
