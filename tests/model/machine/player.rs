//! Plays steps on both stores at a time.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use keylapse::internals::{Heads, Held, Event, Index, Letters, Look, RawLetter, Scan};

use super::book::{Book, Moment};
use super::call::{Answer, Call};
use super::cast::{Cast, KEYS, Scene};
use super::op::{Ask, Broken, Op, Pass, Step};
use crate::rig::{EventLoop, Rig, ms};

pub(crate) type Verdict<T = ()> = Result<T, String>;

pub(crate) struct Player<'a> {
    memory: &'a mut Rig,
    redis: &'a mut Rig,
    letters: Letters,
    cast: Cast,
    hearing: EventLoop,
    /// All that listeners to the store in memory were told.
    pub(crate) heard: Vec<Event>,
    /// Keeps the promises in mind; not where data breaks by itself.
    book: Option<Book>,
}

/// All that can be seen of a partition.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) looks: Vec<Option<Look>>,
    pub(crate) letters: Vec<RawLetter>,
    pub(crate) trimmed: u64,
    pub(crate) heads: Heads,
}

impl<'a> Player<'a> {
    pub(crate) async fn new(
        memory: &'a mut Rig,
        redis: &'a mut Rig,
        letters: Letters,
        promises: bool,
    ) -> Self {
        let hearing = EventLoop::open(memory).await;
        let book = promises.then(|| Book::new(letters));
        Self { memory, redis, letters, cast: Cast::new(letters), hearing, heard: Vec::new(), book }
    }

    pub(crate) async fn play(&mut self, step: &Step) -> Verdict {
        match &step.op {
            Op::Pass(pass) => return self.pass(*pass).await,
            Op::Break { key, how } => return self.break_key(KEYS[*key], *how).await,
            _ => {}
        }
        let letters = self.memory.letters().await.into_iter().map(|letter| letter.id).collect();
        let scene = Scene { now: self.memory.now(), letters };
        let Some(call) = self.cast.call(&step.op, &scene) else { return Ok(()) };
        let first = self.make(call.clone()).await?;
        // A late repeat may fall where the first call is being forgotten.
        let is_late = matches!(step.op, Op::Echo(_));
        if step.lost && !is_late { self.repeat(&call, &first).await } else { Ok(()) }
    }

    /// Makes a call on both stores and demands the same answer.
    async fn make(&mut self, call: Call) -> Verdict<Answer> {
        let answer = call.make(self.memory, self.letters).await;
        same(&call, &answer, &call.make(self.redis, self.letters).await)?;
        let heard = self.hearing.so_far(self.memory).await;
        if let Some(book) = &mut self.book {
            let moment = Moment { now: self.memory.now(), ceil: self.memory.ceil() };
            let sight = Sight::of(self.memory).await;
            book.note(moment, &call, &answer, &sight)
                .and_then(|()| book.agrees(&sight))
                .and_then(|()| book.hears(&heard, &sight))
                .map_err(|why| format!("{why}\n  after {call:?}\n  answered by {answer:?}"))?;
        }
        self.heard.extend(heard);
        self.cast.remember(call, answer.claimed());
        Ok(answer)
    }

    /// Makes a call again whose answer was lost: that must change nothing, and
    /// say what the first one did.
    async fn repeat(&mut self, call: &Call, first: &Answer) -> Verdict {
        let before = Sight::of(self.memory).await;
        let second = self.make(call.repeated()).await?;
        // A claim that took nothing has left nothing to be found.
        if first.claimed().is_some_and(|claimed| claimed.timers.is_empty()) {
            return Ok(());
        }
        same(&format!("a repeat of {call:?}, before and after"), &before, &Sight::of(self.memory).await)?;
        if second.repeats(first) {
            return Ok(());
        }
        Err(format!("a repeat of {call:?}\n  says {second:?}\n  after {first:?}"))
    }

    async fn pass(&mut self, pass: Pass) -> Verdict {
        let by = match pass {
            Pass::Micros(micros) => Duration::from_micros(micros),
            Pass::Ms(passed) => ms(passed),
            Pass::Head(beyond) => {
                let Heads { due, solo } = Sight::of(self.memory).await.heads;
                let Some(head) = due.into_iter().chain(solo).min() else { return Ok(()) };
                let moment = (head * 1000).saturating_add_signed(beyond);
                Duration::from_micros(moment.saturating_sub(self.memory.micros()))
            }
        };
        self.memory.pass(by).await;
        self.redis.pass(by).await;
        Ok(())
    }

    async fn break_key(&mut self, key: &[u8], how: Broken) -> Verdict {
        for rig in [&*self.memory, &*self.redis] {
            let look = rig.store.look(&rig.at, key).await.map_err(|error| error.to_string())?;
            if let Some(look) = look {
                break_one(rig, key, &look, how).await;
            }
        }
        Ok(())
    }

    /// Demands that all that can be seen is the same in both stores.
    pub(crate) async fn compare(&self) -> Verdict {
        same(&"all that can be seen", &Sight::of(self.memory).await, &Sight::of(self.redis).await)
    }

    /// Lets everything come due and run well: nothing that was armed may be
    /// left, and nothing may be missing.
    pub(crate) async fn drain(&mut self) -> Verdict {
        // Each round ends a life of every key at most; four lost leases, and
        // one arming kept behind each, need no more.
        for _ in 0..12 {
            self.make(Call::Pause(None)).await?;
            self.pass(Pass::Ms(2 * 86_400_000)).await?;
            for index in [Index::Due, Index::Solo] {
                self.run_all(index).await?;
            }
        }
        let heads = Sight::of(self.memory).await.heads;
        if heads == Heads::default() { Ok(()) } else { Err(format!("P1: something is left: {heads:?}")) }
    }

    async fn run_all(&mut self, index: Index) -> Verdict {
        let ask = Ask { index, lane: 0, limit: 1000, bytes: 1 << 20, lookahead_ms: 0, lease_ms: 30_000 };
        let claim = self.cast.claim(&ask);
        let answer = self.make(Call::Claim(claim)).await?;
        let taken = answer.claimed().map(|claimed| &claimed.timers[..]).unwrap_or_default();
        let held = |key: &Bytes| Held { key: key.clone(), token: claim.token };
        let held: Vec<Held> = taken.iter().map(|timer| held(&timer.key)).collect();
        if !held.is_empty() {
            self.make(Call::Ack(held)).await?;
        }
        Ok(())
    }
}

impl Sight {
    async fn of(rig: &Rig) -> Self {
        let mut looks = Vec::with_capacity(KEYS.len());
        for key in KEYS {
            looks.push(rig.store.look(&rig.at, key).await.expect("it can be looked at"));
        }
        let letters = rig.letters().await;
        let (count, trimmed) = rig.store.letter_counts(&rig.at).await.expect("they can be counted");
        let heads = rig.store.peek(std::slice::from_ref(&rig.at)).await.expect("it can be read").value[0];
        assert_eq!(letters.len() as u64, count, "some letters have lost their names");
        Self { looks, letters, trimmed, heads }
    }
}

async fn break_one(rig: &Rig, key: &[u8], look: &Look, how: Broken) {
    let state = look.state.clone().unwrap_or_default();
    let cut = |bytes: &Bytes, length: usize| bytes.slice(..length.min(bytes.len()));
    let newer = |bytes: &Bytes| [b"\x02", bytes.get(1..).unwrap_or_default()].concat().into();
    let (hash, value) = match how {
        Broken::NoIndexEntry => return rig.unindex(key).await,
        Broken::NoRecord => (Scan::Records, None),
        Broken::NoState => (Scan::States, None),
        Broken::ShortRecord(length) => (Scan::Records, Some(cut(&look.record, length))),
        Broken::ShortState(length) => (Scan::States, Some(cut(&state, length))),
        Broken::NewerRecord => (Scan::Records, Some(newer(&look.record))),
        Broken::NewerState => (Scan::States, Some(newer(&state))),
    };
    rig.put_raw(hash, key, value.as_deref()).await;
}

/// Compares what is of the store in memory and of the real server, or of
/// before and after, as it is shown.
fn same(what: &impl Debug, one: &impl Debug, other: &impl Debug) -> Verdict {
    let (one, other) = (format!("{one:?}"), format!("{other:?}"));
    if one == other {
        return Ok(());
    }
    Err(format!("a difference in {what:?}:\n  {one}\n  {other}"))
}
