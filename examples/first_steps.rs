//! The program and the tests of docs/first-steps.md: closes an order that is not paid in time.
//!
//!     cargo run --bin first_steps -- listen   # and in another terminal `-- place A-1`, `-- pay A-1`
//!     cargo test --bin first_steps            # needs no server

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Listener, Schedule, Topic, shutdown_signal};
use serde::{Deserialize, Serialize};

const URL: &str = "redis://127.0.0.1:6379/";
/// A quarter of an hour in a real shop.
const TIME_TO_PAY: Duration = Duration::from_secs(5);

/// The payload: the data of an order that the handler needs. Keep it small, because Redis holds it in memory.
#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// The topic, which the shop and the listener share. Usually they are two programs.
fn unpaid() -> keylapse::Result<Topic<Order>> {
    Topic::new("order:unpaid:{id}")
}

/// The handler. It runs when the time to pay is over.
async fn close(lapse: Lapse<Order>) -> Result<Done, Failure> {
    let id = lapse.capture("id").ok_or_else(|| Failure::dead("an order without a number"))?;
    let Order { customer, cents } = lapse.payload();
    println!("{id}: closed, as {customer} has not paid {cents} cents ({:?} late)", lapse.lateness());
    Ok(Done)
}

/// The shop's side.
async fn place(schedule: &Schedule, id: &str) -> keylapse::Result<()> {
    let order = Order { customer: "Ada".into(), cents: 1999 };
    let armed = schedule.arm(&unpaid()?, id, TIME_TO_PAY, &order).await?;
    println!("{id}: placed. {armed:?}");
    Ok(())
}

async fn pay(schedule: &Schedule, id: &str) -> keylapse::Result<()> {
    println!("{id}: paid. {:?}", schedule.cancel(&unpaid()?, id).await?);
    Ok(())
}

#[tokio::main]
async fn main() -> keylapse::Result<()> {
    tracing_subscriber::fmt::init(); // shows keylapse's log
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["place", id] => place(&Schedule::connect(URL).await?, id).await,
        ["pay", id] => pay(&Schedule::connect(URL).await?, id).await,
        ["listen"] => Listener::builder(URL).on(unpaid()?, close).build()?.run_until(shutdown_signal()).await,
        _ => {
            println!("usage: listen | place <order> | pay <order>");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use keylapse_testing::TestBed;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unpaid_order_is_closed_when_its_time_is_over_and_not_before() -> keylapse::Result<()> {
        let (bed, unpaid) = (TestBed::new(), unpaid()?);
        bed.listen(|listener| listener.on(unpaid.clone(), close)).await?;
        place(&bed.schedule(), "A-1").await?;

        bed.advance(TIME_TO_PAY - Duration::from_millis(1)).await;
        assert!(bed.runs(&unpaid).is_empty(), "not early");
        bed.advance(Duration::from_millis(1)).await;
        assert_eq!(bed.runs(&unpaid).len(), 1);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_paid_order_is_left_alone() -> keylapse::Result<()> {
        let (bed, unpaid) = (TestBed::new(), unpaid()?);
        bed.listen(|listener| listener.on(unpaid.clone(), close)).await?;
        place(&bed.schedule(), "A-2").await?;
        pay(&bed.schedule(), "A-2").await?;

        bed.advance(TIME_TO_PAY * 2).await;
        assert!(bed.runs(&unpaid).is_empty());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_closed_even_if_its_notification_is_lost() -> keylapse::Result<()> {
        let (bed, unpaid) = (TestBed::new(), unpaid()?);
        bed.listen(|listener| listener.on(unpaid.clone(), close)).await?;
        bed.notifications().lose();
        place(&bed.schedule(), "A-3").await?;

        bed.until_finished().await;
        assert_eq!(bed.runs(&unpaid).len(), 1);
        Ok(())
    }
}
