//! A survey of existing keys: the cost of attaching to them, and advice.

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

const KEYS_PER_REQUEST: usize = 250;
/// How many keys are read a second time.
const MAX_WATCHED_KEYS: usize = 1000;
/// How many keys are measured with `MEMORY USAGE`, because the server computes it for each call.
const WEIGHED: u64 = 10_000;
/// For how many hours ahead the survey counts due keys.
const HOURS: usize = 24;
/// The bytes that a tracked key costs without its value. `make demo SHOW=attach` measures it; docs/internals/benchmarks.md explains
/// how.
const BYTES_PER_TRACKED_KEY: u64 = 360;

/// A request to survey the keys that match a pattern. Set options, then [`run`](Self::run) it.
#[must_use = "the request does nothing until it is run"]
#[derive(Debug)]
pub struct SurveyRequest<'a> {
    console: &'a Console,
    pattern: Pattern,
    policy: Policy,
    watch: Duration,
}

/// The result of a survey.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// All keys in the database. It is `None` without permission for `DBSIZE`.
    pub keys: Option<u64>,
    /// Keys that match the pattern and have at most 4 KiB.
    pub matching: u64,
    /// Matching keys that have a deadline.
    pub with_deadline: u64,
    /// Keys that match the pattern but are longer than 4 KiB. An attached topic ignores them.
    pub too_long: u64,
    /// The matching keys with a deadline, counted by Redis type.
    pub types: BTreeMap<String, u64>,
    /// The matching keys that are due within each of the next 24 hours. The last number counts those due later.
    pub due_by_hour: Vec<u64>,
    /// Keys that an attached topic would track, limited by the cap.
    pub tracked: u64,
    /// The memory of the matching keys with a deadline in bytes, as the server reports it, projected from the first 10,000.
    /// It is `None` without permission for `MEMORY USAGE`.
    pub value_bytes: Option<u64>,
    /// The approximate memory in bytes that tracking would take, without copies of values.
    pub memory_bytes: u64,
    /// The duration of a scan of the database at the topic's rate, in ms. It is `None` if the number of keys is not known.
    pub scan_ms: Option<u64>,
    /// Figures that the user has no permission to read.
    pub missing: Vec<MissingFigure>,
    /// Changes of keys between two looks.
    pub watched: WatchedKeys,
    /// Advice for the use of these keys.
    pub advice: Vec<String>,
}

/// A figure that the user has no permission to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissingFigure {
    /// The name of the field of [`Survey`].
    pub figure: &'static str,
    /// The ACL rule that would grant the permission.
    pub right: &'static str,
}

/// How up to 1,000 keys changed between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WatchedKeys {
    /// The time between the two looks, in ms.
    pub after_ms: u64,
    /// Keys that were read twice.
    pub keys: u64,
    /// Keys that have a later deadline.
    pub refreshed: u64,
    /// Keys that no longer exist and whose deadline has passed.
    pub expired: u64,
    /// Keys that no longer exist although their deadline has not passed.
    pub deleted: u64,
    /// Keys that no longer have a deadline.
    pub persisted: u64,
}

impl Console {
    /// Prepares a survey of the keys that match a pattern, before a program attaches to them.
    ///
    /// A survey needs only permission to read, and writes nothing. As with any read, the server deletes a key that has
    /// already expired. The survey also counts keys for which another topic takes precedence. `SCAN` can return a key twice
    /// while the server's table grows or shrinks; the survey then counts it twice.
    ///
    /// # Errors
    /// Returns an error if the pattern is not valid.
    pub fn survey(&self, pattern: &str) -> Result<SurveyRequest<'_>> {
        let pattern = Pattern::new(pattern).map_err(Error::from)?;
        let (policy, watch) = (Policy::default(), Duration::from_secs(10));
        Ok(SurveyRequest { console: self, pattern, policy, watch })
    }
}

impl SurveyRequest<'_> {
    /// Sets how many keys are scanned per second, as [`Attached::scan_rate`](keylapse::Attached::scan_rate) does.
    /// Default: 50,000.
    pub fn scan_rate(mut self, keys: u32) -> Self {
        self.policy.scan_rate = keys.max(1);
        self
    }

    /// Sets how many keys the topic would track at most, as [`Attached::cap`](keylapse::Attached::cap) does.
    /// Default: 1,000,000.
    pub fn cap(mut self, keys: usize) -> Self {
        self.policy.cap = keys;
        self
    }

    /// Sets the time after which up to 1,000 keys are read a second time. Zero turns the second look off. Default: 10 s.
    pub fn watch(mut self, span: Duration) -> Self {
        self.watch = span;
        self
    }

    /// Scans the database and returns the survey.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses a command other than `DBSIZE` and `MEMORY USAGE`.
    pub async fn run(self) -> Result<Survey> {
        let store = self.console.store();
        let mut survey = Survey::begin();
        let servers = self.console.retry_until_answered(|_| store.topology().primaries()).await?;
        for server in &servers {
            let size = store.database_size(server).await?;
            survey.keys = survey.keys.zip(size).map(|(keys, more)| keys + more);
        }
        let (now, mut watched) = (self.now().await?, Vec::new());
        let mut scan = KeyScan::new(self.console, &self.pattern, self.policy.scan_rate, servers);
        while let Some(keys) = scan.next().await? {
            for keys in keys.chunks(KEYS_PER_REQUEST) {
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

    /// Waits, then reads keys a second time and counts the changes.
    async fn watch_them(&self, watched: &[(Bytes, u64)], since: u64) -> Result<WatchedKeys> {
        if self.watch.is_zero() || watched.is_empty() {
            return Ok(WatchedKeys::default());
        }
        sleep(self.watch).await;
        let mut seen = WatchedKeys { keys: watched.len() as u64, ..WatchedKeys::default() };
        for some in watched.chunks(KEYS_PER_REQUEST) {
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

/// One scan of all keys on some servers, at the rate of a listener's scan. Each step returns the keys that match a pattern.
struct KeyScan<'a> {
    console: &'a Console,
    pattern: &'a Pattern,
    rate: u32,
    /// The servers that are not yet scanned, the current one last.
    servers: Vec<Server>,
    cursor: u64,
    /// The time of the next step.
    due: Instant,
    /// Keys that match but are too long.
    too_long: u64,
}

impl<'a> KeyScan<'a> {
    fn new(console: &'a Console, pattern: &'a Pattern, rate: u32, mut servers: Vec<Server>) -> Self {
        servers.reverse();
        Self { console, pattern, rate, servers, cursor: 0, due: Instant::now(), too_long: 0 }
    }

    /// Returns the matching keys of the next step, possibly none. Returns `None` at the end of the scan.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        let Some(server) = self.servers.last().cloned() else { return Ok(None) };
        sleep_until(self.due).await;
        let (step, every) = scan_pace(self.rate);
        self.due = Instant::now() + every;
        let (store, cursor) = (self.console.store(), self.cursor);
        let prefix = glob_of_any(&[self.pattern.literal_prefix()]);
        let found = self
            .console
            .retry_until_answered(|_| store.scan(&server, cursor, &prefix, step as usize))
            .await?;
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

impl WatchedKeys {
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

    /// Stops asking for memory after the first refusal, because the server adds each refusal to its ACL log.
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
            if watched.len() < MAX_WATCHED_KEYS {
                watched.push((key.clone(), deadline));
            }
        }
    }

    fn weigh(&mut self, policy: &Policy) {
        self.tracked = self.with_deadline.min(policy.cap as u64);
        // Only the first keys were measured.
        let weighed = self.with_deadline.min(WEIGHED + KEYS_PER_REQUEST as u64).max(1);
        self.value_bytes = self.value_bytes.map(|bytes| bytes / weighed * self.with_deadline);
        self.memory_bytes = self.tracked * BYTES_PER_TRACKED_KEY;
        self.scan_ms = self.keys.map(|keys| keys * 1000 / u64::from(policy.scan_rate.max(1)));
        let rights = [(self.keys, "keys", "+dbsize"), (self.value_bytes, "value_bytes", "+memory|usage")];
        let missing = rights.into_iter().filter(|(found, ..)| found.is_none());
        self.missing = missing.map(|(_, figure, right)| MissingFigure { figure, right }).collect();
    }
}

/// Returns advice for keys like these; docs/attach.md has the reasons.
fn advice(survey: &Survey) -> Vec<String> {
    let mut advice = Vec::new();
    let WatchedKeys { keys, refreshed, expired, deleted, .. } = survey.watched;
    let ended = expired + deleted;
    if survey.with_deadline == 0 {
        advice.push("no matching key has a deadline now: the topic would track no keys".to_owned());
    }
    if survey.with_deadline > survey.tracked {
        advice.push(
            "more keys have a deadline than the cap allows: raise Attached::cap, or use a narrower pattern"
                .to_owned(),
        );
    }
    if keys > 0 && refreshed * 2 > keys {
        advice.push(
            "mostly refreshed, like sessions: Ex is enough, as KExg$ would send an event for each refresh; never use \
             write_back"
                .to_owned(),
        );
    } else if ended > 0 && deleted > expired {
        advice.push(
            "mostly deleted, like locks: KExg$ distinguishes deletions from expiries; without it, check \
             Expired::recovered in the handler, or set .recovered(Treatment::Ignore)"
                .to_owned(),
        );
    } else if ended > 0 {
        advice.push("mostly expiring, like unpaid orders: Ex is enough".to_owned());
    } else if keys > 0 {
        advice.push(
            "no key changed between the two looks: set a longer time between them to learn how keys are used"
                .to_owned(),
        );
    }
    let soon = survey.due_by_hour.first().copied().unwrap_or_default();
    if soon > 0 && survey.scan_ms.is_some_and(|ms| ms > 60_000) {
        advice.push("a scan takes more than a minute: keys with a shorter lifetime need KExg$".to_owned());
    }
    if survey.types.keys().any(|kind| kind != "string") {
        advice.push(
            "some keys are not strings: keep_fields (hashes) or keep_dumps keeps their values".to_owned(),
        );
    }
    advice
}

impl fmt::Display for Survey {
    /// Writes the last line of a command, with `-` for figures that the user has no permission to read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, matching, with_deadline, tracked, memory_bytes, scan_ms, .. } = self;
        let or_dash =
            |figure: &Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        let (keys, scan_ms) = (or_dash(keys), or_dash(scan_ms));
        write!(
            f,
            "keys={keys} matching={matching} with_deadline={with_deadline} tracked={tracked} \
             memory_bytes={memory_bytes} scan_ms={scan_ms}"
        )
    }
}
