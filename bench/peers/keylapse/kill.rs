//! Ten jobs whose worker is killed, and a second worker that runs them again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::{Done, Failure, Lapse, Listener, Schedule};
use serde_json::json;

use crate::orders::Orders;
use crate::runs::{Counted, Running};
use crate::{Outcome, jobs};

/// How many handlers are killed.
const JOBS: usize = 10;
/// The longest wait for their next attempts.
const MAX_WAIT: Duration = Duration::from_secs(150);

/// `run kill`
pub(crate) async fn kill(orders: &Orders) -> Outcome {
    let orders = Orders { count: JOBS, ..orders.clone() };
    let (topic, schedule) = (jobs::topic(&orders)?, Schedule::connect(&orders.url).await?);
    jobs::offer(&schedule, &topic, &orders, &jobs::numbers(&orders), |_| SystemTime::now()).await?;
    let counted = Counted::new(JOBS);
    let noting = counted.clone();
    let handler = move |_: Lapse<Bytes>| {
        noting.note();
        std::future::pending::<Result<Done, Failure>>()
    };
    let _running = Running::of(Listener::builder(&orders.url).on(topic, handler).build()?);
    counted.all().await;
    println!("{}", json!({ "started": JOBS }));
    std::future::pending().await
}

/// `run kill_again`
pub(crate) async fn again(orders: &Orders) -> Outcome {
    let (topic, started) = (jobs::topic(orders)?, Instant::now());
    let (counted, seconds) = (Counted::new(JOBS), Arc::new(Mutex::new(Vec::new())));
    let (noting, noted) = (counted.clone(), seconds.clone());
    let running = Running::start(orders, topic, move |_| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(started.elapsed().as_secs_f64());
        noting.note();
    })?;
    let _ = tokio::time::timeout(MAX_WAIT, counted.all()).await;
    running.end().await?;
    let seconds = std::mem::take(&mut *seconds.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(json!({ "again": seconds.len(), "seconds": seconds }))
}
