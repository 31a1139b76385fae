//! Orders that another program writes are closed, unless they are paid in time.
//!
//!     cargo run --bin unpaid_orders           # listens until ctrl-c; REDIS_URL names the server
//!     python3 examples/unpaid_orders/shop.py      # in another terminal: a shop that knows only Redis
//!
//! Without Python, the same shop in Rust plays beside the listener, and it ends when the last order is
//! paid or closed:
//!
//!     cargo run --bin unpaid_orders -- shop
//!
//! Any other client will do as well:
//!
//!     redis-cli SET order:unpaid:42 '{"customer":"Ada","cents":1999}' EX 5
//!
//! The shop writes `order:unpaid:<id>` with a time to live and deletes it when the order is paid. It is
//! not changed for keylapse and knows nothing of it.

mod books;
mod shop;

use std::time::Duration;

use keylapse::attach::KeptValue;
use keylapse::{Attached, Expired, Failure, Lapse, Listener, Outcome, Topic};
use serde::Deserialize;

use books::{Books, State};

/// What the shop writes, as far as it is needed here.
#[derive(Deserialize, serde::Serialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// The shop's keys, and how they are treated.
fn unpaid_orders() -> keylapse::Result<Attached<Order>> {
    let topic = Topic::new("order:unpaid:{id}")?.timeout(Duration::from_secs(10));
    // With notify-keyspace-events Ex, keys are found by scanning: so that each is found, there is a scan
    // in less time than an order lives. With KExg$ they are enrolled when they are written, and the
    // default of five minutes is enough.
    Ok(Attached::new(topic).keep_values(4096).scan_every(Duration::from_secs(1)))
}

/// The handler: runs when an order's key has expired.
async fn close(lapse: Lapse<Expired<Order>>, books: Books) -> Result<Outcome, Failure> {
    let id = lapse.capture("id").ok_or_else(|| Failure::dead("an order without a number"))?;
    // The books decide: the order may have been paid at the last moment, and after a gap in which
    // nothing was heard a key that was deleted looks like one that has expired.
    if books.settle(id, State::Closed).await? == State::Paid {
        return Ok(Outcome::Drop);
    }
    let late = lapse.lateness();
    match lapse.payload().value_at_last_read() {
        KeptValue::Kept(Order { customer, cents }) => {
            println!("{id}: closed, {customer} has not paid {cents} cents ({late:.0?} late)");
        }
        // It was never read while it lived. Whatever is needed of it has to come from the books.
        other => println!("{id}: closed; its value is not known: {other:?} ({late:.0?} late)"),
    }
    Ok(Outcome::Done)
}

fn listener(url: &str, books: Books) -> keylapse::Result<Listener> {
    Listener::builder(url).state(books).attach(unpaid_orders()?, close).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let books = Books::open(&url).await?;
    let listener = listener(&url, books.clone())?;
    match std::env::args().nth(1).as_deref() {
        None => {
            println!("listening; ctrl-c ends it");
            listener.run_until(keylapse::shutdown_signal()).await?;
        }
        Some("shop") => {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let shop = async {
                let played = shop::play(&url, &books).await;
                drop(stop);
                played
            };
            let (played, listened) = tokio::join!(shop, listener.run_until(stopped));
            listened?;
            played?;
        }
        Some(other) => return Err(format!("what is {other}? Say `shop`, or nothing").into()),
    }
    Ok(())
}

/// Attached keys lie on a server, so these tests have one to throw away.
#[cfg(test)]
mod tests {
    use keylapse_testing::LocalServer;

    use super::*;

    #[tokio::test]
    async fn what_is_not_paid_is_closed_and_what_is_paid_is_not() {
        if !LocalServer::is_installed() {
            return eprintln!("skipped: no server");
        }
        let server = LocalServer::start().await.unwrap();
        let books = Books::open(&server.url()).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let listener = listener(&server.url(), books.clone()).unwrap();
        let listening = tokio::spawn(async move { listener.run_until(stopped).await });
        let orders = shop::play(&server.url(), &books).await.unwrap();
        drop(stop);
        listening.await.unwrap().unwrap();
        for order in orders {
            let state = books.state(&order.id).await.unwrap();
            assert_eq!(state, Some(if order.pays { State::Paid } else { State::Closed }), "{}", order.id);
        }
    }
}
