use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::*;
use crate::attached::Attached;
use crate::attached::reader::reads::MAX_RECHECKS_IN_FLIGHT;
use crate::attached::request::{DeadlineCheck, TrackRequest};
use crate::attached::writer::QueuedWrite;
use crate::connection::{Cluster, Endpoint, NodeRole};
use crate::events::{KeyReadKind, KeyReadReply};
use crate::lapse::Lapse;
use crate::listener::Listener;
use crate::outcome::{Done, Failure};
use crate::policy::CopySpec;
use crate::rig::Rig;
use crate::runtime::ByteGauge;
use crate::time::ClockReading;
use crate::topic::Topic;
use crate::wire::{CheckAction, CheckResult, KeyDeadline, KeySnapshot, NodeId};

const NOW: u64 = 1_700_000_000_000;

/// Returns a reader of one attached topic on the only server, and the reads that it requests.
fn reader(
    deadlines: &Arc<KnownDeadlines>,
    writers: HashMap<usize, WriteSender>,
) -> (StreamReader, mpsc::Receiver<KeyRead>) {
    reader_of(None, deadlines, writers)
}

/// Returns a reader like [`reader`], of a server with these peers.
fn reader_of(
    peers: Option<Peers>,
    deadlines: &Arc<KnownDeadlines>,
    writers: HashMap<usize, WriteSender>,
) -> (StreamReader, mpsc::Receiver<KeyRead>) {
    let bed = Rig::new();
    let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
    let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
    let (key_reads, asked) = mpsc::channel(1);
    let (runtime, node) = (listener.runtime.clone(), NodeState::of(&listener.runtime));
    runtime.add_node(&node);
    let (readers, writers) = (Readers::new(runtime.client.store.topology()), Arc::new(writers));
    let (prompts, deadlines) = (Arc::default(), deadlines.clone());
    let context = ReaderContext { runtime, prompts, deadlines, writers, readers };
    (StreamReader::new(context, node, peers, key_reads).0, asked)
}

/// Returns the peers of a node that was a primary. None of them can be reached.
fn a_primary() -> Peers {
    named(Peers::of_new_node)
}

fn named(by: fn(Arc<Cluster>, Endpoint, bool) -> Peers) -> Peers {
    let endpoint = Endpoint::read("127.0.0.1:7000", 0).expect("an endpoint");
    by(Cluster::new(Vec::new(), Arc::default(), Duration::from_secs(1)), endpoint, true)
}

fn canary(number: u64) -> ReaderEvent {
    ReaderEvent::Canary(Canary { number, before: number - 1, writes: true, expires: true })
}

fn until(deadline: u64) -> KeySnapshot {
    KeySnapshot { stamp: ServerTime::from_ms(NOW), life: KeyDeadline::Until(deadline), copy: Bytes::new() }
}

/// Otherwise keys that were tracked before the anchor and are gone would never be decided.
#[tokio::test(start_paused = true)]
async fn the_time_of_an_anchor_is_asked_for_with_each_canary_until_it_is_known() {
    let (mut reader, mut asked) = reader(&Arc::new(KnownDeadlines::new()), HashMap::new());
    let others = KeyRead { id: 1000, keys: Vec::new(), kind: KeyReadKind::Deadlines };
    reader.key_reads.try_send(others).expect("there is room for one");

    reader.handle_event(canary(1)).await;
    assert_eq!(asked.try_recv().map(|read| read.id), Ok(1000), "the queue had no space for another read");
    reader.handle_event(canary(2)).await;
    let id = asked.try_recv().expect("the time is read again").id;
    reader.handle_event(canary(3)).await;
    assert!(asked.try_recv().is_err(), "the read is in flight");
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer: None, refused: None })).await;
    reader.handle_event(canary(4)).await;
    let id = asked.try_recv().expect("the last read had no answer").id;
    let answer = Some((ServerTime::from_ms(5), Vec::new()));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;
    reader.handle_event(canary(5)).await;
    assert!(asked.try_recv().is_err(), "the time is known");
}

/// If a TTL was extended, only the deadline is read. All other keys are read as if they were new.
#[tokio::test(start_paused = true)]
async fn what_a_glance_does_not_cover_is_read() {
    let (deadlines, waiting) = (Arc::new(KnownDeadlines::new()), ByteGauge::default());
    let (writes, mut written) = WriteSender::new(waiting);
    let (mut reader, mut asked) = reader(&deadlines, HashMap::from([(0, writes)]));
    reader.handle_event(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;

    let known = NOW + 60_000;
    let keys: Vec<_> = ["longer", "same", "shorter", "gone", "heard"].map(Bytes::from).into();
    for key in &keys {
        let pending = deadlines.add_pending(key, known, ServerTime::from_ms(NOW)).expect("there is room");
        deadlines.confirm(pending);
    }
    let found = [
        until(known + 1),
        until(known),
        until(known - 1),
        KeySnapshot { life: KeyDeadline::Gone, ..until(0) },
        until(known),
    ];
    let (done, _end) = oneshot::channel();
    let all = TrackRequest::of(0, keys.clone(), CopySpec::default());
    reader.submit_request(ReaderRequest::TrackUncovered(TrackRequest { done: Some(done), ..all }));
    let read = asked.try_recv().expect("a glance");
    assert_eq!((read.kind, read.keys.len()), (KeyReadKind::Deadlines, 5));
    // Its next expiry cycle may have begun, which the index does not have.
    reader.handle_event(ReaderEvent::Expired(0, Bytes::from("heard"))).await;
    let answer = Some((ServerTime::from_ms(NOW + 5), found.into()));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id: read.id, answer, refused: None })).await;
    let read = asked.try_recv().expect("what is not covered is read");
    assert_eq!(read.keys, ["shorter", "gone", "heard"]);
    assert!(matches!(read.kind, KeyReadKind::DeadlinesAndValues { .. }));

    let noted = written.try_recv().expect("the expiry").write;
    assert!(matches!(noted, Write::RecordExpiry(note) if note.key == "heard"));
    assert!(written.try_recv().is_err(), "a read of deadlines alone writes nothing");
    let (done, _end) = oneshot::channel();
    let longer = TrackRequest::of(0, vec![keys[0].clone()], CopySpec::default());
    reader.submit_request(ReaderRequest::TrackUncovered(TrackRequest { done: Some(done), ..longer }));
    let read = asked.try_recv().expect("another");
    let answer = Some((ServerTime::from_ms(NOW + 6), vec![until(known + 2)]));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id: read.id, answer, refused: None })).await;
    assert!(asked.try_recv().is_err(), "it is covered");
    assert!(
        matches!(written.try_recv().map(|last| last.write), Ok(Write::Notify(_))),
        "the requester is notified"
    );
}

/// Otherwise it would fire as recovered, and again when another listener records its expiry.
#[tokio::test(start_paused = true)]
async fn in_a_gap_no_look_is_made_and_none_that_is_answered_then_says_anything() {
    for is_alone in [true, false] {
        let (writes, mut written) = WriteSender::new(ByteGauge::default());
        let peers = (!is_alone).then(a_primary);
        let deadlines = Arc::new(KnownDeadlines::new());
        let (mut reader, mut asked) = reader_of(peers, &deadlines, HashMap::from([(0, writes)]));
        reader.apply_role(NodeRole::Primary).await;
        reader.handle_event(canary(1)).await;
        let anchor = asked.try_recv().expect("the time of the anchor is asked for");
        reader.handle_event(gone(&anchor)).await;
        let at = reader.stream.position_of(&Bytes::from("key"));
        let check = || {
            let (key, head) = (Bytes::from("key"), Bytes::new());
            let keys = vec![TrackedKey { key, head, deadline: NOW - 1, at, announced_elsewhere: false }];
            let (capture, room) = (CopySpec::default(), ReadReservation::default());
            ReaderRequest::Check(DeadlineCheck { partition: 0, keys, capture, horizon: 0, room })
        };
        let read = || ReaderRequest::Track(TrackRequest::of(0, vec!["another".into()], CopySpec::default()));
        for (begun, found) in
            [(check(), KeySnapshot { life: KeyDeadline::Gone, ..until(0) }), (read(), until(NOW + 1000))]
        {
            reader.submit_request(begun);
            let id = asked.try_recv().expect("it is read").id;
            reader.handle_event(ReaderEvent::Lost).await;
            let answer = Some((ServerTime::from_ms(NOW), vec![found]));
            reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;
            reader.submit_request(check());
            reader.submit_request(read());
            assert!(asked.try_recv().is_err(), "nothing is asked for");
            reader.handle_event(canary(reader.stream.last_canary + 2)).await;
            reader.apply_role(NodeRole::Primary).await;
            while let Ok(read) = asked.try_recv() {
                reader.handle_event(gone(&read)).await;
            }
            assert!(written.try_recv().is_err(), "nothing follows");
        }
        reader.submit_request(check());
        let read = asked.try_recv().expect("it is read");
        reader.handle_event(gone(&read)).await;
        let judged = written.try_recv().expect("it is judged").write;
        assert!(matches!(judged, Write::ApplyCheck(CheckResult { deed: CheckAction::Fire { .. }, .. })));
    }
}

/// If clocks of two servers were compared, a key that is not due by its own clock would be checked without end.
#[tokio::test(start_paused = true)]
async fn a_look_that_came_too_early_comes_again_when_the_clock_of_the_keys_server_gets_there() {
    const HOUR: u64 = 3_600_000;
    let (writes, mut written) = WriteSender::new(ByteGauge::default());
    let deadlines = Arc::new(KnownDeadlines::new());
    let (mut reader, mut asked) = reader_of(Some(a_primary()), &deadlines, HashMap::from([(0, writes)]));
    reader.apply_role(NodeRole::Primary).await;
    reader.handle_event(canary(1)).await;
    while asked.try_recv().is_ok() {}
    let ahead = ServerTime::from_ms(NOW + HOUR);
    reader.runtime.partitions[0].clock.update(Instant::now(), ClockReading::now(ahead));

    for (left, pause) in [(500, 502), (0, 2)] {
        let key = Bytes::from("key");
        let tracked = TrackedKey {
            key,
            head: Bytes::new(),
            deadline: NOW + left,
            at: Position::default(),
            announced_elsewhere: false,
        };
        let (capture, room) = (CopySpec::default(), ReadReservation::default());
        reader.submit_request(ReaderRequest::Check(DeadlineCheck {
            partition: 0,
            keys: vec![tracked],
            capture,
            horizon: 0,
            room,
        }));
        let id = asked.try_recv().expect("it is read").id;
        let answer = Some((ServerTime::from_ms(NOW), vec![until(NOW + left)]));
        reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;
        let Ok(Write::ApplyCheck(judged)) = written.try_recv().map(|last| last.write) else {
            panic!("no verdict")
        };
        let CheckAction::Again { at } = judged.deed else { panic!("{:?}", judged.deed) };
        assert_eq!(at - NOW - HOUR, pause);
    }
}

/// Otherwise the expiry of an untracked key would be lost.
#[tokio::test(start_paused = true)]
async fn what_a_replaced_server_has_announced_is_kept_while_nobody_is_known_to_have_its_slots() {
    let (mut reader, _asked) = reader_of(Some(a_primary()), &Arc::new(KnownDeadlines::new()), HashMap::new());
    reader.handle_event(canary(1)).await;
    reader.handle_event(ReaderEvent::Expired(0, Bytes::from("before"))).await;
    assert!(!reader.has_to_pass_on(), "it may be a primary");
    reader.apply_role(NodeRole::Replica).await;
    assert!(reader.has_to_pass_on() && reader.pending.is_empty());
    reader.submit_request(ReaderRequest::CheckReplaced(NodeId::NONE, vec![Bytes::from("another's")]));
    reader.pass_on();
    assert_eq!((reader.has_to_pass_on(), reader.replaced_keys.len()), (true, 2));
}

/// Otherwise keys that a replaced server announced would be lost while the reader of their owner is busy.
#[tokio::test(start_paused = true)]
async fn with_a_thousand_requests_waiting_who_asks_waits_and_a_reader_asks_again_later() {
    let (mut reader, _asked) = reader_of(Some(a_primary()), &Arc::new(KnownDeadlines::new()), HashMap::new());
    let (context, node, (key_reads, _requested)) =
        (reader.context.clone(), reader.node.clone(), mpsc::channel(1));
    let (owner, mut requests) = StreamReader::new(context, node, None, key_reads);
    let asking = owner.request_sender();
    reader.readers.add(NodeId::NONE, None, asking.clone());
    while asking.try_send(ReaderRequest::BeginGap).is_ok() {}
    assert_eq!(requests.len(), 1024);
    assert!(asking.send(ReaderRequest::BeginGap).now_or_never().is_none(), "a watcher waits");
    reader.apply_role(NodeRole::Replica).await;
    reader.keep_replaced(NodeId::NONE, vec![Bytes::from("a:1")]);
    reader.pass_on();
    assert!(reader.has_to_pass_on(), "the queue was full");
    assert!(matches!(requests.try_recv(), Ok(ReaderRequest::BeginGap)));
    reader.pass_on();
    assert!(!reader.has_to_pass_on() && requests.len() == 1024);
}

/// Each read is a task, so answers may arrive in another order than the server sent them.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_what_was_asked_before_an_answer_that_ended_it_begins_no_other() {
    let (writes, _written) = WriteSender::new(ByteGauge::default());
    let (mut reader, mut asked) = reader(&Arc::new(KnownDeadlines::new()), HashMap::from([(0, writes)]));
    reader.handle_event(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;

    let mut ids = Vec::new();
    for _ in 0..4 {
        reader.submit_request(ReaderRequest::Track(TrackRequest::of(
            0,
            vec!["a:1".into()],
            CopySpec::default(),
        )));
        ids.push(asked.try_recv().expect("a read").id);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let error = "the user may not run the 'get' command on them";
    let refused = |id| ReaderEvent::KeysRead(KeyReadReply { id, answer: None, refused: Some(error.into()) });
    let refusals = |reader: &StreamReader| reader.topic(0).refusals.all().len();
    reader.handle_event(refused(ids[0])).await;
    assert_eq!(refusals(&reader), 1);
    let found = KeySnapshot { copy: Bytes::from_static(b"\x02a"), ..until(NOW + 60_000) };
    let answer = Some((ServerTime::from_ms(NOW), vec![found]));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id: ids[2], answer, refused: None })).await;
    assert_eq!(refusals(&reader), 0, "the permission was granted");
    reader.handle_event(refused(ids[1])).await;
    assert_eq!(refusals(&reader), 0, "that read was sent before the grant");
    reader.handle_event(refused(ids[3])).await;
    assert_eq!(refusals(&reader), 1, "the permission is revoked again");
}

/// Returns a reader after a gap in which this number of keys expired, and after the heartbeat that ended it.
async fn after_a_gap(
    keys: usize,
    key_reads: usize,
) -> (StreamReader, mpsc::Receiver<KeyRead>, mpsc::UnboundedReceiver<QueuedWrite>) {
    let (writes, written) = WriteSender::new(ByteGauge::default());
    let (mut reader, _) = reader(&Arc::new(KnownDeadlines::new()), HashMap::from([(0, writes)]));
    let (sender, mut asked) = mpsc::channel(key_reads);
    reader.key_reads = sender;
    reader.handle_event(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.handle_event(ReaderEvent::KeysRead(KeyReadReply { id, answer, refused: None })).await;
    reader.handle_event(ReaderEvent::Lost).await;
    for number in 0..keys {
        reader.handle_event(ReaderEvent::Expired(0, format!("a:{number}").into())).await;
    }
    reader.handle_event(canary(3)).await;
    (reader, asked, written)
}

/// Returns the answer that all keys of a read are gone.
fn gone(read: &KeyRead) -> ReaderEvent {
    let found = vec![KeySnapshot { life: KeyDeadline::Gone, ..until(0) }; read.keys.len()];
    let answer = Some((ServerTime::from_ms(NOW), found));
    ReaderEvent::KeysRead(KeyReadReply { id: read.id, answer, refused: None })
}

fn count(written: &mut mpsc::UnboundedReceiver<QueuedWrite>) -> usize {
    std::iter::from_fn(|| written.try_recv().ok())
        .filter(|one| matches!(one.write, Write::RecordExpiry(_)))
        .count()
}

/// Otherwise each read would hold its keys, its request and its answer in memory at the same time.
#[tokio::test(start_paused = true)]
async fn keys_that_were_heard_in_a_gap_are_read_by_a_few_touches_at_a_time() {
    let (mut reader, mut asked, mut written) = after_a_gap(10_250, 1024).await;
    let (mut waiting, mut answered) = (VecDeque::new(), 0);
    loop {
        waiting.extend(std::iter::from_fn(|| asked.try_recv().ok()));
        assert!(waiting.len() <= MAX_RECHECKS_IN_FLIGHT && waiting.iter().all(|read| read.keys.len() <= 500));
        let Some(read) = waiting.pop_front() else { break };
        reader.handle_event(gone(&read)).await;
        answered += read.keys.len();
    }
    assert_eq!((answered, count(&mut written)), (10_250, 10_250));
    assert!(reader.pending.is_empty());
}

/// Expiries are recorded even if their keys cannot be read.
#[tokio::test(start_paused = true)]
async fn keys_that_were_heard_in_a_gap_and_find_no_touch_fire_all_the_same_and_once() {
    let (mut reader, mut asked, mut written) = after_a_gap(10_250, 1).await;
    reader.record_closed_gaps().await;
    assert_eq!(count(&mut written), 10_250);
    let read = asked.try_recv().expect("the queue had space for one read");
    reader.handle_event(gone(&read)).await;
    assert_eq!(count(&mut written), 0);
}

/// Checks find further deleted keys at their deadlines.
#[tokio::test(start_paused = true)]
async fn of_more_than_a_hundred_thousand_deleted_keys_the_others_are_left_to_their_deadlines() {
    let (mut reader, mut asked, _written) = after_a_gap(0, 1024).await;
    while let Ok(read) = asked.try_recv() {
        reader.handle_event(gone(&read)).await;
    }
    for first in (0..MAX_DELETED_KEYS + 500).step_by(500) {
        let keys: Vec<Bytes> = (first..first + 500).map(|number| format!("a:{number}").into()).collect();
        for key in &keys {
            reader.handle_event(ReaderEvent::Deleted(key.clone())).await;
        }
        reader.submit_request(ReaderRequest::Track(TrackRequest {
            prompted: true,
            ..TrackRequest::of(0, keys, CopySpec::default())
        }));
        let read = asked.try_recv().expect("they are read");
        reader.handle_event(gone(&read)).await;
    }
    assert_eq!(reader.deleted.len(), MAX_DELETED_KEYS);
}

/// Before the first heartbeat of a new listener, others may have recorded the expiries already. A running listener has
/// missed no event of a server that joins later.
#[tokio::test(start_paused = true)]
async fn what_is_announced_before_the_first_canary_is_kept_of_a_server_that_comes_later() {
    for (peers, kept) in [(named(Peers::of_initial_node), false), (a_primary(), true)] {
        let (mut reader, _asked) = reader_of(Some(peers), &Arc::new(KnownDeadlines::new()), HashMap::new());
        reader.handle_event(ReaderEvent::Expired(0, Bytes::from("early"))).await;
        assert_eq!(!reader.pending.is_empty(), kept);
        reader.handle_event(canary(1)).await;
        reader.handle_event(ReaderEvent::Expired(0, Bytes::from("later"))).await;
        assert!(!reader.pending.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_for_the_reader_is_counted_and_heard_of_before_what_comes_then() {
    const SENT: usize = 2 * MAX_READER_QUEUE_BYTES / 4096;
    let bed = Rig::new();
    let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
    let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
    let (mut queue, events) = ReaderQueue::new(listener.runtime.clone());
    let key = Bytes::from(vec![b'a'; 4096]);
    (0..SENT).for_each(|_| queue.push_event(ReaderEvent::Expired(0, key.clone())));
    let lost = listener.runtime.partitions[0].topic.attached.lost_untracked.get() as usize;
    let waiting: Vec<_> = std::iter::from_fn(|| events.try_recv()).collect();
    assert!(waiting.iter().all(|one| matches!(one, ReaderEvent::Expired(..))));
    assert!(lost > 0 && waiting.len() + lost == SENT, "{lost} lost");
    assert!(waiting.len() >= MAX_READER_QUEUE_BYTES / 4096 * 7 / 8, "{} of {SENT}", waiting.len());
    queue.push_event(ReaderEvent::Deleted(key));
    assert!(matches!(events.try_recv(), Some(ReaderEvent::Dropped)));
    assert!(matches!(events.try_recv(), Some(ReaderEvent::Deleted(_))));
}
