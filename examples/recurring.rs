//! Repeats a task until it is done: asks a courier where parcels are, until they are delivered.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --bin recurring
//!     cargo test --bin recurring   # needs no server
//!
//! Stop it with ctrl-c and start it again: it continues where it stopped. Start it twice: each time, one of the two programs
//! asks for a parcel.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keylapse::{ArmResult, Backoff, Failure, Lapse, Listener, ListenerBuilder, Outcome, Schedule, Topic};
use serde::{Deserialize, Serialize};

const EVERY: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Parcel {
    courier: String,
}

fn parcels() -> keylapse::Result<Topic<Parcel>> {
    // A courier's service may be down for minutes, so 100 attempts with growing pauses are made.
    let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));
    Ok(Topic::new("app:parcel:position:{parcel}")?.retry(backoff).max_attempts(100))
}

#[derive(Clone, Copy)]
enum Position {
    OnItsWay,
    Delivered,
}

/// Returns the position of a parcel. In a real program it is an HTTP client.
trait Courier: Send + Sync + 'static {
    fn position(&self, parcel: &str) -> io::Result<Position>;
}

/// A courier that answers at random.
struct Dice;

impl Courier for Dice {
    fn position(&self, _parcel: &str) -> io::Result<Position> {
        match rand::random_range(0..10) {
            0 => Err(io::Error::other("the courier does not answer")),
            1 => Ok(Position::Delivered),
            _ => Ok(Position::OnItsWay),
        }
    }
}

/// Asks once. A failed attempt is retried by the topic's policy. After a successful one, [`Outcome::Again`] arms the timer
/// again, as a new arming whose attempts start at 1.
async fn ask(courier: Arc<dyn Courier>, lapse: Lapse<Parcel>) -> Result<Outcome, Failure> {
    let parcel = lapse.capture("parcel").unwrap_or_default();
    let name = &lapse.payload().courier;
    match courier.position(parcel)? {
        Position::Delivered => {
            println!("{parcel}: {name} has delivered it");
            Ok(Outcome::Done)
        }
        Position::OnItsWay => {
            println!("{parcel}: on its way with {name} (attempt {})", lapse.attempt());
            Ok(Outcome::Again(EVERY))
        }
    }
}

fn handlers(listener: ListenerBuilder, topic: Topic<Parcel>, courier: impl Courier) -> ListenerBuilder {
    let courier: Arc<dyn Courier> = Arc::new(courier);
    listener.on(topic, move |lapse| ask(courier.clone(), lapse))
}

/// Arms the first request for a parcel. An existing timer is kept, so that a restart delays nothing.
async fn follow(schedule: &Schedule, parcel: &str) -> keylapse::Result<()> {
    let details = Parcel { courier: "Hermes".to_owned() };
    match schedule.arm(&parcels()?, [parcel], EVERY, &details).only_if_absent().await? {
        ArmResult::Exists => println!("{parcel}: already followed"),
        _ => println!("{parcel}: the courier is asked every {EVERY:?}"),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> keylapse::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let schedule = Schedule::connect(&url).await?;
    for parcel in ["P-1", "P-2", "P-3"] {
        follow(&schedule, parcel).await?;
    }

    let listener =
        handlers(Listener::builder(&url), parcels()?, Dice).grace(Duration::from_secs(5)).build()?;
    let stop = async {
        keylapse::shutdown_signal().await;
        println!("stopping: running attempts may end, all other timers wait in Redis");
    };
    listener.run_until(stop).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use keylapse_testing::{HandlerRun, TestBed};

    use super::*;

    /// A courier that gives these answers, one after the other.
    struct Script(Vec<Option<Position>>, AtomicUsize);

    impl Script {
        fn new(answers: impl IntoIterator<Item = Option<Position>>) -> Self {
            Self(answers.into_iter().collect(), AtomicUsize::new(0))
        }
    }

    impl Courier for Script {
        fn position(&self, _parcel: &str) -> io::Result<Position> {
            let answer = self.0.get(self.1.fetch_add(1, Ordering::Relaxed)).copied().flatten();
            answer.ok_or_else(|| io::Error::other("no answer"))
        }
    }

    async fn asked(script: Script) -> keylapse::Result<Vec<HandlerRun>> {
        let (bed, topic) = (TestBed::new(), parcels()?);
        bed.listen(|listener| handlers(listener, topic, script)).await?;
        follow(&bed.schedule(), "P-1").await?;
        bed.until_finished().await;
        Ok(bed.all_runs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_parcel_is_asked_about_until_it_is_delivered() -> keylapse::Result<()> {
        let on_its_way = (0..9).map(|_| Some(Position::OnItsWay));
        let runs = asked(Script::new(on_its_way.chain([Some(Position::Delivered)]))).await?;
        let times: Vec<_> = runs.iter().map(|run| run.began).collect();
        assert_eq!(times, (1..=10).map(|time| EVERY * time).collect::<Vec<_>>());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_courier_that_is_away_is_asked_again_by_the_policy() -> keylapse::Result<()> {
        let answers = [None, None, Some(Position::OnItsWay), Some(Position::Delivered)];
        let attempts: Vec<_> = asked(Script::new(answers)).await?.iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 1], "each occurrence has attempts of its own");
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_puts_nothing_off() -> keylapse::Result<()> {
        let (bed, topic) = (TestBed::new(), parcels()?);
        follow(&bed.schedule(), "P-1").await?;
        bed.advance(EVERY / 2).await;
        follow(&bed.schedule(), "P-1").await?;
        bed.listen(|listener| handlers(listener, topic, Script::new([Some(Position::Delivered)]))).await?;
        assert_eq!(bed.until_ran(&parcels()?, ["P-1"]).await.began, EVERY);
        Ok(())
    }
}
