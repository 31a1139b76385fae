//! Closes an order that is not paid in time.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --bin order_timeout
//!     cargo test --bin order_timeout   # needs no server
//!
//! Three orders are placed, and one of them is paid. The program ends when the other two are closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylapse::{Cancelled, Failure, Lapse, Listener, ListenerBuilder, Outcome, Schedule, Topic, handler};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// A quarter of an hour in a real shop.
const TIME_TO_PAY: Duration = Duration::from_secs(3);

/// The payload: the data of an order that the handler needs. Keep it small, because Redis holds it in memory.
#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// The topic, which the shop and the listener share. Usually they are two programs.
fn unpaid_orders() -> keylapse::Result<Topic<Order>> {
    Topic::new("app:order:unpaid:{order}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unpaid,
    Paid,
    Closed,
}

/// The shop's database. It decides whether an order is closed. The timer only starts the check.
#[derive(Default)]
struct Orders {
    states: Mutex<BTreeMap<String, State>>,
    changed: Notify,
}

impl Orders {
    fn place(&self, order: &str) {
        self.lock().insert(order.to_owned(), State::Unpaid);
    }

    /// Settles an unpaid order, and returns whether it was unpaid. In SQL: `UPDATE orders SET state = … WHERE id = … AND
    /// state = 'unpaid'`. Payment and closing may happen at the same time, and an attempt may run twice. In both cases only
    /// one call settles the order.
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

/// The handler. It runs when the time to pay is over.
async fn close(lapse: Lapse<Order>, orders: Arc<Orders>) -> Result<Outcome, Failure> {
    let order = lapse.capture("order").ok_or_else(|| Failure::dead("an order without a number"))?;
    if !orders.settle(order, State::Closed) {
        return Ok(Outcome::Drop); // paid at the last moment
    }
    let Order { customer, cents } = lapse.payload();
    println!("{order}: closed, {customer} has not paid {cents} cents ({:?} late)", lapse.lateness());
    Ok(Outcome::Done)
}

/// Registers the handler, for the program and for its tests.
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
        // The handler is running. It finds that the order is paid, and drops the timer.
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

    /// Starts a shop with one order and a listener.
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
        bed.advance(TIME_TO_PAY - Duration::from_millis(1)).await;
        assert_eq!(state(&orders), Some(State::Unpaid));
        bed.advance(Duration::from_millis(1)).await;
        assert_eq!(state(&orders), Some(State::Closed));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_paid_order_is_left_alone() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        pay(&bed.schedule(), &orders, "A-1").await?;
        bed.advance(TIME_TO_PAY * 2).await;
        assert_eq!((state(&orders), bed.all_runs().len()), (Some(State::Paid), 0));
        Ok(())
    }

    /// The payment is stored, but the shop crashes before it cancels the timer.
    #[tokio::test(start_paused = true)]
    async fn an_order_whose_timer_was_not_cancelled_stays_paid() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        assert!(orders.settle("A-1", State::Paid));
        let run = bed.until_ran(&unpaid_orders()?, ["A-1"]).await;
        assert_eq!(run.end, Some(keylapse_testing::RunEnd::Returned(Outcome::Drop)));
        assert_eq!(state(&orders), Some(State::Paid));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_closed_even_if_its_notification_is_lost() -> keylapse::Result<()> {
        let (bed, orders) = shop().await?;
        bed.notifications().lose();
        bed.until_finished().await;
        assert_eq!((state(&orders), bed.all_runs().len()), (Some(State::Closed), 1));
        Ok(())
    }
}
