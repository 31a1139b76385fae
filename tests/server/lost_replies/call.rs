//! Makes the calls that steps stand for, and puts the answers into words.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::fleet::ListenerReport;
use keylapse::timers::{ArmingId, MarkerKey};
use keylapse::{ArmResult, Rescheduled};
use keylapse_connection::id::{CancelId, RepartitionId, ReplayId, SlotId, Token};
use keylapse_support::connect;
use keylapse_wire::names::PartitionNames;
use keylapse_wire::record::{Record, State};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    AckReply, AttemptEnd, Claim, Claimed, ClaimedTimer, DeadLetterLimits, Forwarding, Holdings, ImportEntry,
    Index, JournalBounds, LeaseRef, MarkerWrite, MovedEntry, MovedKind, NewTimer, OpFlags, PageCall,
    PageFrom, PageOf, PartitionMeta, QuarantineGroup, RepairStep, RepairTarget, RepartitionChange,
    ReplayCall, Settle, Store, TopicEntry, scripts,
};

use super::dump::CLOCK;
use super::step::Step;
use crate::produce::{Cancel, Produce};

/// When each run begins, in ms since 1970: in 2096, so that what has a real
/// time to live outlives the tests.
pub(super) const START: u64 = 4_000_000_000_000;
pub(super) const LEASE: u64 = 1000;

/// A list that workers read.
const JOBS: &str = "app:jobs";

const LETTERS: DeadLetterLimits = DeadLetterLimits { count: 10, age_ms: 86_400_000, pause_when_full: false };

pub(super) type Said = Result<String, Box<dyn std::error::Error + Send + Sync>>;

/// Somebody who makes calls, directly or through a bad line.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) store: Store,
    pub(super) url: String,
    pub(super) at: PartitionNames,
    /// Of a topic whose keys others write.
    pub(super) watched: PartitionNames,
}

pub(super) fn bytes(number: u8) -> [u8; 8] {
    [b'#', b'-', b'-', b'-', b'-', b'-', b'-', b'0' + number]
}

pub(super) fn id(number: u8) -> ArmingId {
    ArmingId::from_bytes(&bytes(number)).expect("an id has eight bytes")
}

fn token(number: u8) -> Token {
    Token::from_bytes(&bytes(number)).expect("a token has eight bytes")
}

pub(super) fn key(name: &str) -> Bytes {
    format!("app:t:{name}").into()
}

fn holdings(found: Holdings) -> String {
    let Holdings { closed, forced, timers, tracked: enrolled, letters, most: _ } = found;
    let forced = if forced.is_some() { " by force" } else { "" };
    format!("closed: {closed}{forced}, {timers} timers, {enrolled} enrolled, {letters} letters")
}

/// What a trigger key is told from another by.
fn trigger_deadline(number: u8) -> u64 {
    START + 100 * u64::from(number)
}

/// To two partitions.
fn change() -> RepartitionChange {
    let id = RepartitionId::from_bytes(b"reshapes").expect("an id has eight bytes");
    RepartitionChange { to: 2, own: id, id }
}

/// How a partition stands, without for how long.
fn shape(found: &PartitionMeta) -> String {
    let PartitionMeta { done, standing, of, to, paused, trimmed, .. } = found;
    format!("{done} {standing:?} {of} to {to}, paused: {paused:?}, trimmed: {trimmed}")
}

fn held(name: &str, number: u8) -> LeaseRef {
    LeaseRef { key: key(name), token: token(number) }
}

impl Caller {
    pub(super) async fn make(&self, step: &Step, repeat: bool) -> Said {
        match step {
            Step::Arm { timers, in_ms, absent, by } => {
                self.arm(timers, *in_ms, *absent, by.map(id), repeat).await
            }
            Step::Cancel(timers) => self.cancel(timers).await,
            Step::Claim { index, token } => self.claim(*index, *token, repeat).await,
            Step::Ack(names, number) => self.ack(names, *number).await,
            Step::Settle(name, number, end) => self.settle(name, *number, end).await,
            Step::Repair(scan) => self.repair(*scan).await,
            Step::Replay { key, died, number, anew } => {
                self.replay(key, *died, (*number, *anew), repeat).await
            }
            Step::Init => self.init().await,
            Step::Canary => canary(&self.url).await,
            step => self.make_simple(step).await,
        }
    }

    async fn make_simple(&self, step: &Step) -> Said {
        let Self { store, at, .. } = self;
        Ok(match step {
            Step::Reschedule(name, when) => match store.reschedule(at, &key(name), *when).await? {
                Rescheduled::Rescheduled(to) => format!("at {}", since_start(to)),
                other => format!("{other:?}"),
            },
            Step::Look(name) => match store.get_timer(at, &key(name)).await? {
                Some(look) => format!("{:?} {:?} {:?}", look.score, look.record, look.state),
                None => "nothing".into(),
            },
            Step::Peek => format!("{:?}", store.peek(std::slice::from_ref(at)).await?.1),
            Step::Overview => {
                let hour = [std::time::Duration::from_secs(3600); 2];
                let found = store.overviews(std::slice::from_ref(at), hour).await.remove(0)?;
                let undelivered = (found.undelivered, found.oldest);
                format!("{} {} {:?} {:?} {undelivered:?}", found.due, found.dead, found.first, found.within)
            }
            Step::Page => {
                let (of, from) = (PageOf::Due, PageFrom::At(0.0));
                let call = PageCall { of, from, count: 10, keep: 100, bytes: 1 << 20 };
                format!("{:?}", store.pages(&[(at.clone(), call)]).await.remove(0)?.members)
            }
            Step::Import(name, number) => {
                let record = Record { arming: id(*number), deadline: START + 100, payload: Bytes::from("x") };
                let (record, due) = (record.encode(), START + 100);
                let entry = ImportEntry::Timer { key: key(name), record, state: None, due };
                format!("{:?}", store.import(at, true, &[entry]).await?)
            }
            Step::Renew(name, number) => {
                format!("gone: {:?}", store.renew(at, LEASE, &[held(name, *number)]).await?)
            }
            Step::Left(None) => format!("{:?}", store.wake_followers(at).await?),
            Step::Left(Some(number)) => {
                let slot = SlotId::from_bytes(&bytes(*number)).expect("a slot has eight bytes");
                format!("{:?}", store.release_claimer(at, slot).await?)
            }
            Step::Pause(reason) => format!("{:?}", store.pause(at, *reason).await?),
            Step::Tail(ms) => format!("{:?}", store.renew_watch(at, *ms).await? - START),
            Step::Journal(count) => {
                let bounds = JournalBounds { count: *count, age_ms: 86_400_000 };
                format!("{}", store.keep_journal(at, bounds).await?)
            }
            Step::Close(how) => holdings(store.close(at, *how).await?),
            Step::Destroy(gone, most) => {
                let gone: Vec<_> = gone.iter().map(|name| key(name)).collect();
                format!("{:?}", store.destroy(at, &gone, *most).await?)
            }
            Step::Drop(name, number) => {
                let letter = [&bytes(*number)[..], &START.to_be_bytes(), &key(name)].concat();
                format!("{}", store.drop_letter(at, &letter).await?)
            }
            Step::Reshape(how) => shape(&store.repartition_step(at, change(), *how).await?),
            Step::List(what) => format!("{:?}", store.names_in(at, *what, 0, 10).await?),
            Step::Take(cargo, names) => {
                let names: Vec<_> = names.iter().map(|name| key(name)).collect();
                format!("{:?}", store.read_entries(at, *cargo, &names, 1000).await?)
            }
            Step::Put(place, name) => {
                let (name, value) = (key(name), Bytes::from_static(b"7"));
                format!(
                    "{}",
                    store.put_entries(at, change().id, &[MovedEntry { place: *place, name, value }]).await?
                )
            }
            Step::Shed(names) => {
                let names: Vec<_> = names.iter().map(|name| key(name)).collect();
                format!("{}", store.delete_moved(at, change().id, MovedKind::Timers, &names).await?)
            }
            Step::Trigger(name, number) => {
                let deadline = trigger_deadline(*number);
                let trigger = MarkerWrite { key: key(name), deadline, attempt: 1, moved: false };
                match store.set_markers(&[trigger]).await.remove(0) {
                    MarkerKey::Failed(error) => return Err(error.into()),
                    became => format!("{became:?}"),
                }
            }
            Step::Untrigger(name, number) => {
                format!("{}", store.delete_marker(&key(name), trigger_deadline(*number)).await?)
            }
            Step::Forward(id) => {
                let memory = format!("keylapse:{{{JOBS}}}:forwarded:8:{JOBS}:{id}");
                let (into, memory, id) = (JOBS.as_bytes(), memory.as_bytes(), id.as_bytes());
                let (max_length, remember_ms, message) = (2, 60_000, &b"message"[..]);
                let what =
                    Forwarding { into, memory, is_stream: false, max_length, remember_ms, id, message };
                format!("{:?}", store.forward(&what).await?)
            }
            Step::Report { leaves } => {
                let report = (!leaves).then(ListenerReport::default);
                format!("{}", store.report("keylapse:listeners", "a", report.as_ref(), 0).await?.looked)
            }
            Step::Reports => {
                let reports = store.reports("keylapse:listeners").await?;
                format!("{:?}", reports.iter().map(|report| &report.host).collect::<Vec<_>>())
            }
            of_attached => self.make_attached(of_attached).await?,
        })
    }

    async fn arm(
        &self,
        timers: &[(&str, u8)],
        in_ms: u64,
        absent: bool,
        by: Option<ArmingId>,
        repeat: bool,
    ) -> Said {
        let timer = |(name, arming): &(&str, u8)| NewTimer {
            key: key(name),
            when: WireWhen::In(in_ms),
            arming: id(*arming),
            payload: format!("payload of {arming}").into(),
            trace: None,
            by,
        };
        let timers: Vec<_> = timers.iter().map(timer).collect();
        let flags = OpFlags { only_if_absent: absent, repeat, ..OpFlags::default() };
        let armings: keylapse::Result<Vec<_>> =
            self.store.arm(&self.at, flags, &timers).await?.into_iter().collect();
        Ok(list(armings?.iter().map(armed)))
    }

    async fn cancel(&self, timers: &[(&str, u8)]) -> Said {
        let cancel = |(name, number): &(&str, u8)| Cancel {
            key: key(name),
            id: CancelId::from_bytes(&bytes(*number)).expect("an id has eight bytes"),
        };
        let timers: Vec<_> = timers.iter().map(cancel).collect();
        let replies = self.store.cancel(&self.at, &timers).await?;
        Ok(list(replies.iter().map(|reply| format!("{:?} {}", reply.result, from_start(reply.deadline)))))
    }

    async fn replay(
        &self,
        name: &str,
        (arming, died): (u8, Option<u64>),
        (number, anew): (u8, Option<u8>),
        repeat: bool,
    ) -> Said {
        let named = |died: u64| [&bytes(arming)[..], &died.to_be_bytes(), &key(name)].concat();
        let letter = match died {
            Some(ms) => named(START + ms),
            None => {
                let (letters, _) = self.store.letters(&self.at, None, 100).await?;
                let mut names = letters.into_iter().map(|letter| letter.id);
                let own = names.find(|id| id.starts_with(&bytes(arming)) && id.ends_with(&key(name)));
                own.map_or_else(|| named(0), |id| id.to_vec())
            }
        };
        let id = ReplayId::from_bytes(&bytes(number)).expect("an id has eight bytes");
        let call = ReplayCall { letter: letter.into(), id, anew: anew.map(self::id), repeat };
        Ok(format!("{:?}", self.store.replay(&self.at, &call).await?))
    }

    async fn claim(&self, index: Index, number: u8, repeat: bool) -> Said {
        let call = Claim {
            index,
            // Each claim on behalf of another listener.
            slot: SlotId::from_bytes(&bytes(number)).expect("a slot has eight bytes"),
            token: token(number),
            repeat,
            limit: 10,
            bytes: 1000,
            lookahead_ms: 0,
            lease_ms: LEASE,
            letters: LETTERS,
            group: QuarantineGroup::ALONE,
        };
        Ok(claimed(self.store.claim(&self.at, call).await?, call.token))
    }

    async fn ack(&self, names: &[&str], number: u8) -> Said {
        let acks: Vec<_> = names.iter().map(|name| held(name, number)).collect();
        let AckReply { gone, followed, .. } = self.store.ack(&self.at, false, &acks).await?;
        let followed = followed.iter().map(|next| format!("{} {}", next.place, named(Some(next.arming))));
        Ok(format!("gone: {gone:?}, followed: {}", list(followed)))
    }

    async fn settle(&self, name: &str, number: u8, end: &AttemptEnd) -> Said {
        let settle = Settle { held: held(name, number), end: end.clone() };
        let replies = self.store.settle(&self.at, LETTERS, false, &[settle]).await?.each;
        Ok(list(replies.iter().map(|reply| format!("{reply:?}"))))
    }

    async fn repair(&self, what: RepairTarget) -> Said {
        let step = RepairStep { what, cursor: 0, count: 100, lease_ms: LEASE };
        let reply = self.store.repair(&self.at, step).await?;
        Ok(format!("cursor {}, repaired {}", reply.cursor, reply.repaired))
    }

    async fn init(&self) -> Said {
        let both = [0, 1].map(|index| PartitionNames::new("keylapse", "two", index, 2, false));
        let (name, pattern) = ("two".into(), "two:{id}".into());
        let entry = TopicEntry { name, pattern, partitions: 2, marker_keys: true, attached: false };
        self.store.register(&entry, &both).await?;
        Ok("agreed".into())
    }
}

/// The script by the clock of the tests, and its hash.
pub(super) static CANARY: LazyLock<(String, String)> = LazyLock::new(|| {
    let clock = format!("{{ redis.call('GET', '{CLOCK}') / 1e6, 0 }}");
    let text = scripts::CANARY.text.replace("redis.call('TIME')", &clock);
    let sha = redis::Script::new(&text).get_hash().to_owned();
    (text, sha)
});

/// The library makes canaries by itself, and never twice.
async fn canary(url: &str) -> Said {
    let mut line = connect(url).await?;
    let mut call = redis::cmd("EVALSHA");
    call.arg(&CANARY.1).arg(1).arg("keylapse:{heartbeat/0}").arg(3_600_000);
    let (name, new): (String, u64) = call.query_async(&mut line).await?;
    Ok(format!("{name}, new: {new}"))
}

pub(super) fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn named(id: Option<ArmingId>) -> String {
    id.map_or_else(|| "-".into(), |id| String::from_utf8_lossy(&id.as_bytes()[7..]).into_owned())
}

/// A deadline that may not be told.
fn from_start(deadline: Option<u64>) -> String {
    deadline.map_or_else(|| "-".into(), |deadline| format!("at {}", deadline - START))
}

/// A time that is told, in ms.
fn since_start(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() - u128::from(START)
}

fn armed(reply: &ArmResult) -> String {
    let shown = format!("{reply:?}");
    let name = shown.split('(').next().unwrap_or_default();
    match reply.receipt() {
        Some(receipt) => format!("{name} at {}", since_start(receipt.deadline)),
        None => shown,
    }
}

/// What a claim took. Its heads are those of the moment, also in a repeat.
fn claimed(claimed: Claimed, token: Token) -> String {
    let taken = claimed.timers.into_iter().map(|timer| taken(timer, token));
    let mut said = vec![format!("[{}]", list(taken))];
    said.extend(claimed.paused.map(|reason| format!("paused: {reason}")));
    said.extend((claimed.dead_lettered > 0).then(|| format!("buried: {}", claimed.dead_lettered)));
    said.extend((claimed.orphans > 0).then(|| format!("orphans: {}", claimed.orphans)));
    said.join(", ")
}

/// A first attempt may be told without its state.
fn taken(timer: ClaimedTimer, token: Token) -> String {
    let state = timer.state.map_or_else(|| Ok(State::first(token)), State::decode).expect("a readable state");
    assert_eq!((state.claimed, state.token), (true, token));
    let record = Record::decode(timer.record).expect("a readable record");
    let State { attempt, lost, snoozes, .. } = state;
    format!(
        "{} of {}: attempt {attempt}, {lost} lost, {snoozes} snoozes",
        named(Some(record.arming)),
        timer.key.escape_ascii()
    )
}
