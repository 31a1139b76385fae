//! Checks of topics, their data and their listeners. They write nothing, and their work is bounded.

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

const MAX_TOPICS: usize = 1000;
const TOPICS_PER_REQUEST: usize = 100;
/// Sweeps find due timers within five seconds. Twice that counts as late.
const MAX_LATENESS: Duration = Duration::from_secs(10);
/// How many of the earliest index entries of each partition are compared with its records.
const SAMPLE: usize = 100;
/// How many partitions are checked for index entries without records.
const MAX_SAMPLED_PARTITIONS: usize = 500;
/// How many overlapping topics a finding names.
const MAX_NAMED_TOPICS: usize = 3;
/// With fewer partitions per primary, some primaries can have none of a topic by chance.
const MIN_PARTITIONS_PER_PRIMARY: usize = 2;

/// The checks of all registered topics.
pub(super) struct TopicChecks<'a> {
    client: &'a Client,
    findings: Vec<Finding>,
}

impl<'a> TopicChecks<'a> {
    pub(super) fn of(client: &'a Client) -> Self {
        Self { client, findings: Vec::new() }
    }

    /// Runs the checks. Errors that do not concern stored data are left to the findings of servers.
    pub(super) async fn examine(mut self) -> Vec<Finding> {
        match self.check_all().await {
            Err(error) if is_of_stored_data(&error) => {
                let observed = format!("{}:topics: {error}", self.client.prefix());
                let names = [("line", "-n ANOTHER status")];
                self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &names));
            }
            _ => {}
        }
        self.findings
    }

    async fn check_all(&mut self) -> Result<()> {
        let (mut registered, unreadable) = self.client.store().registry(self.client.prefix()).await?;
        for (name, why) in unreadable.iter().take(MAX_TOPICS) {
            self.add_unreadable(&text::escape(name), why);
        }
        let present = self.client.store().listeners(&listeners(self.client.prefix())).await?;
        let (all, mut examined) = (registered.len(), Vec::new());
        registered.truncate(MAX_TOPICS);
        for some in registered.chunks(TOPICS_PER_REQUEST) {
            let partitions: Vec<_> =
                some.iter().map(|entry| entry.all_partitions(self.client.prefix())).collect();
            let each: Vec<_> = partitions.iter().map(Vec::as_slice).collect();
            let held = overviews(self.client.store(), &each).await;
            for ((entry, partitions), held) in some.iter().zip(partitions).zip(held) {
                examined.extend(self.examine_topic(entry.clone(), partitions, held, &present)?);
            }
        }
        self.find_orphans(&examined).await?;
        self.find_overlaps(&examined);
        self.find_narrow(&examined).await?;
        self.conclude(all, &examined, present.len());
        Ok(())
    }

    /// Examines one topic. Returns `None` if its data cannot be read.
    fn examine_topic(
        &mut self,
        entry: TopicEntry,
        partitions: Vec<PartitionNames>,
        held: Result<Overview>,
        present: &[ListenerReport],
    ) -> Result<Option<ExaminedTopic>> {
        let name = entry.name.clone();
        let served = present.iter().filter(|listener| listener.serves(&name)).count();
        match held.and_then(|held| ExaminedTopic::of(entry, partitions, held, served)) {
            Ok(topic) => {
                self.find_unserved(&topic);
                Ok(Some(topic))
            }
            Err(error) if is_of_stored_data(&error) => {
                self.add_with(&codes::UNREADABLE, &name, &error.to_string(), &[("line", "status")]);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn conclude(&mut self, all: usize, examined: &[ExaminedTopic], listeners: usize) {
        let bad = self.findings.iter().any(|finding| finding.code != codes::PAUSED.code);
        if !bad {
            let some = if all > examined.len() {
                format!(" ({} examined)", show_count(examined.len() as u64))
            } else {
                String::new()
            };
            let timers = counted(examined.iter().map(|topic| topic.timers).sum(), "timer");
            let (all, listeners) = (counted(all as u64, "topic"), counted(listeners as u64, "listener"));
            let observed = format!("{all}{some}, {timers}, {listeners}");
            self.findings.push(Finding::new(&codes::TOPICS_FINE, None, observed, &[]));
        }
    }

    /// Finds a topic whose timers no listener runs, or that run late.
    fn find_unserved(&mut self, topic: &ExaminedTopic) {
        let ExaminedTopic { entry, served, timers, overdue, paused, .. } = topic;
        let late =
            overdue.map_or_else(String::new, |late| format!(", the first {} s overdue", late.as_secs()));
        let observed = format!("{}{late}", counted(*timers, "timer"));
        let code = match (paused, served, overdue) {
            (Some(reason), ..) => {
                return self.add(&codes::PAUSED, &entry.name, &format!("{observed}; reason: {reason}"));
            }
            (None, 0, Some(_)) => codes::OVERDUE_UNSERVED,
            (None, 0, None) if *timers > 0 => codes::UNSERVED,
            (None, 1.., Some(late)) if *late > MAX_LATENESS => codes::OVERDUE,
            _ => return,
        };
        self.add(&code, &entry.name, &format!("{observed}, {}", counted(*served as u64, "listener")));
    }

    /// Finds index entries without records.
    async fn find_orphans(&mut self, examined: &[ExaminedTopic]) -> Result<()> {
        let mut left = MAX_SAMPLED_PARTITIONS;
        for topic in examined.iter().filter(|topic| topic.timers > 0) {
            let mut orphans = 0;
            for at in topic.partitions.iter().take(left) {
                orphans += self.orphans_of(at).await?;
            }
            left = left.saturating_sub(topic.partitions.len());
            if orphans > 0 {
                let observed = format!("{orphans} among the first {SAMPLE} of each partition");
                self.add(&codes::ORPHANS, &topic.entry.name, &observed);
            }
        }
        Ok(())
    }

    /// Returns the number of index entries without records. A transaction reads both, because a timer can end between two
    /// calls.
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
        // The records themselves are not read, because they can be large.
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

    /// Finds topics without listeners whose pattern overlaps with that of a topic with listeners. A starting listener uses
    /// the same test.
    fn find_overlaps(&mut self, examined: &[ExaminedTopic]) {
        let mut patterns = Vec::with_capacity(examined.len());
        for topic in examined {
            match Pattern::new(&topic.entry.pattern) {
                Ok(pattern) => patterns.push((topic, pattern)),
                Err(error) => self.add_unreadable(&topic.entry.name, &error.to_string()),
            }
        }
        let (served, unserved): (Vec<_>, Vec<_>) =
            patterns.into_iter().partition(|(topic, _)| topic.served > 0);
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
                self.add(&codes::OVERLAP, &topic.entry.name, &observed);
            }
        }
    }

    /// Finds topics with too few partitions for the primaries of a cluster.
    async fn find_narrow(&mut self, examined: &[ExaminedTopic]) -> Result<()> {
        let primaries = self.client.store().topology().slots().await?.len();
        if primaries < 2 {
            return Ok(());
        }
        let enough = (primaries * MIN_PARTITIONS_PER_PRIMARY).to_string();
        let is_narrow =
            |topic: &&ExaminedTopic| topic.partitions.len() < primaries * MIN_PARTITIONS_PER_PRIMARY;
        for topic in examined.iter().filter(is_narrow) {
            let partitions = counted(topic.partitions.len() as u64, "partition");
            let observed = format!("{partitions}, {primaries} primaries");
            self.add_with(&codes::FEW_PARTITIONS, &topic.entry.name, &observed, &[("partitions", &enough)]);
        }
        Ok(())
    }

    /// Adds a finding for an entry of the registry that cannot be read.
    fn add_unreadable(&mut self, name: &str, why: &str) {
        let observed = format!("{name}, as it is registered: {why}");
        self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &[("line", "status")]));
    }

    fn add(&mut self, code: &Code, topic: &str, observed: &str) {
        self.add_with(code, topic, observed, &[]);
    }

    fn add_with(&mut self, code: &Code, topic: &str, observed: &str, names: &[(&str, &str)]) {
        let names = [&[("topic", topic)], names].concat();
        self.findings.push(Finding::new(code, None, format!("{topic}: {observed}"), &names));
    }
}

/// Returns whether an error concerns stored data, and not an unavailable server, a refusal or the connection.
fn is_of_stored_data(error: &Error) -> bool {
    use ErrorKind::{Auth, Permission, Tls, Unsupported};
    !error.is_transient() && !matches!(error.kind(), Auth | Permission | Tls | Unsupported)
}

/// The state of a topic.
struct ExaminedTopic {
    entry: TopicEntry,
    partitions: Vec<PartitionNames>,
    /// The number of listeners that serve the topic.
    served: usize,
    /// Timers, and the tracked keys of an attached topic.
    timers: u64,
    /// The time since the earliest time at which a timer needs attention. A claimed timer needs it at the end of its lease.
    overdue: Option<Duration>,
    /// The reason of the pause, if the topic is paused.
    paused: Option<String>,
}

impl ExaminedTopic {
    /// Collects the state of a topic. Returns an error if another wire version has created it.
    fn of(entry: TopicEntry, partitions: Vec<PartitionNames>, held: Overview, served: usize) -> Result<Self> {
        if let Some(version) = held.other_version {
            return Err(Error::new(
                ErrorKind::WireVersion,
                format!("it has wire version {version}, but this program has {WIRE_VERSION}"),
            ));
        }
        let timers = held.timers + if entry.attached { held.tracked } else { 0 };
        let overdue = (held.first_late_ms > 0).then(|| Duration::from_millis(held.first_late_ms));
        let paused = held.paused.map(|reason| escape_line(&reason, 200));
        Ok(Self { entry, partitions, served, timers, overdue, paused })
    }
}

/// Returns the number of names that have a score and no record, in the answer of the transaction.
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
    fn an_orphan_has_a_score_but_no_record() {
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
