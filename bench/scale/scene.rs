//! The measurements of one arrangement of servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::{ArmResult, Key, NewArm, Schedule, Topic};
use keylapse_bench::Fault;
use keylapse_bench::scale::is_even;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::listening::{Running, Starts};
use crate::options::Size;
use crate::servers::Servers;
use crate::usage::{Meter, Usage, own_processor_us};

const PAYLOAD: &[u8] = br#"{"merchant":"m-000000017","order":"o-0000000000042","amount":1234567890}"#;
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// Partitions for each primary: the advice is two or more.
const PARTITIONS: usize = 2;
/// The time after the last handler in which its attempt is settled, and the expiry of its marker key is published.
pub(crate) const AFTERMATH: Duration = Duration::from_millis(500);

/// Figures by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Servers with one topic.
pub(crate) struct Scene {
    servers: Servers,
    pub(crate) meter: Meter,
    /// The number of primaries; a single server counts as one.
    pub(crate) primaries: usize,
    topic: Topic<Bytes>,
    pub(crate) prefix: String,
    schedule: Schedule,
    pub(crate) size: Size,
    figures: Figures,
}

impl Scene {
    /// Starts this many primaries, or a single server if zero.
    pub(crate) async fn start(primaries: usize, marker_keys: bool, size: Size) -> Result<Self, Fault> {
        let servers = Servers::start(primaries).await?;
        let (meter, schedule) = (Meter::of(&servers).await?, Schedule::connect(&servers.url()).await?);
        let primaries = primaries.max(1);
        let prefix = even_prefix(primaries)?;
        let topic = Topic::raw(&format!("{prefix}:{{id}}"))?.marker_keys(marker_keys).concurrency(1000);
        let topic = topic.partitions((PARTITIONS * primaries) as u32);
        let figures = Figures::new();
        Ok(Self { servers, meter, primaries, topic, prefix, schedule, size, figures })
    }

    /// Returns the figures.
    pub(crate) fn end(self) -> Figures {
        self.figures
    }

    /// Measures a listener without work.
    pub(crate) async fn idle(&mut self) -> Result<(), Fault> {
        let [running] = self.listen(&Starts::new(1), 1).await?.try_into().map_err(|_| "one listener")?;
        // A listener sweeps each server when it finds it, when it receives its events, and five seconds later.
        running.until_settled(self.primaries as u64, 3).await?;
        let (before, begun) = (self.meter.look().await?, Instant::now());
        sleep(Duration::from_secs(self.size.idle_s)).await;
        let each = self.meter.since(&before).await?;
        let seconds = begun.elapsed().as_secs_f64();
        running.end().await?;
        let highest = |of: fn(&Usage) -> f64| each.iter().map(of).fold(0.0, f64::max) / seconds;
        self.put("idle_requests_per_s", highest(|used| used.requests));
        self.put("idle_server_ms_per_s", highest(|used| used.processor_us) / 1e3);
        Ok(())
    }

    /// Measures timers that fire on time, at one rate on all arrangements.
    pub(crate) async fn punctual(&mut self) -> Result<(), Fault> {
        self.on_time("calm", self.size.calm, self.size.calm_rate).await
    }

    /// Measures timers that fire on time, at a rate that grows with the primaries.
    pub(crate) async fn timely(&mut self) -> Result<(), Fault> {
        self.on_time("timely", self.size.timely * self.primaries, self.size.rate * self.primaries).await
    }

    async fn on_time(&mut self, name: &str, count: usize, rate: usize) -> Result<(), Fault> {
        let gap = Duration::from_secs(1).div_f64(rate as f64);
        let starts = Starts::new(count);
        let [running] = self.listen(&starts, 1).await?.try_into().map_err(|_| "one listener")?;
        // Arming them takes less than this lead.
        let first = SystemTime::now() + Duration::from_secs(2) + Duration::from_micros(100) * count as u32;
        self.arm_in_bulk(count, |number| first + gap.mul_f64(number as f64)).await?;
        let left = first.duration_since(SystemTime::now()).map_err(|_| "arming took too long")?;
        sleep(left.saturating_sub(Duration::from_millis(100))).await;
        let span = self.begin().await?;
        let mut late: Vec<f64> = starts.all().await?.into_iter().map(|(_, late)| late).collect();
        sleep(AFTERMATH).await;
        self.spent(name, span, count).await?;
        running.end().await?;
        late.sort_by(f64::total_cmp);
        let rank = |share: f64| late[((late.len() as f64 * share).ceil() as usize).max(1) - 1];
        let early = late.iter().filter(|late| **late < 0.0).count();
        let found =
            [("p50_ms", rank(0.5)), ("p99_ms", rank(0.99)), ("max_ms", rank(1.0)), ("early", early as f64)];
        found.into_iter().for_each(|(figure, value)| self.put(&format!("{name}_{figure}"), value));
        Ok(())
    }

    /// Measures timers that are overdue when a listener starts.
    pub(crate) async fn overdue(&mut self) -> Result<(), Fault> {
        let count = self.size.overdue * self.primaries;
        let past = SystemTime::now() - Duration::from_secs(1);
        self.arm_in_bulk(count, |_| past).await?;
        let (starts, span) = (Starts::new(count), self.begin().await?);
        let running = Running::start(&self.servers.url(), &self.topic, &starts)?;
        let noted = starts.all().await?;
        running.end().await?;
        self.spent("overdue", span, count).await?;
        let taken = noted[noted.len() - 1].0 - noted[0].0;
        self.put("handled_per_s", (count - 1) as f64 / taken.as_secs_f64());
        Ok(())
    }

    /// Measures timers that tasks arm one by one, and that stay armed.
    pub(crate) async fn arm(&mut self) -> Result<(), Fault> {
        if let Servers::Several(_) = self.servers {
            self.fill_slots().await?;
        }
        let (count, tasks) = (self.size.armed * self.primaries, self.size.tasks * self.primaries);
        let span = self.begin().await?;
        let (begun, mut arming) = (Instant::now(), JoinSet::new());
        for task in 0..tasks {
            let (schedule, topic, prefix) = (self.schedule.clone(), self.topic.clone(), self.prefix.clone());
            arming.spawn(async move {
                for number in (task..count).step_by(tasks) {
                    let (at, payload) = (DAY + Duration::from_millis(number as u64), PAYLOAD.into());
                    let _: ArmResult = schedule.arm(&topic, key(&prefix, number), at, &payload).await?;
                }
                Ok::<_, keylapse::Error>(())
            });
        }
        while let Some(armed) = arming.join_next().await {
            armed??;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let used = self.spent("arm", span, count).await?;
        self.put("arm_per_s", count as f64 / seconds);
        self.put("bytes_armed", used.memory / count as f64);
        Ok(())
    }

    /// Measures the pause of a server with many timers that forks.
    pub(crate) async fn fork(&mut self) -> Result<(), Fault> {
        let later = SystemTime::now() + DAY;
        self.arm_in_bulk(self.size.forked, |_| later).await?;
        let pause = self.meter.fork().await?;
        self.put("fork_ms_per_gib", pause);
        Ok(())
    }

    /// Starts listeners, and waits until each receives the events of all servers.
    pub(crate) async fn listen(&self, starts: &Arc<Starts>, count: usize) -> Result<Vec<Running>, Fault> {
        let start = |_| Running::start(&self.servers.url(), &self.topic, starts);
        let all: Vec<_> = (0..count).map(start).collect::<Result<_, _>>()?;
        for one in &all {
            one.until_settled(self.primaries as u64, 1).await?;
        }
        Ok(all)
    }

    async fn arm_in_bulk(
        &self,
        count: usize,
        when: impl Fn(usize) -> SystemTime + Send,
    ) -> Result<(), Fault> {
        let arm = |number| NewArm::new(key(&self.prefix, number), when(number), Bytes::from_static(PAYLOAD));
        for from in (0..count).step_by(50_000) {
            let arms: Vec<_> = (from..count.min(from + 50_000)).map(arm).collect();
            for armed in self.schedule.arm_many(&self.topic, arms).await? {
                let _: ArmResult = armed?;
            }
        }
        Ok(())
    }

    /// Starts to count usage.
    pub(crate) async fn begin(&mut self) -> Result<Span, Fault> {
        Ok(Span { before: self.meter.look().await?, own_us: own_processor_us()? })
    }

    /// Returns the usage of all servers since then, and the processor time of this process in µs.
    pub(crate) async fn used(&mut self, span: Span) -> Result<(Usage, f64), Fault> {
        let client_us = own_processor_us()? - span.own_us;
        let each = self.meter.since(&span.before).await?;
        Ok((each.into_iter().fold(Usage::default(), |a, b| a + b), client_us))
    }

    /// Records the usage for each of `count` timers.
    async fn spent(&mut self, name: &str, span: Span, count: usize) -> Result<Usage, Fault> {
        let (used, client_us) = self.used(span).await?;
        let figures = [
            ("server_us", used.processor_us),
            ("client_us", client_us),
            ("requests", used.requests),
            ("commands", used.commands),
            ("bytes_in", used.bytes_in),
            ("bytes_out", used.bytes_out),
        ];
        for (figure, value) in figures {
            self.put(&format!("{name}_{figure}"), value / count as f64);
        }
        Ok(used)
    }

    pub(crate) fn put(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}

/// The usage up to a moment.
pub(crate) struct Span {
    before: Vec<Usage>,
    own_us: f64,
}

/// Returns a key of 28 bytes, as in the other measurements.
pub(crate) fn key(prefix: &str, number: usize) -> Key<String> {
    let digits = 27 - prefix.len();
    Key(format!("{prefix}:{number:0digits$}"))
}

/// Returns a prefix of keys whose topic has equally many partitions on each primary: names must not affect the costs.
fn even_prefix(primaries: usize) -> Result<String, Fault> {
    let partitions = (PARTITIONS * primaries) as u32;
    let even = (0..10_000).find(|number| is_even(&format!("app.notice{number}"), partitions, primaries));
    even.map(|number| format!("app:notice{number}"))
        .ok_or_else(|| "no topic name gives each primary equally many partitions".into())
}
