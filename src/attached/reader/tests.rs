use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::*;
use crate::attached::Attached;
use crate::attached::reader::touching::AT_ONCE;
use crate::attached::request::{Look, Read};
use crate::attached::writer::Writing;
use crate::connection::{Cluster, Endpoint, Standing};
use crate::events::{Question, Touched};
use crate::lapse::Lapse;
use crate::listener::Listener;
use crate::outcome::{Done, Failure};
use crate::policy::Capture;
use crate::rig::Rig;
use crate::runtime::Gauge;
use crate::time::Reading;
use crate::topic::Topic;
use crate::wire::{Deed, Found, Judged, Life, NodeId};

const NOW: u64 = 1_700_000_000_000;

/// A reader of one attached topic, and what it asks for.
fn reader(
    deadlines: &Arc<KnownDeadlines>,
    writers: HashMap<usize, Writes>,
) -> (StreamReader, mpsc::Receiver<Touch>) {
    reader_of(None, deadlines, writers)
}

/// One of several servers, whose others say what it is.
fn reader_of(
    peers: Option<Peers>,
    deadlines: &Arc<KnownDeadlines>,
    writers: HashMap<usize, Writes>,
) -> (StreamReader, mpsc::Receiver<Touch>) {
    let bed = Rig::new();
    let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
    let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
    let (touches, asked) = mpsc::channel(1);
    let (runtime, node) = (listener.runtime.clone(), NodeState::of(&listener.runtime));
    runtime.add_node(&node);
    let (readers, writers) = (Readers::new(runtime.client.store.topology()), Arc::new(writers));
    let (prompts, deadlines) = (Arc::default(), deadlines.clone());
    let desk = Desk { runtime, prompts, deadlines, writers, readers };
    (StreamReader::new(desk, node, peers, touches).0, asked)
}

/// One that others have named, whom nobody can ask at present.
fn a_primary() -> Peers {
    named(Peers::nodes)
}

fn named(by: fn(Arc<Cluster>, Endpoint, bool) -> Peers) -> Peers {
    let endpoint = Endpoint::read("127.0.0.1:7000", 0).expect("an endpoint");
    by(Cluster::new(Vec::new(), Arc::default(), Duration::from_secs(1)), endpoint, true)
}

fn canary(number: u64) -> Heard {
    Heard::Canary(Canary { number, before: number - 1, writes: true, expires: true })
}

fn until(deadline: u64) -> Found {
    Found { stamp: ServerTime::from_ms(NOW), life: Life::Until(deadline), copy: Bytes::new() }
}

/// Else what was enrolled before it and is gone would never be judged.
#[tokio::test(start_paused = true)]
async fn the_time_of_an_anchor_is_asked_for_with_each_canary_until_it_is_known() {
    let (mut reader, mut asked) = reader(&Arc::new(KnownDeadlines::new()), HashMap::new());
    let others = Touch { id: 1000, keys: Vec::new(), question: Question::Glance };
    reader.touches.try_send(others).expect("there is room for one");

    reader.heard(canary(1)).await;
    assert_eq!(asked.try_recv().map(|touch| touch.id), Ok(1000), "and no other found room");
    reader.heard(canary(2)).await;
    let id = asked.try_recv().expect("it is asked again").id;
    reader.heard(canary(3)).await;
    assert!(asked.try_recv().is_err(), "the question is on its way");
    reader.heard(Heard::Touched(Touched { id, answer: None, refused: None })).await;
    reader.heard(canary(4)).await;
    let id = asked.try_recv().expect("it was not answered").id;
    let answer = Some((ServerTime::from_ms(5), Vec::new()));
    reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;
    reader.heard(canary(5)).await;
    assert!(asked.try_recv().is_err(), "it is known");
}

/// Of what lives longer than the index knows nothing is read but the deadline; all else is read as if it were new.
#[tokio::test(start_paused = true)]
async fn what_a_glance_does_not_cover_is_read() {
    let (deadlines, waiting) = (Arc::new(KnownDeadlines::new()), Gauge::default());
    let (writes, mut written) = Writes::new(waiting);
    let (mut reader, mut asked) = reader(&deadlines, HashMap::from([(0, writes)]));
    reader.heard(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;

    let known = NOW + 60_000;
    let keys: Vec<_> = ["longer", "same", "shorter", "gone", "heard"].map(Bytes::from).into();
    for key in &keys {
        let pending = deadlines.pend(key, known, ServerTime::from_ms(NOW)).expect("there is room");
        deadlines.confirm(pending);
    }
    let found = [
        until(known + 1),
        until(known),
        until(known - 1),
        Found { life: Life::Gone, ..until(0) },
        until(known),
    ];
    let (done, _end) = oneshot::channel();
    let all = Read::of(0, keys.clone(), Capture::default());
    reader.asked(Request::Glance(Read { done: Some(done), ..all }));
    let glance = asked.try_recv().expect("a glance");
    assert_eq!((glance.question, glance.keys.len()), (Question::Glance, 5));
    // Its next life may have begun, of which the index knows nothing.
    reader.heard(Heard::Expired(0, Bytes::from("heard"))).await;
    let answer = Some((ServerTime::from_ms(NOW + 5), found.into()));
    reader.heard(Heard::Touched(Touched { id: glance.id, answer, refused: None })).await;
    let touch = asked.try_recv().expect("what is not covered is read");
    assert_eq!(touch.keys, ["shorter", "gone", "heard"]);
    assert!(matches!(touch.question, Question::Read { .. }));

    let noted = written.try_recv().expect("the expiry").what;
    assert!(matches!(noted, Write::Note(note) if note.key == "heard"));
    assert!(written.try_recv().is_err(), "nothing follows from a glance");
    let (done, _end) = oneshot::channel();
    let longer = Read::of(0, vec![keys[0].clone()], Capture::default());
    reader.asked(Request::Glance(Read { done: Some(done), ..longer }));
    let glance = asked.try_recv().expect("another");
    let answer = Some((ServerTime::from_ms(NOW + 6), vec![until(known + 2)]));
    reader.heard(Heard::Touched(Touched { id: glance.id, answer, refused: None })).await;
    assert!(asked.try_recv().is_err(), "it is covered");
    assert!(
        matches!(written.try_recv().map(|last| last.what), Ok(Write::Done(_))),
        "and that is the end of it"
    );
}

/// Else it fires as recovered, and once more when another listener notes that it heard the key expire.
#[tokio::test(start_paused = true)]
async fn in_a_gap_no_look_is_made_and_none_that_is_answered_then_says_anything() {
    for is_alone in [true, false] {
        let (writes, mut written) = Writes::new(Gauge::default());
        let peers = (!is_alone).then(a_primary);
        let deadlines = Arc::new(KnownDeadlines::new());
        let (mut reader, mut asked) = reader_of(peers, &deadlines, HashMap::from([(0, writes)]));
        reader.told(Standing::Primary).await;
        reader.heard(canary(1)).await;
        let anchor = asked.try_recv().expect("the time of the anchor is asked for");
        reader.heard(gone(&anchor)).await;
        let at = reader.stream.place(&Bytes::from("key"));
        let look = || {
            let (key, head) = (Bytes::from("key"), Bytes::new());
            let watches = vec![Watch { key, head, deadline: NOW - 1, at, answered: false }];
            let (capture, room) = (Capture::default(), Taken::default());
            Request::Look(Look { partition: 0, watches, capture, horizon: 0, room })
        };
        let read = || Request::Read(Read::of(0, vec!["another".into()], Capture::default()));
        for (begun, found) in [(look(), Found { life: Life::Gone, ..until(0) }), (read(), until(NOW + 1000))]
        {
            reader.asked(begun);
            let id = asked.try_recv().expect("it is read").id;
            reader.heard(Heard::Lost).await;
            let answer = Some((ServerTime::from_ms(NOW), vec![found]));
            reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;
            reader.asked(look());
            reader.asked(read());
            assert!(asked.try_recv().is_err(), "nothing is asked for");
            reader.heard(canary(reader.stream.number + 2)).await;
            reader.told(Standing::Primary).await;
            while let Ok(touch) = asked.try_recv() {
                reader.heard(gone(&touch)).await;
            }
            assert!(written.try_recv().is_err(), "nothing follows");
        }
        reader.asked(look());
        let touch = asked.try_recv().expect("it is read");
        reader.heard(gone(&touch)).await;
        let judged = written.try_recv().expect("it is judged").what;
        assert!(matches!(judged, Write::Judge(Judged { deed: Deed::Fire { .. }, .. })));
    }
}

/// Two servers' clocks are never compared: or a key that is not due yet by its own would be looked at without end.
#[tokio::test(start_paused = true)]
async fn a_look_that_came_too_early_comes_again_when_the_clock_of_the_keys_server_gets_there() {
    const HOUR: u64 = 3_600_000;
    let (writes, mut written) = Writes::new(Gauge::default());
    let deadlines = Arc::new(KnownDeadlines::new());
    let (mut reader, mut asked) = reader_of(Some(a_primary()), &deadlines, HashMap::from([(0, writes)]));
    reader.told(Standing::Primary).await;
    reader.heard(canary(1)).await;
    while asked.try_recv().is_ok() {}
    let ahead = ServerTime::from_ms(NOW + HOUR);
    reader.runtime.partitions[0].clock.read(Instant::now(), Reading::now(ahead));

    for (left, pause) in [(500, 502), (0, 2)] {
        let key = Bytes::from("key");
        let watch =
            Watch { key, head: Bytes::new(), deadline: NOW + left, at: Position::default(), answered: false };
        let (capture, room) = (Capture::default(), Taken::default());
        reader.asked(Request::Look(Look { partition: 0, watches: vec![watch], capture, horizon: 0, room }));
        let id = asked.try_recv().expect("it is read").id;
        let answer = Some((ServerTime::from_ms(NOW), vec![until(NOW + left)]));
        reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;
        let Ok(Write::Judge(judged)) = written.try_recv().map(|last| last.what) else { panic!("no verdict") };
        let Deed::Again { at } = judged.deed else { panic!("{:?}", judged.deed) };
        assert_eq!(at - NOW - HOUR, pause);
    }
}

/// Else nobody would say it of a key that was not enrolled.
#[tokio::test(start_paused = true)]
async fn what_a_replaced_server_has_announced_is_kept_while_nobody_is_known_to_have_its_slots() {
    let (mut reader, _asked) = reader_of(Some(a_primary()), &Arc::new(KnownDeadlines::new()), HashMap::new());
    reader.heard(canary(1)).await;
    reader.heard(Heard::Expired(0, Bytes::from("before"))).await;
    assert!(!reader.has_to_pass_on(), "it may be a primary");
    reader.told(Standing::Replica).await;
    assert!(reader.has_to_pass_on() && reader.held.is_empty());
    reader.asked(Request::Replaced(NodeId::NONE, vec![Bytes::from("another's")]));
    reader.pass_on();
    assert_eq!((reader.has_to_pass_on(), reader.replaced.len()), (true, 2));
}

/// Else keys that a replaced server has announced would be lost where their owner is busy.
#[tokio::test(start_paused = true)]
async fn with_a_thousand_requests_waiting_who_asks_waits_and_a_reader_asks_again_later() {
    let (mut reader, _asked) = reader_of(Some(a_primary()), &Arc::new(KnownDeadlines::new()), HashMap::new());
    let (desk, node, (touches, _touched)) = (reader.desk.clone(), reader.node.clone(), mpsc::channel(1));
    let (owner, mut requests) = StreamReader::new(desk, node, None, touches);
    let asking = owner.requests();
    reader.readers.add(NodeId::NONE, None, asking.clone());
    while asking.try_send(Request::Late).is_ok() {}
    assert_eq!(requests.len(), 1024);
    assert!(asking.send(Request::Late).now_or_never().is_none(), "a watcher waits");
    reader.told(Standing::Replica).await;
    reader.keep_replaced(NodeId::NONE, vec![Bytes::from("a:1")]);
    reader.pass_on();
    assert!(reader.has_to_pass_on(), "it found no room");
    assert!(matches!(requests.try_recv(), Ok(Request::Late)));
    reader.pass_on();
    assert!(!reader.has_to_pass_on() && requests.len() == 1024);
}

/// Each touch is a task, so their answers may be taken in another order than that of the server.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_what_was_asked_before_an_answer_that_ended_it_begins_no_other() {
    let (writes, _written) = Writes::new(Gauge::default());
    let (mut reader, mut asked) = reader(&Arc::new(KnownDeadlines::new()), HashMap::from([(0, writes)]));
    reader.heard(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;

    let mut ids = Vec::new();
    for _ in 0..4 {
        reader.asked(Request::Read(Read::of(0, vec!["a:1".into()], Capture::default())));
        ids.push(asked.try_recv().expect("a touch").id);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let error = "the user may not run the 'get' command on them";
    let refused = |id| Heard::Touched(Touched { id, answer: None, refused: Some(error.into()) });
    let refusals = |reader: &StreamReader| reader.topic(0).refusals.all().len();
    reader.heard(refused(ids[0])).await;
    assert_eq!(refusals(&reader), 1);
    let found = Found { copy: Bytes::from_static(b"\x02a"), ..until(NOW + 60_000) };
    let answer = Some((ServerTime::from_ms(NOW), vec![found]));
    reader.heard(Heard::Touched(Touched { id: ids[2], answer, refused: None })).await;
    assert_eq!(refusals(&reader), 0, "it is granted");
    reader.heard(refused(ids[1])).await;
    assert_eq!(refusals(&reader), 0, "that was asked before");
    reader.heard(refused(ids[3])).await;
    assert_eq!(refusals(&reader), 1, "it is taken away again");
}

/// A reader that has missed something and then heard so many keys expire, and a canary after that.
async fn after_a_gap(
    keys: usize,
    touches: usize,
) -> (StreamReader, mpsc::Receiver<Touch>, mpsc::UnboundedReceiver<Writing>) {
    let (writes, written) = Writes::new(Gauge::default());
    let (mut reader, _) = reader(&Arc::new(KnownDeadlines::new()), HashMap::from([(0, writes)]));
    let (sender, mut asked) = mpsc::channel(touches);
    reader.touches = sender;
    reader.heard(canary(1)).await;
    let id = asked.try_recv().expect("the time of the anchor is asked for").id;
    let answer = Some((ServerTime::from_ms(NOW), Vec::new()));
    reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;
    reader.heard(Heard::Lost).await;
    for number in 0..keys {
        reader.heard(Heard::Expired(0, format!("a:{number}").into())).await;
    }
    reader.heard(canary(3)).await;
    (reader, asked, written)
}

/// All of them are gone.
fn gone(touch: &Touch) -> Heard {
    let found = vec![Found { life: Life::Gone, ..until(0) }; touch.keys.len()];
    let answer = Some((ServerTime::from_ms(NOW), found));
    Heard::Touched(Touched { id: touch.id, answer, refused: None })
}

fn count(written: &mut mpsc::UnboundedReceiver<Writing>) -> usize {
    std::iter::from_fn(|| written.try_recv().ok()).filter(|one| matches!(one.what, Write::Note(_))).count()
}

/// Else each touch would keep its keys, what is sent and what is answered in memory, all at once.
#[tokio::test(start_paused = true)]
async fn keys_that_were_heard_in_a_gap_are_read_by_a_few_touches_at_a_time() {
    let (mut reader, mut asked, mut written) = after_a_gap(10_250, 1024).await;
    let (mut waiting, mut answered) = (VecDeque::new(), 0);
    loop {
        waiting.extend(std::iter::from_fn(|| asked.try_recv().ok()));
        assert!(waiting.len() <= AT_ONCE && waiting.iter().all(|touch| touch.keys.len() <= 500));
        let Some(touch) = waiting.pop_front() else { break };
        reader.heard(gone(&touch)).await;
        answered += touch.keys.len();
    }
    assert_eq!((answered, count(&mut written)), (10_250, 10_250));
    assert!(reader.held.is_empty());
}

/// What could not be asked about is not forgotten.
#[tokio::test(start_paused = true)]
async fn keys_that_were_heard_in_a_gap_and_find_no_touch_fire_all_the_same_and_once() {
    let (mut reader, mut asked, mut written) = after_a_gap(10_250, 1).await;
    reader.fire_torn().await;
    assert_eq!(count(&mut written), 10_250);
    let touch = asked.try_recv().expect("one touch found room");
    reader.heard(gone(&touch)).await;
    assert_eq!(count(&mut written), 0);
}

/// They are found by the next scan, or at their deadlines.
#[tokio::test(start_paused = true)]
async fn of_more_than_a_hundred_thousand_deleted_keys_the_others_are_left_to_their_deadlines() {
    let (mut reader, mut asked, _written) = after_a_gap(0, 1024).await;
    while let Ok(touch) = asked.try_recv() {
        reader.heard(gone(&touch)).await;
    }
    for first in (0..DELETED + 500).step_by(500) {
        let keys: Vec<Bytes> = (first..first + 500).map(|number| format!("a:{number}").into()).collect();
        for key in &keys {
            reader.heard(Heard::Gone(key.clone())).await;
        }
        reader.asked(Request::Read(Read { prompted: true, ..Read::of(0, keys, Capture::default()) }));
        let touch = asked.try_recv().expect("they are read");
        reader.heard(gone(&touch)).await;
    }
    assert_eq!(reader.deleted.len(), DELETED);
}

/// What a program that has just begun does not hear is what others may have noted already; one that goes on has missed nothing
/// before a server that is new to it came.
#[tokio::test(start_paused = true)]
async fn what_is_announced_before_the_first_canary_is_kept_of_a_server_that_comes_later() {
    for (peers, kept) in [(named(Peers::first_nodes), false), (a_primary(), true)] {
        let (mut reader, _asked) = reader_of(Some(peers), &Arc::new(KnownDeadlines::new()), HashMap::new());
        reader.heard(Heard::Expired(0, Bytes::from("early"))).await;
        assert_eq!(!reader.held.is_empty(), kept);
        reader.heard(canary(1)).await;
        reader.heard(Heard::Expired(0, Bytes::from("later"))).await;
        assert!(!reader.held.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_for_the_reader_is_counted_and_heard_of_before_what_comes_then() {
    const SENT: usize = 2 * WAITING / 4096;
    let bed = Rig::new();
    let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
    let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
    let (mut ear, heard) = Ear::new(listener.runtime.clone());
    let key = Bytes::from(vec![b'a'; 4096]);
    (0..SENT).for_each(|_| ear.hear(Heard::Expired(0, key.clone())));
    let lost = listener.runtime.partitions[0].topic.attached.lost_unenrolled.get() as usize;
    let waiting: Vec<_> = std::iter::from_fn(|| heard.try_recv()).collect();
    assert!(waiting.iter().all(|one| matches!(one, Heard::Expired(..))));
    assert!(lost > 0 && waiting.len() + lost == SENT, "{lost} lost");
    assert!(waiting.len() >= WAITING / 4096 * 7 / 8, "{} of {SENT}", waiting.len());
    ear.hear(Heard::Gone(key));
    assert!(matches!(heard.try_recv(), Some(Heard::Dropped)));
    assert!(matches!(heard.try_recv(), Some(Heard::Gone(_))));
}
