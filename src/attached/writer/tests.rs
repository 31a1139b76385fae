use futures::FutureExt;
use tokio::task::JoinSet;

use super::*;
use crate::attached::Attached;
use crate::attached::known::KnownDeadlines;
use crate::attached::request::{ReadBudget, Readers};
use crate::id::ArmingId;
use crate::lapse::Lapse;
use crate::listener::{AttachedBacklog, Listener};
use crate::outcome::{Done, Failure};
use crate::policy::{CopySpec, FieldSelection};
use crate::rig::Rig;
use crate::runtime::ByteGauge;
use crate::time::ServerTime;
use crate::topic::Topic;
use crate::wire::{ExpiryIdentity, NodeId, Position};
use keylapse_testserver::CallFault;

/// Eight such values fill the read budget.
const LARGE: CopySpec = CopySpec { cap: (1 << 20) - 500, dumps: false, fields: FieldSelection::None };

/// The running writer of the only partition of `a:{id}`.
struct Scene {
    bed: Rig,
    context: PartitionContext,
    writes: WriteSender,
    _running: JoinSet<()>,
    _requests: mpsc::Receiver<ReaderRequest>,
    listener: Listener,
}

impl Scene {
    fn start() -> Self {
        let bed = Rig::new();
        let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
        let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap()).keep_values(1024);
        let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
        let runtime = listener.runtime.clone();
        let (asking, requests) = mpsc::channel(100);
        let readers = Readers::new(runtime.client.store.topology());
        readers.add(NodeId::NONE, None, asking);
        let context = PartitionContext {
            index: 0,
            partition: runtime.partitions[0].clone(),
            known: runtime.stream_state.subscribe(),
            readers,
            prompts: Arc::default(),
            deadlines: Arc::new(KnownDeadlines::new()),
            budget: ReadBudget::new(runtime.backlog.reads.clone()),
        };
        let (writer, writes, waiting) = Writer::new(context.clone(), runtime.backlog.writes.clone());
        let mut running = JoinSet::new();
        running.spawn(writer.run(waiting));
        Self { bed, context, writes, _running: running, _requests: requests, listener }
    }

    async fn note(&self, key: &'static str) {
        let at = Position { canary: 1_700_000_000_000, count: 1, ..Position::default() };
        let identity = ExpiryIdentity::Anchored { at, since: at.canary };
        let note = AnnouncedExpiry { key: key.into(), identity, arming: ArmingId::random() };
        self.writes.send(Write::RecordExpiry(note), ReadReservation::default()).await;
    }

    async fn enrol(&self, key: &'static str, room: ReadReservation) -> Option<PendingDeadline> {
        let (stamp, deadline) = (ServerTime::from_ms(1_700_000_000_001), 4_000_000_000_000);
        let at = Position { canary: 1_700_000_000_001, ..Position::default() };
        let read = DeadlineReading {
            key: key.into(),
            deadline,
            at,
            stamp,
            requested_at: ServerTime::default(),
            copy: "\x02x".into(),
        };
        let pending = self.context.deadlines.add_pending(key.as_bytes(), deadline, stamp);
        self.writes.send(Write::Track(read, pending), room).await;
        pending
    }

    async fn written(&self) -> bool {
        let (done, written) = oneshot::channel();
        self.writes.send(Write::Notify(done), ReadReservation::default()).await;
        written.await.is_ok()
    }

    fn waits(&self) -> (usize, usize) {
        let AttachedBacklog { reads, writes } = self.listener.health().attached_backlog();
        (reads, writes)
    }

    fn is_covered(&self, key: &str) -> bool {
        let stamp = ServerTime::from_ms(1_700_000_000_002);
        self.context.deadlines.covers(key.as_bytes(), 4_000_000_000_001, stamp)
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_known_once_its_enrolment_is_written_and_not_if_that_is_refused_or_unknown() {
    for fault in [None, Some(CallFault::Refused("WRONGTYPE")), Some(CallFault::Unanswered)] {
        let scene = Scene::start();
        scene.enrol("first", ReadReservation::default()).await;
        assert!(scene.written().await && scene.is_covered("first"));
        let fails = fault.is_some();
        fault.into_iter().for_each(|fault| scene.bed.calls().fail("track_keys", fault, 1));
        scene.enrol("a", ReadReservation::default()).await;
        assert!(!scene.is_covered("a"), "it is not written yet");
        scene.written().await;
        assert_eq!(scene.is_covered("a"), !fails, "{fails}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_ended_meanwhile_is_not_known_by_an_enrolment_of_its_last_life() {
    let scene = Scene::start();
    scene.enrol("a", ReadReservation::default()).await;
    scene.context.deadlines.forget(b"a");
    assert!(scene.written().await && !scene.is_covered("a"));
}

#[tokio::test(start_paused = true)]
async fn room_is_taken_until_what_was_read_is_written() {
    let scene = Scene::start();
    assert_eq!(scene.waits(), (0, 0));
    for _ in 0..20 {
        let room = scene.context.budget.reserve(1, 100, &LARGE).await;
        let (reads, _) = scene.waits();
        assert!((LARGE.cap..=8 << 20).contains(&reads), "{reads} bytes");
        scene.enrol("a", room).await;
    }
    assert!(scene.written().await);
    assert_eq!(scene.waits(), (0, 0), "all is written");
    assert!(scene.bed.calls().made("track_keys").len() >= 2, "earlier deadlines had to be written first");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_takes_no_notes_does_not_keep_the_room_of_others() {
    let scene = Scene::start();
    scene.bed.calls().fail("record_expiries", CallFault::Refused("WRONGTYPE"), 1_000_000);
    scene.note("a").await;
    for _ in 0..20 {
        let room = timeout(2 * PARK_AFTER, scene.context.budget.reserve(1, 100, &LARGE)).await.expect("room");
        scene.enrol("b", room).await;
    }
    let (_, writes) = scene.waits();
    assert!(writes > WRITE_OVERHEAD, "the expiry waits");
    assert!(!scene.written().await, "the requester learns that nothing was written");
    scene.bed.calls().heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.enrol("c", ReadReservation::default()).await;
    assert!(scene.written().await && scene.is_covered("c"), "the partition takes deadlines again");
    assert_eq!(scene.context.partition.topic.attached.recorded.get(), 1);
}

/// Otherwise it would be read and refused repeatedly, while its listener is behind.
#[tokio::test(start_paused = true)]
async fn a_key_of_which_others_have_heard_more_is_read_again_after_a_while_and_not_at_once() {
    let scene = Scene::start();
    let at = Position { canary: 1_700_000_000_009, count: 1, ..Position::default() };
    let identity = ExpiryIdentity::Anchored { at, since: at.canary };
    let note = AnnouncedExpiry { key: "a".into(), identity, arming: ArmingId::random() };
    scene.writes.send(Write::RecordExpiry(note), ReadReservation::default()).await;
    scene.enrol("a", ReadReservation::default()).await;
    assert!(scene.written().await && !scene.is_covered("a"), "it is refused");
    let prompts = &scene.context.prompts;
    assert!(prompts.take_all().keys.is_empty(), "not at once");
    timeout(2 * REREAD_DELAY, prompts.wait_for_news()).await.expect("after a while");
    assert_eq!(prompts.take_all().keys, [("a".into(), PromptReason::Wanted)].into());
}

#[tokio::test(start_paused = true)]
async fn four_mebibytes_of_keys_wait_to_be_read_again_and_the_others_are_left_to_a_scan() {
    let scene = Scene::start();
    let (writer, ..) = Writer::new(scene.context.clone(), ByteGauge::default());
    let prompts = &scene.context.prompts;
    let again = |number: usize| writer.read_again(vec![format!("{number:04096}").into()], REREAD_DELAY);
    let fitting = (4 << 20) / (4096 + WRITE_OVERHEAD);
    (0..fitting + 3).for_each(again);
    let prompted = prompts.take_all();
    assert_eq!((prompted.keys.len(), prompted.dropped), (0, 3));
    tokio::time::sleep(2 * REREAD_DELAY).await;
    assert_eq!(prompts.take_all().keys.len(), fitting);
    again(0);
    tokio::time::sleep(2 * REREAD_DELAY).await;
    let prompted = prompts.take_all();
    assert_eq!((prompted.keys.len(), prompted.dropped), (1, 0), "there is room again");
}

/// A `Notify` makes no call, so its duration does not show how fast the connection is.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_reading_does_not_make_a_slow_line_look_quick() {
    let scene = Scene::start();
    let (mut writer, _, mut writes) = Writer::new(scene.context.clone(), ByteGauge::default());
    let mut waiting = WriteQueue { last_other_call: Duration::from_secs(1), ..WriteQueue::default() };
    let queued = |write| QueuedWrite {
        write,
        _waits: (None, ByteGauge::default().add(0)),
        _read: ReadReservation::default(),
    };
    waiting.push(queued(Write::Notify(oneshot::channel().0)));
    let call = waiting.next_call();
    writer.write(call, &mut waiting, &mut writes).await;
    for number in 0..100_u32 {
        let (key, at, stamp) = (number.to_string().into(), Position::default(), ServerTime::from_ms(1));
        let read = DeadlineReading {
            key,
            deadline: 1,
            at,
            stamp,
            requested_at: ServerTime::default(),
            copy: Bytes::new(),
        };
        waiting.push(queued(Write::Track(read, None)));
    }
    assert_eq!(waiting.next_call().len(), 100, "all in one call");
}

#[test]
fn notes_and_all_else_each_have_their_bytes_and_beyond_the_reader_waits() {
    let (writes, mut waiting) = WriteSender::new(ByteGauge::default());
    let key = Bytes::from(vec![b'a'; 4096]);
    let note = || {
        let note = AnnouncedExpiry {
            key: key.clone(),
            identity: ExpiryIdentity::Unknown(NodeId::NONE),
            arming: ArmingId::random(),
        };
        writes.send(Write::RecordExpiry(note), ReadReservation::default()).now_or_never()
    };
    let enrol = || {
        let (at, stamp, asked) = (Position::default(), ServerTime::default(), ServerTime::default());
        let read = DeadlineReading {
            key: key.clone(),
            deadline: 1,
            at,
            stamp,
            requested_at: asked,
            copy: Bytes::new(),
        };
        writes.send(Write::Track(read, None), ReadReservation::default()).now_or_never()
    };
    let fitting = |bytes: usize| bytes / (4096 + WRITE_OVERHEAD);
    assert_eq!(
        (0..fitting(MAX_WAITING_EXPIRY_BYTES) + 10).filter_map(|_| note()).count(),
        fitting(MAX_WAITING_EXPIRY_BYTES)
    );
    assert_eq!(
        (0..fitting(MAX_OTHER_WAITING_BYTES) + 10).filter_map(|_| enrol()).count(),
        fitting(MAX_OTHER_WAITING_BYTES)
    );
    drop(waiting.try_recv());
    assert!(note().is_some() && note().is_none() && enrol().is_none(), "the first write was an expiry");
}
