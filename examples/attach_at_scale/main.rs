//! Attaches to orders that another program writes, among a million other keys. For comparison, a plain subscriber receives
//! expired events.
//!
//!     make demo SHOW=attach
//!     ATTACH_FOREIGN=50000 ATTACH_KEYS=1000 make demo SHOW=attach   # a quarter of a minute
//!     ATTACH_FLAGS='KExg$' make demo SHOW=attach                    # tracked as they are written
//!
//! Two servers get the same keys. A keylapse listener attaches to `app:order:{id}` on the first one. The second one has no
//! listener, because keylapse reads keys when they are due, and the server then sends their events immediately, to all
//! subscribers. A plain subscriber on the same server would be as punctual. Each server has one plain subscriber.
//!
//! The program fails if an order is lost, early or fires twice. `settings.rs` lists the settings.

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
/// Time for the last orders to fire.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Keys that one step of a scan reads.
const STEP: u64 = 500;
/// Time after tracking in which values are copied.
const COPIES: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> ExitCode {
    let targets: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(log.with_filter(targets)).init();

    // Dropping `play` stops the servers and deletes their directories, also after ctrl-c.
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

/// Runs the demo, and returns whether every guarantee was kept.
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

    // The listener has ended, so no key of keylapse expires between the two counts.
    let expired = stage.ours.read().await?.expired;
    Ok(report::ending(&stage, &stats, &ledger.tally(&orders), &orders, &costs, expired))
}

/// Two equal servers.
struct Stage {
    settings: Settings,
    /// The server with a keylapse listener.
    ours: Station,
    /// The server without one.
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
        report::print_line(&format!("each server has {keys} other keys with a TTL of an hour"));
        Ok(())
    }

    /// Makes the listener, with the permissions of the user in redis.conf, as in production.
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

    /// Measures from before the orders are tracked until the plain subscriber's time is over.
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
        report::print_line(&format!("{} of {} orders have fired", ledger.fired(), orders.count()));
        // Waits for orders that fire a second time.
        until(orders.last() + self.settings.plain).await;
        let costs = Costs {
            enrolment: Reading::excess(before, enrolled),
            firing: Reading::excess(due, fired),
            scanned,
            enrolled: ready,
        };
        Ok((orders, costs))
    }

    /// Writes the orders, starts the listener, and waits until the orders are tracked. With events for changes, the orders
    /// are written after the first scan; without them, before it.
    async fn enrol(
        &self,
        stats: &Stats,
        begin: oneshot::Sender<()>,
    ) -> Result<([Reading; 2], Orders, Duration)> {
        let written = if self.settings.sends_changes() { None } else { Some(self.write().await?) };
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

    /// Writes the orders to both servers.
    async fn write(&self) -> Result<Orders> {
        let orders = Orders::of(&self.settings);
        let (ours, plain) = (self.ours.server.conn().await, self.plain.server.conn().await);
        tokio::try_join!(orders.write(ours), orders.write(plain))?;
        Ok(orders)
    }

    /// Reads both servers at the same time, the one with keylapse first.
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
            return Err(
                "the keys were not scanned in time: lower ATTACH_FOREIGN, or raise ATTACH_SCAN_RATE".into()
            );
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
