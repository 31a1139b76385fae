//! Plays steps on all servers at a time.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use keylapse::inside::receiving::event::Event;
use keylapse_wire::{DeadLetterLimits, Heads, Index, LeaseRef, RawDeadLetter, RepairTarget, TimerSnapshot};

use super::call::{Answer, Call};
use super::clients::{Clients, KEYS, Scene};
use super::harness::Served;
use super::op::{Ask, Broken, Op, Pass, Step};
use super::oracle::{Moment, Oracle};
use crate::model::rig::{Rig, ms};

pub(crate) type Verdict<T = ()> = Result<T, String>;

pub(crate) struct Driver<'a> {
    servers: &'a mut [Served],
    letters: DeadLetterLimits,
    clients: Clients,
    /// All that listeners to the first server were told.
    heard: Vec<Event>,
    /// Keeps the promises in mind; not where data breaks by itself.
    oracle: Option<Oracle>,
}

/// All that can be seen of a partition.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) looks: Vec<Option<TimerSnapshot>>,
    pub(crate) letters: Vec<RawDeadLetter>,
    pub(crate) trimmed: u64,
    pub(crate) heads: Heads,
    /// How many timers should have ended by now.
    pub(crate) undelivered: u64,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(servers: &'a mut [Served], letters: DeadLetterLimits, promises: bool) -> Self {
        let oracle = promises.then(|| Oracle::new(letters));
        Self { servers, letters, clients: Clients::new(letters), heard: Vec::new(), oracle }
    }

    pub(crate) async fn play(&mut self, step: &Step) -> Verdict {
        match &step.op {
            Op::Pass(pass) => return self.pass(*pass).await,
            Op::Break { key, how } => return self.break_key(KEYS[*key], *how).await,
            _ => {}
        }
        let letters = self.first().letters().await.into_iter().map(|letter| letter.id).collect();
        let scene = Scene { now: self.first().now(), letters };
        let Some(call) = self.clients.call(&step.op, &scene) else { return Ok(()) };
        let first = self.make(call.clone()).await?;
        // A late repeat may fall where the first call is being forgotten.
        let is_late = matches!(step.op, Op::Echo(_));
        if step.lost && !is_late { self.repeat(&call, &first).await } else { Ok(()) }
    }

    fn first(&self) -> &Rig {
        &self.servers[0].rig
    }

    async fn sight(&self) -> Sight {
        Sight::of(self.first()).await
    }

    /// Makes a call on all servers and demands the same answer.
    async fn make(&mut self, call: Call) -> Verdict<Answer> {
        let answer = call.make(self.first(), self.letters).await;
        for other in &self.servers[1..] {
            same(&call, &answer, &call.make(&other.rig, self.letters).await)?;
        }
        if self.oracle.is_some() {
            self.judge(&call, &answer).await?;
        }
        self.clients.remember(call, answer.claimed());
        Ok(answer)
    }

    async fn judge(&mut self, call: &Call, answer: &Answer) -> Verdict {
        let Served { rig, events } = &mut self.servers[0];
        let heard = events.so_far(rig).await;
        let moment = Moment { now: rig.now(), ceil: rig.ceil() };
        let sight = Sight::of(rig).await;
        let oracle = self.oracle.as_mut().expect("promises are kept");
        oracle
            .note(moment, call, answer, &sight)
            .and_then(|()| oracle.agrees(&sight))
            .and_then(|()| oracle.hears(&heard, &sight))
            .and_then(|()| sight.counts_what_is_undelivered(moment.now))
            .map_err(|why| format!("{why}\n  after {call:?}\n  answered by {answer:?}"))?;
        self.heard.extend(heard);
        Ok(())
    }

    /// Makes a call again whose answer was lost: that must change nothing, and
    /// say what the first one did.
    async fn repeat(&mut self, call: &Call, first: &Answer) -> Verdict {
        let before = self.sight().await;
        let second = self.make(call.repeated()).await?;
        // A claim that took nothing has left nothing to be found.
        if first.claimed().is_some_and(|claimed| claimed.timers.is_empty()) {
            return Ok(());
        }
        same(&format!("a repeat of {call:?}, before and after"), &before, &self.sight().await)?;
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
                let Heads { due, quarantine } = self.sight().await.heads;
                let Some(head) = due.into_iter().chain(quarantine).min() else { return Ok(()) };
                let moment = (head * 1000).saturating_add_signed(beyond);
                Duration::from_micros(moment.saturating_sub(self.first().micros()))
            }
        };
        for one in &mut *self.servers {
            one.rig.pass(by).await;
        }
        Ok(())
    }

    async fn break_key(&mut self, key: &[u8], how: Broken) -> Verdict {
        for Served { rig, .. } in &*self.servers {
            let look = rig.store.get_timer(&rig.at, key).await.map_err(|error| error.to_string())?;
            if let Some(look) = look {
                break_one(rig, key, &look, how).await;
            }
        }
        Ok(())
    }

    /// Demands that all that can be seen is the same on all servers.
    pub(crate) async fn compare(&self) -> Verdict {
        let first = self.sight().await;
        for other in &self.servers[1..] {
            same(&"all that can be seen", &first, &Sight::of(&other.rig).await)?;
        }
        Ok(())
    }

    /// Demands that all that was heard in this life is the same on all servers.
    pub(crate) async fn compare_events(&mut self) -> Verdict {
        let mut all = Vec::new();
        for (place, Served { rig, events }) in self.servers.iter_mut().enumerate() {
            let earlier = if place == 0 { std::mem::take(&mut self.heard) } else { Vec::new() };
            all.push([earlier, events.so_far(rig).await].concat());
        }
        all.windows(2).try_for_each(|two| same(&"what listeners were told", &two[0], &two[1]))
    }

    /// Lets everything come due and run well: nothing that was armed may be
    /// left, and nothing may be missing.
    pub(crate) async fn drain(&mut self) -> Verdict {
        // Each round ends a life of every key at most; four lost leases, and
        // one arming kept behind each, need no more.
        for _ in 0..12 {
            self.make(Call::Pause(None)).await?;
            self.pass(Pass::Ms(2 * 86_400_000)).await?;
            for index in [Index::Due, Index::Quarantine] {
                self.run_all(index).await?;
            }
        }
        let heads = self.sight().await.heads;
        if heads == Heads::default() { Ok(()) } else { Err(format!("P1: something is left: {heads:?}")) }
    }

    async fn run_all(&mut self, index: Index) -> Verdict {
        let ask = Ask { index, slot: 0, limit: 1000, bytes: 1 << 20, lookahead_ms: 0, lease_ms: 30_000 };
        let claim = self.clients.claim(&ask);
        let answer = self.make(Call::Claim(claim)).await?;
        let taken = answer.claimed().map(|claimed| &claimed.timers[..]).unwrap_or_default();
        let held = |key: &Bytes| LeaseRef { key: key.clone(), token: claim.token };
        let held: Vec<LeaseRef> = taken.iter().map(|timer| held(&timer.key)).collect();
        if !held.is_empty() {
            self.make(Call::Ack(held)).await?;
        }
        Ok(())
    }
}

impl Sight {
    async fn of(rig: &Rig) -> Self {
        let looks = futures::future::join_all(KEYS.map(|key| rig.store.get_timer(&rig.at, key)));
        let (looks, letters, counts, heads, (undelivered, _)) = tokio::join!(
            looks,
            rig.letters(),
            rig.store.letter_counts(&rig.at),
            rig.store.peek(std::slice::from_ref(&rig.at)),
            rig.undelivered()
        );
        let looks = looks.into_iter().map(|look| look.expect("it can be looked at")).collect();
        let (count, trimmed) = counts.expect("they can be counted");
        assert_eq!(letters.len() as u64, count, "some letters have lost their names");
        Self { looks, letters, trimmed, heads: heads.expect("it can be read").1[0], undelivered }
    }
}

impl Sight {
    /// Compares the count with what records and states say of each timer.
    fn counts_what_is_undelivered(&self, now: u64) -> Verdict {
        let is_late = |look: &&TimerSnapshot| {
            let was_tried = look
                .state
                .as_ref()
                .is_some_and(|state| state[10..] != [&[0, 0, 0, 1][..], &[0; 11]].concat());
            let first = look.record[9..17].try_into().map(u64::from_be_bytes).expect("it is whole");
            if was_tried { first < now } else { look.score.is_some_and(|score| score < now) }
        };
        let late = self.looks.iter().flatten().filter(is_late).count() as u64;
        if late == self.undelivered {
            return Ok(());
        }
        Err(format!("{late} timers should have ended by {now}, and {} are counted", self.undelivered))
    }
}

async fn break_one(rig: &Rig, key: &[u8], look: &TimerSnapshot, how: Broken) {
    let state = look.state.clone().unwrap_or_default();
    let cut = |bytes: &Bytes, length: usize| bytes.slice(..length.min(bytes.len()));
    let newer = |bytes: &Bytes| [b"\x02", bytes.get(1..).unwrap_or_default()].concat().into();
    let (hash, value) = match how {
        Broken::NoIndexEntry => return rig.unindex(key).await,
        Broken::NoRecord => (RepairTarget::Records, None),
        Broken::NoState => (RepairTarget::States, None),
        Broken::ShortRecord(length) => (RepairTarget::Records, Some(cut(&look.record, length))),
        Broken::ShortState(length) => (RepairTarget::States, Some(cut(&state, length))),
        Broken::NewerRecord => (RepairTarget::Records, Some(newer(&look.record))),
        Broken::NewerState => (RepairTarget::States, Some(newer(&state))),
    };
    rig.put_raw(hash, key, value.as_deref()).await;
}

/// Compares what is of one server and of another, or of before and after, as it is shown.
fn same(what: &impl Debug, one: &impl Debug, other: &impl Debug) -> Verdict {
    let (one, other) = (format!("{one:?}"), format!("{other:?}"));
    if one == other {
        return Ok(());
    }
    Err(format!("a difference in {what:?}:\n  {one}\n  {other}"))
}
