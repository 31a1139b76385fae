//! Offers jobs: singly, from many tasks, and in bulk.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use tokio::task::JoinSet;

use crate::{Job, Peer, Result};

/// Tasks that offer jobs at the same time.
const TASKS: usize = 32;

/// Offers jobs one after the other.
pub(crate) async fn offer_singly<P: Peer>(peer: &P, jobs: Vec<Job>) -> Result<()> {
    for job in jobs {
        peer.offer(job).await?;
    }
    Ok(())
}

/// Offers jobs from all tasks.
pub(crate) async fn offer_from_tasks<P: Peer>(peer: &P, jobs: Vec<Job>) -> Result<()> {
    from_tasks(peer, jobs.into_iter(), |peer, job| async move { peer.offer(job).await }).await
}

/// Calls `does` with each job, from all tasks. Each task takes the next job that no other has taken.
pub(crate) async fn from_tasks<P, J, D, F>(peer: &P, jobs: J, does: D) -> Result<()>
where
    P: Peer,
    J: Iterator<Item = Job> + Send + 'static,
    D: Fn(P, Job) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let jobs = Arc::new(Mutex::new(jobs));
    let next = move || jobs.lock().expect("no holder panics").next();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (peer, next, does) = (peer.clone(), next.clone(), does.clone());
        tasks.spawn(async move {
            while let Some(job) = next() {
                does(peer.clone(), job).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Offers with the bulk call, or from many tasks if there is none.
pub(crate) async fn offer_bulk<P: Peer>(peer: &P, jobs: Vec<Job>) -> Result<()> {
    if P::BULK == 0 {
        return offer_from_tasks(peer, jobs).await;
    }
    for chunk in jobs.chunks(P::BULK) {
        peer.offer_bulk(chunk.to_vec()).await?;
    }
    Ok(())
}
