//! What becomes of a topic of two partitions while it is destroyed, with every order of calls.
//!
//! Producers arm, and make partitions that are missing; two destroyers close, clear and end them, one call of a
//! script at a time, and die wherever they are. Complete: there are few states.

use stateright::{Model, Property};

use crate::rules::Rules;

/// Partitions of the topic, and arms that are tried in each.
const PARTITIONS: usize = 2;
const ARMS: usize = 2;
/// Calls that are made one after the other or at the same time.
pub const CALLS: usize = 2;

/// What could be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Whether a partition is empty is asked in the moment in which it is closed.
    EmptyWhenClosed,
    /// Nothing is removed from a partition that is open.
    OnlyWhatIsClosed,
    /// What was closed by force is not opened again.
    ForcedStaysClosed,
    /// What a call by force has left closed that has been ended by another is opened again.
    LeftoversAreOpened,
}

/// The model: who uses force.
#[derive(Clone, Copy, Debug)]
pub struct Destroying {
    /// Of each call; they begin in any order.
    pub forced: [bool; CALLS],
    /// Under which the first of them goes by force.
    first_number: u8,
    /// What is left out.
    pub rules: Rules<Rule>,
}

/// A partition's `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Meta {
    /// There is none.
    #[default]
    Absent,
    /// As usual.
    Open,
    /// No script does anything. By force: under the number of the call that said so first; else under 0.
    Closed(u8),
}

/// How far an arm has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arm {
    /// It is sent, or sent again after a refusal.
    #[default]
    Sent,
    /// There was no meta: partition 0's is asked for, or made.
    First,
    /// So is its own.
    Own,
    /// Acknowledged.
    Done,
}

/// How far a call has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Call {
    /// It has not begun.
    #[default]
    Idle,
    /// A partition is asked about next, the last one first: so many are left.
    Ask(usize),
    /// A partition is closed next.
    Close(usize),
    /// A partition is emptied next.
    Clear(usize),
    /// A partition is ended next: so many are left.
    End(usize),
    /// A partition is opened again next, if it is closed under this number: one is left over; or, under 0, the call
    /// is refused.
    Open(usize, u8),
    /// It is over, or its caller is dead; whether the topic was destroyed.
    Over(bool),
}

/// The topic, and who does what to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Topic {
    metas: [Meta; PARTITIONS],
    /// Which arms each partition holds, as bits.
    held: [u8; PARTITIONS],
    arms: [[Arm; ARMS]; PARTITIONS],
    calls: [Call; CALLS],
    /// Under which number a call goes by force, its own or that of one before it; 0: without.
    forced: [u8; CALLS],
    /// Under which number a call that asked has found a partition closed by force.
    found: [[u8; PARTITIONS]; CALLS],
    /// What was held when a call began, by partition.
    before: [[u8; PARTITIONS]; CALLS],
    /// Whether somebody removed a timer who had no right to.
    wronged: bool,
    /// Whether a call ended well, and left what was there before it.
    left: bool,
    /// Whether a call without force has ended what was begun with it.
    taken_up: bool,
}

/// One call of a script, or a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An arm goes on.
    Arm(usize, usize),
    /// A call goes on.
    Call(usize),
    /// Its caller dies.
    Death(usize),
}

impl Topic {
    fn init(&mut self, at: usize) -> bool {
        if self.metas[at] == Meta::Absent {
            self.metas[at] = Meta::Open;
        }
        self.metas[at] == Meta::Open
    }

    fn arm(&mut self, at: usize, number: usize) {
        self.arms[at][number] = match (self.arms[at][number], self.metas[at]) {
            (Arm::Sent, Meta::Open) => {
                self.held[at] |= 1 << number;
                Arm::Done
            }
            (Arm::Sent, Meta::Absent) => Arm::First,
            (Arm::First, _) if self.init(0) => Arm::Own,
            (Arm::Own, _) => {
                self.init(at);
                Arm::Sent
            }
            (Arm::Sent | Arm::First, _) => Arm::Sent,
            (Arm::Done, _) => Arm::Done,
        };
    }

    /// What nobody will ask for any more.
    fn forget(&mut self, call: usize) {
        (self.forced[call], self.found[call], self.before[call]) = (0, [0; PARTITIONS], [0; PARTITIONS]);
    }

    /// The arms of a partition are as good as each other: the same in one order.
    fn canonical(mut self) -> Self {
        for at in 0..PARTITIONS {
            let bit = |bits: u8, number: usize| bits >> number & 1;
            let befores = |number: usize| self.before.map(|before| bit(before[at], number));
            let look =
                |number: usize| (self.arms[at][number] as u8, bit(self.held[at], number), befores(number));
            if look(0) > look(1) {
                let swap = |bits: u8| bit(bits, 0) << 1 | bit(bits, 1);
                self.arms[at].swap(0, 1);
                self.held[at] = swap(self.held[at]);
                self.before.iter_mut().for_each(|before| before[at] = swap(before[at]));
            }
        }
        self
    }

    fn is_closed(&self) -> bool {
        self.metas.iter().any(|meta| matches!(meta, Meta::Closed(_)))
    }
}

impl Destroying {
    /// The model.
    pub fn new(forced: [bool; CALLS], rules: Rules<Rule>) -> Self {
        Self { forced, first_number: 1, rules }
    }

    fn call(self, topic: &mut Topic, call: usize) {
        topic.calls[call] = match topic.calls[call] {
            Call::Idle => {
                topic.forced[call] = if self.forced[call] { self.first_number + call as u8 } else { 0 };
                topic.before[call] = topic.held;
                Call::Ask(PARTITIONS)
            }
            Call::Ask(left) => self.ask(topic, call, left - 1),
            Call::Close(at) => self.close(topic, call, at),
            Call::Clear(at) => self.clear(topic, call, at),
            Call::End(left) => self.end(topic, call, left),
            Call::Open(at, number) => self.open(topic, at, number),
            Call::Over(well) => Call::Over(well),
        };
        if topic.calls[call] == Call::Over(true) {
            topic.left |= (0..PARTITIONS).any(|at| topic.held[at] & topic.before[call][at] != 0);
            topic.taken_up |= topic.forced[call] != 0 && !self.forced[call];
        }
        if matches!(topic.calls[call], Call::Over(_)) {
            topic.forget(call);
        }
    }

    /// Partition 0 is asked last. What was found closed under another number than it has now is nobody's.
    fn ask(self, topic: &mut Topic, call: usize, at: usize) -> Call {
        if let Meta::Closed(number) = topic.metas[at] {
            topic.found[call][at] = number;
        }
        let found = topic.found[call];
        if at > 0 {
            return Call::Ask(at);
        }
        if self.rules.has(Rule::LeftoversAreOpened) && found[1] != 0 && found[1] != found[0] {
            return Call::Open(1, found[1]);
        }
        Call::Close(0)
    }

    fn close(self, topic: &mut Topic, call: usize, at: usize) -> Call {
        let by = if let Meta::Closed(number) = topic.metas[at] { number } else { 0 };
        if at == 0 && by != 0 {
            topic.forced[call] = by;
        }
        let forced = topic.forced[call];
        // Without the rule that was asked when the call began.
        let found = if self.rules.has(Rule::EmptyWhenClosed) { topic.held } else { topic.before[call] };
        if topic.metas[at] == Meta::Open && found[at] != 0 && forced == 0 {
            return Call::Open(0, 0);
        }
        topic.metas[at] = Meta::Closed(if forced == 0 { by } else { forced });
        if at + 1 < PARTITIONS { Call::Close(at + 1) } else { Call::Clear(0) }
    }

    fn clear(self, topic: &mut Topic, call: usize, at: usize) -> Call {
        match topic.metas[at] {
            Meta::Open if self.rules.has(Rule::OnlyWhatIsClosed) => {
                // Another has ended it, if by force; else it was refused, and has opened it again.
                if topic.forced[call] == 0 {
                    return Call::Open(0, 0);
                }
            }
            Meta::Absent => {}
            meta => {
                topic.wronged |= topic.held[at] != 0 && matches!(meta, Meta::Closed(0) | Meta::Open);
                topic.held[at] = 0;
            }
        }
        if at + 1 < PARTITIONS { Call::Clear(at + 1) } else { Call::End(PARTITIONS) }
    }

    fn end(self, topic: &mut Topic, call: usize, left: usize) -> Call {
        let at = left - 1;
        match topic.metas[at] {
            Meta::Closed(by) => {
                topic.wronged |= topic.held[at] != 0 && by == 0;
                (topic.metas[at], topic.held[at]) = (Meta::Absent, 0);
            }
            Meta::Open if topic.forced[call] == 0 => return Call::Open(0, 0),
            Meta::Open | Meta::Absent => {}
        }
        if left > 1 { Call::End(left - 1) } else { Call::Over(true) }
    }

    fn open(self, topic: &mut Topic, at: usize, number: u8) -> Call {
        match topic.metas[at] {
            Meta::Closed(by) if by == number || !self.rules.has(Rule::ForcedStaysClosed) => {
                topic.metas[at] = Meta::Open;
            }
            Meta::Closed(_) | Meta::Absent | Meta::Open => {}
        }
        match number {
            0 if at + 1 < PARTITIONS => Call::Open(at + 1, 0),
            0 => Call::Over(false),
            _ => Call::Close(0),
        }
    }

    /// The topic after one more call that nobody disturbs.
    fn after_one_more(self, topic: &Topic, forced: bool) -> Topic {
        let mut after = Topic { calls: [Call::Over(false); CALLS], ..*topic };
        after.calls[0] = Call::Idle;
        after.forget(0);
        let alone = Self { forced: [forced; CALLS], first_number: 1 + CALLS as u8, ..self };
        while !matches!(after.calls[0], Call::Over(_)) {
            alone.call(&mut after, 0);
        }
        after
    }
}

impl Model for Destroying {
    type State = Topic;
    type Action = Step;

    fn init_states(&self) -> Vec<Topic> {
        vec![Topic::default()]
    }

    fn actions(&self, _: &Topic, steps: &mut Vec<Step>) {
        let arms = (0..PARTITIONS).flat_map(|at| (0..ARMS).map(move |number| Step::Arm(at, number)));
        steps.extend(arms);
        steps.extend((0..CALLS).map(Step::Call));
        steps.extend((0..CALLS).map(Step::Death));
    }

    fn next_state(&self, topic: &Topic, step: Step) -> Option<Topic> {
        let mut after = *topic;
        match step {
            Step::Arm(at, number) => after.arm(at, number),
            Step::Call(call) => self.call(&mut after, call),
            Step::Death(call) if matches!(after.calls[call], Call::Idle | Call::Over(_)) => return None,
            Step::Death(call) => {
                after.calls[call] = Call::Over(false);
                after.forget(call);
            }
        }
        Some(after.canonical()).filter(|after| after != topic)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no timer is half there", |_, topic: &Topic| {
                (0..PARTITIONS).all(|at| topic.held[at] == 0 || topic.metas[at] != Meta::Absent)
            }),
            Property::always("nothing armed is removed without force", |_, topic: &Topic| !topic.wronged),
            Property::always("what was there before a call that ends well is gone", |_, topic: &Topic| {
                !topic.left
            }),
            Property::always("one more call by force ends it", |model: &Self, topic: &Topic| {
                let after = model.after_one_more(topic, true);
                after.calls[0] == Call::Over(true) && after.metas == [Meta::Absent; PARTITIONS]
            }),
            Property::always("one more call leaves nothing closed", |model: &Self, topic: &Topic| {
                !model.after_one_more(topic, false).is_closed()
            }),
            Property::sometimes("an arm after the end is found", |_, topic: &Topic| {
                topic.calls.contains(&Call::Over(true)) && topic.held != [0; PARTITIONS] && !topic.is_closed()
            }),
            Property::sometimes("a call without force ends what one with force began", |_, topic: &Topic| {
                topic.taken_up
            }),
            Property::sometimes("a call is refused", |_, topic: &Topic| {
                topic.calls.contains(&Call::Over(false))
                    && topic.held != [0; PARTITIONS]
                    && !topic.is_closed()
            }),
        ]
    }
}
