//! What the scripts of attached topics promise, each by itself against a server.

mod gaps;
mod limits;
mod ranges;

use std::collections::BTreeSet;

use bytes::Bytes;
use keylapse::internals::attached::{
    Deed, DueChecks, Duty, Enrolled, Enrolment, Found, Identity, Judged, Life, Note, Noted, Position,
    TakeChecks, Watch,
};
use keylapse::internals::names::PartitionNames;
use keylapse::internals::record::{Record, State};
use keylapse::internals::scripts;
use keylapse::internals::{
    AckReply, Capture, Claim, Claimed, End, Fields, Group, Held, Index, LetterBounds, Policy, ServerTime,
    Settle, SettleReply, SlotId, Store, Token, TopicEntry,
};
use keylapse::{ArmingId, ErrorKind, TriggerKey, Unenrolled, WriteBack};
use keylapse_support::Server;
use redis::{RedisResult, aio::MultiplexedConnection, cmd};

/// Fire whatever is heard, remember ten keys.
pub(crate) fn on() -> Policy {
    Policy { cap: 10, ..Policy::default() }
}

/// The first canary, and the clock at the beginning: in 2096, so that what has a real time to live stays.
const FIRST: u64 = 4_000_000_000_000;
const CLOCK: &str = "app:clock";
const LETTERS: LetterBounds = LetterBounds { count: 10, age_ms: 86_400_000, pause_when_full: false };

/// Number of the last canary, and count since.
pub(crate) fn place((canary, count): (u64, u32)) -> Position {
    Position { canary, count }
}

/// An expiry at this place, for who hears everything since this canary.
pub(crate) fn since(since: u64, at: (u64, u32)) -> Identity {
    Identity::Anchored { at: place(at), since }
}

/// A server whose scripts go by a clock that the test sets, and an attached topic.
pub(crate) struct Scene {
    store: Store,
    at: PartitionNames,
    line: MultiplexedConnection,
    _server: Server,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        let store = Store::at(&server.app_url()).expect("a store").with_clock_key(CLOCK);
        let at = PartitionNames::new("keylapse", "w", 0, 1, true);
        let mut scene = Self { store, at, line: server.conn().await, _server: server };
        scene.clock(FIRST).await;
        let entry = TopicEntry {
            name: "w".into(),
            pattern: "{id}".into(),
            partitions: 1,
            triggers: false,
            attached: true,
        };
        scene.store.register(&entry, std::slice::from_ref(&scene.at)).await.expect("a partition");
        scene
    }

    /// Sets the clock, in ms.
    pub(crate) async fn clock(&mut self, ms: u64) {
        self.say(&["SET", CLOCK, &(ms * 1000).to_string()]).await.expect("SET");
    }

    async fn say(&mut self, words: &[&str]) -> RedisResult<redis::Value> {
        cmd(words[0]).arg(&words[1..]).query_async(&mut self.line).await
    }

    /// The field of one of the partition's hashes.
    pub(crate) async fn get(&mut self, what: &str, field: &str) -> Bytes {
        let name = format!("keylapse:{{w/0}}:{what}");
        cmd("HGET").arg(name).arg(field).query_async(&mut self.line).await.expect("it is there")
    }

    async fn length(&mut self, what: &str) -> u64 {
        let name = format!("keylapse:{{w/0}}:{what}");
        cmd("HLEN").arg(name).query_async(&mut self.line).await.expect("a hash")
    }

    pub(crate) fn note_of(&self, key: &str) -> Note {
        let key = Bytes::copy_from_slice(key.as_bytes());
        Note { key, identity: Identity::Unknown, arming: ArmingId::random() }
    }

    pub(crate) async fn notes(&self, how: &Policy, notes: &[Note]) -> Vec<Noted> {
        self.store.note(&self.at, how, notes).await.expect("an answer")
    }

    /// What becomes of an expiry at this place, given from the first canary on, that is heard by who was
    /// anchored by the canary before it.
    async fn note(&self, key: &str, canary: u64, count: u32) -> Noted {
        self.note_as(&on(), key, canary, count).await
    }

    async fn note_as(&self, how: &Policy, key: &str, canary: u64, count: u32) -> Noted {
        let identity = since(FIRST + canary, (FIRST + canary, count));
        self.notes(how, &[Note { identity, ..self.note_of(key) }]).await[0]
    }

    pub(crate) async fn enrol(
        &self,
        key: &str,
        deadline: u64,
        at: (u64, u32),
        stamp: ServerTime,
        copy: &[u8],
    ) -> Enrolled {
        self.enrol_as(&on(), key, deadline, at, stamp, copy).await
    }

    async fn enrol_as(
        &self,
        how: &Policy,
        key: &str,
        deadline: u64,
        at: (u64, u32),
        stamp: ServerTime,
        copy: &[u8],
    ) -> Enrolled {
        let (key, copy) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(copy));
        let read = Enrolment { key, deadline, at: place(at), stamp, copy };
        self.store.enrol(&self.at, how, &[read]).await.expect("an answer").1[0]
    }

    /// Enrols a key that lives for a second, read at this place and so many µs later.
    async fn read(&self, key: &str, canary: u64, count: u32, micros: u64) -> Enrolled {
        self.read_until(key, FIRST + 1000, canary, count, micros).await
    }

    async fn read_until(&self, key: &str, deadline: u64, canary: u64, count: u32, micros: u64) -> Enrolled {
        self.enrol(key, deadline, (FIRST + canary, count), stamp(micros), b"").await
    }

    /// The watch of a key, as somebody gets it who looks at it.
    pub(crate) async fn watch(&self, key: &str) -> Watch {
        self.looks(1000, 0)
            .await
            .watches
            .into_iter()
            .find(|watch| watch.key == key)
            .expect("a look that is due")
    }

    pub(crate) async fn judge(&self, watch: &Watch, at: (u64, u32), stamp: ServerTime, deed: Deed) -> bool {
        let judgement = Judged { watch: watch.clone(), at: place(at), stamp, deed };
        self.store.judge(&self.at, &on(), &[judgement]).await.expect("an answer").1[0]
    }

    async fn hold(&self, slot: &[u8; 8], patient: bool) -> Duty {
        let slot = SlotId::from_bytes(slot).expect("a slot");
        self.store.hold_scanner(&self.at, slot, 1000, patient).await.expect("an answer")
    }

    async fn settle(&self, held: Held, end: End) -> SettleReply {
        let settled = self.store.settle(&self.at, LETTERS, &[Settle { held, end }]).await;
        settled.expect("an answer")[0]
    }

    async fn ack(&self, held: Held) -> AckReply {
        self.store.ack(&self.at, &[held]).await.expect("an answer")
    }

    /// What is there to be looked at, as one asks who gives it back after so long.
    async fn looks(&self, limit: usize, hold_ms: u64) -> DueChecks {
        self.store.checks(&self.at, take(limit, hold_ms)).await.expect("an answer")
    }

    async fn claim(&self) -> Vec<(ArmingId, Held, u32)> {
        let slot = SlotId::from_bytes(b"the-slot").expect("a slot");
        let token = Token::random();
        let claim = Claim {
            index: Index::Due,
            slot,
            token,
            repeat: false,
            limit: 10,
            bytes: 10_000,
            lookahead_ms: 0,
            lease_ms: 1_000_000,
            letters: LETTERS,
            group: Group::ALONE,
        };
        let Claimed { timers, .. } = self.store.claim(&self.at, claim).await.expect("an answer");
        let taken = timers.into_iter().map(|timer| {
            let record = Record::decode(timer.record).expect("a record");
            let attempt = timer.state.map_or(1, |state| State::decode(state).expect("a state").attempt);
            (record.arming, Held { key: timer.key, token }, attempt)
        });
        taken.collect()
    }
}

fn stamp(micros: u64) -> ServerTime {
    ServerTime::new(0, FIRST * 1000 + micros)
}

fn fire() -> Deed {
    Deed::Fire { arming: ArmingId::random(), flags: 3 }
}

/// A failure, to be tried again in a second.
fn retry() -> End {
    End::Retry { delay: 1000, attempt: 2, snoozes: 0, history: Bytes::from_static(b"[]") }
}

/// What the record in `rec` carries.
fn payload(record: &Bytes) -> Bytes {
    record.slice(17..)
}

#[tokio::test]
async fn what_was_noted_is_known_by_the_highest_count_behind_each_canary() {
    let scene = Scene::start().await;
    let table = [
        (0, 1, Noted::Lapse),
        (0, 1, Noted::Known),
        (1000, 1, Noted::Lapse),
        // Whoever is late, but unbroken, has heard another one before that canary.
        (0, 2, Noted::Lapse),
        (0, 2, Noted::Known),
        (0, 1, Noted::Known),
        (1000, 1, Noted::Known),
        (500, 1, Noted::Lapse),
        (500, 1, Noted::Known),
    ];
    for (row, (canary, count, expected)) in table.into_iter().enumerate() {
        assert_eq!(scene.note("a", canary, count).await, expected, "row {row}");
    }
    assert_eq!(scene.note("b", 0, 1).await, Noted::Lapse, "keys have nothing to do with each other");
}

#[tokio::test]
async fn a_recovery_takes_up_one_later_note() {
    let mut scene = Scene::start().await;
    for (key, notes) in [
        ("one", &[(0, 1, Noted::Recovered), (0, 2, Noted::Lapse), (0, 2, Noted::Known)][..]),
        ("late", &[(500, 1, Noted::Recovered), (0, 1, Noted::Lapse)]),
        ("before", &[(0, 0, Noted::Lapse), (0, 1, Noted::Recovered)]),
        ("at", &[(2000, 0, Noted::Recovered), (2000, 1, Noted::Lapse)]),
        ("after", &[(2000, 1, Noted::Lapse), (3000, 1, Noted::Lapse), (1000, 1, Noted::Recovered)]),
    ] {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, Enrolled::New);
        scene.clock(FIRST + 2000).await;
        let watch = scene.watch(key).await;
        assert!(scene.judge(&watch, (FIRST + 2000, 0), stamp(2_000_000), fire()).await);
        for (canary, count, expected) in notes {
            assert_eq!(scene.note(key, *canary, *count).await, *expected, "{key}: {canary} {count}");
        }
    }
}

#[tokio::test]
async fn each_of_several_recoveries_takes_up_one() {
    let mut scene = Scene::start().await;
    for round in 0..3 {
        let now = 2000 * round;
        scene.clock(FIRST + now).await;
        assert_eq!(scene.read_until("a", FIRST + now + 1000, now, 0, now * 1000).await, Enrolled::New);
        scene.clock(FIRST + now + 1500).await;
        let watch = scene.watch("a").await;
        assert!(scene.judge(&watch, (FIRST + now + 1500, 0), stamp((now + 1500) * 1000), fire()).await);
    }
    let notes = [(2000, 1), (0, 1), (4000, 1)];
    for (canary, count) in notes {
        assert_eq!(scene.note("a", canary, count).await, Noted::Recovered, "{canary}");
    }
    assert_eq!(scene.note("a", 4000, 2).await, Noted::Lapse);
}

#[tokio::test]
async fn of_two_readings_the_later_stands() {
    let scene = Scene::start().await;
    let table = [
        (1, 5, Enrolled::New),
        (0, 9, Enrolled::Stale),
        (1, 4, Enrolled::Stale),
        (1, 5, Enrolled::Known),
        (1, 6, Enrolled::Known),
        (1, 5, Enrolled::Stale),
        (2, 1, Enrolled::Known),
        (1, 9, Enrolled::Stale),
    ];
    for (row, (count, micros, expected)) in table.into_iter().enumerate() {
        let deadline = FIRST + 1000 + row as u64;
        assert_eq!(scene.read_until("a", deadline, 0, count, micros).await, expected, "row {row}");
    }
}

#[tokio::test]
async fn what_was_read_before_an_expiry_does_not_come_back() {
    let scene = Scene::start().await;
    assert_eq!(scene.read("a", 0, 0, 0).await, Enrolled::New);
    assert_eq!(scene.note("a", 1000, 1).await, Noted::Lapse);
    assert_eq!(scene.read("a", 0, 0, 9).await, Enrolled::Stale);
    assert_eq!(scene.read("a", 1000, 0, 9).await, Enrolled::Stale);
    assert_eq!(scene.read("a", 1000, 1, 9).await, Enrolled::New);
    // A late note of the life before leaves the next one alone.
    assert_eq!(scene.note("a", 500, 1).await, Noted::Lapse);
    assert_eq!(scene.read("a", 1000, 1, 9).await, Enrolled::Known);
}

#[tokio::test]
async fn what_is_forgotten_is_forgotten_as_of_its_place_and_stamp() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.read("a", 0, 0, 10).await, Enrolled::New);
    scene.clock(FIRST + 1500).await;
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (FIRST, 0), stamp(20), Deed::Forget).await);
    assert!(!scene.judge(&watch, (FIRST, 0), stamp(20), Deed::Forget).await, "it is gone");
    assert_eq!(scene.read("a", 0, 0, 15).await, Enrolled::Stale);
    assert_eq!(scene.read("a", 0, 0, 25).await, Enrolled::New);
    assert!(!scene.judge(&watch, (FIRST, 0), stamp(30), fire()).await, "another was looked at");
    assert_eq!(scene.length("rec").await, 0);
    // The same where a reading says that there is no deadline any more.
    assert_eq!(scene.read_until("a", 0, 0, 0, 40).await, Enrolled::Forgotten);
    assert_eq!(scene.read("a", 0, 0, 35).await, Enrolled::Stale);
    assert_eq!(scene.read("a", 0, 0, 45).await, Enrolled::New);
}

const SPAN: u64 = 300_000;

#[tokio::test]
async fn memory_is_forgotten_page_by_page_and_never_the_newest_two() {
    let mut scene = Scene::start().await;
    scene.clock(FIRST + 3 * SPAN).await;
    let table = [
        (1, Noted::Lapse),
        // The first page turns: there are two.
        (SPAN, Noted::Lapse),
        (1, Noted::Known),
        (0, Noted::Stale),
        (SPAN - 1, Noted::Lapse),
        (SPAN - 1, Noted::Known),
        // The second: what was on the first is forgotten, and refused.
        (2 * SPAN, Noted::Lapse),
        (1, Noted::Stale),
        (SPAN - 1, Noted::Stale),
        (SPAN, Noted::Stale),
        (SPAN + 1, Noted::Lapse),
        (SPAN + 1, Noted::Known),
        (2 * SPAN, Noted::Known),
    ];
    for (row, (canary, expected)) in table.into_iter().enumerate() {
        // The first page begins with the first canary.
        if row == 0 {
            assert_eq!(scene.note("other", 0, 1).await, Noted::Lapse);
        }
        assert_eq!(scene.note("a", canary, 1).await, expected, "row {row}");
    }
    assert_eq!(scene.read("b", SPAN, 0, 9).await, Enrolled::Stale);
    assert_eq!(scene.read("b", SPAN + 1, 0, 9).await, Enrolled::New);
    for (field, canary) in [("turned", 2 * SPAN), ("floor", SPAN), ("newest", 2 * SPAN)] {
        assert_eq!(scene.get("meta", field).await, (FIRST + canary).to_string(), "{field}");
    }
}

/// By its number, and not by that of whoever fills it.
#[tokio::test]
async fn a_page_that_a_late_listener_fills_keeps_what_others_have_noted() {
    let mut scene = Scene::start().await;
    scene.clock(FIRST + 3 * SPAN).await;
    assert_eq!(scene.note("first", 0, 1).await, Noted::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, Noted::Lapse);
    let fill = "for i = 1, 500000 do redis.call('HSET', KEYS[1], i, '') end";
    let past = scene.at.key("history").to_owned();
    scene.say(&["EVAL", fill, "1", &past]).await.expect("a full page");
    assert_eq!(scene.note("late", 10_000, 1).await, Noted::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, Noted::Known);
    assert_eq!(scene.note("b", 10_000 + SPAN, 1).await, Noted::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, Noted::Known);
    assert_eq!(scene.note("b", 100_000 + SPAN, 1).await, Noted::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, Noted::Stale);
}

#[tokio::test]
async fn pages_turn_by_the_clock_and_not_by_numbers_that_it_has_not_reached() {
    let mut scene = Scene::start().await;
    let day = 86_400_000;
    assert_eq!(scene.note("a", 0, 1).await, Noted::Lapse);
    // Numbers of tomorrow turn no page; and those of today are none too late after them.
    assert_eq!(scene.note("a", day, 1).await, Noted::Lapse);
    assert_eq!(scene.note("a", day + SPAN, 1).await, Noted::Lapse);
    for (field, expected) in [("turned", 0), ("newest", 0)] {
        assert_eq!(scene.get("meta", field).await, (FIRST + expected).to_string(), "{field}");
    }
    for page in 1..=3 {
        scene.clock(FIRST + page * SPAN).await;
        assert_eq!(scene.note("a", day + SPAN, 1 + u32::try_from(page).expect("few")).await, Noted::Lapse);
        assert_eq!(scene.get("meta", "turned").await, (FIRST + page * SPAN).to_string());
    }
    assert_eq!(scene.note("a", 3 * SPAN, 1).await, Noted::Lapse);
    // The clock goes back by more than a page holds.
    scene.clock(FIRST).await;
    assert_eq!(scene.note("b", 0, 1).await, Noted::Lapse);
    assert_eq!(scene.note("b", 0, 1).await, Noted::Known);
    assert_eq!(scene.get("meta", "turned").await, FIRST.to_string());
}

#[tokio::test]
async fn lives_behind_a_running_lapse_follow_one_by_one() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.note("a", 0, 1).await, Noted::Lapse);
    let mut armings = BTreeSet::new();
    let (first, held, _) = scene.claim().await.remove(0);
    armings.insert(first);
    for count in 2..=4 {
        assert_eq!(scene.note("a", 0, count).await, Noted::Lapse);
        assert_eq!(scene.note("a", 0, count).await, Noted::Known);
    }
    // A retry comes before the lives that are kept.
    let settled = scene.settle(held, retry()).await;
    assert!(matches!(settled, SettleReply::Settled(Some((_, arming))) if arming == first), "{settled:?}");
    scene.clock(FIRST + 1100).await;
    let (again, mut held, attempt) = scene.claim().await.remove(0);
    assert_eq!((again, attempt), (first, 2));
    for left in (0..3).rev() {
        let acked = scene.ack(held).await;
        let (arming, next, attempt) = scene.claim().await.remove(0);
        assert_eq!((acked.followed[0].arming, attempt), (arming, 1));
        assert!(armings.insert(arming), "{arming} came before");
        assert_eq!(scene.length("next").await, u64::from(left > 0));
        held = next;
    }
    let acked = scene.ack(held).await;
    assert!(acked.followed.is_empty() && scene.claim().await.is_empty());
    assert_eq!(scene.length("rec").await + scene.length("run").await + scene.length("next").await, 0);
}

#[tokio::test]
async fn a_topic_may_ignore_keys_that_were_never_read() {
    let mut scene = Scene::start().await;
    let how = Policy { unenrolled: Unenrolled::Ignore, ..on() };
    assert_eq!(scene.note_as(&how, "a", 0, 1).await, Noted::Ignored);
    assert_eq!(scene.note_as(&how, "a", 0, 1).await, Noted::Known);
    // What should still live may have been announced by anybody.
    assert_eq!(scene.read("a", 0, 1, 0).await, Enrolled::New);
    assert_eq!(scene.note_as(&how, "a", 0, 2).await, Noted::Ignored);
    assert_eq!(scene.length("watch").await, 1);
    scene.clock(FIRST + 1000).await;
    assert_eq!(scene.note_as(&how, "a", 0, 3).await, Noted::Lapse);
    assert_eq!((scene.length("watch").await, scene.length("rec").await), (0, 1));
}

/// Brought forward unheard, or forged: what was read says nothing of this end. And whoever judges by a clock that is
/// set back then does not know either.
#[tokio::test]
async fn a_deadline_is_known_only_if_it_has_passed() {
    let mut scene = Scene::start().await;
    for (key, noted, flags, deadline) in
        [("early", 999, 0, 999), ("on time", 1000, 2, 1000), ("late", 1500, 2, 1000)]
    {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, Enrolled::New);
        scene.clock(FIRST + noted).await;
        assert_eq!(scene.note(key, 0, 1).await, Noted::Lapse);
        let record = Record::decode(scene.get("rec", key).await).expect("a record");
        assert_eq!((record.payload[0], record.deadline), (flags, FIRST + deadline), "{key}");
    }
    for (key, judged, flags, deadline) in [("set back", 999, 1, 999), ("as it was", 1000, 3, 1000)] {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, Enrolled::New);
        scene.clock(FIRST + 1500).await;
        let watch = scene.watch(key).await;
        scene.clock(FIRST + judged).await;
        assert!(scene.judge(&watch, (FIRST + 1000, 0), stamp(1_500_000), fire()).await);
        let record = Record::decode(scene.get("rec", key).await).expect("a record");
        assert_eq!((record.payload[0], record.deadline), (flags, FIRST + deadline), "{key}");
    }
    // What was read behind an expiry is of the next cycle.
    scene.clock(FIRST).await;
    assert_eq!(scene.read("next", 2000, 0, 0).await, Enrolled::New);
    scene.clock(FIRST + 3000).await;
    assert_eq!(scene.note("next", 1000, 1).await, Noted::Lapse);
    let record = Record::decode(scene.get("rec", "next").await).expect("a record");
    assert_eq!((record.payload[0], record.deadline), (0, FIRST + 3000));
}

/// Nothing is known of which life it ends.
#[tokio::test]
async fn an_unanchored_note_fires_each_time() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.read("a", 0, 0, 0).await, Enrolled::New);
    for (time, waiting) in [(0, 0), (1000, 1)] {
        scene.clock(FIRST + time).await;
        assert_eq!(scene.notes(&on(), &[scene.note_of("a")]).await, [Noted::Lapse]);
        assert_eq!((scene.length("watch").await, scene.length("next").await), (1, waiting));
        assert_eq!(payload(&scene.get("rec", "a").await), &b"\x04\0"[..]);
    }
}

#[tokio::test]
async fn no_more_keys_are_enrolled_than_allowed() {
    let scene = Scene::start().await;
    let how = Policy { cap: 2, ..on() };
    let table = [
        ("a", 1000, Enrolled::New),
        ("b", 1000, Enrolled::New),
        ("c", 1000, Enrolled::Full),
        ("a", 2000, Enrolled::Known),
        ("a", 0, Enrolled::Forgotten),
        ("c", 1000, Enrolled::New),
    ];
    for (row, (key, life, expected)) in table.into_iter().enumerate() {
        let deadline = if life == 0 { 0 } else { FIRST + life };
        let enrolled = scene.enrol_as(&how, key, deadline, (FIRST, 0), stamp(row as u64), b"").await;
        assert_eq!(enrolled, expected, "row {row}");
    }
}

#[tokio::test]
async fn a_copy_that_is_wanted_is_asked_for_and_kept() {
    let mut scene = Scene::start().await;
    let how = Policy { capture: Capture { cap: 100, ..Capture::default() }, ..on() };
    let deadline = FIRST + 1000;
    let enrol = async |micros, copy: &[u8]| {
        scene.enrol_as(&how, "a", deadline, (FIRST, 0), stamp(micros), copy).await
    };
    assert_eq!(enrol(0, b"").await, Enrolled::Wanted);
    assert_eq!(enrol(1, b"").await, Enrolled::Wanted);
    assert_eq!(enrol(2, b"\x02value").await, Enrolled::Known);
    assert_eq!(enrol(3, b"").await, Enrolled::Known);
    assert_eq!(scene.get("values", "a").await, &b"\x02value"[..]);
    assert_eq!(scene.get("watch", "a").await.slice(28..), FIRST.to_be_bytes()[..], "when it was read");
    // It is read once more before its deadline, and not due before that.
    scene.clock(FIRST + 749).await;
    assert!(scene.looks(10, 5000).await.watches.is_empty());
    scene.clock(FIRST + 750).await;
    // What is read that late is not read once more.
    assert_eq!(scene.enrol_as(&how, "b", deadline, (FIRST, 0), stamp(9), b"").await, Enrolled::Wanted);
    let looks = scene.looks(10, 5000).await;
    assert_eq!((looks.watches.len(), looks.next), (1, Some(deadline + 2)));
}

/// A session is extended: its head alone is written.
#[tokio::test]
async fn a_value_that_has_not_changed_is_not_written_again_and_stays_with_a_new_deadline() {
    let mut scene = Scene::start().await;
    let how = Policy { capture: Capture { cap: 100, ..Capture::default() }, ..on() };
    type Said<'a> = (u64, u64, &'a [u8], Enrolled, u64, &'a [u8]);
    let said: &[Said<'_>] = &[
        (1000, 0, b"\x02value", Enrolled::New, 0, b"\x02value"),
        (2000, 5000, b"\x02value", Enrolled::Known, 5, b"\x02value"),
        (3000, 6000, b"", Enrolled::Known, 5, b"\x02value"),
        (3000, 7000, b"\x02other", Enrolled::Known, 7, b"\x02other"),
        // So soon that nobody will read it once more.
        (200, 8000, b"", Enrolled::Wanted, 7, b"\x02other"),
    ];
    for (life, micros, copy, expected, read_at, kept) in said {
        scene.say(&["CONFIG", "RESETSTAT"]).await.expect("it is forgotten");
        let enrolled = scene.enrol_as(&how, "a", FIRST + life, (FIRST, 0), stamp(*micros), copy).await;
        assert_eq!(enrolled, *expected, "{life}");
        assert_eq!(&scene.get("values", "a").await[..], *kept, "{life}");
        assert_eq!(scene.get("watch", "a").await[28..], (FIRST + read_at).to_be_bytes(), "{life}");
        let stats = scene.say(&["INFO", "commandstats"]).await.expect("an answer");
        let stats: String = redis::from_redis_value(stats).expect("a text");
        let written = if *micros == 5000 || copy.is_empty() { "1" } else { "2" };
        // The first canary is written down, too.
        let written = if *micros == 0 { "4" } else { written };
        assert!(stats.contains(&format!("cmdstat_hset:calls={written},")), "{life}: {stats}");
    }
    scene.clock(FIRST + 300).await;
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (FIRST, 0), stamp(300_000), Deed::Forget).await);
    assert_eq!((scene.length("watch").await, scene.length("values").await), (0, 0));
}

#[tokio::test]
async fn without_a_canary_nothing_is_enrolled_while_somebody_hears_the_key() {
    let mut scene = Scene::start().await;
    let blind = async |scene: &Scene| scene.enrol("a", FIRST + 60_000, (0, 0), stamp(0), b"").await;
    assert_eq!(blind(&scene).await, Enrolled::New, "nobody has heard anything");
    assert_eq!(scene.note("a", 0, 1).await, Noted::Lapse);
    scene.clock(FIRST + 9_999).await;
    assert_eq!(blind(&scene).await, Enrolled::Stale);
    scene.clock(FIRST + 10_000).await;
    assert_eq!(blind(&scene).await, Enrolled::New);
}

#[tokio::test]
async fn without_a_canary_the_later_of_two_readings_stands_after_a_while() {
    let mut scene = Scene::start().await;
    let blind = async |scene: &Scene, deadline, micros| {
        scene.enrol("a", FIRST + deadline, (0, 0), stamp(micros), b"").await
    };
    assert_eq!(scene.read_until("a", FIRST + 60_000, 0, 0, 5).await, Enrolled::New);
    scene.clock(FIRST + 9_999).await;
    assert_eq!(blind(&scene, 70_000, 9).await, Enrolled::Stale);
    scene.clock(FIRST + 10_000).await;
    assert_eq!(blind(&scene, 70_000, 4).await, Enrolled::Stale);
    assert_eq!(blind(&scene, 70_000, 9).await, Enrolled::Known);
    assert_eq!(blind(&scene, 80_000, 8).await, Enrolled::Stale);
    assert_eq!(blind(&scene, 80_000, 9).await, Enrolled::Known);
    assert_eq!(scene.get("watch", "a").await[..8], (FIRST + 80_000).to_be_bytes());
    // As soon as one is heard, places count again.
    assert_eq!(scene.read_until("a", FIRST + 90_000, 20_000, 0, 7).await, Enrolled::Known);
    assert_eq!(blind(&scene, 80_000, 99).await, Enrolled::Stale);
}

#[tokio::test]
async fn one_listener_scans_and_a_second_one_enrols() {
    use Duty::{Enrol, None, Scan};
    let mut scene = Scene::start().await;
    let [a, b, c] = [b"slot---a", b"slot---b", b"slot---c"];
    for (slot, duty) in [(a, Scan), (b, Enrol), (c, None), (a, Scan), (b, Enrol)] {
        assert_eq!(scene.hold(slot, false).await, duty);
    }
    // Each says so again in its own time; whoever comes first takes what is free.
    scene.clock(FIRST + 500).await;
    assert_eq!(scene.hold(b, false).await, Enrol);
    scene.clock(FIRST + 999).await;
    assert_eq!(scene.hold(c, false).await, None);
    scene.clock(FIRST + 1000).await;
    assert_eq!(scene.hold(c, true).await, None, "patience");
    assert_eq!((scene.hold(b, false).await, scene.hold(c, false).await), (Scan, Enrol));
    assert_eq!(scene.hold(a, false).await, None);
    // As long again, and those who are patient may come, too.
    scene.clock(FIRST + 2999).await;
    assert_eq!(scene.hold(a, true).await, None);
    scene.clock(FIRST + 3000).await;
    assert_eq!((scene.hold(a, true).await, scene.hold(c, true).await), (Scan, Enrol));
}

#[tokio::test]
async fn whoever_hears_nothing_keeps_a_duty_for_those_who_do() {
    use Duty::{Enrol, None, Scan};
    let scene = Scene::start().await;
    let [deaf, patient, b, c] = [b"slot---a", b"slot---p", b"slot---b", b"slot---c"];
    assert_eq!((scene.hold(deaf, true).await, scene.hold(b, false).await), (Scan, Enrol));
    // It stays, but against others who hear nothing either.
    for (slot, duty) in [(deaf, Scan), (patient, None), (deaf, Scan), (c, Scan), (deaf, None), (b, Enrol)] {
        assert_eq!(scene.hold(slot, slot == deaf || slot == patient).await, duty);
    }
}

#[tokio::test]
async fn only_whoever_has_a_duty_can_give_it_up_and_then_anybody_may_follow() {
    use Duty::{Enrol, None, Scan};
    let scene = Scene::start().await;
    let [a, b, c] = [b"slot---a", b"slot---b", b"slot---c"];
    assert_eq!((scene.hold(a, false).await, scene.hold(b, false).await), (Scan, Enrol));
    for (slot, follows) in [(c, None), (b, Enrol), (a, Scan)] {
        let slot = SlotId::from_bytes(slot).expect("a slot");
        assert_eq!(scene.store.hold_scanner(&scene.at, slot, 0, false).await.expect("an answer"), None);
        assert_eq!(scene.hold(c, true).await, follows);
    }
}

#[tokio::test]
async fn a_touch_reads_deadlines_and_copies_up_to_a_cap() {
    let mut scene = Scene::start().await;
    for words in [
        &["SET", "app:lasting", "x"][..],
        &["SET", "app:text", "12345678"],
        &["SET", "app:empty", ""],
        &["HSET", "app:hash", "f", "v"],
        &["RPUSH", "app:list", "1", "2", "3", "4", "5", "6"],
    ] {
        scene.say(words).await.expect("it is written");
        if words[1] != "app:lasting" {
            scene.say(&["PEXPIREAT", words[1], &FIRST.to_string()]).await.expect("it has a deadline");
        }
    }
    let names = ["gone", "lasting", "text", "empty", "hash", "list"];
    let keys: Vec<_> = names.iter().map(|name| Bytes::from(format!("app:{name}"))).collect();
    let read = async |cap, dumps| {
        let (_, found) =
            scene.store.read(&keys, &Capture { cap, dumps, ..Capture::default() }).await.expect("an answer");
        assert_eq!((found[0].life, found[1].life), (Life::Gone, Life::Lasting));
        assert!(found[..2].iter().all(|found| found.copy.is_empty()), "{found:?}");
        assert!(found[2..].iter().all(|found| found.life == Life::Until(FIRST)), "{found:?}");
        found.into_iter().skip(2).map(|Found { copy, .. }| copy).collect::<Vec<_>>()
    };
    assert!(read(0, true).await.iter().all(Bytes::is_empty));
    assert_eq!(read(8, false).await, [&b"\x0212345678"[..], b"\x02", b"\x04", b"\x04"]);
    let small = read(7, true).await;
    assert_eq!(small[..2], [&b"\x018"[..], b"\x02"]);
    assert!(small[2].starts_with(b"\x01") && small[2].len() > 1, "its size is known: {small:?}");
    assert_eq!(small[3], &b"\x01"[..], "it was not even begun");
    // The least that its elements can take: a dump was made, and is larger.
    assert!(read(12, true).await[3].len() > 1);
    let large = read(1000, true).await;
    assert!(large[2..].iter().all(|copy| copy[0] == 3 && copy.len() > 2), "{large:?}");
    assert_eq!(read(large[2].len() - 1, true).await[2], large[2], "it just fits");
}

/// How often a command was executed.
async fn calls(line: &mut MultiplexedConnection, command: &str) -> u64 {
    let all: String = cmd("INFO").arg("commandstats").query_async(line).await.expect("INFO");
    let counted = all.lines().find_map(|one| one.strip_prefix(&format!("cmdstat_{command}:calls=")));
    counted.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or_default()
}

/// A hash of which more is asked for than fits is not read: its size is.
#[tokio::test]
async fn a_touch_reads_no_values_of_a_hash_that_is_too_large() {
    let mut scene = Scene::start().await;
    let many: Vec<_> = (0..10_000).map(|n| format!("f{n}")).collect();
    let mut wide = vec!["HSET", "app:wide"];
    wide.extend(many.iter().flat_map(|name| [&**name, "v"]));
    let huge = "x".repeat(1 << 20);
    for words in [&wide[..], &["HSET", "app:heavy", "a", "1", "b", &huge]] {
        scene.say(words).await.expect("it is written");
        scene.say(&["PEXPIREAT", words[1], &FIRST.to_string()]).await.expect("it has a deadline");
    }
    scene.say(&["CONFIG", "RESETSTAT"]).await.expect("it counts anew");
    let mut line = scene.line.clone();
    let keys = ["app:wide", "app:heavy"].map(Bytes::from);
    let named = |names: &[&str]| Fields::Named(names.iter().map(|name| (*name).to_owned()).collect());
    let read = async |cap, fields| {
        let capture = Capture { cap, dumps: true, fields };
        let (_, found) = scene.store.read(&keys, &capture).await.expect("an answer");
        [0, 1].map(|at: usize| found[at].copy.clone())
    };
    assert_eq!(read(79_999, Fields::All).await, [&b"\x01"[..], b"\x01"]);
    assert_eq!(read(1000, named(&["a", "b"])).await, [&b"\x05"[..], b"\x01"]);
    assert_eq!(calls(&mut line, "hmget").await, 1, "but for the fields that are not there");
    assert_eq!(calls(&mut line, "hkeys").await, 1, "not of ten thousand");
    for unbounded in ["hgetall", "hvals", "dump", "hscan"] {
        assert_eq!(calls(&mut line, unbounded).await, 0, "{unbounded}");
    }
    assert_eq!(read(10, named(&["a"])).await, [&b"\x05"[..], b"\x05\0\0\0\x01a\0\0\0\x011"]);
    assert_eq!(read(9, named(&["a"])).await[1], &b"\x0110"[..], "a field counts with its lengths");
    let all = read(1 << 20, Fields::All).await;
    assert_eq!((all[0].len(), &all[1][..]), (1 + 10_000 * 9 + many.concat().len(), &b"\x01"[..]));
}

/// A session that lives longer than was known costs no value.
#[tokio::test]
async fn a_touch_copies_no_value_of_a_key_whose_deadline_is_beyond_the_horizon() {
    let mut scene = Scene::start().await;
    let keys = ["near", "far"].map(|name| Bytes::from(format!("app:{name}")));
    for (key, deadline) in keys.iter().zip([FIRST, FIRST + 1]) {
        let name = std::str::from_utf8(key).expect("a name");
        scene.say(&["SET", name, "x", "PXAT", &deadline.to_string()]).await.expect("it is written");
    }
    let touch = ["EVAL", &scripts::TOUCH.text, "2", "app:near", "app:far", "10", "0"];
    for (horizon, far) in [("0", "\x02x"), (&(FIRST + 1).to_string(), "\x02x"), (&FIRST.to_string(), "")] {
        let answer = scene.say(&[&touch[..], &[horizon, "none"]].concat()).await.expect("an answer");
        let found: Vec<String> = redis::from_redis_value(answer).expect("texts");
        assert_eq!(found[2..], [&FIRST.to_string(), "\x02x", &(FIRST + 1).to_string(), far], "{horizon}");
    }
}

#[tokio::test]
async fn a_key_is_written_back_if_its_name_is_free() {
    let mut scene = Scene::start().await;
    scene.say(&["HSET", "app:hash", "f", "v"]).await.expect("a hash");
    scene.say(&["PEXPIREAT", "app:hash", &FIRST.to_string()]).await.expect("it has a deadline");
    let hash = [Bytes::from("app:hash")];
    let read = async |scene: &Scene| {
        let read = scene.store.read(&hash, &Capture { cap: 1000, dumps: true, ..Capture::default() }).await;
        read.expect("an answer").1.remove(0)
    };
    let before = read(&scene).await;
    scene.say(&["DEL", "app:hash"]).await.expect("it is gone");
    let later = FIRST + 5;
    let restore = async |scene: &Scene, key: &str, deadline: u64, copy: &[u8]| {
        scene.store.write_back(key.as_bytes(), deadline, copy).await.expect("an answer")
    };
    assert_eq!(restore(&scene, "app:hash", later, &before.copy).await, TriggerKey::Set);
    assert_eq!(restore(&scene, "app:hash", later, &before.copy).await, TriggerKey::Taken);
    assert_eq!(read(&scene).await, Found { life: Life::Until(later), copy: before.copy });

    assert_eq!(restore(&scene, "app:text", FIRST, b"\x02value").await, TriggerKey::None);
    assert_eq!(restore(&scene, "app:text", later, b"\x02value").await, TriggerKey::Set);
    scene.say(&["SET", "app:text", "its writer's"]).await.expect("SET");
    assert_eq!(restore(&scene, "app:text", later, b"\x02value").await, TriggerKey::Taken);
    let found = scene.store.read(&["app:text".into()], &Capture { cap: 99, ..Capture::default() }).await;
    assert_eq!(found.expect("it is read").1[0].life, Life::Lasting, "it was left alone");
}

/// A retry whose key was written back ends when its writer comes first.
#[tokio::test]
async fn a_key_that_was_written_back_is_told_from_its_writers() {
    let mut scene = Scene::start().await;
    let how = Policy { write_back: Some(WriteBack::unchanged()), ..on() };
    for (key, life) in [("ours", 0), ("theirs", 500), ("heard", 0), ("early", 0)] {
        scene.clock(FIRST).await;
        assert_eq!(scene.note_as(&how, key, 0, 1).await, Noted::Lapse);
        let (_, held, _) = scene.claim().await.remove(0);
        let settled = scene.settle(held, retry()).await;
        let SettleReply::Settled(Some((until, arming))) = settled else { panic!("{settled:?}") };
        let enrolled = scene.enrol_as(&how, key, until + life, (FIRST, 1), stamp(9), b"").await;
        let (says, waits) = match key {
            "ours" => (Enrolled::Ours, true),
            "theirs" => (Enrolled::New, false),
            // Heard without having been read: at its deadline it is what was written back.
            "heard" => {
                scene.clock(until).await;
                assert_eq!(scene.note_as(&how, key, 500, 1).await, Noted::Returned);
                (enrolled, true)
            }
            _ => {
                assert_eq!(scene.note_as(&how, key, 500, 1).await, Noted::Superseding);
                let record = Record::decode(scene.get("rec", key).await).expect("a record");
                assert_ne!(record.arming, arming);
                (enrolled, true)
            }
        };
        assert_eq!(enrolled, says, "{key}");
        let (rec, due) = (scene.at.key("rec").to_owned(), scene.at.key("due").to_owned());
        let removed = scene.say(&["HDEL", &rec, key]).await.expect("an answer");
        assert_eq!(removed, redis::Value::Int(waits.into()), "{key}");
        scene.say(&["ZREM", &due, key]).await.expect("it is gone");
    }
}

/// Whichever name holds a value of another type, it is named.
#[tokio::test]
async fn a_value_of_another_type_is_named_under_each_name_of_an_attached_topic() {
    let mut scene = Scene::start().await;
    for what in ["watch", "values", "checks", "history", "history_old", "scanner"] {
        let name = scene.at.key(what).to_owned();
        scene.say(&["DEL", &name]).await.expect("it is free");
        scene.say(&["RPUSH", &name, "not yours"]).await.expect("it is spoilt");
        let (store, at, slot) = (&scene.store, &scene.at, SlotId::random());
        let note = Note { identity: since(FIRST, (FIRST, 1)), ..scene.note_of("a") };
        let (at_first, deadline) = (place((FIRST, 0)), FIRST + 1000);
        let read =
            Enrolment { key: "b".into(), deadline, at: at_first, stamp: stamp(0), copy: "\x02value".into() };
        let errors = [
            store.note(at, &on(), &[note]).await.err(),
            store.enrol(at, &on(), &[read]).await.err(),
            store.checks(at, take(10, 5000)).await.err(),
            store.hold_scanner(at, slot, 1000, false).await.err(),
        ];
        assert!(errors.iter().any(Option::is_some), "{what} is used");
        for error in errors.into_iter().flatten() {
            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(name.as_bytes())), "{error}");
        }
        scene.say(&["DEL", &name]).await.expect("it is free again");
    }
}

fn take(limit: usize, hold_ms: u64) -> TakeChecks {
    TakeChecks { slot: SlotId::from_bytes(b"the-slot").expect("a slot"), limit, hold_ms, overdue_ms: 0 }
}
