//! A listener in a process of its own, which reports the starts of handlers and its counters.

use std::future::ready;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::health::EventMode;
use keylapse::stats::{AttachedStats, Stats};
use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, Topic};
use keylapse_bench::Fault;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::on_runtime;
use crate::role::{Report, Reporter};

/// The attached topic. The user of redis.conf may read its keys and receive their events.
const TOPIC: &str = "attached";
pub(crate) const PREFIX: &str = "app:order:";
/// The managed topic of the flood.
pub(crate) const MANAGED: &str = "app:managed:{id}";
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) url: String,
    /// The largest value that is kept, in bytes; 0 keeps none.
    pub(crate) values: usize,
    /// True to listen to the timers of a managed topic instead.
    pub(crate) managed: bool,
}

impl Listening {
    pub(crate) fn play(&self) -> Result<(), Fault> {
        on_runtime(self.listen())?
    }

    async fn listen(&self) -> Result<(), Fault> {
        let (reporter, writing) = Reporter::open();
        let listener = if self.managed { self.managed(&reporter)? } else { self.attached(&reporter)? };
        let stats = listener.stats();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = tokio::spawn(async move { listener.run_until(stopped).await });
        let (mut stdin, mut nothing) = (tokio::io::stdin(), Vec::new());
        tokio::select! {
            () = count(&stats, &reporter) => {}
            ended = &mut running => return Err(format!("the listener has ended: {ended:?}").into()),
            _ = stdin.read_to_end(&mut nothing) => {}
        }
        drop(stop);
        running.await??;
        if std::env::var_os("BENCH_STATS").is_some() {
            eprintln!("{:?} {:?}", stats.attached(TOPIC), stats.listener());
        }
        drop((stats, reporter));
        writing.join().map_err(|_| "the writer of lines panicked")??;
        Ok(())
    }

    fn attached(&self, reporter: &Reporter) -> Result<Listener, Fault> {
        let topic = Topic::<Bytes>::raw_named(TOPIC, &format!("{PREFIX}{{id}}"))?;
        let attached = Attached::new(topic).keep_values(self.values);
        let reporter = reporter.clone();
        let handler = move |lapse: Lapse<Expired<Bytes>>| {
            let (at, expired) = (now(), lapse.payload());
            if let Some(key) = number(lapse.key()) {
                let (value, known) = (expired.value().is_some(), expired.deadline_known());
                reporter.send(Report::Run { key, at, value, known });
            }
            ready(Ok::<_, Failure>(Done))
        };
        Ok(Listener::builder(&self.url).attach(attached, handler).build()?)
    }

    fn managed(&self, reporter: &Reporter) -> Result<Listener, Fault> {
        let reporter = reporter.clone();
        let handler = move |_: Lapse<Bytes>| {
            reporter.send(Report::Run { key: 0, at: now(), value: true, known: true });
            ready(Ok::<_, Failure>(Done))
        };
        let topic = Topic::<Bytes>::raw(MANAGED)?.marker_keys(false);
        Ok(Listener::builder(&self.url).on(topic, handler).build()?)
    }
}

/// Reports the counters of the attached topic, without end.
async fn count(stats: &Stats, reporter: &Reporter) {
    loop {
        sleep(POLL).await;
        let subscribed =
            !matches!(stats.mode(), EventMode::Starting | EventMode::ScanOnly | EventMode::Unsubscribed);
        if let Some(all) = stats.attached(TOPIC).filter(|_| subscribed) {
            let AttachedStats { scans, tracked: enrolled, recorded: noted, .. } = all;
            let (dropped, gaps) = (count_of(stats, "prompts_dropped"), stats.listener().gaps);
            reporter.send(Report::Counted { at: now(), scans, enrolled, noted, dropped, gaps });
        }
    }
}

/// Returns a counter by its name, because earlier libraries do not have all of them.
fn count_of(stats: &Stats, name: &str) -> u64 {
    stats.listener().iter().find(|(counted, _)| *counted == name).map_or(0, |(_, count)| count)
}

/// Returns the name of a key.
pub(crate) fn key(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// Returns the number of a key.
pub(crate) fn number(key: &[u8]) -> Option<u32> {
    std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?.parse().ok()
}

/// Returns the time in µs since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
