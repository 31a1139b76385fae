//! Closes orders that another program writes, unless they are paid in time.
//!
//!     cargo run --bin unpaid_orders           # listens until ctrl-c; REDIS_URL is the server
//!     python3 examples/unpaid_orders/shop.py      # in another terminal: a shop that uses only Redis
//!
//! Without Python, run the listener together with the same shop in Rust. The program ends when the last order is paid or
//! closed:
//!
//!     cargo run --bin unpaid_orders -- shop
//!
//! Any other client works, too:
//!
//!     redis-cli SET order:unpaid:42 '{"customer":"Ada","cents":1999}' EX 5
//!
//! The shop writes `order:unpaid:<id>` with a TTL, and deletes it when the order is paid. It is unaware of keylapse.

mod books;
mod shop;

use std::time::Duration;

use keylapse::attach::KeptValue;
use keylapse::{Attached, Expired, Failure, Lapse, Listener, Outcome, Topic};
use serde::Deserialize;

use books::{Books, State};

/// The value of an order's key, with the fields that the handler needs.
#[derive(Deserialize, serde::Serialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// The shop's keys, as an attached topic.
fn unpaid_orders() -> keylapse::Result<Attached<Order>> {
    let topic = Topic::new("order:unpaid:{id}")?.timeout(Duration::from_secs(10));
    // With notify-keyspace-events Ex, scans find the keys, so they must be more frequent than an order's TTL. With KExg$
    // keys are tracked when they are written, and the default interval of five minutes is enough.
    Ok(Attached::new(topic).keep_values(4096).scan_every(Duration::from_secs(1)))
}

/// The handler. It runs when an order's key has expired.
async fn close(lapse: Lapse<Expired<Order>>, books: Books) -> Result<Outcome, Failure> {
    let id = lapse.capture("id").ok_or_else(|| Failure::dead("an order without a number"))?;
    // The books decide whether the order is closed. It may have been paid at the last moment. After a gap in the events, a
    // deleted key cannot be distinguished from an expired one.
    if books.settle(id, State::Closed).await? == State::Paid {
        return Ok(Outcome::Drop);
    }
    let late = lapse.lateness();
    match lapse.payload().value_at_last_read() {
        KeptValue::Kept(Order { customer, cents }) => {
            println!("{id}: closed, {customer} has not paid {cents} cents ({late:.0?} late)");
        }
        // The value was not read before the key expired. A real shop reads the order from its database.
        other => println!("{id}: closed; its value is unknown: {other:?} ({late:.0?} late)"),
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
            println!("listening until ctrl-c");
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
        Some(other) => return Err(format!("unknown argument {other}: write `shop` or no argument").into()),
    }
    Ok(())
}

/// These tests start a server, because attached keys need a real one.
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
