//! Hot keys, which expire, are written again immediately, and expire again, for minutes. The cost of an expiry must not
//! grow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use keylapse_bench::Fault;
use keylapse_support::Server;
use redis::Value;
use tokio::time::{Instant, sleep, sleep_until};

use crate::judge::Runs;
use crate::line::Line;
use crate::listening::number;
use crate::options::Options;
use crate::process;
use crate::rewriting::Rewriting;
use crate::role::{Role, Worker};
use crate::scene::{POLL, Place};

const MINUTE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);
/// The values are small; none is larger than this.
const VALUES: usize = 64;
/// The threshold of the slow log, in µs: so high that the log keeps all of its entries.
const SLOW: &str = "2000";
const END: &str = "the end";
/// The time between two requests of an unrelated client.
const ASK: Duration = Duration::from_millis(5);

/// The figures that are read each second.
#[derive(Clone, Copy, Debug)]
struct Look {
    cpu: f64,
    expired: u64,
}

impl Look {
    async fn at(place: &Place) -> Result<Self, Fault> {
        Ok(Self { cpu: place.cpu()?, expired: place.expired().await? })
    }

    /// Returns the processor time of the server for each expiry since then, in µs.
    fn us_per_expiry(&self, since: &Self) -> f64 {
        (self.cpu - since.cpu) * 1e6 / (self.expired - since.expired).max(1) as f64
    }
}

pub(crate) async fn play(options: &Options) -> Result<bool, Fault> {
    let place = Place::open(&options.hot_flags).await?;
    let time = MINUTE.mul_f64(options.minutes);
    // The compared part is as long at the beginning, at the end, and without listeners.
    let part = MINUTE.min(time / 3);
    let before = written(&place, options, part / 2, &mut []).await?;
    sleep(Duration::from_millis(options.hot_ttl) + LOOK).await; // these expiries are over before a listener starts
    for (name, value) in [("slowlog-log-slower-than", SLOW), ("slowlog-max-len", "10000")] {
        let () = place.ask(&["CONFIG", "SET", name, value]).await?;
    }
    let mut listeners = Vec::new();
    for _ in 0..options.hot_listeners {
        listeners.push((place.listener(VALUES, false).await?, Runs::default()));
    }
    let (truth, asking) = (Truth::of(&place.server)?, Asking::start(place.port()));
    let looks = written(&place, options, time, &mut listeners).await?;
    let worst_get = asking.end()?;
    let (longest, longest_other) = longest_ms(&place).await?;
    let script_p999 = script_p999_ms(&place).await?;
    let kept = place.kept_by_keylapse().await?;
    let rss = listeners.iter().map(|(one, _)| process::peak_mb(one.pid())).collect::<Result<Vec<_>, _>>()?;
    settle(&truth, options, &mut listeners).await;
    let () = place.ask(&["PUBLISH", EXPIRED, END]).await?;
    let expiries = truth.end()?;
    let mut runs = Vec::new();
    for (one, mut taken) in listeners {
        taken.take(&one.end()?);
        runs.push(taken);
    }

    let (mut lost, mut twice, mut handled) = (0, 0, 0);
    for key in 0..options.hot_keys {
        let (real, ran) =
            (expiries.get(&key).copied().unwrap_or(0), runs.iter().map(|one| one.of(key).len() as u64).sum());
        lost += real.saturating_sub(ran);
        twice += ran.saturating_sub(real);
        handled += ran;
    }
    let in_part = part.as_secs() as usize;
    let (first, last) = (&looks[..=in_part], &looks[looks.len() - 1 - in_part..]);
    let spent = |looks: &[Look]| looks[looks.len() - 1].us_per_expiry(&looks[0]);
    println!(
        "  {handled} runs of {} expiries with {}, by {} listeners; without listeners the writing costs {:.1} µs for each; \
         of 1,000 scripts 999 took at most {script_p999:.1} ms, and the longest command that is no script \
         {longest_other} ms; an unrelated client's worst GET took {worst_get:.1} ms; the largest listener had {:.1} MB",
        expiries.values().sum::<u64>(),
        options.hot_flags,
        options.hot_listeners,
        spent(&before),
        rss.into_iter().fold(0.0, f64::max)
    );
    println!(
        "scene=hot keys={} minutes={} us_per_expiry_first={:.1} us_per_expiry_last={:.1} longest_script_ms={longest} \
         bytes_per_key={:.0} lost={lost} twice={twice}",
        options.hot_keys,
        options.minutes,
        spent(first),
        spent(last),
        kept / f64::from(options.hot_keys),
    );
    Ok(lost + twice == 0)
}

/// Lets a writer write keys for some time. Returns the figures of the beginning, and of each second.
async fn written(
    place: &Place,
    options: &Options,
    time: Duration,
    listeners: &mut [(Worker, Runs)],
) -> Result<Vec<Look>, Fault> {
    let mut writer = Worker::start(&Role::Rewriting(Rewriting {
        port: place.port(),
        keys: options.hot_keys,
        ttl: options.hot_ttl,
        gap: options.hot_gap,
        seconds: time.as_secs_f64() + 1.0,
    }))?;
    // By then, all keys have been written once.
    sleep(Duration::from_millis(options.hot_ttl + options.hot_gap)).await;
    let (began, mut looks) = (Instant::now(), vec![Look::at(place).await?]);
    while began.elapsed() < time {
        sleep_until(began + LOOK * looks.len() as u32).await;
        looks.push(Look::at(place).await?);
        take(listeners);
        writer.has_ended()?;
    }
    writer.end()?;
    Ok(looks)
}

fn take(listeners: &mut [(Worker, Runs)]) {
    listeners.iter_mut().for_each(|(one, runs)| runs.take(&one.reports()));
}

/// Waits until as many handlers ran as keys have expired, or `patience` is over; then a second more.
async fn settle(truth: &Truth, options: &Options, listeners: &mut [(Worker, Runs)]) {
    sleep(Duration::from_millis(options.hot_ttl) + LOOK).await; // the last lives end
    let give_up = Instant::now() + options.patience;
    let ran = |listeners: &[(Worker, Runs)]| listeners.iter().map(|(_, runs)| runs.count()).sum::<u64>();
    while ran(listeners) < truth.count() && Instant::now() < give_up {
        sleep(POLL).await;
        take(listeners);
    }
    sleep(LOOK).await;
}

/// Returns the longest script and the longest other command in ms, by the slow log, which has all that took longer than
/// [`SLOW`]. Other programs that use the processor lengthen both, as the other command shows.
async fn longest_ms(place: &Place) -> Result<(String, String), Fault> {
    let entries: Vec<Vec<Value>> = place.ask(&["SLOWLOG", "GET", "-1"]).await?;
    let (mut script, mut other) = (None, None);
    for entry in entries {
        let [_, _, Value::Int(micros), Value::Array(words), ..] = &entry[..] else { continue };
        let is_script = matches!(words.first(), Some(Value::BulkString(word)) if word.to_ascii_uppercase().starts_with(b"EVAL"));
        let longest = if is_script { &mut script } else { &mut other };
        *longest = (*longest).max(Some(*micros));
    }
    let shown = |longest: Option<i64>| {
        longest.map_or_else(|| "<2.0".to_owned(), |micros| format!("{:.1}", micros as f64 / 1000.0))
    };
    Ok((shown(script), shown(other)))
}

/// Returns the time in ms that only one script in a thousand exceeds, as the server counts it.
async fn script_p999_ms(place: &Place) -> Result<f64, Fault> {
    let stats: String = place.ask(&["INFO", "latencystats"]).await?;
    let of_scripts = stats.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
    let micros = of_scripts.and_then(|all| all.split_once("p99.9=")).ok_or("no latencystats")?.1;
    Ok(micros.trim().parse::<f64>()? / 1000.0)
}

const EXPIRED: &str = "__keyevent@0__:expired";

/// A plain subscriber, which counts how often each key has expired.
struct Truth {
    expiries: JoinHandle<Result<HashMap<u32, u64>, redis::RedisError>>,
    count: Arc<AtomicU64>,
}

impl Truth {
    fn of(server: &Server) -> Result<Self, Fault> {
        let mut connection = redis::Client::open(server.url())?.get_connection()?;
        connection.set_read_timeout(None)?;
        let (count, (ready, is_ready)) = (Arc::<AtomicU64>::default(), channel());
        let counted = count.clone();
        let expiries = thread::spawn(move || {
            let (mut expiries, mut subscriber) = (HashMap::new(), connection.as_pubsub());
            subscriber.subscribe(EXPIRED)?;
            let _ = ready.send(());
            loop {
                let message = subscriber.get_message()?;
                match number(message.get_payload_bytes()) {
                    Some(key) => {
                        *expiries.entry(key).or_default() += 1;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    None if message.get_payload_bytes() == END.as_bytes() => return Ok(expiries),
                    None => {}
                }
            }
        });
        is_ready.recv()?;
        Ok(Self { expiries, count })
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn end(self) -> Result<HashMap<u32, u64>, Fault> {
        Ok(self.expiries.join().map_err(|_| "the subscriber panicked")??)
    }
}

/// A client that does not use expiry, and requests one key again and again.
struct Asking {
    end: Arc<AtomicBool>,
    asking: JoinHandle<Result<Duration, Fault>>,
}

impl Asking {
    fn start(port: u16) -> Self {
        let end = Arc::<AtomicBool>::default();
        let ended = end.clone();
        let asking = thread::spawn(move || {
            let (mut line, mut worst) = (Line::to(port)?, Duration::ZERO);
            while !ended.load(Ordering::Relaxed) {
                let asked = std::time::Instant::now();
                line.push(&[b"GET", b"unrelated"]);
                line.exchange(1)?;
                worst = worst.max(asked.elapsed());
                thread::sleep(ASK);
            }
            Ok(worst)
        });
        Self { end, asking }
    }

    /// Stops the client, and returns its longest wait in ms.
    fn end(self) -> Result<f64, Fault> {
        self.end.store(true, Ordering::Relaxed);
        let worst = self.asking.join().map_err(|_| "the unrelated client panicked")??;
        Ok(worst.as_secs_f64() * 1000.0)
    }
}
