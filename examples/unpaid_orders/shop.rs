//! The shop of shop.py in Rust, a plain Redis client without keylapse.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Client, RedisResult, cmd};
use tokio::time::{Instant, sleep};

use crate::books::{Books, State};

/// A quarter of an hour in a real shop.
const SECONDS_TO_PAY: u64 = 5;
/// How long after the last deadline the shop waits for orders to be closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// An order that was placed.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) id: String,
    pub(crate) pays: bool,
}

/// Places six orders, has two of them paid, and waits until the others are closed.
pub(crate) async fn play(url: &str, books: &Books) -> RedisResult<Vec<Placed>> {
    let mut redis = Client::open(url)?.get_multiplexed_async_connection().await?;
    // Order numbers are used once.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut orders = Vec::new();
    for (n, customer) in (1..).zip(["Ada", "Brook", "Cleo", "Dana", "Eli", "Fay"]) {
        let id = format!("{run}-{n}");
        let value = format!(r#"{{"customer":"{customer}","cents":{}}}"#, 100 * n);
        let key = format!("order:unpaid:{id}");
        cmd("SET").arg(key).arg(value).arg("EX").arg(SECONDS_TO_PAY).exec_async(&mut redis).await?;
        println!("{id}: placed by {customer}, to be paid within {SECONDS_TO_PAY} s");
        orders.push(Placed { id, pays: n % 3 == 0 });
    }
    sleep(Duration::from_secs(SECONDS_TO_PAY) / 2).await;
    for Placed { id, .. } in orders.iter().filter(|order| order.pays) {
        if books.settle(id, State::Paid).await? == State::Paid {
            cmd("DEL").arg(format!("order:unpaid:{id}")).exec_async(&mut redis).await?;
            println!("{id}: paid");
        }
    }
    let patience = Instant::now() + Duration::from_secs(SECONDS_TO_PAY) + PATIENCE;
    for order in &orders {
        while books.state(&order.id).await?.is_none() && Instant::now() < patience {
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(orders)
}
