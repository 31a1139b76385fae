//! A payment service notifies merchants of payments, and repeats each notice until the merchant answers.
//!
//!     make demo
//!
//! The program starts a server of its own, arms some hundred notices, and runs two listeners that compete for them.
//! Merchants book a notice and then fail, answer late, or never answer. At the same time the listeners' subscriptions are
//! killed, and notifications are switched off.
//!
//! The program fails unless three things hold at the end. Each notice was handled or is a dead letter. None started early.
//! None was booked twice, which merchants prevent with the idempotency key.
//!
//! For comparison, two plain subscribers receive the events of the same expired keys, and are disconnected together with the
//! listeners. The program counts the events that they miss.
//!
//! `producer.rs` and `notify.rs` use the library as any program would. `merchants.rs`, `faults.rs` and `subscriber.rs`
//! simulate the environment. `ledger.rs`, `comparison.rs`, `clock.rs` and `screen.rs` record and report.
//! `RUST_LOG=keylapse=debug` shows the log of the library.

mod clock;
mod comparison;
mod faults;
mod ledger;
mod merchants;
mod notify;
mod producer;
mod screen;
mod subscriber;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use keylapse::dead_letters::DeadLetter;
use keylapse::{Backoff, Listener, Schedule, Topic};
use keylapse_support::{Fsync, Server};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use clock::Clock;
use comparison::Comparison;
use ledger::{Evidence, Ledger};
use merchants::{Merchants, Notice};
use notify::Notify;
use producer::{Producer, TRADES};
use screen::Screen;
use subscriber::Subscriber;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Timeout of a request to a merchant.
const TIMEOUT: Duration = Duration::from_millis(300);
/// Time for the last notices to end. The backoff schedule and five timeouts add up to four seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// More dead letters than this program can make.
const LETTERS: usize = 1000;

/// A short backoff schedule. Real ones take a day: see [`Backoff::payment_notice`].
fn backoff() -> Backoff {
    Backoff::table([150, 300, 600, 1200].map(Duration::from_millis))
}

/// The topic, which the producer and the listeners share.
fn notices() -> keylapse::Result<Topic<Notice>> {
    Ok(Topic::new("app:trans:notice:{trade}")?.retry(backoff()).timeout(TIMEOUT).partitions(4))
}

#[tokio::main]
async fn main() -> ExitCode {
    let targets: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(log.with_filter(targets)).init();

    // Dropping `play` stops the server and deletes its directory, also after ctrl-c.
    let kept = tokio::select! {
        kept = play() => kept,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("payment_notice: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo, and returns whether every guarantee was kept.
async fn play() -> Result<bool> {
    let stage = Stage::set().await?;
    let (stop, stopped) = watch::channel(());
    let mut listeners = JoinSet::new();
    for _ in 0..2 {
        let (listener, mut stopped) = (stage.listener()?, stopped.clone());
        listeners.spawn(async move { listener.run_until(stopped.changed()).await });
    }

    let screen = Screen::open(&stage.server, TRADES);
    let letters = tokio::select! {
        letters = stage.watch(&screen) => letters?,
        Some(ended) = listeners.join_next() => return Err(format!("a listener has ended: {ended:?}").into()),
    };
    drop(stop);
    while let Some(ended) = listeners.join_next().await {
        ended??;
    }
    stage.report(&letters).await
}

/// All participants except the listeners.
struct Stage {
    server: Server,
    merchants: Merchants,
    topic: Topic<Notice>,
    schedule: Schedule,
    clock: Clock,
    ledger: Arc<Ledger>,
    subscribers: [Subscriber; 2],
}

impl Stage {
    async fn set() -> Result<Self> {
        let server = Server::builder().aof(Fsync::EverySecond).try_start().await?;
        // A user with minimal permissions, as in production.
        let schedule = Schedule::connect(&server.app_url()).await?;
        let (merchants, clock) = (Merchants::open().await?, Clock::of(&server).await);
        let subscribers = [Subscriber::of(&server).await?, Subscriber::of(&server).await?];
        let (topic, ledger) = (notices()?, Arc::default());
        Ok(Self { server, merchants, topic, schedule, clock, ledger, subscribers })
    }

    /// Makes a listener with a connection of its own.
    fn listener(&self) -> Result<Listener> {
        let notify = Notify { clock: self.clock.clone(), ledger: self.ledger.clone() };
        Ok(Listener::builder(self.server.app_url()).on(self.topic.clone(), notify).build()?)
    }

    fn producer(&self) -> Producer {
        Producer {
            schedule: self.schedule.clone(),
            topic: self.topic.clone(),
            merchants: self.merchants.clone(),
            clock: self.clock.clone(),
            ledger: self.ledger.clone(),
            last: HashMap::new(),
        }
    }

    /// Arms the notices, injects the faults and shows the progress. Returns the dead letters when every notice was handled
    /// or is dead, or after [`PATIENCE`].
    async fn watch(&self, screen: &Screen) -> Result<Vec<DeadLetter<Notice>>> {
        let mut producer = self.producer();
        let acts = async {
            let (armed, ()) = tokio::join!(producer.run(), faults::play(&self.server, screen));
            armed
        };
        tokio::pin!(acts);
        let mut give_up = None;
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await;
        loop {
            tokio::select! {
                _ = seconds.tick() => {}
                armed = &mut acts, if give_up.is_none() => {
                    armed?;
                    give_up = Some(Instant::now() + PATIENCE);
                    continue;
                }
            }
            let letters = self.schedule.dead_letters(&self.topic).page(LETTERS).await?;
            let tally = self.ledger.tally(|_| true, &self.evidence(&letters));
            screen.progress(&tally);
            if give_up.is_some_and(|at| tally.open == 0 || Instant::now() > at) {
                return Ok(letters);
            }
        }
    }

    /// Prints the results, and returns whether every guarantee was kept.
    async fn report(&self, letters: &[DeadLetter<Notice>]) -> Result<bool> {
        let evidence = self.evidence(letters);
        let all = self.ledger.tally(|_| true, &evidence);
        screen::outcomes(&self.ledger, &evidence);
        screen::lateness(&all);
        screen::comparison(&self.comparison());
        screen::dead_letters(letters);
        screen::notes(&all);
        screen::violations(&all);
        let left = self.left_in_redis().await?;
        if left > 0 {
            println!("! {left} timers are left in Redis");
        }
        screen::summary(&all);
        Ok(all.open + all.duplicates + all.early + all.stale + left == 0)
    }

    fn evidence(&self, letters: &[DeadLetter<Notice>]) -> Evidence {
        let dead = letters.iter().map(|letter| letter.arming).collect();
        Evidence { dead, booked: self.merchants.booked() }
    }

    fn comparison(&self) -> Comparison {
        let [first, second] = &self.subscribers;
        Comparison::of(&self.ledger.expiries(), [&first.received(), &second.received()])
    }

    /// Counts the timers that Redis still has, although all should have ended.
    async fn left_in_redis(&self) -> Result<usize> {
        let mut left = 0;
        for trade in 0..TRADES {
            let timer = self.schedule.look_up(&self.topic, [trade.to_string()]).await?;
            left += usize::from(timer.is_some());
        }
        Ok(left)
    }
}
