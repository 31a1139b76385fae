//! An order that is not paid in time is closed.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --example order_timeout
//!
//! Three orders are placed and one of them is paid. It ends when the other two are closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylapse::{Cancelled, Failure, Lapse, Listener, Outcome, Schedule, Topic};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// A quarter of an hour in a real shop.
const TIME_TO_PAY: Duration = Duration::from_secs(3);

/// What the handler needs to know about an order. Keep it small: Redis holds it in memory.
#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// The definition that the shop and the listener share; usually they are two programs.
fn unpaid_orders() -> keylapse::Result<Topic<Order>> {
    Topic::new("app:order:unpaid:{order}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unpaid,
    Paid,
    Closed,
}

/// The shop's database. It decides: the timer only says when to look.
#[derive(Default)]
struct Orders {
    states: Mutex<BTreeMap<String, State>>,
    changed: Notify,
}

impl Orders {
    fn place(&self, order: &str) {
        self.lock().insert(order.to_owned(), State::Unpaid);
    }

    /// `UPDATE orders SET state = … WHERE id = … AND state = 'unpaid'`: whether it did anything.
    /// Payment and closing may meet, and an attempt may run twice; either way one of them wins.
    fn settle(&self, order: &str, state: State) -> bool {
        let settled = match self.lock().get_mut(order) {
            Some(present) if *present == State::Unpaid => {
                *present = state;
                true
            }
            _ => false,
        };
        self.changed.notify_one();
        settled
    }

    /// Returns once every order is paid or closed.
    async fn settled(&self) {
        while self.lock().values().any(|state| *state == State::Unpaid) {
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler: runs when the time to pay is over.
async fn close(orders: Arc<Orders>, lapse: Lapse<Order>) -> Result<Outcome, Failure> {
    let order = lapse.capture("order").ok_or_else(|| Failure::dead("an order without a number"))?;
    if !orders.settle(order, State::Closed) {
        return Ok(Outcome::Drop); // paid at the last moment
    }
    let Order { customer, cents } = lapse.payload();
    println!("{order}: closed, {customer} has not paid {cents} cents ({:?} late)", lapse.lateness());
    Ok(Outcome::Done)
}

async fn place(schedule: &Schedule, orders: &Orders, order: &str, customer: &str) -> keylapse::Result<()> {
    orders.place(order);
    let details = Order { customer: customer.to_owned(), cents: 1999 };
    let armed = schedule.arm(&unpaid_orders()?, [order], TIME_TO_PAY, &details).await?;
    println!("{order}: placed by {customer}, to be paid within {TIME_TO_PAY:?}");
    debug_assert!(armed.is_armed(), "order numbers are used once");
    Ok(())
}

async fn pay(schedule: &Schedule, orders: &Orders, order: &str) -> keylapse::Result<()> {
    if !orders.settle(order, State::Paid) {
        println!("{order}: too late, it is closed");
        return Ok(());
    }
    match schedule.cancel(&unpaid_orders()?, [order]).await? {
        Cancelled::Cancelled => println!("{order}: paid; its timer is gone"),
        // The handler is running. It will find the order paid.
        other => println!("{order}: paid at the last moment ({other:?})"),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> keylapse::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let orders = Arc::<Orders>::default();
    let schedule = Schedule::connect(&url).await?;
    let shared = orders.clone();
    let listener =
        Listener::builder(&url).on(unpaid_orders()?, move |lapse| close(shared.clone(), lapse)).build()?;

    let shop = async {
        for (order, customer) in [("A-1", "Ada"), ("A-2", "Brook"), ("A-3", "Cleo")] {
            place(&schedule, &orders, order, customer).await?;
        }
        tokio::time::sleep(TIME_TO_PAY / 3).await;
        pay(&schedule, &orders, "A-2").await
    };
    let (shopped, listened) = tokio::join!(shop, listener.run_until(orders.settled()));
    shopped.and(listened)
}
