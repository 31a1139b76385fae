//! A payment service tells merchants of payments, again and again until they answer.
//!
//!     make demo
//!
//! It starts a server of its own, arms some hundred notices and runs two listeners that compete for
//! them. Merchants book a notice and then fail, answer late or not at all; meanwhile the listeners' subscriptions are
//! killed and notifications switched off. At the end every notice must have been taken by its
//! merchant or lie among the dead letters, none may have started early, and none may be booked twice, which
//! merchants see to by the idempotency key: else it fails.
//!
//! Beside the listeners two plain subscribers hear the same keys expire, on the same server, and are cut
//! off as they are. What these never heard of is counted and shown.
//!
//! `producer.rs` and `notify.rs` use the library as any program would. The rest plays the world
//! (`merchants.rs`, `faults.rs`, `subscriber.rs`) and keeps watch (`ledger.rs`, `beside.rs`, `clock.rs`,
//! `screen.rs`).
//! `RUST_LOG=keylapse=debug` shows what the library has to say.

mod beside;
mod clock;
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

use beside::Beside;
use clock::Clock;
use ledger::{Evidence, Ledger};
use merchants::{Merchants, Notice};
use notify::Notify;
use producer::{Producer, TRADES};
use screen::Screen;
use subscriber::Subscriber;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// For how long a merchant is waited for.
const TIMEOUT: Duration = Duration::from_millis(300);
/// How long the last notice may take. The ladder and five timeouts add up to four seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than can die here.
const LETTERS: usize = 1000;

/// Real ladders take a day: see [`Backoff::payment_notice`].
fn ladder() -> Backoff {
    Backoff::table([150, 300, 600, 1200].map(Duration::from_millis))
}

/// What the producer and the listeners agree on.
fn notices() -> keylapse::Result<Topic<Notice>> {
    Ok(Topic::new("app:trans:notice:{trade}")?.retry(ladder()).timeout(TIMEOUT).partitions(4))
}

#[tokio::main]
async fn main() -> ExitCode {
    let targets: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(log.with_filter(targets)).init();

    // However it ends, the server and its directory end with it.
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

/// Plays it all; whether every promise was kept.
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

/// Everybody who takes part but the listeners.
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
        // The user with the least rights, as in production.
        let schedule = Schedule::connect(&server.app_url()).await?;
        let (merchants, clock) = (Merchants::open().await?, Clock::of(&server).await);
        let subscribers = [Subscriber::of(&server).await?, Subscriber::of(&server).await?];
        let (topic, ledger) = (notices()?, Arc::default());
        Ok(Self { server, merchants, topic, schedule, clock, ledger, subscribers })
    }

    /// A listener with a connection of its own.
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

    /// Lets notices be armed and things go wrong, and shows the progress until every notice was
    /// taken or is dead, or that takes too long. Returns the dead letters.
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

    /// Prints how it ended; whether every promise was kept.
    async fn report(&self, letters: &[DeadLetter<Notice>]) -> Result<bool> {
        let evidence = self.evidence(letters);
        let all = self.ledger.tally(|_| true, &evidence);
        screen::outcomes(&self.ledger, &evidence);
        screen::lateness(&all);
        screen::beside(&self.beside());
        screen::dead_letters(letters);
        screen::notes(&all);
        screen::complaints(&all);
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

    fn beside(&self) -> Beside {
        let [first, second] = &self.subscribers;
        Beside::of(&self.ledger.expiries(), [&first.heard(), &second.heard()])
    }

    /// How many timers Redis holds still, now that all should have ended.
    async fn left_in_redis(&self) -> Result<usize> {
        let mut left = 0;
        for trade in 0..TRADES {
            let timer = self.schedule.look_up(&self.topic, [trade.to_string()]).await?;
            left += usize::from(timer.is_some());
        }
        Ok(left)
    }
}
