//! Listeners without work.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Client, Done, Failure, Lapse, Listener, Topic};
use keylapse_wire::Store;
use serde_json::json;
use tokio::time::sleep;

use crate::Outcome;
use crate::orders::Orders;
use crate::runs::Running;

/// The time of a start, which does not count.
const SETTLING: Duration = Duration::from_secs(3);

/// `run idle`
pub(crate) async fn idle(orders: &Orders) -> Outcome {
    let (mut stores, mut running) = (Vec::new(), Vec::new());
    for _ in 0..orders.listeners {
        let client = Client::new(&orders.url)?;
        let mut builder = Listener::builder(client.clone());
        for topic in 0..orders.topics {
            let topic =
                Topic::raw(&format!("app:idle{topic}:notice:{{id}}"))?.marker_keys(orders.marker_keys);
            builder = builder.on(topic, |_: Lapse<Bytes>| std::future::ready(Ok::<_, Failure>(Done)));
        }
        stores.push(client.store().clone());
        running.push(Running::of(builder.build()?));
    }
    sleep(SETTLING).await;
    let sent = || stores.iter().map(Store::requests).sum::<u64>();
    let (before, used) = (sent(), cpu_ms());
    sleep(Duration::from_secs(orders.count as u64)).await;
    let requests = (sent() - before) as f64 / orders.count as f64;
    let cpu = used.zip(cpu_ms()).map(|(before, after)| (after - before) / orders.count as f64);
    for one in running {
        one.end().await?;
    }
    Ok(json!({ "seconds": orders.count, "own_per_s": requests, "cpu_ms_per_s": cpu }))
}

/// Returns the processor time of this process in ms; none if the system does not report it (`proc(5)`). Its steps are 10 ms:
/// Linux counts 100 ticks a second.
fn cpu_ms() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit_once(')')?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<Option<f64>>().map(|ticks| ticks * 10.0)
}
