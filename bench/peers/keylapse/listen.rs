//! One of several listeners, as a process of its own: runs until its standard input is closed.

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::orders::Orders;
use crate::runs::{Running, Starts};
use crate::{Outcome, jobs};

/// Prints when each job was started, and what the listener counted.
pub(crate) async fn listen(orders: &Orders) -> Outcome {
    let starts = Starts::new(usize::MAX);
    let noting = starts.clone();
    let running =
        Running::start(orders, jobs::topic(orders)?, move |lapse| noting.note(jobs::number(lapse)))?;
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    let stats = running.stats.total();
    running.end().await?;
    Ok(json!({ "starts": starts.taken(), "claims": stats.claims, "empty": stats.empty_claims }))
}
