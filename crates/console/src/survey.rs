//! What attaching to others' keys would mean.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Console;
use crate::connection::Server;
use crate::error::{Error, Result};
use crate::escape::glob_of_any;
use crate::pattern::Pattern;
use crate::policy::{Policy, scan_pace};
use crate::wire::{SurveyedKey, is_own, listeners};
use keylapse::limits::MAX_KEY;

/// Keys that are asked about at once.
const PAGE: usize = 250;
/// Keys that are looked at a second time.
const WATCHED: usize = 1000;
/// Keys whose memory is asked for: the server counts it each time.
const WEIGHED: u64 = 10_000;
/// Hours ahead for which it is said how many keys are due.
const HOURS: usize = 24;
/// Bytes that an enrolled key costs without its value: `make demo SHOW=attach` measures it, docs/attach.md says how.
const ENROLLED_BYTES: u64 = 360;

/// A look at the keys that match a pattern, about to be taken: set options, then [`run`](Self::run) it.
#[must_use = "nothing is looked at until it is run"]
#[derive(Debug)]
pub struct SurveyRequest<'a> {
    console: &'a Console,
    pattern: Pattern,
    policy: Policy,
    watch: Duration,
}

/// What there is.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// Keys in the database, of all kinds; none where the user may not ask.
    pub keys: Option<u64>,
    /// Keys that match, without those of more than 4 KiB.
    pub matching: u64,
    /// Keys of these that have a deadline.
    pub with_deadline: u64,
    /// Keys that match but for their length: they would be left alone.
    pub too_long: u64,
    /// How many of those with a deadline are of each type.
    pub types: BTreeMap<String, u64>,
    /// How many of them are due within each hour from now: 24 hours, and all that is later.
    pub due_by_hour: Vec<u64>,
    /// Keys that would be enrolled: as many as the cap has room for.
    pub enrolled: u64,
    /// Bytes that these take, as the server reckons, by the first 10,000 of them; none where the user may not ask.
    pub value_bytes: Option<u64>,
    /// Bytes that enrolling them would take, about: without their values.
    pub memory_bytes: u64,
    /// How long a scan of the database takes at the topic's rate, in ms; none where its size is not known.
    pub scan_ms: Option<u64>,
    /// What the user may not find out.
    pub missing: Vec<MissingFigure>,
    /// What became of keys that were looked at a second time.
    pub watched: Watched,
    /// What suits that.
    pub advice: Vec<String>,
}

/// A figure that the user may not find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissingFigure {
    /// The field of [`Survey`].
    pub figure: &'static str,
    /// The rule that would grant it.
    pub right: &'static str,
}

/// What became of up to 1,000 keys between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Watched {
    /// Between the two looks, in ms.
    pub after_ms: u64,
    /// Keys that were looked at.
    pub keys: u64,
    /// Keys with a later deadline.
    pub refreshed: u64,
    /// Keys that are gone, and had a deadline that has passed.
    pub expired: u64,
    /// Keys that are gone, and had time left.
    pub deleted: u64,
    /// Keys without a deadline now.
    pub persisted: u64,
}

impl Console {
    /// Looks at what attaching to the keys of a pattern would mean, and writes nothing: it takes a user who may only
    /// read. Reading a key that has expired makes the server delete it, as any reading does. What another topic has a
    /// better claim to counts, too. A key counts once more that the server names twice, as it may while its table of keys
    /// grows or shrinks.
    ///
    /// # Errors
    /// When the pattern cannot be read.
    pub fn survey(&self, pattern: &str) -> Result<SurveyRequest<'_>> {
        let pattern = Pattern::new(pattern).map_err(Error::from)?;
        let (policy, watch) = (Policy::default(), Duration::from_secs(10));
        Ok(SurveyRequest { console: self, pattern, policy, watch })
    }
}

impl SurveyRequest<'_> {
    /// How many keys of the database are gone through a second, as [`Attached::scan_rate`](keylapse::Attached::scan_rate).
    /// Default: 50,000.
    pub fn scan_rate(mut self, keys: u32) -> Self {
        self.policy.scan_rate = keys.max(1);
        self
    }

    /// How many keys there would be room for, as [`Attached::cap`](keylapse::Attached::cap). Default: 1,000,000.
    pub fn cap(mut self, keys: usize) -> Self {
        self.policy.cap = keys;
        self
    }

    /// How long after the first look up to 1,000 keys are looked at a second time. Default: 10 s; 0: not at all.
    pub fn watch(mut self, span: Duration) -> Self {
        self.watch = span;
        self
    }

    /// Looks.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn run(self) -> Result<Survey> {
        let store = self.console.store();
        let mut survey = Survey::begin();
        let servers = self.console.persist(|_| store.topology().primaries()).await?;
        for server in &servers {
            let size = store.database_size(server).await?;
            survey.keys = survey.keys.zip(size).map(|(keys, more)| keys + more);
        }
        let (now, mut watched) = (self.now().await?, Vec::new());
        let mut scan = KeyScan::new(self.console, &self.pattern, self.policy.scan_rate, servers);
        while let Some(keys) = scan.next().await? {
            for keys in keys.chunks(PAGE) {
                let weighs = survey.value_bytes.is_some() && survey.with_deadline < WEIGHED;
                let found = store.survey(keys, weighs).await?;
                survey.refused(weighs, &found);
                survey.add(now, keys, &found, &mut watched);
            }
        }
        survey.too_long = scan.too_long;
        survey.weigh(&self.policy);
        survey.watched = self.watch_them(&watched, now).await?;
        survey.advice = advice(&survey);
        Ok(survey)
    }

    async fn now(&self) -> Result<u64> {
        let ours = listeners(self.console.namespace());
        Ok(self.console.store().time_of(&ours).await?.ms())
    }

    /// Looks at keys a second time.
    async fn watch_them(&self, watched: &[(Bytes, u64)], since: u64) -> Result<Watched> {
        if self.watch.is_zero() || watched.is_empty() {
            return Ok(Watched::default());
        }
        sleep(self.watch).await;
        let mut seen = Watched { keys: watched.len() as u64, ..Watched::default() };
        for some in watched.chunks(PAGE) {
            let keys: Vec<_> = some.iter().map(|(key, _)| key.clone()).collect();
            let found = self.console.store().survey(&keys, false).await?;
            let now = self.now().await?;
            seen.after_ms = now.saturating_sub(since);
            for ((_, before), after) in some.iter().zip(&found) {
                seen.add(*before, after, now);
            }
        }
        Ok(seen)
    }
}

/// All keys of these servers, gone through once at the rate of a listener's scan: gives those that a pattern matches, step
/// by step. Nothing is written.
struct KeyScan<'a> {
    console: &'a Console,
    pattern: &'a Pattern,
    rate: u32,
    /// Those that are left, the present one last.
    servers: Vec<Server>,
    cursor: u64,
    /// When the next step may be made.
    due: Instant,
    /// Keys that match but for their length.
    too_long: u64,
}

impl<'a> KeyScan<'a> {
    fn new(console: &'a Console, pattern: &'a Pattern, rate: u32, mut servers: Vec<Server>) -> Self {
        servers.reverse();
        Self { console, pattern, rate, servers, cursor: 0, due: Instant::now(), too_long: 0 }
    }

    /// The keys that the next step finds, which may be none; nothing at the end.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        let Some(server) = self.servers.last().cloned() else { return Ok(None) };
        sleep_until(self.due).await;
        let (step, every) = scan_pace(self.rate);
        self.due = Instant::now() + every;
        let (store, cursor) = (self.console.store(), self.cursor);
        let prefix = glob_of_any(&[self.pattern.literal_prefix()]);
        let found = self.console.persist(|_| store.scan(&server, cursor, &prefix, step as usize)).await?;
        self.cursor = found.0;
        if self.cursor == 0 {
            self.servers.pop();
            self.due = Instant::now();
        }
        Ok(Some(self.matching(found.1)))
    }

    fn matching(&mut self, mut keys: Vec<Bytes>) -> Vec<Bytes> {
        keys.retain(|key| !is_own(self.console.namespace(), key) && self.pattern.is_match(key));
        let found = keys.len();
        keys.retain(|key| key.len() <= MAX_KEY);
        self.too_long += (found - keys.len()) as u64;
        keys
    }
}

impl Watched {
    fn add(&mut self, before: u64, after: &SurveyedKey, now: u64) {
        match after.deadline {
            Some(deadline) => self.refreshed += u64::from(deadline > before),
            None if after.kind != "none" => self.persisted += 1,
            None if before <= now => self.expired += 1,
            None => self.deleted += 1,
        }
    }
}

impl Survey {
    fn begin() -> Self {
        let (keys, value_bytes) = (Some(0), Some(0));
        Self { due_by_hour: vec![0; HOURS + 1], keys, value_bytes, ..Self::default() }
    }

    /// What is refused once is not asked for again: each time is a line in the server's log of refusals.
    fn refused(&mut self, weighs: bool, found: &[SurveyedKey]) {
        if weighs && found.iter().any(|key| key.bytes.is_none()) {
            self.value_bytes = None;
        }
    }

    fn add(&mut self, now: u64, keys: &[Bytes], found: &[SurveyedKey], watched: &mut Vec<(Bytes, u64)>) {
        self.matching += found.len() as u64;
        for (key, found) in keys.iter().zip(found) {
            let Some(deadline) = found.deadline else { continue };
            self.with_deadline += 1;
            *self.types.entry(found.kind.clone()).or_default() += 1;
            self.value_bytes = self.value_bytes.map(|all| all + found.bytes.unwrap_or(0));
            let hour = usize::try_from(deadline.saturating_sub(now) / 3_600_000).unwrap_or(HOURS);
            self.due_by_hour[hour.min(HOURS)] += 1;
            if watched.len() < WATCHED {
                watched.push((key.clone(), deadline));
            }
        }
    }

    fn weigh(&mut self, policy: &Policy) {
        self.enrolled = self.with_deadline.min(policy.cap as u64);
        // By the share that was weighed.
        let weighed = self.with_deadline.min(WEIGHED + PAGE as u64).max(1);
        self.value_bytes = self.value_bytes.map(|bytes| bytes / weighed * self.with_deadline);
        self.memory_bytes = self.enrolled * ENROLLED_BYTES;
        self.scan_ms = self.keys.map(|keys| keys * 1000 / u64::from(policy.scan_rate.max(1)));
        let rights = [(self.keys, "keys", "+dbsize"), (self.value_bytes, "value_bytes", "+memory|usage")];
        let missing = rights.into_iter().filter(|(found, ..)| found.is_none());
        self.missing = missing.map(|(_, figure, right)| MissingFigure { figure, right }).collect();
    }
}

/// What suits keys such as these; docs/attach-uses.md says why.
fn advice(survey: &Survey) -> Vec<String> {
    let mut advice = Vec::new();
    let Watched { keys, refreshed, expired, deleted, .. } = survey.watched;
    let ended = expired + deleted;
    if survey.with_deadline == 0 {
        advice.push("no key that matches has a deadline now: nothing would be enrolled".to_owned());
    }
    if survey.with_deadline > survey.enrolled {
        advice.push(
            "there is no room for all of them: raise Attached::cap, or say a narrower pattern".to_owned(),
        );
    }
    if keys > 0 && refreshed * 2 > keys {
        advice.push("mostly refreshed, as sessions are: Ex is enough, and KExg$ would tell of each refresh; never write_back".to_owned());
    } else if ended > 0 && deleted > expired {
        advice.push(
            "mostly deleted, as locks are: KExg$ tells deletions from expiries; without it, let the handler look at \
             Expired::recovered, or say .recovered(Treatment::Ignore)"
                .to_owned(),
        );
    } else if ended > 0 {
        advice.push("mostly expiring, as unpaid orders are: Ex is enough".to_owned());
    } else if keys > 0 {
        advice.push(
            "nothing happened to them while they were watched: watch for longer to tell how they are used"
                .to_owned(),
        );
    }
    let soon = survey.due_by_hour.first().copied().unwrap_or_default();
    if soon > 0 && survey.scan_ms.is_some_and(|ms| ms > 60_000) {
        advice
            .push("a scan takes more than a minute: keys that live shorter than that want KExg$".to_owned());
    }
    if survey.types.keys().any(|kind| kind != "string") {
        advice.push(
            "some are no strings: their values are kept by keep_fields (hashes) or keep_dumps".to_owned(),
        );
    }
    advice
}

impl fmt::Display for Survey {
    /// The last line of a command, with `-` for what the user may not find out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, matching, with_deadline, enrolled, memory_bytes, scan_ms, .. } = self;
        let or_dash =
            |figure: &Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        let (keys, scan_ms) = (or_dash(keys), or_dash(scan_ms));
        write!(
            f,
            "keys={keys} matching={matching} with_deadline={with_deadline} enrolled={enrolled} \
             memory_bytes={memory_bytes} scan_ms={scan_ms}"
        )
    }
}
