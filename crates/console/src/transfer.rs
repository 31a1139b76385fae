//! What goes through all that a topic holds: timers and dead letters as lines of JSON, and back; and whether what it keeps
//! agrees with itself.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, Token};
use crate::wire::{
    DeadReason, FailedAttempt, History, ImportEntry, Imported, Letter, Listing, PartitionNames, Record,
    State, portions,
};
use crate::{Cursor, Entry, EntryState, Filter, KnownTopic, text};
use keylapse_wire::figures::is_zero;

/// The version of the lines.
const VERSION: u32 = 1;
/// Entries of one page, and of one call.
const PAGE: usize = 200;

/// A timer or a dead letter, as a line of JSON. Times are milliseconds since 1970 by the server's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Export {
    /// The version of the line: 1.
    pub v: u32,
    /// `timer` or `letter`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The topic.
    pub topic: String,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming: 16 hexadecimal digits.
    pub id: String,
    /// The first deadline.
    pub deadline_ms: u64,
    /// When the timer is due; of a letter when it died.
    pub at_ms: u64,
    /// Why a letter died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The attempt that is to come, from 1; of a letter how many it had.
    pub attempt: u32,
    /// Leases lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_leases: u8,
    /// How often it was snoozed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u16,
    /// The failed attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedAttempt>,
    /// The payload.
    #[serde(with = "text::serde_bytes")]
    pub payload: Bytes,
}

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportReport {
    /// Lines that are there now and were not before.
    pub imported: u64,
    /// Lines that were left alone: there already, taken, or ended lately.
    pub skipped: u64,
    /// How many there were of each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl KnownTopic {
    /// A page of the topic's timers, or of its dead letters, for somebody to keep. Running attempts are written as what
    /// would run again; what is kept behind them, and records that cannot be read, are left out: how many, is said
    /// besides.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn export(
        &self,
        state: EntryState,
        after: Option<&Cursor>,
    ) -> Result<(Vec<Export>, u64, Option<Cursor>)> {
        let whole = Some(keylapse::limits::MAX_PAYLOAD);
        let page = self.filtered(state, &Filter::default(), after, PAGE, whole).await?;
        let all = page.entries.len();
        let lines: Vec<_> = page.entries.into_iter().filter_map(|entry| self.line(entry)).collect();
        let unreadable = (all - lines.len()) as u64;
        Ok((lines, unreadable, page.next))
    }

    fn line(&self, entry: Entry) -> Option<Export> {
        let record = Record::decode(entry.stands.0.clone()).ok()?;
        let state = State::decode(entry.stands.1.clone()).unwrap_or_else(|_| State::waiting(1));
        let running = entry.state == EntryState::Running;
        Some(Export {
            v: VERSION,
            kind: if entry.state == EntryState::Dead { "letter" } else { "timer" }.to_owned(),
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

    /// Installs what was exported, where nothing stands in its place; at most 1,000 lines. A second import of the same
    /// changes nothing: timers are known by key and id, letters by key, id and time of death. What has ended in between
    /// is known for ten minutes.
    ///
    /// # Errors
    /// Of kind [`Invalid`](ErrorKind::Invalid) for lines that cannot be of this topic, and for timers of attached topics;
    /// nothing is installed then. When a server cannot be reached or refuses.
    pub async fn import(&self, lines: &[Export]) -> Result<ImportReport> {
        let mut by_partition = BTreeMap::<u32, Vec<ImportEntry>>::new();
        for line in lines {
            let at = self.partition_of(&line.key).index;
            by_partition.entry(at).or_default().push(self.entry_of_line(line)?);
        }
        let mut report = ImportReport::default();
        for (at, entries) in by_partition {
            for some in once_each(entries).iter().flat_map(|some| portions(some)) {
                report.add(&self.install(&self.parts()[at as usize], some).await?);
            }
        }
        Ok(report)
    }

    async fn install(&self, at: &PartitionNames, entries: &[ImportEntry]) -> Result<Vec<Imported>> {
        let (store, triggers) = (self.console.store(), self.config().triggers);
        // A repeat finds what the first call has installed.
        self.console.persist(|_| store.import(at, triggers, entries)).await
    }

    fn entry_of_line(&self, line: &Export) -> Result<ImportEntry> {
        let refuse =
            |why: &str| Error::new(ErrorKind::Invalid, format!("a line to import: {why}")).at_key(&line.key);
        if line.v != VERSION {
            return Err(refuse(&format!("it is of version {}, and this program reads {VERSION}", line.v)));
        }
        if line.topic != self.name() {
            return Err(refuse(&format!("it is of topic {}, and not of {}", line.topic, self.name())));
        }
        self.config().check_key(self.console.namespace(), &line.key)?;
        self.config().check_payload(&line.key, &line.payload)?;
        if line.deadline_ms >= crate::time::MAX_DEADLINE_MS || line.at_ms >= crate::time::MAX_DEADLINE_MS {
            return Err(refuse("its time is after the year 2248"));
        }
        let arming = text::id_of_text(&line.id).ok_or_else(|| refuse("its id"))?;
        let record = Record { arming, deadline: line.deadline_ms, payload: line.payload.clone() }.encode();
        match line.kind.as_str() {
            "timer" if self.is_attached() => Err(self.attached("import")),
            "timer" => Ok(timer(line, record)),
            "letter" => letter(line, arming, record).ok_or_else(|| refuse("its reason")),
            _ => Err(refuse("its type is neither timer nor letter")),
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
    let letter = Letter { reason, died: line.at_ms, state: state.encode(), record }.encode();
    let name = [&arming.as_bytes()[..], &line.at_ms.to_be_bytes(), &line.key].concat().into();
    Some(ImportEntry::Letter { name, letter, died: line.at_ms })
}

/// In calls that name nothing twice.
fn once_each(entries: Vec<ImportEntry>) -> Vec<Vec<ImportEntry>> {
    let (mut calls, mut named) = (vec![Vec::new()], std::collections::HashSet::new());
    for entry in entries {
        let name = match &entry {
            ImportEntry::Timer { key: name, .. } | ImportEntry::Letter { name, .. } => name.clone(),
        };
        let full = calls.last().is_none_or(|call: &Vec<_>| call.len() >= PAGE);
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
                Imported::Ended => (&mut self.skipped, "has ended lately"),
            };
            *count += 1;
            *self.outcomes.entry(word).or_default() += 1;
        }
    }

    /// With what became of others.
    pub fn and(mut self, other: &Self) -> Self {
        self.imported += other.imported;
        self.skipped += other.skipped;
        other.outcomes.iter().for_each(|(word, count)| *self.outcomes.entry(word).or_default() += count);
        self
    }
}

/// Names that are looked at in one step.
const STEP: usize = 500;
/// Faults that are named.
const NAMED: usize = 100;
/// Between two looks at what seems amiss: it may have been on its way.
const AGAIN: Duration = Duration::from_millis(50);

/// What was looked at, and what is amiss.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Verified {
    /// Index entries, records, states and letters that were looked at.
    pub looked_at: u64,
    /// How many faults there are of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The first hundred of them.
    pub named: Vec<Fault>,
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The partition.
    pub partition: u32,
    /// What: `index_without_record`, `record_without_index`, `state_without_record`, `kept_without_timer`,
    /// `letter_without_bytes` or `bytes_without_letter`.
    pub what: &'static str,
    /// The key; of a letter its name.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
}

impl Verified {
    /// Whether nothing is amiss.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// What is gone through, where each of it has to be as well, and what it is called where it is not.
const CHECKS: [(Listing, &[&str], &str); 7] = [
    (Listing::Due, &["rec"], "index_without_record"),
    (Listing::Quarantine, &["rec"], "index_without_record"),
    (Listing::Records, &["due", "quarantine"], "record_without_index"),
    (Listing::States, &["rec"], "state_without_record"),
    (Listing::Next, &["rec"], "kept_without_timer"),
    (Listing::Dead, &["letters"], "letter_without_bytes"),
    (Listing::Letters, &["dead"], "bytes_without_letter"),
];

impl KnownTopic {
    /// Goes through all that the topic keeps, at most 500 names in a step, and looks whether index and records agree.
    /// Nothing is written: the slow repair of listeners puts right what is amiss.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn verify(&self, mut progress: impl FnMut(u64)) -> Result<Verified> {
        let mut verified = Verified::default();
        for at in self.parts() {
            for (listing, elsewhere, what) in CHECKS {
                let mut cursor = 0;
                loop {
                    let (next, names) = self.names(at, listing, cursor).await?;
                    verified.looked_at += names.len() as u64;
                    for key in self.amiss(at, listing, elsewhere, names).await? {
                        verified.add(Fault { partition: at.index, what, key });
                    }
                    progress(verified.looked_at);
                    if next == 0 {
                        break;
                    }
                    cursor = next;
                }
            }
        }
        Ok(verified)
    }

    async fn names(&self, at: &PartitionNames, listing: Listing, cursor: u64) -> Result<(u64, Vec<Bytes>)> {
        let store = self.console.store();
        self.console.persist(|_| store.names_in(at, listing, cursor, STEP)).await
    }

    /// Which of these names are not elsewhere, and still here: both twice, as a timer may end between two looks.
    async fn amiss(
        &self,
        at: &PartitionNames,
        listing: Listing,
        elsewhere: &[&str],
        mut names: Vec<Bytes>,
    ) -> Result<Vec<Bytes>> {
        for look in 0..2 {
            if names.is_empty() {
                break;
            }
            if look > 0 {
                tokio::time::sleep(AGAIN).await;
            }
            let missing = self.lacking(at, elsewhere, &names).await?;
            let gone = self.lacking(at, &[listing.as_str()], &missing).await?;
            names = missing.into_iter().filter(|name| !gone.contains(name)).collect();
        }
        Ok(names)
    }

    async fn lacking(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<Bytes>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.console.store().holds(at, places, names).await?;
        Ok(names.iter().zip(found).filter(|(_, found)| !found).map(|(name, _)| name.clone()).collect())
    }
}

impl Verified {
    fn add(&mut self, fault: Fault) {
        *self.faults.entry(fault.what).or_default() += 1;
        if self.named.len() < NAMED {
            self.named.push(fault);
        }
    }
}
