//! Actions of operators on a timer, a dead letter or a topic, and their results as text and as JSON.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::{ArmingId, ReplayId};
use crate::time::{When, unix_ms};
use crate::wire::{ArmResult, Cancelled, ReplayCall, Replayed, Rescheduled};
use crate::{Entry, EntryState, TopicHandle, counted, show_span, text};
use keylapse::Key;

/// An action on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Cancels timers.
    Cancel,
    /// Makes waiting timers due now.
    RunNow,
    /// Moves waiting timers to another deadline.
    Reschedule(When),
    /// Arms dead letters again under their arming IDs.
    Replay,
    /// Arms dead letters again under new arming IDs.
    ReplayAsNew,
    /// Deletes dead letters.
    Drop,
}

/// The result of an action on a topic, or on a timer or a dead letter of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ActionResult {
    /// True if the action took place.
    #[serde(skip)]
    pub done: bool,
    /// The topic.
    pub topic: String,
    /// The key, as [`text`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The result as a constant word, for programs.
    pub outcome: &'static str,
    /// The result as text, for people.
    pub message: Cow<'static, str>,
    /// The new deadline in ms since 1970, if the action armed or moved a timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The arming ID, if the action armed a timer.
    #[serde(skip)]
    pub id: Option<ArmingId>,
}

/// The JSON form of the result of an arm.
#[derive(Serialize)]
struct ArmJson<'a> {
    topic: &'a str,
    key: Option<&'a str>,
    outcome: &'static str,
    #[serde(serialize_with = "text::id_as_text")]
    id: Option<ArmingId>,
    deadline_ms: Option<u64>,
}

/// An outcome of an action: its code for programs and its message for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActionOutcome {
    pub(super) was_done: bool,
    pub(super) code: &'static str,
    message: &'static str,
}

macro_rules! outcomes {
    ($($name:ident = $kind:ident $code:literal, $message:literal;)*) => {
        $(const $name: ActionOutcome =
            ActionOutcome { was_done: outcomes!(@ $kind), code: $code, message: $message };)*
        const ALL: &[ActionOutcome] = &[$($name),*];
    };
    (@ done) => { true };
    (@ left) => { false };
}

outcomes! {
    CANCELLED = done "cancelled", "cancelled: it will not run";
    CANCELLED_CLAIMED = done "cancelled_claimed",
        "cancelled: a listener had claimed the timer before its deadline and receives a notice";
    CANCELLED_RUNNING = done "cancelled_running",
        "cancelled: the running attempt receives a request to stop and cannot settle";
    DUE_NOW = done "due_now", "due now";
    MOVED = done "rescheduled", "rescheduled";
    RUNNING = left "running", "unchanged: an attempt is running";
    NOT_ARMED = left "not_armed", "not armed: the key has no timer";
    REPLAYED = done "replayed", "replayed: its attempts start over";
    HAS_TIMER = left "has_a_timer", "unchanged: the key already has a timer";
    UNREADABLE = left "unreadable", "unchanged: the record cannot be read";
    DROPPED = done "dropped", "dropped";
    // Another operator, or the limit of the topic, can remove a dead letter between its listing and the action.
    GONE = left "gone", "the dead letter is gone: it was replayed, dropped or trimmed";
    ARMED = done "armed", "armed";
    REPLACED = done "replaced", "replaced the earlier timer";
    AFTER_RUNNING = done "after_running", "armed: the timer starts after the running attempt ends";
    SUPERSEDED = left "superseded", "superseded: the timer was cancelled or replaced since";
    PAUSED = done "paused", "paused: running attempts continue, no others start";
    RESUMED = done "resumed", "resumed: overdue timers run now";
    RETRY_REQUESTED = done "retry_requested",
        "requested: listeners call the destination now and report the result within five seconds";
}

impl Action {
    /// All actions. [`Reschedule`](Self::Reschedule) has the delay zero.
    pub const ALL: [Self; 6] =
        [Self::RunNow, Self::Reschedule(NOW), Self::Cancel, Self::Replay, Self::ReplayAsNew, Self::Drop];

    /// Returns the actions that apply to entries in a state.
    pub fn of(state: EntryState) -> &'static [Self] {
        match state {
            EntryState::Waiting | EntryState::Quarantined => {
                &[Self::RunNow, Self::Reschedule(NOW), Self::Cancel]
            }
            EntryState::Running => &[Self::Cancel],
            EntryState::Dead => &[Self::Replay, Self::ReplayAsNew, Self::Drop],
            EntryState::Tracked => &[],
        }
    }

    /// Returns the action's name for programs: `run-now`.
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

    /// Returns the label of the action's button: `Run now`.
    pub fn label(self) -> &'static str {
        match self {
            Self::RunNow => "Run now",
            Self::Reschedule(_) => "Reschedule",
            Self::Cancel => "Cancel",
            Self::Replay => "Replay",
            Self::ReplayAsNew => "Replay as new",
            Self::Drop => "Drop",
        }
    }

    /// Returns the participle that follows "would be": `replayed`.
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

    /// Returns whether the action deletes data for good.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Cancel | Self::Drop)
    }

    /// Returns whether the action applies to dead letters. The others apply to timers.
    pub fn is_for_letters(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayAsNew | Self::Drop)
    }
}

impl TryFrom<String> for Action {
    type Error = Error;

    fn try_from(word: String) -> Result<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word).ok_or_else(|| {
            let (all, word) =
                (Self::ALL.map(Self::as_str).join(", "), crate::escape::excerpt(word.as_bytes()));
            Error::invalid(format!("unknown action {word}: the actions are {all}"))
        })
    }
}

// The enums are non-exhaustive, but each manifest requires exactly one version of keylapse's crates.
const ONE_VERSION: &str = "all crates of keylapse have the same version";

impl TopicHandle {
    /// Arms a timer, as [`Schedule::arm`](keylapse::Schedule::arm) does. The payload is stored unchanged.
    ///
    /// # Errors
    /// Returns the errors of [`Schedule::arm`](keylapse::Schedule::arm). Returns an error of kind
    /// [`Invalid`](keylapse::ErrorKind::Invalid) for an attached topic, because other programs write its keys.
    pub async fn arm(
        &self,
        key: &[u8],
        when: impl Into<When>,
        payload: Bytes,
        only_if_absent: bool,
    ) -> Result<ActionResult> {
        if self.is_attached() {
            return Err(self.attached("arm"));
        }
        let request = self.schedule().arm(&self.topic, Key(key), when, &payload);
        let arming = if only_if_absent { request.only_if_absent().await? } else { request.await? };
        let became = match arming {
            ArmResult::Armed(_) => ARMED,
            ArmResult::Replaced(_) => REPLACED,
            ArmResult::AfterRunning(_) => AFTER_RUNNING,
            ArmResult::Exists => HAS_TIMER,
            ArmResult::Superseded => SUPERSEDED,
            _ => unreachable!("{ONE_VERSION}"),
        };
        let receipt = arming.receipt();
        let deadline_ms = receipt.map(|receipt| unix_ms(receipt.deadline));
        Ok(ActionResult {
            id: receipt.map(|receipt| receipt.id),
            deadline_ms,
            ..ActionResult::to_key(self, key, became)
        })
    }

    /// Applies an action to a key's timer, or to one of its dead letters.
    ///
    /// Timers are changed as by [`Schedule::cancel`](keylapse::Schedule::cancel) and
    /// [`Schedule::reschedule`](keylapse::Schedule::reschedule), dead letters as by
    /// [`Schedule::replay`](keylapse::Schedule::replay). An action on a dead letter has the outcome `gone` if `letter` is
    /// `None`.
    ///
    /// # Errors
    /// Returns the errors of these methods. Returns an error of kind [`Invalid`](keylapse::ErrorKind::Invalid) if `letter`
    /// is not a dead letter of the topic.
    pub async fn act(&self, action: Action, key: &[u8], letter: Option<&Entry>) -> Result<ActionResult> {
        let (became, deadline_ms) = self.apply_action(action, key, letter).await?;
        Ok(ActionResult { deadline_ms, ..ActionResult::to_key(self, key, became) })
    }

    /// Returns the outcome, and the deadline in ms since 1970 of a timer that was moved.
    pub(super) async fn apply_action(
        &self,
        action: Action,
        key: &[u8],
        letter: Option<&Entry>,
    ) -> Result<(ActionOutcome, Option<u64>)> {
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

    async fn cancel(&self, key: &[u8]) -> Result<ActionOutcome> {
        Ok(match self.schedule().cancel(&self.topic, Key(key)).await? {
            Cancelled::NotArmed => NOT_ARMED,
            Cancelled::Cancelled => CANCELLED,
            Cancelled::Claimed => CANCELLED_CLAIMED,
            Cancelled::InFlight => CANCELLED_RUNNING,
            _ => unreachable!("{ONE_VERSION}"),
        })
    }

    async fn act_on_letter(&self, action: Action, letter: &Entry) -> Result<ActionOutcome> {
        let ours = letter.state == EntryState::Dead && letter.topic == self.name();
        if !ours || letter.partition >= self.partitions() {
            return Err(Error::invalid("the entry is not a dead letter of this topic").at_key(&letter.key));
        }
        let (at, store) = (&self.partition_names()[letter.partition as usize], self.console.store());
        let became = if action == Action::Drop {
            let call = |_| store.drop_letter(at, &letter.name);
            self.console
                .retry_until_answered(call)
                .await
                .map(|was_there| if was_there { DROPPED } else { GONE })
        } else {
            let anew = (action == Action::ReplayAsNew).then(ArmingId::random);
            let first =
                ReplayCall { letter: letter.name.clone(), id: ReplayId::random(), anew, repeat: false };
            let call = |repeat| {
                let call = ReplayCall { repeat, ..first.clone() };
                async move { store.replay(at, &call).await }
            };
            self.console.retry_until_answered(call).await.map(|replayed| match replayed {
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
    /// Returns the errors of [`Schedule::pause`](keylapse::Schedule::pause).
    pub async fn pause(&self, reason: &str) -> Result<ActionResult> {
        self.schedule().pause(&self.topic, reason).await.map(|()| ActionResult::to_topic(self, PAUSED))
    }

    /// Resumes the topic. Overdue timers run immediately.
    ///
    /// # Errors
    /// Returns the errors of [`Schedule::resume`](keylapse::Schedule::resume).
    pub async fn resume(&self) -> Result<ActionResult> {
        self.schedule().resume(&self.topic).await.map(|()| ActionResult::to_topic(self, RESUMED))
    }

    pub(super) async fn try_now(&self, destination: &str) -> Result<ActionResult> {
        let call = self.console.store().try_now(&self.partition_names()[0], destination);
        call.await.map(|()| ActionResult::to_topic(self, RETRY_REQUESTED))
    }

    /// Changes the topic's number of partitions, as [`Console::repartition`](crate::Console::repartition) does. Waits up to
    /// `wait` for running attempts.
    ///
    /// # Errors
    /// Returns the errors of [`Console::repartition`](crate::Console::repartition).
    pub async fn repartition(&self, partitions: u32, wait: Duration) -> Result<ActionResult> {
        let done = self.console.repartition(&self.topic, partitions).wait(wait).await?;
        let (timers, letters) = (counted(done.timers, "timer"), counted(done.dead_letters, "dead letter"));
        let message = format!(
            "{} instead of {}; moved {timers} and {letters}; arming was blocked for {}. Start all \
             programs of the topic with `.partitions({})` now",
            counted(done.to.into(), "partition"),
            done.from,
            show_span(done.closed_for),
            done.to
        );
        Ok(ActionResult::with_figures(self, "repartitioned", message))
    }

    /// Deletes the topic with its timers and dead letters, as [`Console::destroy`](crate::Console::destroy) does.
    ///
    /// # Errors
    /// Returns the errors of [`Console::destroy`](crate::Console::destroy).
    pub async fn destroy(&self, forced: bool) -> Result<ActionResult> {
        let request = self.console.destroy(&self.topic);
        let gone = if forced { request.forced().await? } else { request.await? };
        let (timers, dead) = (counted(gone.timers, "timer"), counted(gone.dead_letters, "dead letter"));
        let message = format!("deleted {timers}, {dead} and {}", counted(gone.marker_keys, "marker key"));
        Ok(ActionResult::with_figures(self, "destroyed", message))
    }

    /// Forgets an attached topic, as [`Console::detach`](crate::Console::detach) does.
    ///
    /// # Errors
    /// Returns the errors of [`Console::detach`](crate::Console::detach).
    pub async fn detach(&self) -> Result<ActionResult> {
        let gone = self.console.detach(&self.topic).await?;
        let message = format!("forgot {}; the keys themselves are unchanged", counted(gone.tracked, "key"));
        Ok(ActionResult::with_figures(self, "detached", message))
    }

    pub(super) fn attached(&self, verb: &str) -> Error {
        Error::invalid(format!(
            "cannot {verb} timers of topic {}: it is attached, and other programs write its keys",
            self.name()
        ))
    }
}

impl ActionResult {
    fn to_topic(topic: &TopicHandle, ActionOutcome { was_done, code, message }: ActionOutcome) -> Self {
        let (topic, message) = (topic.name().to_owned(), Cow::Borrowed(message));
        Self { done: was_done, topic, key: None, outcome: code, message, deadline_ms: None, id: None }
    }

    fn to_key(topic: &TopicHandle, key: &[u8], became: ActionOutcome) -> Self {
        Self { key: Some(text::escape(key)), ..Self::to_topic(topic, became) }
    }

    fn with_figures(topic: &TopicHandle, code: &'static str, message: String) -> Self {
        let done = Self::to_topic(topic, ActionOutcome { was_done: true, code, message: "" });
        Self { message: message.into(), ..done }
    }

    /// Returns whether the action found no timer or no dead letter.
    pub fn found_nothing(&self) -> bool {
        [NOT_ARMED.code, GONE.code].contains(&self.outcome)
    }

    /// Returns the JSON form of the result of [`TopicHandle::arm`].
    pub fn armed(&self) -> impl Serialize {
        let Self { topic, key, outcome, id, deadline_ms, .. } = self;
        ArmJson { topic, key: key.as_deref(), outcome, id: *id, deadline_ms: *deadline_ms }
    }

    /// Returns whether an action with this outcome took place, and the outcome's message. Returns `None` for an unknown
    /// outcome.
    pub fn of_word(outcome: &str) -> Option<(bool, &'static str)> {
        ALL.iter().find(|became| became.code == outcome).map(|became| (became.was_done, became.message))
    }
}

const NOW: When = When::In(Duration::ZERO);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_word_of_its_own() {
        for became in ALL {
            assert_eq!(ActionResult::of_word(became.code), Some((became.was_done, became.message)));
        }
        assert_eq!(ActionResult::of_word("<script>"), None);
    }
}
