//! What an operator does to one timer, one letter, or a topic as a whole; and what became of it, in words and as JSON.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::{ArmingId, ReplayId};
use crate::time::{When, unix_ms};
use crate::wire::{Arming, Cancelled, Replay, Replayed, Rescheduled};
use crate::{Entry, EntryState, KnownTopic, counted, show_span, text};
use keylapse::Key;

/// What is done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Withdraw timers.
    Cancel,
    /// Make waiting timers due now.
    RunNow,
    /// Move waiting timers.
    Reschedule(When),
    /// Arm dead letters again, as the armings that they were.
    Replay,
    /// Arm dead letters again, as new armings.
    ReplayAsNew,
    /// Forget dead letters.
    Drop,
}

/// What was done to a topic, or to something of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Done {
    /// Whether it was done.
    #[serde(skip)]
    pub was_done: bool,
    /// The topic.
    pub topic: String,
    /// The key, as [`text`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A word for programs.
    pub outcome: &'static str,
    /// What to say of it.
    pub says: Cow<'static, str>,
    /// When it is due now, in ms since 1970, where it was armed or moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The arming, where it was armed.
    #[serde(skip)]
    pub id: Option<ArmingId>,
}

/// As JSON has it where a timer was to be armed.
#[derive(Serialize)]
struct Armed<'a> {
    topic: &'a str,
    key: Option<&'a str>,
    outcome: &'static str,
    #[serde(serialize_with = "text::id_as_text")]
    id: Option<ArmingId>,
    deadline_ms: Option<u64>,
}

/// What becomes of an action upon a timer, a letter or a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Became {
    pub(super) was_done: bool,
    pub(super) code: &'static str,
    says: &'static str,
}

macro_rules! outcomes {
    ($($name:ident = $kind:ident $code:literal, $says:literal;)*) => {
        $(const $name: Became = Became { was_done: outcomes!(@ $kind), code: $code, says: $says };)*
        const ALL: &[Became] = &[$($name),*];
    };
    (@ done) => { true };
    (@ left) => { false };
}

outcomes! {
    CANCELLED = done "cancelled", "cancelled: it will not run";
    TAKEN = done "cancelled_claimed", "cancelled: a listener had taken it ahead of its deadline and is told";
    STOPPED = done "cancelled_running",
        "cancelled: an attempt was running, is told to stop, and can settle nothing";
    DUE_NOW = done "due_now", "due now";
    MOVED = done "rescheduled", "rescheduled";
    RUNNING = left "running", "unchanged: an attempt is running";
    NOT_ARMED = left "not_armed", "not armed: there is no timer of this key";
    REPLAYED = done "replayed", "replayed: its attempts start over";
    HAS_TIMER = left "has_a_timer", "left alone: the key has a timer";
    UNREADABLE = left "unreadable", "left alone: its record cannot be read";
    DROPPED = done "dropped", "dropped";
    // Somebody else was quicker with a letter.
    GONE = left "gone", "the letter is gone: replayed, dropped or trimmed meanwhile";
    ARMED = done "armed", "armed";
    REPLACED = done "replaced", "replaced the timer that was there";
    AFTER_RUNNING = done "after_running", "armed behind the attempt that is running";
    SUPERSEDED = left "superseded", "superseded: it has been cancelled or replaced since";
    PAUSED = done "paused", "paused: attempts that run go on, and no others begin";
    RESUMED = done "resumed", "resumed: what has become due runs now";
    ASKED = done "asked", "asked: its listeners call it now, and report within five seconds how that went";
}

impl Action {
    /// All actions; a reschedule is for now.
    pub const ALL: [Self; 6] =
        [Self::RunNow, Self::Reschedule(NOW), Self::Cancel, Self::Replay, Self::ReplayAsNew, Self::Drop];

    /// Those that can work upon entries in a state.
    pub fn of(state: EntryState) -> &'static [Self] {
        match state {
            EntryState::Waiting | EntryState::Quarantined => {
                &[Self::RunNow, Self::Reschedule(NOW), Self::Cancel]
            }
            EntryState::Running => &[Self::Cancel],
            EntryState::Dead => &[Self::Replay, Self::ReplayAsNew, Self::Drop],
            EntryState::Enrolled => &[],
        }
    }

    /// The action's word: `run-now`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunNow => "run-now",
            Self::Reschedule(_) => "reschedule",
            Self::Cancel => "cancel",
            Self::Replay => "replay",
            Self::ReplayAsNew => "replay-as-new",
            Self::Drop => "drop",
        }
    }

    /// What a button for it says: `Run now`.
    pub fn called(self) -> &'static str {
        match self {
            Self::RunNow => "Run now",
            Self::Reschedule(_) => "Reschedule",
            Self::Cancel => "Cancel",
            Self::Replay => "Replay",
            Self::ReplayAsNew => "Replay as new",
            Self::Drop => "Drop",
        }
    }

    /// What entries will be: `replayed`.
    pub fn will_be(self) -> &'static str {
        match self {
            Self::RunNow => "due now",
            Self::Reschedule(_) => "moved",
            Self::Cancel => "cancelled",
            Self::Replay => "replayed",
            Self::ReplayAsNew => "replayed as new armings",
            Self::Drop => "dropped",
        }
    }

    /// Whether nothing brings back what it takes away.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Cancel | Self::Drop)
    }

    /// Whether it is for dead letters, and not for timers.
    pub fn is_for_letters(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayAsNew | Self::Drop)
    }
}

impl TryFrom<String> for Action {
    type Error = Error;

    fn try_from(word: String) -> Result<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word).ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("there is no action of this name: there are {all}"))
        })
    }
}

/// Why no answer is missing in a match: a manifest names exactly one version of each crate of keylapse.
const ONE_VERSION: &str = "the crates of keylapse have one version";

impl KnownTopic {
    /// Arms a timer, as [`Schedule::arm`](keylapse::Schedule::arm) does. The payload is taken as it is.
    ///
    /// # Errors
    /// As there. Of kind [`Invalid`](keylapse::ErrorKind::Invalid) for an attached topic: its timers are keys that other
    /// programs write.
    pub async fn arm(
        &self,
        key: &[u8],
        when: impl Into<When>,
        payload: Bytes,
        only_if_absent: bool,
    ) -> Result<Done> {
        if self.is_attached() {
            return Err(self.attached("arm"));
        }
        let request = self.schedule().arm(&self.topic, Key(key), when, &payload);
        let arming = if only_if_absent { request.only_if_absent().await? } else { request.await? };
        let became = match arming {
            Arming::Armed(_) => ARMED,
            Arming::Replaced(_) => REPLACED,
            Arming::AfterRunning(_) => AFTER_RUNNING,
            Arming::Exists => HAS_TIMER,
            Arming::Superseded => SUPERSEDED,
            _ => unreachable!("{ONE_VERSION}"),
        };
        let receipt = arming.receipt();
        let deadline_ms = receipt.map(|receipt| unix_ms(receipt.deadline));
        Ok(Done { id: receipt.map(|receipt| receipt.id), deadline_ms, ..Done::to_key(self, key, became) })
    }

    /// Does it to the timer of a key, as [`Schedule::cancel`](keylapse::Schedule::cancel) and
    /// [`Schedule::reschedule`](keylapse::Schedule::reschedule) do; or to a dead letter of the key, as
    /// [`Schedule::replay`](keylapse::Schedule::replay) does. A letter that is wanted and missing is gone.
    ///
    /// # Errors
    /// As there. Of kind [`Invalid`](keylapse::ErrorKind::Invalid) if the entry is no dead letter of the topic.
    pub async fn act(&self, action: Action, key: &[u8], letter: Option<&Entry>) -> Result<Done> {
        let (became, deadline_ms) = self.become_of(action, key, letter).await?;
        Ok(Done { deadline_ms, ..Done::to_key(self, key, became) })
    }

    /// And when a timer that was moved is due.
    pub(super) async fn become_of(
        &self,
        action: Action,
        key: &[u8],
        letter: Option<&Entry>,
    ) -> Result<(Became, Option<u64>)> {
        let (when, moved) = match action {
            Action::Cancel => return Ok((self.cancel(key).await?, None)),
            Action::RunNow => (NOW, DUE_NOW),
            Action::Reschedule(when) => (when, MOVED),
            Action::Replay | Action::ReplayAsNew | Action::Drop => {
                let Some(letter) = letter else { return Ok((GONE, None)) };
                return Ok((self.act_on_letter(action, letter).await?, None));
            }
        };
        Ok(match self.schedule().reschedule(&self.topic, Key(key), when).await? {
            Rescheduled::Rescheduled(at) => (moved, Some(unix_ms(at))),
            Rescheduled::InFlight => (RUNNING, None),
            Rescheduled::NotArmed => (NOT_ARMED, None),
            _ => unreachable!("{ONE_VERSION}"),
        })
    }

    async fn cancel(&self, key: &[u8]) -> Result<Became> {
        Ok(match self.schedule().cancel(&self.topic, Key(key)).await? {
            Cancelled::NotArmed => NOT_ARMED,
            Cancelled::Cancelled => CANCELLED,
            Cancelled::Claimed => TAKEN,
            Cancelled::InFlight => STOPPED,
            _ => unreachable!("{ONE_VERSION}"),
        })
    }

    /// A replay arms for now: as the same arming, or as a new one with an id of its own.
    async fn act_on_letter(&self, action: Action, letter: &Entry) -> Result<Became> {
        let ours = letter.state == EntryState::Dead && letter.topic == self.name();
        if !ours || letter.partition >= self.partitions() {
            return Err(Error::invalid("this is no dead letter of the topic").at_key(&letter.key));
        }
        let (at, store) = (&self.parts()[letter.partition as usize], self.console.store());
        let became = if action == Action::Drop {
            let call = |_| store.drop_letter(at, &letter.name);
            self.console.persist(call).await.map(|was_there| if was_there { DROPPED } else { GONE })
        } else {
            let anew = (action == Action::ReplayAsNew).then(ArmingId::random);
            let first = Replay { letter: letter.name.clone(), id: ReplayId::random(), anew, repeat: false };
            let call = |repeat| {
                let call = Replay { repeat, ..first.clone() };
                async move { store.replay(at, &call).await }
            };
            self.console.persist(call).await.map(|replayed| match replayed {
                Replayed::Replayed => REPLAYED,
                Replayed::Exists => HAS_TIMER,
                Replayed::Unreadable => UNREADABLE,
                Replayed::Gone => GONE,
                _ => unreachable!("{ONE_VERSION}"),
            })
        };
        became.map_err(|error| error.at_key(&letter.key))
    }

    /// Pauses the topic, as [`Schedule::pause`](keylapse::Schedule::pause) does.
    ///
    /// # Errors
    /// As there.
    pub async fn pause(&self, reason: &str) -> Result<Done> {
        self.schedule().pause(&self.topic, reason).await.map(|()| Done::to_topic(self, PAUSED))
    }

    /// Resumes the topic; what has become due runs at once.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause).
    pub async fn resume(&self) -> Result<Done> {
        self.schedule().resume(&self.topic).await.map(|()| Done::to_topic(self, RESUMED))
    }

    /// See [`Console::try_now`](crate::Console::try_now).
    pub(super) async fn try_now(&self, destination: &str) -> Result<Done> {
        let call = self.console.store().try_now(&self.parts()[0], destination);
        call.await.map(|()| Done::to_topic(self, ASKED))
    }

    /// Gives the topic another number of partitions: see [`Console::repartition`](crate::Console::repartition). Attempts that run
    /// are waited for up to `wait`.
    ///
    /// # Errors
    /// As there.
    pub async fn repartition(&self, partitions: u32, wait: Duration) -> Result<Done> {
        let done = self.console.repartition(&self.topic, partitions).wait(wait).await?;
        let (timers, letters) = (counted(done.timers, "timer"), counted(done.dead_letters, "letter"));
        let says = format!(
            "{}, before {}; {timers} and {letters} moved; nothing could be armed for {}. Start all \
             programs of the topic with `.partitions({})` now",
            counted(done.to.into(), "partition"),
            done.from,
            show_span(done.closed_for),
            done.to
        );
        Ok(Done::with_figures(self, "repartitioned", says))
    }

    /// Removes the topic with all that it holds: see [`Console::destroy`](crate::Console::destroy).
    ///
    /// # Errors
    /// As there.
    pub async fn destroy(&self, forced: bool) -> Result<Done> {
        let request = self.console.destroy(&self.topic);
        let gone = if forced { request.forced().await? } else { request.await? };
        let (timers, dead) = (counted(gone.timers, "timer"), counted(gone.dead_letters, "dead letter"));
        let says = format!("{timers}, {dead} and {} are gone", counted(gone.trigger_keys, "trigger key"));
        Ok(Done::with_figures(self, "destroyed", says))
    }

    /// Forgets an attached topic: see [`Console::detach`](crate::Console::detach).
    ///
    /// # Errors
    /// As there.
    pub async fn detach(&self) -> Result<Done> {
        let gone = self.console.detach(&self.topic).await?;
        let says = format!("{} forgotten and left alone", counted(gone.enrolled, "key"));
        Ok(Done::with_figures(self, "detached", says))
    }

    pub(super) fn attached(&self, verb: &str) -> Error {
        Error::invalid(format!(
            "topic {} is attached: other programs write its keys, and nothing can {verb} them but those",
            self.name()
        ))
    }
}

impl Done {
    fn to_topic(topic: &KnownTopic, Became { was_done, code, says }: Became) -> Self {
        let (topic, says) = (topic.name().to_owned(), Cow::Borrowed(says));
        Self { was_done, topic, key: None, outcome: code, says, deadline_ms: None, id: None }
    }

    fn to_key(topic: &KnownTopic, key: &[u8], became: Became) -> Self {
        Self { key: Some(text::escape(key)), ..Self::to_topic(topic, became) }
    }

    fn with_figures(topic: &KnownTopic, code: &'static str, says: String) -> Self {
        let done = Self::to_topic(topic, Became { was_done: true, code, says: "" });
        Self { says: says.into(), ..done }
    }

    /// Whether there was nothing to do it to: no timer, or no such letter any more.
    pub fn found_nothing(&self) -> bool {
        [NOT_ARMED.code, GONE.code].contains(&self.outcome)
    }

    /// As JSON has it where a timer was to be armed.
    pub fn armed(&self) -> impl Serialize {
        let Self { topic, key, outcome, id, deadline_ms, .. } = self;
        Armed { topic, key: key.as_deref(), outcome, id: *id, deadline_ms: *deadline_ms }
    }

    /// Whether something with this outcome was done, and what to say of it; none where there is no such word.
    pub fn of_word(outcome: &str) -> Option<(bool, &'static str)> {
        ALL.iter().find(|became| became.code == outcome).map(|became| (became.was_done, became.says))
    }
}

const NOW: When = When::In(Duration::ZERO);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_word_of_its_own() {
        for became in ALL {
            assert_eq!(Done::of_word(became.code), Some((became.was_done, became.says)));
        }
        assert_eq!(Done::of_word("<script>"), None);
    }
}
