//! Plays steps on both stores at a time.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use keylapse::store::record::State;
use keylapse::store::{Cancel, Claim, End, Held, Index, Letters, Look, NewTimer, Scan, Settle};
use keylapse::{Reason, WireWhen};

use super::book::{Book, Moment};
use super::call::{Answer, Call};
use super::op::{Ahead, Ask, Broken, Ending, Op, Pass, Pick, When};
use crate::rig::{Ids, Rig, ms};

/// Few, so that things happen to the same ones; ordinary ones and others.
pub(crate) const KEYS: [&[u8]; 5] = [b"a", b"ab", b"b", b"\xff\x00", b""];

pub(crate) type Verdict<T = ()> = Result<T, String>;

pub(crate) struct Player<'a> {
    memory: &'a mut Rig,
    redis: &'a mut Rig,
    letters: Letters,
    ids: Ids,
    /// Everything that was ever claimed, and its attempt.
    taken: Vec<(Held, u32)>,
    calls: Vec<Call>,
    /// Keeps the promises in mind; not where data breaks by itself.
    book: Option<Book>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(memory: &'a mut Rig, redis: &'a mut Rig, letters: Letters, promises: bool) -> Self {
        let book = promises.then(|| Book::new(letters));
        Self { memory, redis, letters, ids: Ids::default(), taken: vec![], calls: vec![], book }
    }

    pub(crate) async fn play(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Pass(pass) => return self.pass(*pass).await,
            Op::Break { key, how } => return self.break_key(KEYS[*key], *how).await,
            _ => {}
        }
        let (Some(call), lost) = (self.call(op).await, is_lost(op)) else { return Ok(()) };
        self.make(call.clone()).await?;
        if lost { self.make(call.repeated()).await } else { Ok(()) }
    }

    /// Makes a call on both stores and demands the same answer.
    async fn make(&mut self, call: Call) -> Verdict {
        let answer = call.make(self.memory, self.letters).await;
        same(&call, &answer, &call.make(self.redis, self.letters).await)?;
        if let Answer::Claimed(claimed) = &answer {
            self.note_taken(&call, claimed);
        }
        if let Some(book) = &mut self.book {
            let moment = Moment { now: self.memory.now(), ceil: self.memory.ceil() };
            let looks = looks(self.memory).await;
            book.note(moment, &call, &answer, &looks)
                .and_then(|()| book.agrees(&looks))
                .map_err(|why| format!("{why}\n  after {call:?}\n  answered by {answer:?}"))?;
            let counts = self.memory.store.letter_counts(&self.memory.at).await;
            let trimmed = counts.map_err(|error| error.to_string())?.1;
            book.letters_are(self.memory.letters().await.into_iter().map(|letter| letter.id), trimmed)?;
        }
        self.calls.push(call);
        Ok(())
    }

    fn note_taken(&mut self, call: &Call, claimed: &keylapse::store::Claimed) {
        let Call::Claim(Claim { token, .. }) = call else { return };
        for timer in &claimed.timers {
            let state = timer.state.clone().and_then(|state| State::decode(state).ok());
            let held = Held { key: timer.key.clone(), token: *token };
            self.taken.push((held, state.map_or(1, |state| state.attempt)));
        }
    }

    /// Fills in what a step leaves open; none if there is nothing to do it to.
    async fn call(&mut self, op: &Op) -> Option<Call> {
        Some(match op {
            Op::Arm { timers, absent, .. } => {
                Call::Arm { timers: self.timers(timers), only_if_absent: *absent, repeat: false }
            }
            Op::Cancel { keys, .. } => Call::Cancel { timers: self.cancels(keys), repeat: false },
            Op::Reschedule(ahead) => {
                Call::Reschedule(Bytes::from_static(KEYS[ahead.key]), self.when(ahead.when))
            }
            Op::Claim { ask, .. } => Call::Claim(self.claim(ask)),
            Op::Ack(picks) => Call::Ack(self.held(picks)?),
            Op::Settle(ends) => Call::Settle(self.ends(ends)?),
            Op::Renew(picks) => Call::Renew(self.held(picks)?),
            Op::Pause(on) => Call::Pause(on.then_some("maintenance")),
            Op::Tidy(what) => Call::Tidy(*what),
            Op::Replay { letter, .. } => Call::Replay(self.letter(*letter).await?, self.ids.arming()),
            Op::DropLetter(letter) => Call::DropLetter(self.letter(*letter).await?),
            Op::CloseLane(lane) => Call::CloseLane(Ids::lane(*lane)),
            Op::Echo(ago) => self.echo(*ago)?,
            Op::Pass(_) | Op::Break { .. } => return None,
        })
    }

    /// No key twice in a call.
    fn timers(&mut self, ahead: &[Ahead]) -> Vec<NewTimer> {
        let mut timers: Vec<NewTimer> = Vec::new();
        for one in ahead {
            let key = Bytes::from_static(KEYS[one.key]);
            if timers.iter().all(|timer| timer.key != key) {
                let payload = Bytes::from(vec![b'.'; one.payload]);
                timers.push(NewTimer { key, when: self.when(one.when), arming: self.ids.arming(), payload });
            }
        }
        timers
    }

    fn when(&self, when: When) -> WireWhen {
        match when {
            When::In(ms) => WireWhen::In(ms),
            When::At(offset) => WireWhen::At(self.memory.now().saturating_add_signed(offset)),
        }
    }

    fn cancels(&mut self, keys: &[usize]) -> Vec<Cancel> {
        let cancel = |key: &usize| Cancel { key: Bytes::from_static(KEYS[*key]), id: self.ids.cancel() };
        keys.iter().map(cancel).collect()
    }

    fn claim(&mut self, ask: &Ask) -> Claim {
        Claim {
            index: ask.index,
            lane: Ids::lane(ask.lane),
            token: self.ids.token(),
            repeat: false,
            limit: ask.limit,
            bytes: ask.bytes,
            lookahead_ms: ask.lookahead_ms,
            lease_ms: ask.lease_ms,
            letters: self.letters,
        }
    }

    fn picked(&self, pick: Pick) -> Option<&(Held, u32)> {
        let last = self.taken.len().checked_sub(1)?;
        self.taken.get(last - pick % self.taken.len())
    }

    fn held(&self, picks: &[Pick]) -> Option<Vec<Held>> {
        picks.iter().map(|pick| Some(self.picked(*pick)?.0.clone())).collect()
    }

    fn ends(&mut self, ends: &[(Pick, Ending)]) -> Option<Vec<Settle>> {
        let mut settles = Vec::with_capacity(ends.len());
        for (pick, ending) in ends {
            let (held, attempt) = self.picked(*pick)?.clone();
            settles.push(Settle { held, end: self.end(*ending, attempt) });
        }
        Some(settles)
    }

    fn end(&mut self, ending: Ending, attempt: u32) -> End {
        let history = Bytes::from(format!("[{attempt}]"));
        match ending {
            Ending::Retry(delay) => End::Retry { delay, attempt: attempt + 1, snoozes: 0, history },
            Ending::Snooze(delay) => End::Snooze { delay, attempt, snoozes: 1, history },
            Ending::Again(delay) => End::Again { delay, arming: self.ids.arming() },
            Ending::Dead => End::Dead { reason: Reason::Exhausted, history },
            Ending::Release => End::Release,
        }
    }

    async fn letter(&self, place: usize) -> Option<Bytes> {
        let letters = self.memory.letters().await;
        let count = letters.len().checked_sub(1)? + 1;
        Some(letters[place % count].id.clone())
    }

    fn echo(&self, ago: usize) -> Option<Call> {
        let place = self.calls.len().checked_sub(1 + ago)?;
        let call = &self.calls[place];
        let is_past = self.calls[place + 1..].iter().any(|later| call.is_past_after(later));
        (!is_past).then(|| call.repeated())
    }

    async fn pass(&mut self, pass: Pass) -> Verdict {
        let by = match pass {
            Pass::Micros(micros) => Duration::from_micros(micros),
            Pass::Ms(passed) => ms(passed),
            Pass::Head(beyond) => match self.head().await {
                Some(head) => {
                    let moment = (head * 1000).saturating_add_signed(beyond);
                    Duration::from_micros(moment.saturating_sub(self.memory.micros()))
                }
                None => return Ok(()),
            },
        };
        // Deadlines lie below 2^43 ms; a head at their end is not waited for.
        if by < Duration::from_secs(30 * 86_400) {
            self.memory.pass(by).await;
            self.redis.pass(by).await;
        }
        Ok(())
    }

    async fn head(&self) -> Option<u64> {
        let heads = self.memory.store.peek(std::slice::from_ref(&self.memory.at)).await.ok()?.value[0];
        heads.due.into_iter().chain(heads.solo).min()
    }

    async fn break_key(&mut self, key: &[u8], how: Broken) -> Verdict {
        for rig in [&*self.memory, &*self.redis] {
            let look = rig.store.look(&rig.at, key).await.map_err(|error| error.to_string())?;
            let Some(Look { record, state, .. }) = look else { continue };
            let state = state.unwrap_or_default();
            let newer = |bytes: &[u8]| [b"\x02", bytes.get(1..).unwrap_or_default()].concat();
            match how {
                Broken::NoIndexEntry => rig.unindex(key).await.map_err(|error| error.to_string())?,
                Broken::NoRecord => rig.put_raw(Scan::Records, key, None).await,
                Broken::NoState => rig.put_raw(Scan::States, key, None).await,
                Broken::ShortRecord(length) => {
                    rig.put_raw(Scan::Records, key, Some(&record[..length.min(record.len())])).await;
                }
                Broken::ShortState(length) => {
                    rig.put_raw(Scan::States, key, Some(&state[..length.min(state.len())])).await;
                }
                Broken::NewerRecord => rig.put_raw(Scan::Records, key, Some(&newer(&record))).await,
                Broken::NewerState => rig.put_raw(Scan::States, key, Some(&newer(&state))).await,
            }
        }
        Ok(())
    }

    /// Demands that all that can be seen is the same in both stores.
    pub(crate) async fn compare(&self) -> Verdict {
        same("the timers", &looks(self.memory).await, &looks(self.redis).await)?;
        same("the letters", &self.memory.letters().await, &self.redis.letters().await)?;
        same("what else can be read", &seen(self.memory).await, &seen(self.redis).await)
    }

    /// Lets everything come due and run well: nothing that was armed may be
    /// left, and nothing may be missing.
    pub(crate) async fn drain(&mut self) -> Verdict {
        for _ in 0..12 {
            self.make(Call::Pause(None)).await?;
            self.pass(Pass::Ms(2 * 86_400_000)).await?;
            for index in [Index::Due, Index::Solo] {
                let before = self.taken.len();
                let ask =
                    Ask { index, lane: 0, limit: 1000, bytes: 1 << 20, lookahead_ms: 0, lease_ms: 30_000 };
                let claim = self.claim(&ask);
                self.make(Call::Claim(claim)).await?;
                let held: Vec<Held> = self.taken[before..].iter().map(|(held, _)| held.clone()).collect();
                if !held.is_empty() {
                    self.make(Call::Ack(held)).await?;
                }
            }
        }
        match self.head().await {
            Some(head) => Err(format!("P1: something is still due at {head}")),
            None => Ok(()),
        }
    }
}

fn is_lost(op: &Op) -> bool {
    match op {
        Op::Arm { lost, .. } | Op::Cancel { lost, .. } | Op::Claim { lost, .. } | Op::Replay { lost, .. } => {
            *lost
        }
        _ => false,
    }
}

async fn looks(rig: &Rig) -> Vec<Option<Look>> {
    let mut looks = Vec::with_capacity(KEYS.len());
    for key in KEYS {
        looks.push(rig.store.look(&rig.at, key).await.expect("it can be looked at"));
    }
    looks
}

async fn seen(rig: &Rig) -> impl Debug + use<> {
    let heads = rig.store.peek(std::slice::from_ref(&rig.at)).await.expect("it can be read").value;
    let counts = rig.store.letter_counts(&rig.at).await.expect("they can be counted");
    (heads, counts)
}

/// `memory` and `redis` as they are shown.
fn same(what: impl Debug, memory: &impl Debug, redis: &impl Debug) -> Verdict {
    let (memory, redis) = (format!("{memory:?}"), format!("{redis:?}"));
    if memory == redis {
        return Ok(());
    }
    Err(format!("the stores differ in {what:?}:\n  memory {memory}\n  redis  {redis}"))
}
