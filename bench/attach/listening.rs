//! A listener, as a process of its own: it tells when handlers start, and what it counts.

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
use crate::role::{Mouth, Told};

/// The attached topic. Its keys are those that the user of redis.conf may read, and hear changes of.
const TOPIC: &str = "attached";
pub(crate) const PREFIX: &str = "app:order:";
/// The managed topic of the flood.
pub(crate) const MANAGED: &str = "app:managed:{id}";
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) url: String,
    /// The largest value that is kept; 0: none.
    pub(crate) values: usize,
    /// Listens to timers of a managed topic instead.
    pub(crate) managed: bool,
}

impl Listening {
    pub(crate) fn play(&self) -> Result<(), Fault> {
        on_runtime(self.listen())?
    }

    async fn listen(&self) -> Result<(), Fault> {
        let (mouth, writing) = Mouth::open();
        let listener = if self.managed { self.managed(&mouth)? } else { self.attached(&mouth)? };
        let stats = listener.stats();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = tokio::spawn(async move { listener.run_until(stopped).await });
        let (mut stdin, mut nothing) = (tokio::io::stdin(), Vec::new());
        tokio::select! {
            () = count(&stats, &mouth) => {}
            ended = &mut running => return Err(format!("the listener has ended: {ended:?}").into()),
            _ = stdin.read_to_end(&mut nothing) => {}
        }
        drop(stop);
        running.await??;
        if std::env::var_os("BENCH_STATS").is_some() {
            eprintln!("{:?} {:?}", stats.attached(TOPIC), stats.listener());
        }
        drop((stats, mouth));
        writing.join().map_err(|_| "the writer of lines panicked")??;
        Ok(())
    }

    fn attached(&self, mouth: &Mouth) -> Result<Listener, Fault> {
        let topic = Topic::<Bytes>::raw_named(TOPIC, &format!("{PREFIX}{{id}}"))?;
        let attached = Attached::new(topic).keep_values(self.values);
        let mouth = mouth.clone();
        let handler = move |lapse: Lapse<Expired<Bytes>>| {
            let (at, expired) = (now(), lapse.payload());
            if let Some(key) = number(lapse.key()) {
                let (value, known) = (expired.value().is_some(), expired.deadline_known());
                mouth.say(Told::Run { key, at, value, known });
            }
            ready(Ok::<_, Failure>(Done))
        };
        Ok(Listener::builder(&self.url).attach(attached, handler).build()?)
    }

    fn managed(&self, mouth: &Mouth) -> Result<Listener, Fault> {
        let mouth = mouth.clone();
        let handler = move |_: Lapse<Bytes>| {
            mouth.say(Told::Run { key: 0, at: now(), value: true, known: true });
            ready(Ok::<_, Failure>(Done))
        };
        let topic = Topic::<Bytes>::raw(MANAGED)?.marker_keys(false);
        Ok(Listener::builder(&self.url).on(topic, handler).build()?)
    }
}

/// Tells what is counted of the attached topic, for ever.
async fn count(stats: &Stats, mouth: &Mouth) {
    loop {
        sleep(POLL).await;
        let hears =
            !matches!(stats.mode(), EventMode::Starting | EventMode::ScanOnly | EventMode::Unsubscribed);
        if let Some(all) = stats.attached(TOPIC).filter(|_| hears) {
            let AttachedStats { scans, tracked: enrolled, recorded: noted, .. } = all;
            let (dropped, gaps) = (count_of(stats, "prompts_dropped"), stats.listener().gaps);
            mouth.say(Told::Counted { at: now(), scans, enrolled, noted, dropped, gaps });
        }
    }
}

/// By its name, as earlier libraries do not count all of them.
fn count_of(stats: &Stats, name: &str) -> u64 {
    stats.listener().iter().find(|(counted, _)| *counted == name).map_or(0, |(_, count)| count)
}

/// The name of a key.
pub(crate) fn key(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// Which key this is.
pub(crate) fn number(key: &[u8]) -> Option<u32> {
    std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?.parse().ok()
}

/// In µs since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
