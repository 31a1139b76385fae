//! An order that is not paid in time is closed.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --bin order_timeout
//!     cargo test --bin order_timeout   # needs no server
//!
//! Three orders are placed and one of them is paid. It ends when the other two are closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylapse::{Cancelled, Failure, Lapse, Listener, ListenerBuilder, Outcome, Schedule, Topic, handler};
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
async fn close(lapse: Lapse<Order>, orders: Arc<Orders>) -> Result<Outcome, Failure> {
    let order = lapse.capture("order").ok_or_else(|| Failure::dead("an order without a number"))?;
    if !orders.settle(order, State::Closed) {
        return Ok(Outcome::Drop); // paid at the last moment
    }
    let Order { customer, cents } = lapse.payload();
    println!("{order}: closed, {customer} has not paid {cents} cents ({:?} late)", lapse.lateness());
    Ok(Outcome::Done)
}

/// What a listener needs to know: the same for the program and for its tests.
fn handlers(
    listener: ListenerBuilder,
    topic: Topic<Order>,
    orders: &Arc<Orders>,
) -> ListenerBuilder<handler::State<Arc<Orders>>> {
    listener.state(orders.clone()).on(topic, close)
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
    let listener = handlers(Listener::builder(&url), unpaid_orders()?, &orders).build()?;

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

#[cfg(test)]
mod tests {
    use keylapse_testing::TestBed;

    use super::*;

    /// A shop with one order and a listener.
    async fn shop() -> keylapse::Result<(TestBed, Arc<Orders>)> {
        let (bed, orders, topic) = (TestBed::new(), Arc::<Orders>::default(), unpaid_orders()?);
        bed.listen(|listener| handlers(listener, topic, &orders)).await?;
        place(&bed.schedule(), &orders, "A-1", "Ada").await?;
        Ok((bed, orders))
    }

    fn state(orders: &Orders) -> Option<State> {
        orders.lock().get("A-1").copied()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unpaid_order_is_closed_when_its_time_is_over_and_not_before() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        bed.pass(TIME_TO_PAY - Duration::from_millis(1)).await;
        assert_eq!(state(&orders), Some(State::Unpaid));
        bed.pass(Duration::from_millis(1)).await;
        assert_eq!(state(&orders), Some(State::Closed));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_paid_order_is_left_alone() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        pay(&bed.schedule(), &orders, "A-1").await?;
        bed.pass(TIME_TO_PAY * 2).await;
        assert_eq!((state(&orders), bed.all_runs().len()), (Some(State::Paid), 0));
        Ok(())
    }

    /// The payment is in the books, but the shop dies before it can cancel the timer.
    #[tokio::test(start_paused = true)]
    async fn an_order_whose_timer_was_not_cancelled_stays_paid() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        assert!(orders.settle("A-1", State::Paid));
        let run = bed.until_ran(&unpaid_orders()?, ["A-1"]).await;
        assert_eq!(run.end, Some(keylapse_testing::End::Returned(Outcome::Drop)));
        assert_eq!(state(&orders), Some(State::Paid));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_hears_of_it_and_it_is_closed_all_the_same() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        bed.notifications().lose();
        bed.until_finished().await;
        assert_eq!((state(&orders), bed.all_runs().len()), (Some(State::Closed), 1));
        Ok(())
    }
}
