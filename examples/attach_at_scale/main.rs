//! Orders that another program writes, among a million keys that nobody attaches to; and beside them
//! what a plain subscriber of expired events hears.
//!
//!     make demo SHOW=attach
//!     ATTACH_FOREIGN=50000 ATTACH_KEYS=1000 make demo SHOW=attach   # a quarter of a minute
//!     ATTACH_FLAGS='KExg$' make demo SHOW=attach                    # enrolled as they are written
//!
//! Two servers get the same keys. On one runs a keylapse listener that attaches to `app:order:{id}`.
//! On the other nothing does, as keylapse reads keys when they are due, and so makes the server
//! announce them at once to everybody: a plain subscriber beside it would be as punctual. Both plain
//! subscribers are a connection that says SUBSCRIBE.
//!
//! It fails if an order is lost, early or fires twice. `settings.rs` names everything that can be set.

mod ledger;
mod report;
mod settings;
mod station;
mod writer;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::stats::Stats;
use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, Topic};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use ledger::Ledger;
use report::Costs;
use settings::Settings;
use station::{Reading, Station};
use writer::Orders;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The topic's name.
const TOPIC: &str = "orders";
/// How long the last order may take.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Keys that a step of a scan looks at.
const STEP: u64 = 500;
/// Values are copied a moment after a key is enrolled.
const COPIES: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> ExitCode {
    let targets: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(log.with_filter(targets)).init();

    // However it ends, the servers and their directories end with it.
    let kept = tokio::select! {
        kept = play() => kept,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("attach_at_scale: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays it all; whether every promise was kept.
async fn play() -> Result<bool> {
    let settings = Settings::from_env()?;
    let stage = Stage::set(settings).await?;
    report::opening(&stage.settings, &stage.ours.server);
    stage.fill().await?;

    let (listener, ledger) = stage.listener()?;
    let stats = listener.stats();
    let (begin, begun) = oneshot::channel::<()>();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut listening = tokio::spawn(async move {
        let _ = begun.await;
        listener.run_until(stopped).await
    });
    let (orders, costs) = tokio::select! {
        played = stage.measure(&stats, &ledger, begin) => played?,
        ended = &mut listening => return Err(format!("the listener has ended: {ended:?}").into()),
    };
    drop(stop);
    listening.await??;

    // Nothing of ours is alive any more that could expire between the two counts.
    let expired = stage.ours.read().await?.expired;
    Ok(report::ending(&stage, &stats, &ledger.tally(&orders), &orders, &costs, expired))
}

/// Two servers that are alike.
struct Stage {
    settings: Settings,
    /// Where keylapse listens.
    ours: Station,
    /// Where it does not.
    plain: Station,
}

impl Stage {
    async fn set(settings: Settings) -> Result<Self> {
        let ours = Station::open(&settings.flags).await?;
        let plain = Station::open(&settings.flags).await?;
        Ok(Self { settings, ours, plain })
    }

    async fn fill(&self) -> Result<()> {
        let keys = self.settings.foreign;
        let (ours, plain) = (self.ours.server.conn().await, self.plain.server.conn().await);
        tokio::try_join!(writer::fill_cache(ours, keys), writer::fill_cache(plain, keys))?;
        report::say(&format!("{keys} keys with an hour to live lie on each of them"));
        Ok(())
    }

    /// With the rights of the user in redis.conf, as in production.
    fn listener(&self) -> Result<(Listener, Arc<Ledger>)> {
        let topic = Topic::<Bytes>::raw_named(TOPIC, "app:order:{id}")?;
        let attached =
            Attached::new(topic).keep_values(self.settings.values).scan_rate(self.settings.scan_rate);
        let ledger = Arc::<Ledger>::default();
        let notes = ledger.clone();
        let close = move |lapse: Lapse<Expired<Bytes>>| {
            notes.started(&lapse);
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let listener = Listener::builder(self.ours.server.app_url()).attach(attached, close).build()?;
        Ok((listener, ledger))
    }

    /// The measured part, from before the orders are enrolled to the end of the plain subscriber's time.
    async fn measure(
        &self,
        stats: &Stats,
        ledger: &Ledger,
        begin: oneshot::Sender<()>,
    ) -> Result<(Orders, Costs)> {
        let (before, orders, took) = self.enrol(stats, begin).await?;
        sleep(COPIES).await;
        let enrolled = self.read().await?;
        let now = attached(stats)?;
        let (ready, scanned) = (now.tracked, now.scan_steps * STEP);
        report::enrolled(stats, &orders, took, ready);

        until(orders.first()).await;
        let due = self.read().await?;
        until(orders.last()).await;
        let patience = Instant::now() + PATIENCE;
        while ledger.fired() < orders.count() && Instant::now() < patience {
            sleep(POLL).await;
        }
        let fired = self.read().await?;
        report::say(&format!("{} of {} orders have fired", ledger.fired(), orders.count()));
        // Whatever fires a second time has the time to do so.
        until(orders.last() + self.settings.plain).await;
        let costs = Costs {
            enrolment: Reading::beyond(before, enrolled),
            firing: Reading::beyond(due, fired),
            scanned,
            enrolled: ready,
        };
        Ok((orders, costs))
    }

    /// Has the orders written and the listener begin, and waits until the orders are enrolled. Where changes
    /// are heard the orders are written when the first scan is over; else before it, for it to find.
    async fn enrol(
        &self,
        stats: &Stats,
        begin: oneshot::Sender<()>,
    ) -> Result<([Reading; 2], Orders, Duration)> {
        let written = if self.settings.hears_changes() { None } else { Some(self.write().await?) };
        let (began, before) = (Instant::now(), self.read().await?);
        let _ = begin.send(());
        let give_up = began + self.settings.scan() * 3 + PATIENCE;
        let orders = match written {
            Some(orders) => orders,
            None => {
                wait(give_up, || Ok(attached(stats)?.scans > 0)).await?;
                self.write().await?
            }
        };
        wait(give_up, || {
            let now = attached(stats)?;
            Ok(now.scans > 0 && now.tracked >= orders.count() || SystemTime::now() > orders.first())
        })
        .await?;
        Ok((before, orders, began.elapsed()))
    }

    /// The same orders for both.
    async fn write(&self) -> Result<Orders> {
        let orders = Orders::of(&self.settings);
        let (ours, plain) = (self.ours.server.conn().await, self.plain.server.conn().await);
        tokio::try_join!(orders.write(ours), orders.write(plain))?;
        Ok(orders)
    }

    /// Both at once: ours, and the other.
    async fn read(&self) -> Result<[Reading; 2]> {
        let (ours, plain) = tokio::try_join!(self.ours.read(), self.plain.read())?;
        Ok([ours, plain])
    }
}

fn attached(stats: &Stats) -> Result<keylapse::stats::AttachedStats> {
    stats.attached(TOPIC).ok_or_else(|| "the topic is not attached".into())
}

async fn wait(give_up: Instant, done: impl Fn() -> Result<bool>) -> Result<()> {
    while !done()? {
        if Instant::now() > give_up {
            return Err("the keys were not scanned in time".into());
        }
        sleep(POLL).await;
    }
    Ok(())
}

async fn until(time: SystemTime) {
    if let Ok(left) = time.duration_since(SystemTime::now()) {
        sleep(left).await;
    }
}
