//! Export and import of timers and dead letters as lines of JSON, and a check of a topic's data in Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, Token};
use crate::wire::{
    DeadReason, FailedAttempt, History, ImportEntry, Imported, ListTarget, PartitionNames, Record, State,
    StoredDeadLetter, portions,
};
use crate::{Cursor, Entry, EntryState, Filter, TopicHandle, text};
use keylapse_wire::figures::is_zero;

/// The version of the JSON lines.
const VERSION: u32 = 1;
/// How many lines a page of an export has, and a call of an import sends.
const LINES_PER_CALL: usize = 200;

/// A timer or a dead letter as a line of JSON. Times are milliseconds since 1970 by the server's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Export {
    /// The version of the line: 1.
    pub v: u32,
    /// `timer` or `dead_letter`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The topic.
    pub topic: String,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming ID: 16 hexadecimal digits.
    pub id: String,
    /// The first deadline.
    pub deadline_ms: u64,
    /// The next deadline of a timer, or the time of death of a dead letter.
    pub at_ms: u64,
    /// The reason of a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the next attempt, from 1. For a dead letter, the number of attempts.
    pub attempt: u32,
    /// The lost leases of a dead letter. A timer is exported with 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_leases: u8,
    /// The number of snoozes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u16,
    /// The failed attempts, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedAttempt>,
    /// The payload.
    #[serde(with = "text::serde_bytes")]
    pub payload: Bytes,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportReport {
    /// Lines that the import has added.
    pub imported: u64,
    /// Lines that were skipped, because their timer exists, their key has another timer, or their timer was cancelled or replaced lately.
    pub skipped: u64,
    /// The number of lines by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl TopicHandle {
    /// Exports a page of the topic's timers or dead letters. Returns the lines, the number of unreadable records, and the
    /// position of the next page.
    ///
    /// A running timer is exported as a waiting one. An arming that follows a running attempt is not exported.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn export(
        &self,
        state: EntryState,
        after: Option<&Cursor>,
    ) -> Result<(Vec<Export>, u64, Option<Cursor>)> {
        let whole = Some(keylapse::limits::MAX_PAYLOAD);
        let page = self.filtered(state, &Filter::default(), after, LINES_PER_CALL, whole).await?;
        let all = page.entries.len();
        let lines: Vec<_> = page.entries.into_iter().filter_map(|entry| self.line(entry)).collect();
        let unreadable = (all - lines.len()) as u64;
        Ok((lines, unreadable, page.next))
    }

    fn line(&self, entry: Entry) -> Option<Export> {
        let record = Record::decode(entry.stored.0.clone()).ok()?;
        let state = State::decode(entry.stored.1.clone()).unwrap_or_else(|_| State::waiting(1));
        let running = entry.state == EntryState::Running;
        Some(Export {
            v: VERSION,
            kind: if entry.state == EntryState::Dead { "dead_letter" } else { "timer" }.to_owned(),
            topic: entry.topic,
            key: entry.key,
            id: record.arming.to_string(),
            deadline_ms: record.deadline,
            at_ms: if running { state.deadline_after(&record) } else { entry.at_ms },
            reason: entry.reason.map(|reason| reason.as_str().to_owned()),
            attempt: entry.attempt,
            lost_leases: if entry.state == EntryState::Dead { entry.lost_leases } else { 0 },
            snoozes: entry.snoozes,
            failures: entry.failures,
            payload: record.payload,
        })
    }

    /// Imports up to 1,000 exported lines, without replacing existing timers and dead letters.
    ///
    /// Importing a line twice changes nothing: timers are identified by key and ID, dead letters by key, ID and time of
    /// death. A timer that ended within the last ten minutes is not imported again.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](ErrorKind::Invalid), and imports nothing, if a line does not belong to this
    /// topic or is a timer of an attached topic. Returns an error if a server cannot be reached or refuses the command.
    pub async fn import(&self, lines: &[Export]) -> Result<ImportReport> {
        let mut by_partition = BTreeMap::<u32, Vec<ImportEntry>>::new();
        for line in lines {
            let at = self.partition_of(&line.key).index;
            by_partition.entry(at).or_default().push(self.entry_of_line(line)?);
        }
        let mut report = ImportReport::default();
        for (at, entries) in by_partition {
            for some in split_into_calls(entries).iter().flat_map(|some| portions(some)) {
                report.add(&self.install(&self.partition_names()[at as usize], some).await?);
            }
        }
        Ok(report)
    }

    async fn install(&self, at: &PartitionNames, entries: &[ImportEntry]) -> Result<Vec<Imported>> {
        let (store, marker_keys) = (self.console.store(), self.config().marker_keys);
        // A repeated call is safe: the script skips lines that the first call has imported.
        self.console.retry_until_answered(|_| store.import(at, marker_keys, entries)).await
    }

    fn entry_of_line(&self, line: &Export) -> Result<ImportEntry> {
        let refuse = |why: &str| {
            Error::new(ErrorKind::Invalid, format!("cannot import the line: {why}")).at_key(&line.key)
        };
        if line.v != VERSION {
            return Err(refuse(&format!("it has version {}, but this program reads {VERSION}", line.v)));
        }
        if line.topic != self.name() {
            return Err(refuse(&format!("it belongs to topic {}, not to {}", line.topic, self.name())));
        }
        self.config().check_key(self.console.namespace(), &line.key)?;
        self.config().check_payload(&line.key, &line.payload)?;
        if line.deadline_ms >= crate::time::MAX_DEADLINE_MS || line.at_ms >= crate::time::MAX_DEADLINE_MS {
            return Err(refuse("a time is after the year 2248"));
        }
        let arming =
            text::id_of_text(&line.id).ok_or_else(|| refuse("its ID does not have 16 hexadecimal digits"))?;
        let record = Record { arming, deadline: line.deadline_ms, payload: line.payload.clone() }.encode();
        match line.kind.as_str() {
            "timer" if self.is_attached() => Err(self.attached("import")),
            "timer" => Ok(timer(line, record)),
            "dead_letter" => {
                letter(line, arming, record).ok_or_else(|| refuse("its reason is missing or unknown"))
            }
            _ => Err(refuse("its type is neither `timer` nor `dead_letter`")),
        }
    }
}

fn history(line: &Export) -> Bytes {
    let mut history = History::default();
    line.failures.iter().cloned().for_each(|failed| history.push(failed));
    history.encode()
}

fn timer(line: &Export, record: Bytes) -> ImportEntry {
    let plain =
        line.attempt == 1 && line.snoozes == 0 && line.failures.is_empty() && line.at_ms == line.deadline_ms;
    let state = State {
        attempt: line.attempt.max(1),
        snoozes: line.snoozes,
        deadline: line.at_ms,
        history: history(line),
        ..State::waiting(1)
    };
    let state = (!plain).then(|| state.encode());
    ImportEntry::Timer { key: line.key.clone(), record, state, due: line.at_ms }
}

fn letter(line: &Export, arming: ArmingId, record: Bytes) -> Option<ImportEntry> {
    let reason = line.reason.as_deref().and_then(DeadReason::named)?;
    let state = State {
        claimed: false,
        token: Token::default(),
        attempt: line.attempt,
        lost: line.lost_leases,
        snoozes: line.snoozes,
        deadline: 0,
        history: history(line),
    };
    let letter = StoredDeadLetter { reason, died: line.at_ms, state: state.encode(), record }.encode();
    let name = [&arming.as_bytes()[..], &line.at_ms.to_be_bytes(), &line.key].concat().into();
    Some(ImportEntry::Letter { name, letter, died: line.at_ms })
}

/// Splits entries into calls that contain no name twice.
fn split_into_calls(entries: Vec<ImportEntry>) -> Vec<Vec<ImportEntry>> {
    let (mut calls, mut named) = (vec![Vec::new()], std::collections::HashSet::new());
    for entry in entries {
        let name = match &entry {
            ImportEntry::Timer { key: name, .. } | ImportEntry::Letter { name, .. } => name.clone(),
        };
        let full = calls.last().is_none_or(|call: &Vec<_>| call.len() >= LINES_PER_CALL);
        if full || !named.insert(name.clone()) {
            calls.push(Vec::new());
            named = [name].into();
        }
        calls.last_mut().into_iter().for_each(|call| call.push(entry.clone()));
    }
    calls.retain(|call| !call.is_empty());
    calls
}

impl ImportReport {
    fn add(&mut self, outcomes: &[Imported]) {
        for outcome in outcomes {
            let (count, word) = match outcome {
                Imported::New => (&mut self.imported, "imported"),
                Imported::There => (&mut self.skipped, "there already"),
                Imported::Taken => (&mut self.skipped, "the key has another timer"),
                Imported::Ended => (&mut self.skipped, "was cancelled or replaced lately"),
            };
            *count += 1;
            *self.outcomes.entry(word).or_default() += 1;
        }
    }

    /// Adds another report.
    pub fn and(mut self, other: &Self) -> Self {
        self.imported += other.imported;
        self.skipped += other.skipped;
        other.outcomes.iter().for_each(|(word, count)| *self.outcomes.entry(word).or_default() += count);
        self
    }
}

const NAMES_PER_STEP: usize = 500;
/// How many faults a report lists.
const MAX_NAMED_FAULTS: usize = 100;
/// The pause before names are checked a second time, because a call can be between its two steps.
const RECHECK_PAUSE: Duration = Duration::from_millis(50);

/// The result of a check of a topic's data.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The number of index entries, records, states and dead letters that were checked.
    pub checked: u64,
    /// The number of faults by [kind](Fault::kind).
    pub faults: BTreeMap<&'static str, u64>,
    /// The first hundred faults.
    pub first_faults: Vec<Fault>,
}

/// An inconsistency in a topic's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The partition.
    pub partition: u32,
    /// The kind: `index_without_record`, `record_without_index`, `state_without_record`, `queued_without_timer`,
    /// `dead_letter_without_bytes` or `bytes_without_dead_letter`.
    pub kind: &'static str,
    /// The key, or the name of a dead letter.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
}

impl VerifyReport {
    /// Returns whether the check found no faults.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The collections to check, the collections that must have the same names, and the kind of fault if a name is missing.
const CHECKS: [(ListTarget, &[&str], &str); 7] = [
    (ListTarget::Due, &["timers"], "index_without_record"),
    (ListTarget::Quarantine, &["timers"], "index_without_record"),
    (ListTarget::Records, &["due", "quarantine"], "record_without_index"),
    (ListTarget::States, &["timers"], "state_without_record"),
    (ListTarget::Next, &["timers"], "queued_without_timer"),
    (ListTarget::Dead, &["dead_letters"], "dead_letter_without_bytes"),
    (ListTarget::Letters, &["dead"], "bytes_without_dead_letter"),
];

impl TopicHandle {
    /// Checks that the topic's indexes and records agree, and writes nothing. The slow repair of listeners corrects the
    /// faults.
    ///
    /// A step checks about 500 names. After each step, `progress` receives the number of names that were checked.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn verify(&self, mut progress: impl FnMut(u64)) -> Result<VerifyReport> {
        let mut verified = VerifyReport::default();
        for at in self.partition_names() {
            for (listing, elsewhere, kind) in CHECKS {
                let mut cursor = 0;
                loop {
                    let (next, names) = self.names(at, listing, cursor).await?;
                    verified.checked += names.len() as u64;
                    for key in self.inconsistent(at, listing, elsewhere, names).await? {
                        verified.add(Fault { partition: at.index, kind, key });
                    }
                    progress(verified.checked);
                    if next == 0 {
                        break;
                    }
                    cursor = next;
                }
            }
        }
        Ok(verified)
    }

    async fn names(
        &self,
        at: &PartitionNames,
        listing: ListTarget,
        cursor: u64,
    ) -> Result<(u64, Vec<Bytes>)> {
        let store = self.console.store();
        self.console.retry_until_answered(|_| store.names_in(at, listing, cursor, NAMES_PER_STEP)).await
    }

    /// Returns the names that are still in `listing` but not in `elsewhere`. Checks twice, because a timer can end between
    /// two calls.
    async fn inconsistent(
        &self,
        at: &PartitionNames,
        listing: ListTarget,
        elsewhere: &[&str],
        mut names: Vec<Bytes>,
    ) -> Result<Vec<Bytes>> {
        for look in 0..2 {
            if names.is_empty() {
                break;
            }
            if look > 0 {
                tokio::time::sleep(RECHECK_PAUSE).await;
            }
            let missing = self.absent(at, elsewhere, &names).await?;
            let gone = self.absent(at, &[listing.as_str()], &missing).await?;
            names = missing.into_iter().filter(|name| !gone.contains(name)).collect();
        }
        Ok(names)
    }

    /// Returns the names that are in none of the `places`.
    async fn absent(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<Bytes>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.console.store().holds(at, places, names).await?;
        Ok(names.iter().zip(found).filter(|(_, found)| !found).map(|(name, _)| name.clone()).collect())
    }
}

impl VerifyReport {
    fn add(&mut self, fault: Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        if self.first_faults.len() < MAX_NAMED_FAULTS {
            self.first_faults.push(fault);
        }
    }
}
