//! What becomes of a topic while it gets another number of partitions, with every order of calls.
//!
//! One partition becomes two, or two become one: partition 0 is there before and after, and the timers belong into the
//! other where there is one. Producers and listeners of both numbers go on meanwhile; three calls do the work, one script
//! at a time, and die wherever they are. What a dead one has sent may arrive at any time later. Complete: there are few
//! states.

use stateright::{Model, Property};

use crate::rules::Rules;

/// The most partitions, and timers that are armed.
const PARTITIONS: usize = 2;
const ARMS: usize = 2;
/// Calls that are made one after the other or at the same time.
pub const CALLS: usize = 3;

/// Which of two partitions each timer belongs to, and how many partitions its producer believes in.
const HOMES: [usize; ARMS] = [1, 1];
const BELIEFS: [usize; ARMS] = [1, 2];
/// Under which an earlier topic of the same name was closed; what was on its way then has arrived after its end.
const LEFT: u8 = 99;
/// More steps than any call takes.
const MANY: usize = 40;

/// What could be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is moved while a partition is open.
    ClosedBeforeMoved,
    /// What was resumed since it was paused is paused again, and waited for.
    PausedUntilClosed,
    /// And then partition 0 is asked whether it is still closed under the same id.
    ConfirmedBeforeClosed,
    /// A timer goes from where it was only when it is where it belongs.
    PutBeforeRemoved,
    /// Nothing is closed while an attempt runs.
    NobodyRuns,
    /// A script works for no call but the one under which the partition is closed.
    UnderOneId,
    /// Partition 0 is closed first.
    FirstIsClosedFirst,
    /// A partition that is not needed any more stays, and says how many there are.
    RetiredStays,
    /// What is closed under an id that partition 0 does not have was left by a call that is over, and is opened.
    LeftoversAreOpened,
    /// And partition 0 is asked in between: whoever is at work has closed that one first.
    LeftoversAreChecked,
}

/// The model: how many partitions there are, and how many each call asks for; 0 if it is not made.
#[derive(Clone, Copy, Debug)]
pub struct Repartitioning {
    from: usize,
    targets: [usize; CALLS],
    rules: Rules<Rule>,
    first_id: u8,
}

/// A partition's `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Meta {
    /// There is none.
    #[default]
    Absent,
    /// As usual; how many partitions there are.
    Open(usize),
    /// The same, but nothing is given out until a call, known by what it asks for and its id, goes on.
    Paused(usize, usize, u8),
    /// No script does anything but for that call: how many there are, how many there will be.
    Closed(usize, usize, u8),
}

impl Meta {
    /// How many partitions a caller must believe in.
    fn open_to(self) -> Option<usize> {
        match self {
            Self::Open(of) | Self::Paused(of, ..) => Some(of),
            Self::Absent | Self::Closed(..) => None,
        }
    }
}

/// How far an arm has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arm {
    /// Partition 0's meta is asked for: at the beginning, and where there was none.
    #[default]
    First,
    /// So is its own.
    Own,
    /// It is sent, or sent again after a refusal.
    Sent,
    /// Acknowledged.
    Done,
}

/// What a call does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Call {
    /// It has not begun.
    #[default]
    Idle,
    /// Pause a partition; whether that is done again, as it was resumed since.
    Pause(usize, bool),
    /// See whether an attempt runs in it.
    Wait(usize, bool),
    /// See whether partition 0 is still closed for this.
    Confirm(usize),
    /// Close a partition.
    Close(usize),
    /// Read what of it belongs elsewhere.
    Read(usize),
    /// Put these into the other.
    Put(usize, u8),
    /// Remove them.
    Remove(usize, u8),
    /// Open a partition; so many are left.
    Open(usize),
    /// It is refused, and takes back that it has paused a partition.
    Resume(usize),
    /// It finds its work done, and looks for what others have left.
    Tidy,
    /// See in partition 0 whether the call with this id is over, under which the other is closed.
    Check(u8),
    /// Open that.
    Leftover(u8),
    /// It is over, or its caller is dead; whether the topic has the number that was asked for.
    Over(bool),
}

/// What a call knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    of: usize,
    to: usize,
    /// Under which partitions are closed: its own, or that of a call before it.
    id: u8,
    /// Under which it pauses them.
    own: u8,
}

/// The topic, and who does what to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Topic {
    metas: [Meta; PARTITIONS],
    /// Which timers each partition holds, and which of these run, as bits.
    held: [u8; PARTITIONS],
    runs: [u8; PARTITIONS],
    arms: [Arm; ARMS],
    /// Those whose attempt has ended well.
    done: u8,
    calls: [Call; CALLS],
    known: [Known; CALLS],
    /// What a dead call has sent, and has not arrived.
    late: Option<(Call, Known)>,
}

/// One call of a script, or a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An arm goes on.
    Arm(usize),
    /// A listener of this number claims what a partition holds.
    Claim(usize, usize),
    /// Its attempts end.
    Settle(usize),
    /// A call goes on.
    Call(usize),
    /// A call has waited long enough for attempts to end.
    GiveUp(usize),
    /// Its caller dies; whether what it was about to do is on its way.
    Death(usize, bool),
    /// What was on its way arrives.
    Late,
}

fn home(arm: usize, of: usize) -> usize {
    HOMES[arm] % of
}

/// Which timers do not belong into a partition.
fn strangers(at: usize, of: usize) -> u8 {
    (0..ARMS).filter(|arm| home(*arm, of) != at).fold(0, |bits, arm| bits | 1 << arm)
}

impl Topic {
    fn init(&mut self, at: usize, of: usize) -> Meta {
        if self.metas[at] == Meta::Absent {
            self.metas[at] = Meta::Open(of);
        }
        self.metas[at]
    }

    fn arm(&mut self, arm: usize) {
        let of = BELIEFS[arm];
        let at = home(arm, of);
        let arming = self.arms[arm];
        self.arms[arm] = match arming {
            Arm::Sent if self.metas[at] == Meta::Absent => Arm::First,
            Arm::Sent if self.metas[at].open_to() == Some(of) => {
                self.held[at] |= 1 << arm;
                Arm::Done
            }
            Arm::First if self.init(0, of).open_to() == Some(of) => Arm::Own,
            Arm::Own => {
                self.init(at, of);
                Arm::Sent
            }
            Arm::First => Arm::First,
            Arm::Sent => Arm::Sent,
            Arm::Done => Arm::Done,
        };
    }

    fn claim(&mut self, at: usize, of: usize) {
        if self.metas[at] == Meta::Open(of) {
            self.runs[at] = self.held[at];
        }
    }

    fn settle(&mut self, at: usize) {
        if self.metas[at].open_to().is_some() {
            self.done |= self.runs[at];
            self.held[at] &= !self.runs[at];
            self.runs[at] = 0;
        }
    }

    fn armed(&self) -> u8 {
        (0..ARMS).filter(|arm| self.arms[*arm] == Arm::Done).fold(0, |bits, arm| bits | 1 << arm)
    }
}

impl Repartitioning {
    /// The model.
    pub fn new(from: usize, targets: [usize; CALLS], rules: Rules<Rule>) -> Self {
        Self { from, targets, rules, first_id: 1 }
    }

    fn has(self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    fn call(self, topic: &mut Topic, call: usize) {
        let mut known = topic.known[call];
        topic.calls[call] = match topic.calls[call] {
            Call::Idle => {
                let id = self.first_id + call as u8;
                known = Known { of: 0, to: self.targets[call], id, own: id };
                ask(topic, &mut known)
            }
            step => self.step(topic, step, &mut known),
        };
        let over = matches!(topic.calls[call], Call::Over(_));
        topic.known[call] = if over { Known::default() } else { known };
    }

    fn step(self, topic: &mut Topic, step: Call, known: &mut Known) -> Call {
        match step {
            Call::Pause(at, again) => pause(topic, at, again, known),
            Call::Wait(..) if !self.has(Rule::NobodyRuns) => self.first_to_close(),
            Call::Wait(at, _) if topic.runs[at] != 0 => step,
            Call::Wait(0, true) => Call::Close(0),
            Call::Wait(at, true) => Call::Confirm(at),
            Call::Confirm(at) => match topic.metas[0] {
                Meta::Closed(.., id) if id != known.id && self.has(Rule::ConfirmedBeforeClosed) => {
                    ended(topic, known)
                }
                Meta::Closed(..) => Call::Close(at),
                _ if self.has(Rule::ConfirmedBeforeClosed) => ended(topic, known),
                _ => Call::Close(at),
            },
            Call::Wait(at, false) if at + 1 < known.of => Call::Wait(at + 1, false),
            Call::Wait(..) => self.first_to_close(),
            Call::Close(at) => self.close(topic, at, known),
            Call::Read(at) => self.read(topic, at, known),
            Call::Put(from, timers) => self.put(topic, from, timers, known),
            Call::Remove(from, timers) => self.remove(topic, from, timers, known),
            Call::Open(left) => self.open(topic, left, known),
            Call::Resume(at) => resume(topic, at, known),
            Call::Tidy => self.tidy(topic),
            Call::Check(id) => self.check(topic, id, known),
            Call::Leftover(id) => leftover(topic, id, known),
            Call::Idle | Call::Over(_) => step,
        }
    }

    /// Takes back what calls have left that are over.
    fn tidy(self, topic: &mut Topic) -> Call {
        for meta in &mut topic.metas {
            match *meta {
                Meta::Paused(of, ..) => *meta = Meta::Open(of),
                Meta::Closed(.., id) => return self.found_closed(id),
                _ => {}
            }
        }
        Call::Over(true)
    }

    fn found_closed(self, id: u8) -> Call {
        if self.has(Rule::LeftoversAreChecked) { Call::Check(id) } else { Call::Leftover(id) }
    }

    fn check(self, topic: &Topic, id: u8, known: &Known) -> Call {
        let over = match topic.metas[0] {
            Meta::Closed(.., first) => first == known.id && known.of != 0,
            first => first.open_to() == Some(known.to),
        };
        if over && self.has(Rule::LeftoversAreOpened) { Call::Leftover(id) } else { ended(topic, known) }
    }

    fn first_to_close(self) -> Call {
        Call::Close(if self.has(Rule::FirstIsClosedFirst) { 0 } else { 1 })
    }

    /// The next after one that is closed.
    fn after_closed(self, at: usize) -> Call {
        match (at, self.has(Rule::FirstIsClosedFirst)) {
            (0, true) => Call::Close(1),
            (1, false) => Call::Close(0),
            _ => Call::Read(0),
        }
    }

    fn close(self, topic: &mut Topic, at: usize, known: &mut Known) -> Call {
        match topic.metas[at] {
            Meta::Closed(_, to, _) if at == 0 && to != known.to => return Call::Over(false),
            Meta::Closed(_, _, id) if at == 0 => known.id = id,
            Meta::Closed(_, _, id) if id != known.id => return self.found_closed(id),
            Meta::Closed(..) => {}
            Meta::Open(_) if at == 0 => return Call::Resume(0),
            // Opened by a call that has died since, or by another that is further.
            Meta::Open(of) | Meta::Paused(of, ..) if at > 0 && of == known.to && of != known.of => {}
            // Since it was paused somebody has resumed it.
            Meta::Open(of) | Meta::Paused(of, ..) if of != known.of => return ended(topic, known),
            Meta::Open(_) if self.has(Rule::PausedUntilClosed) => return Call::Pause(at, true),
            Meta::Paused(.., id) if id != known.own && self.has(Rule::PausedUntilClosed) => {
                return Call::Pause(at, true);
            }
            _ => self.shut(topic, at, *known),
        }
        self.after_closed(at)
    }

    fn shut(self, topic: &mut Topic, at: usize, known: Known) {
        if self.has(Rule::ClosedBeforeMoved) || at == 0 {
            topic.metas[at] = Meta::Closed(known.of, known.to, known.id);
        } else if topic.metas[at] == Meta::Absent {
            topic.metas[at] = Meta::Open(known.to);
        }
    }

    /// Whether a script does what it is asked.
    fn is_closed(self, topic: &Topic, at: usize, known: Known) -> bool {
        match topic.metas[at] {
            Meta::Closed(_, _, id) => id == known.id || !self.has(Rule::UnderOneId),
            _ => at > 0 && !self.has(Rule::ClosedBeforeMoved),
        }
    }

    fn read(self, topic: &Topic, at: usize, known: &Known) -> Call {
        let timers =
            if self.is_closed(topic, at, *known) { topic.held[at] & strangers(at, known.to) } else { 0 };
        match timers {
            0 if at + 1 < PARTITIONS => Call::Read(at + 1),
            0 => Call::Open(PARTITIONS),
            _ if self.has(Rule::PutBeforeRemoved) => Call::Put(at, timers),
            _ => Call::Remove(at, timers),
        }
    }

    fn put(self, topic: &mut Topic, from: usize, timers: u8, known: &Known) -> Call {
        if !self.is_closed(topic, 1 - from, *known) {
            return ended(topic, known);
        }
        topic.held[1 - from] |= timers;
        // What runs keeps its lease, and its holder can tell nobody.
        topic.runs[1 - from] |= timers & topic.runs[from];
        if self.has(Rule::PutBeforeRemoved) { Call::Remove(from, timers) } else { Call::Read(from) }
    }

    fn remove(self, topic: &mut Topic, from: usize, timers: u8, known: &Known) -> Call {
        if !self.is_closed(topic, from, *known) {
            return ended(topic, known);
        }
        topic.held[from] &= !timers;
        topic.runs[from] &= !timers;
        if self.has(Rule::PutBeforeRemoved) { Call::Read(from) } else { Call::Put(from, timers) }
    }

    fn open(self, topic: &mut Topic, left: usize, known: &Known) -> Call {
        let at = left - 1;
        if let Meta::Closed(_, to, id) = topic.metas[at]
            && (id == known.id || !self.has(Rule::UnderOneId))
        {
            let stays = at < to || self.has(Rule::RetiredStays);
            topic.metas[at] = if stays { Meta::Open(to) } else { Meta::Absent };
        } else if topic.metas[at].open_to() == Some(known.to) {
            // A call that is over has paused it meanwhile.
            topic.metas[at] = Meta::Open(known.to);
        }
        if left > 1 { Call::Open(left - 1) } else { Call::Over(true) }
    }

    /// The topic after one more call that nobody disturbs.
    fn after_one_more(self, topic: &Topic, target: usize) -> Topic {
        let idle = Topic { calls: [Call::Over(false); CALLS], ..*topic };
        let mut after = Topic { known: [Known::default(); CALLS], ..idle };
        after.calls[0] = Call::Idle;
        let alone = Self { targets: [target; CALLS], first_id: 1 + CALLS as u8, ..self };
        for _ in 0..MANY {
            (0..PARTITIONS).for_each(|at| after.settle(at));
            alone.call(&mut after, 0);
        }
        after
    }

    /// Whether a call with this number, or one with the other and then this one, leaves all as it is asked.
    fn ends_well(self, topic: &Topic) -> bool {
        (1..=PARTITIONS).all(|target| {
            let once = self.after_one_more(topic, target);
            let after = match once.calls[0] {
                Call::Over(true) => once,
                _ => self.after_one_more(&self.after_one_more(topic, 3 - target), target),
            };
            let stands = |at: usize| matches!(after.metas[at], Meta::Open(of) if of == target);
            stands(0) && (stands(1) || after.metas[1] == Meta::Absent)
        })
    }
}

/// What a call does about what it finds in partition 0.
fn ask(topic: &Topic, known: &mut Known) -> Call {
    match topic.metas[0] {
        Meta::Closed(of, to, id) if to == known.to => {
            *known = Known { of, to, id, own: known.own };
            Call::Close(1)
        }
        Meta::Open(of) | Meta::Paused(of, ..) if of == known.to => Call::Tidy,
        Meta::Open(of) | Meta::Paused(of, ..) => {
            known.of = of;
            Call::Pause(0, false)
        }
        Meta::Absent | Meta::Closed(..) => Call::Over(false),
    }
}

fn pause(topic: &mut Topic, at: usize, again: bool, known: &mut Known) -> Call {
    match topic.metas[at] {
        Meta::Paused(_, to, _) if at == 0 && to != known.to => return Call::Over(false),
        Meta::Open(of) | Meta::Paused(of, ..) if of == known.of => {
            topic.metas[at] = Meta::Paused(of, known.to, known.own);
        }
        _ if at == 0 => return ask(topic, known),
        _ => {}
    }
    match again {
        true => Call::Wait(at, true),
        false if at + 1 < known.of => Call::Pause(at + 1, false),
        false => Call::Wait(0, false),
    }
}

/// What another has paused since is its own to resume.
fn resume(topic: &mut Topic, at: usize, known: &Known) -> Call {
    if topic.metas[at] == Meta::Paused(known.of, known.to, known.own) {
        topic.metas[at] = Meta::Open(known.of);
    }
    if at + 1 < known.of { Call::Resume(at + 1) } else { Call::Over(false) }
}

fn leftover(topic: &mut Topic, id: u8, known: &Known) -> Call {
    let tidies = known.of == 0;
    if matches!(topic.metas[1], Meta::Closed(.., by) if by == id) {
        topic.metas[1] = Meta::Open(if tidies { known.to } else { known.of });
    }
    if tidies { Call::Tidy } else { Call::Close(1) }
}

/// Another call has ended what this one is doing.
fn ended(topic: &Topic, known: &Known) -> Call {
    Call::Over(topic.metas[0].open_to() == Some(known.to))
}

impl Model for Repartitioning {
    type State = Topic;
    type Action = Step;

    fn init_states(&self) -> Vec<Topic> {
        let metas = |second| Topic { metas: [Meta::Open(self.from), second], ..Topic::default() };
        match self.from {
            1 => vec![metas(Meta::Absent), metas(Meta::Closed(1, 2, LEFT))],
            _ => vec![metas(Meta::Open(2))],
        }
    }

    fn actions(&self, _: &Topic, steps: &mut Vec<Step>) {
        steps.extend((0..ARMS).map(Step::Arm));
        for at in 0..PARTITIONS {
            steps.extend([Step::Claim(at, 1), Step::Claim(at, 2), Step::Settle(at)]);
        }
        for call in 0..CALLS {
            steps.extend([
                Step::Call(call),
                Step::GiveUp(call),
                Step::Death(call, false),
                Step::Death(call, true),
            ]);
        }
        steps.push(Step::Late);
    }

    fn next_state(&self, topic: &Topic, step: Step) -> Option<Topic> {
        let mut after = *topic;
        match step {
            Step::Arm(arm) => after.arm(arm),
            Step::Claim(at, of) => after.claim(at, of),
            Step::Settle(at) => after.settle(at),
            Step::Call(call) if self.targets[call] == 0 => return None,
            Step::Call(call) => self.call(&mut after, call),
            Step::GiveUp(call) => match after.calls[call] {
                Call::Wait(0, _) | Call::Wait(_, false) => after.calls[call] = Call::Resume(0),
                _ => return None,
            },
            Step::Death(call, _) if matches!(after.calls[call], Call::Idle | Call::Over(_)) => return None,
            Step::Death(call, sent) => {
                if sent {
                    after.late = Some((after.calls[call], after.known[call]));
                }
                (after.calls[call], after.known[call]) = (Call::Over(false), Known::default());
            }
            Step::Late => {
                let (step, mut known) = after.late.take()?;
                self.step(&mut after, step, &mut known);
            }
        }
        Some(after).filter(|after| after != topic)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what was armed is there until it has run", |_, topic: &Topic| {
                topic.armed() & !topic.done & !(topic.held[0] | topic.held[1]) == 0
            }),
            Property::always("what has run does not come back", |_, topic: &Topic| {
                topic.done & (topic.held[0] | topic.held[1]) == 0
            }),
            Property::always("a timer is where those look for it who are let in", |_, topic: &Topic| {
                (0..PARTITIONS).all(|at| {
                    topic.metas[at].open_to().is_none_or(|of| topic.held[at] & strangers(at, of) == 0)
                })
            }),
            Property::always("there is one truth", |_, topic: &Topic| {
                match [0, 1].map(|at| topic.metas[at].open_to()) {
                    [Some(first), Some(second)] => first == second,
                    _ => true,
                }
            }),
            Property::always("whoever runs can say how it ended", |_, topic: &Topic| {
                (0..PARTITIONS).all(|at| topic.runs[at] == 0 || topic.metas[at].open_to().is_some())
            }),
            Property::always("one more call ends it, or is told which", |model: &Self, topic: &Topic| {
                model.ends_well(topic)
            }),
            Property::sometimes("a timer is armed, moved and run", |_, topic: &Topic| {
                let moved = |arm: usize| topic.metas[0] == Meta::Open(3 - BELIEFS[arm]);
                (0..ARMS).any(|arm| topic.done & 1 << arm != 0 && moved(arm))
            }),
            Property::sometimes("a timer is held of each number", |_, topic: &Topic| {
                topic.held[0] | topic.held[1] == 0b11
            }),
        ]
    }
}
