//! What is kept of topics, beside who listens. Read-only, and so much at most, however much there is.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use keylapse_connection::{Pipeline, Value, cmd, pipe};

use crate::connection::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;
use crate::overview::overviews;
use crate::pattern::Pattern;
use crate::wire::{ListenerReport, PartitionNames, TopicEntry, WIRE_VERSION, listeners};
use crate::{Overview, counted, show_count, text};
use keylapse::Client;

use super::codes::{self, Code};
use super::report::Finding;

/// More topics than these are not looked at.
const MAX_TOPICS: usize = 1000;
/// Topics whose partitions are asked in one go.
const TOPICS_PER_REQUEST: usize = 100;
/// Sweeps find everything within five seconds. What is later than that and as much again is late.
const MAX_LATENESS: Duration = Duration::from_secs(10);
/// Names of each partition that are compared with its records: the first that are due.
const SAMPLE: usize = 100;
/// More partitions than these are not looked at for that.
const MOST_PARTITIONS: usize = 500;
/// So many topics are named that have the same keys.
const MAX_NAMED_TOPICS: usize = 3;
/// Partitions for each primary: with fewer, some primaries have none of a topic by chance.
const MIN_PARTITIONS_PER_PRIMARY: usize = 2;

/// Looks at the topics that are registered, if any.
pub(super) struct TopicChecks<'a> {
    client: &'a Client,
    findings: Vec<Finding>,
}

impl<'a> TopicChecks<'a> {
    pub(super) fn of(client: &'a Client) -> Self {
        Self { client, findings: Vec::new() }
    }

    /// Errors that are no matter of what is kept belong to the servers' findings.
    pub(super) async fn examine(mut self) -> Vec<Finding> {
        match self.look().await {
            Err(error) if is_of_what_is_kept(&error) => {
                let observed = format!("{}:topics: {error}", self.client.prefix());
                let names = [("line", "-n ANOTHER status")];
                self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &names));
            }
            _ => {}
        }
        self.findings
    }

    async fn look(&mut self) -> Result<()> {
        let (mut registered, unreadable) = self.client.store().registry(self.client.prefix()).await?;
        for (name, why) in unreadable.iter().take(MAX_TOPICS) {
            self.say_unreadable(&text::escape(name), why);
        }
        let present = self.client.store().listeners(&listeners(self.client.prefix())).await?;
        let (all, mut seen) = (registered.len(), Vec::new());
        registered.truncate(MAX_TOPICS);
        for some in registered.chunks(TOPICS_PER_REQUEST) {
            let partitions: Vec<_> =
                some.iter().map(|entry| entry.all_partitions(self.client.prefix())).collect();
            let each: Vec<_> = partitions.iter().map(Vec::as_slice).collect();
            let held = overviews(self.client.store(), &each).await;
            for ((entry, partitions), held) in some.iter().zip(partitions).zip(held) {
                seen.extend(self.look_at(entry.clone(), partitions, held, &present)?);
            }
        }
        self.find_orphans(&seen).await?;
        self.find_overlaps(&seen);
        self.find_narrow(&seen).await?;
        self.conclude(all, &seen, present.len());
        Ok(())
    }

    /// One topic; none where it cannot be read.
    fn look_at(
        &mut self,
        entry: TopicEntry,
        partitions: Vec<PartitionNames>,
        held: Result<Overview>,
        present: &[ListenerReport],
    ) -> Result<Option<ExaminedTopic>> {
        let name = entry.name.clone();
        let served = present.iter().filter(|listener| listener.serves(&name)).count();
        match held.and_then(|held| ExaminedTopic::of(entry, partitions, held, served)) {
            Ok(seen) => {
                self.find_unserved(&seen);
                Ok(Some(seen))
            }
            Err(error) if is_of_what_is_kept(&error) => {
                self.say_with(&codes::UNREADABLE, &name, &error.to_string(), &[("line", "status")]);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn conclude(&mut self, all: usize, seen: &[ExaminedTopic], listeners: usize) {
        let bad = self.findings.iter().any(|finding| finding.code != codes::PAUSED.code);
        if !bad {
            let some = if all > seen.len() {
                format!(" ({} looked at)", show_count(seen.len() as u64))
            } else {
                String::new()
            };
            let timers = counted(seen.iter().map(|seen| seen.timers).sum(), "timer");
            let (all, listeners) = (counted(all as u64, "topic"), counted(listeners as u64, "listener"));
            let observed = format!("{all}{some}, {timers}, {listeners}");
            self.findings.push(Finding::new(&codes::TOPICS_FINE, None, observed, &[]));
        }
    }

    /// Finds a topic whose timers nobody runs, or nobody in time.
    fn find_unserved(&mut self, seen: &ExaminedTopic) {
        let ExaminedTopic { entry, served, timers, overdue, paused, .. } = seen;
        let late =
            overdue.map_or_else(String::new, |late| format!(", the first {} s overdue", late.as_secs()));
        let observed = format!("{}{late}", counted(*timers, "timer"));
        let code = match (paused, served, overdue) {
            (Some(reason), ..) => {
                return self.say(&codes::PAUSED, &entry.name, &format!("{observed}; because: {reason}"));
            }
            (None, 0, Some(_)) => codes::OVERDUE_UNSERVED,
            (None, 0, None) if *timers > 0 => codes::UNSERVED,
            (None, 1.., Some(late)) if *late > MAX_LATENESS => codes::OVERDUE,
            _ => return,
        };
        self.say(&code, &entry.name, &format!("{observed}, {}", counted(*served as u64, "listener")));
    }

    /// Finds names in an index that have no records.
    async fn find_orphans(&mut self, seen: &[ExaminedTopic]) -> Result<()> {
        let mut left = MOST_PARTITIONS;
        for seen in seen.iter().filter(|seen| seen.timers > 0) {
            let mut orphans = 0;
            for at in seen.partitions.iter().take(left) {
                orphans += self.orphans_of(at).await?;
            }
            left = left.saturating_sub(seen.partitions.len());
            if orphans > 0 {
                let observed = format!("{orphans} among the first {SAMPLE} of each partition");
                self.say(&codes::ORPHANS, &seen.entry.name, &observed);
            }
        }
        Ok(())
    }

    /// A timer may end between two looks, so index and records are looked at in one moment.
    async fn orphans_of(&self, at: &PartitionNames) -> Result<usize> {
        let (due, rec) = (at.key("due"), at.key("timers"));
        let first = cmd("ZRANGE").arg(due).arg(0).arg(SAMPLE - 1).clone();
        let call = |server: Server| {
            let first = first.clone();
            async move { server.call("looking for orphans", &first).await }
        };
        let names: Vec<Vec<u8>> =
            keylapse_connection::from_redis_value(self.client.store().topology().at(at.slot, call).await?)
                .unwrap_or_default();
        if names.is_empty() {
            return Ok(0);
        }
        let mut both = pipe();
        both.atomic().cmd("ZMSCORE").arg(due).arg(&names);
        // Not the records themselves, which may be large.
        names.iter().for_each(|name| _ = both.cmd("HEXISTS").arg(rec).arg(name));
        Ok(without_record(self.ask_at_once(at, both).await?))
    }

    async fn ask_at_once(&self, at: &PartitionNames, both: Pipeline) -> Result<Vec<Value>> {
        let call = |server: Server| {
            let both = both.clone();
            async move { server.call_all("looking for orphans", &both).await }
        };
        self.client.store().topology().at(at.slot, call).await
    }

    /// Finds topics whose patterns match the same keys, of which only one has listeners. It is decided as by a listener at its
    /// start that keys may match both.
    fn find_overlaps(&mut self, seen: &[ExaminedTopic]) {
        let mut patterns = Vec::with_capacity(seen.len());
        for seen in seen {
            match Pattern::new(&seen.entry.pattern) {
                Ok(pattern) => patterns.push((seen, pattern)),
                Err(error) => self.say_unreadable(&seen.entry.name, &error.to_string()),
            }
        }
        let (served, unserved): (Vec<_>, Vec<_>) =
            patterns.into_iter().partition(|(seen, _)| seen.served > 0);
        for (topic, pattern) in &unserved {
            let others: Vec<_> = served
                .iter()
                .filter(|(_, other)| other.may_overlap(pattern))
                .map(|(other, _)| {
                    format!("{} ({})", other.entry.name, escape_line(&other.entry.pattern, 100))
                })
                .take(MAX_NAMED_TOPICS)
                .collect();
            if !others.is_empty() {
                let observed =
                    format!("{} overlaps with {}", escape_line(pattern.as_str(), 100), others.join(", "));
                self.say(&codes::OVERLAP, &topic.entry.name, &observed);
            }
        }
    }

    /// Finds topics that are not spread over the primaries of a cluster.
    async fn find_narrow(&mut self, seen: &[ExaminedTopic]) -> Result<()> {
        let primaries = self.client.store().topology().slots().await?.len();
        if primaries < 2 {
            return Ok(());
        }
        let enough = (primaries * MIN_PARTITIONS_PER_PRIMARY).to_string();
        for seen in seen.iter().filter(|seen| seen.partitions.len() < primaries * MIN_PARTITIONS_PER_PRIMARY)
        {
            let partitions = counted(seen.partitions.len() as u64, "partition");
            let observed = format!("{partitions}, {primaries} primaries");
            self.say_with(&codes::FEW_PARTITIONS, &seen.entry.name, &observed, &[("partitions", &enough)]);
        }
        Ok(())
    }

    /// An entry of the registry, whoever has written it.
    fn say_unreadable(&mut self, name: &str, why: &str) {
        let observed = format!("{name}, as it is registered: {why}");
        self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &[("line", "status")]));
    }

    fn say(&mut self, code: &Code, topic: &str, observed: &str) {
        self.say_with(code, topic, observed, &[]);
    }

    fn say_with(&mut self, code: &Code, topic: &str, observed: &str, names: &[(&str, &str)]) {
        let names = [&[("topic", topic)], names].concat();
        self.findings.push(Finding::new(code, None, format!("{topic}: {observed}"), &names));
    }
}

/// Returns whether it says that what is kept is strange, and not that the server is away, busy or refuses.
fn is_of_what_is_kept(error: &Error) -> bool {
    use ErrorKind::{Auth, Permission, Tls, Unsupported};
    !error.is_transient() && !matches!(error.kind(), Auth | Permission | Tls | Unsupported)
}

/// Another version's, or another program's.
fn strange(message: String) -> Error {
    Error::new(ErrorKind::WireVersion, message)
}

/// A topic, as it was seen.
struct ExaminedTopic {
    entry: TopicEntry,
    partitions: Vec<PartitionNames>,
    /// How many listeners have it.
    served: usize,
    /// Timers, and keys of other programs that are expected to expire.
    timers: u64,
    /// By how much the first that nobody has claimed is late: what is claimed is scored with the end of its lease.
    overdue: Option<Duration>,
    /// Why nothing is given out.
    paused: Option<String>,
}

impl ExaminedTopic {
    /// Refuses what another version has made.
    fn of(entry: TopicEntry, partitions: Vec<PartitionNames>, held: Overview, served: usize) -> Result<Self> {
        if let Some(version) = held.other_version {
            return Err(strange(format!(
                "it is of wire version {version}, and this program's is {WIRE_VERSION}"
            )));
        }
        let timers = held.timers + if entry.attached { held.tracked } else { 0 };
        let overdue = (held.first_late_ms > 0).then(|| Duration::from_millis(held.first_late_ms));
        let paused = held.paused.map(|reason| escape_line(&reason, 200));
        Ok(Self { entry, partitions, served, timers, overdue, paused })
    }
}

/// How many have a score and no record, in the answer of the transaction.
fn without_record(mut answers: Vec<Value>) -> usize {
    let Some(Value::Array(mut all)) = answers.pop() else { return 0 };
    let records = all.split_off(all.len().min(1));
    let Some(Value::Array(scores)) = all.pop() else { return 0 };
    let pairs = scores.iter().zip(&records);
    pairs.filter(|(score, record)| !matches!(score, Value::Nil) && matches!(record, Value::Int(0))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_has_a_score_and_no_record() {
        let scores = Value::Array(vec![Value::Double(1.0), Value::Nil, Value::BulkString(b"2".to_vec())]);
        let answer = |records: [i64; 3]| {
            let records = records.map(Value::Int).into_iter();
            vec![Value::Array([scores.clone()].into_iter().chain(records).collect())]
        };
        for (records, orphans) in [([1, 1, 1], 0), ([0, 0, 1], 1), ([0, 0, 0], 2)] {
            assert_eq!(without_record(answer(records)), orphans, "{records:?}");
        }
        assert_eq!(without_record(vec![Value::Nil]), 0, "a transaction that was given up");
    }
}
