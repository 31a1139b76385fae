//! Something to be done again and again, until it need not be: here, asking a courier where parcels
//! are.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --example recurring
//!
//! Stop it with ctrl-c and start it again: it goes on where it was. Start it twice: each parcel is
//! asked for by one of the two.

use std::time::Duration;

use keylapse::{Arming, Backoff, Failure, Lapse, Listener, Outcome, Schedule, Topic};
use serde::{Deserialize, Serialize};

const EVERY: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Parcel {
    courier: String,
}

fn parcels() -> keylapse::Result<Topic<Parcel>> {
    // Couriers are now and then away for minutes; that is no reason to give up.
    let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));
    Ok(Topic::new("app:parcel:position:{parcel}")?.retry(backoff).max_attempts(100))
}

/// Asks once. Each occurrence is an arming of its own, and its attempts start over: a failed one is
/// retried by the topic's policy, and a good one comes again.
async fn ask(lapse: Lapse<Parcel>) -> Result<Outcome, Failure> {
    let parcel = lapse.capture("parcel").unwrap_or_default();
    let courier = &lapse.payload().courier;
    match rand::random_range(0..10) {
        0 => Err(Failure::retry("the courier does not answer")),
        1 => {
            println!("{parcel}: {courier} has delivered it");
            Ok(Outcome::Done)
        }
        _ => {
            println!("{parcel}: on its way with {courier} (attempt {})", lapse.attempt());
            Ok(Outcome::Again(EVERY))
        }
    }
}

#[tokio::main]
async fn main() -> keylapse::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let schedule = Schedule::connect(&url).await?;
    for parcel in ["P-1", "P-2", "P-3"] {
        let details = Parcel { courier: "Hermes".to_owned() };
        // A restart must not put off what is due already.
        match schedule.arm(&parcels()?, [parcel], EVERY, &details).only_if_absent().await? {
            Arming::Exists => println!("{parcel}: asked about already"),
            _ => println!("{parcel}: to be asked about every {EVERY:?}"),
        }
    }

    let listener = Listener::builder(&url).on(parcels()?, ask).grace(Duration::from_secs(5)).build()?;
    let stop = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("cannot hear ctrl-c: {error}");
        }
        println!("stopping: attempts that run may end, everything else waits in Redis");
    };
    listener.run_until(stop).await
}
