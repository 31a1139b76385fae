//! Alarms: the one list of what needs a person, for all that show it; and checks of topics against alarms and limits, for
//! cron, probes and requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::escape::{excerpt, plain};
use crate::figures::{Destination, DestinationState};
use crate::wire::ListenerReport;
use crate::words::brief;
use crate::{Overview, Status, TopicStanding, TopicStatus, counted, parse_span, show_count, show_span};

/// For so long a trimmed dead letter is worth a word.
const TRIMMED_FOR: Duration = Duration::from_secs(3600);
/// So many destinations of a topic are named.
pub(super) const NAMED: usize = 5;

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alarm {
    /// Which kind it is.
    pub kind: AlarmKind,
    /// The topic, unless it is of a listener.
    pub topic: Option<String>,
    /// The listener's host and process, unless it is of a topic.
    pub listener: Option<String>,
    /// The text for people.
    pub says: String,
}

/// The kinds of alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlarmKind {
    /// A topic cannot be read.
    Unreadable,
    /// A topic is being destroyed or repartitioned, or is of another wire version.
    Closed,
    /// A topic is paused.
    Paused,
    /// No listener serves a topic that needs one.
    Unserved,
    /// Timers wait for a destination that does not answer, or asked to be called later.
    HeldBack,
    /// Most attempts of the last five minutes have failed.
    Failing,
    /// Dead letters were trimmed within the last hour.
    Trimmed,
    /// Listeners of a topic do different things with what is due, such as calls of other URLs.
    Different,
    /// A listener has ended without a word, stands still, or cannot reach the server.
    Silent,
    /// The handlers of a listener block all threads of their runtime.
    Stalled,
}

impl AlarmKind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Unreadable,
        Self::Closed,
        Self::Paused,
        Self::Unserved,
        Self::HeldBack,
        Self::Failing,
        Self::Trimmed,
        Self::Different,
        Self::Silent,
        Self::Stalled,
    ];

    /// Returns its name, such as `held-back`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Closed => "closed",
            Self::Paused => "paused",
            Self::Unserved => "unserved",
            Self::HeldBack => "held-back",
            Self::Failing => "failing",
            Self::Trimmed => "trimmed",
            Self::Different => "different",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
        }
    }
}

impl FromStr for AlarmKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("{} is no alarm: the alarms are {all}", excerpt(text.as_bytes())))
        })
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject(), self.says)
    }
}

impl Alarm {
    /// Returns what it is about: the topic's name, or `listener` with its host and process.
    pub fn subject(&self) -> String {
        let listener = || format!("listener {}", self.listener.as_deref().unwrap_or_default());
        self.topic.clone().unwrap_or_else(listener)
    }
}

impl Status {
    /// Returns all alarms: of topics, then of listeners.
    pub fn alarms(&self) -> Vec<Alarm> {
        let unreadable = self.unreadable.iter().map(|topic| Alarm {
            kind: AlarmKind::Unreadable,
            topic: Some(topic.name.clone()),
            listener: None,
            says: format!("it cannot be read: {}", topic.problem),
        });
        let topics = self.topics.iter().flat_map(TopicStatus::alarms);
        let stalled = self.listeners.iter().filter_map(|listener| {
            let long = brief(listener.handlers_stalled_ms?);
            let says =
                format!("the runtime of its handlers has polled nothing for {long}, so it claims nothing");
            Some(of_listener(AlarmKind::Stalled, listener, says))
        });
        let silent = self.silent.iter().map(|listener| {
            let says = format!(
                "no report for {}: it has ended without a word, stands still, or cannot reach the server",
                brief(listener.age_ms)
            );
            of_listener(AlarmKind::Silent, listener, says)
        });
        topics.chain(unreadable).chain(stalled).chain(silent).collect()
    }
}

impl TopicStatus {
    /// Returns the alarms of this topic.
    pub fn alarms(&self) -> Vec<Alarm> {
        let topic = || Some(self.topic.name().to_owned());
        let alarm = |kind, says| Alarm { kind, topic: topic(), listener: None, says };
        if let Some(problem) = &self.problem {
            return vec![alarm(AlarmKind::Unreadable, format!("it cannot be read: {problem}"))];
        }
        let held = &self.overview;
        let mut found = Vec::new();
        let mut add = |kind, says: Option<String>| found.extend(says.map(|says| alarm(kind, says)));
        add(AlarmKind::Closed, held.closed.as_ref().map(|closed| format!("closed: {closed}")));
        add(AlarmKind::Paused, held.paused.as_ref().map(|reason| paused(reason, held)));
        add(AlarmKind::Unserved, self.is_unserved().then(|| "no listener serves it".to_owned()));
        add(AlarmKind::HeldBack, self.held_back_by());
        let is_failing = self.standing() == TopicStanding::Failing;
        add(AlarmKind::Failing, is_failing.then(|| self.failures()).flatten());
        add(AlarmKind::Trimmed, trimmed(held));
        let different = self.different_handlers;
        let says = || {
            format!(
                "its listeners do {different} different things: their files have other URLs, lists or programs"
            )
        };
        add(AlarmKind::Different, (different > 1).then(says));
        found
    }

    /// The destinations that its timers wait for, in words.
    fn held_back_by(&self) -> Option<String> {
        let all: Vec<_> = self.held_back().collect();
        let mut names: Vec<_> = all.iter().take(NAMED).map(|one| words_of(one)).collect();
        if all.len() > NAMED {
            names.push(format!("and {} more", all.len() - NAMED));
        }
        let waiting = counted(self.overview.undelivered, "undelivered timer");
        (!names.is_empty()).then(|| format!("held back ({waiting}) by {}", names.join("; ")))
    }

    fn failures(&self) -> Option<String> {
        let recent = self.last_5m.as_ref()?;
        let (failed, all) = (show_count(recent.failed), counted(recent.failed + recent.handled, "attempt"));
        Some(format!("{failed} of {all} failed in the last five minutes"))
    }
}

/// Returns how a destination is, in words: its name, what has happened, when it is tried again.
pub(super) fn words_of(destination: &Destination) -> String {
    let name = plain(&destination.name, 255);
    let failures = || counted(destination.failures.into(), "failure");
    let happened = match (destination.state, &destination.last_error, &destination.last_answer) {
        (DestinationState::Busy, _, Some(answer)) => format!("it answered {}", plain(answer, 100)),
        (DestinationState::Ok, ..) => "it answers".to_owned(),
        (_, Some(error), _) => format!("{}: {}", failures(), plain(error, 200)),
        _ => failures(),
    };
    let again = destination.retry_in_ms.map(|ms| format!(", tried again in {}", brief(ms)));
    format!("{name}: {happened}{}", again.unwrap_or_default())
}

fn paused(reason: &str, held: &Overview) -> String {
    let waiting = match held.undelivered {
        0 => String::new(),
        count => format!(" ({})", counted(count, "undelivered timer")),
    };
    format!("paused: {}{waiting}", plain(reason, 200))
}

fn trimmed(held: &Overview) -> Option<String> {
    let ago = held.since_trimmed().filter(|ago| *ago < TRIMMED_FOR)?;
    let ago = brief(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
    let count = counted(held.trimmed, "dead letter");
    Some(format!("{count} trimmed and lost since it was created, the last {ago} ago"))
}

fn of_listener(kind: AlarmKind, listener: &ListenerReport, says: String) -> Alarm {
    let name = format!("{} (process {})", plain(&listener.host, 60), listener.pid);
    Alarm { kind, topic: None, listener: Some(name), says }
}

/// The alarms and figures that a check tolerates. By default it tolerates no alarm, and any figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The alarms that are tolerated.
    pub allowed: Vec<AlarmKind>,
    /// For how long the oldest overdue timer may have been due. It counts by deadline: what is due in the far future is no
    /// backlog.
    pub max_overdue: Option<Duration>,
    /// The undelivered timers that a topic may have.
    pub max_undelivered: Option<MaxUndelivered>,
    /// How many dead letters there may be.
    pub max_dead: Option<u64>,
    /// How many timers may be in quarantine.
    pub max_quarantined: Option<u64>,
    /// How many listeners there have to be.
    pub min_listeners: Option<usize>,
}

/// A limit of undelivered timers. As text it is a number, or [a span of time](parse_span).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxUndelivered {
    /// How many there may be.
    Count(u64),
    /// How long ago the oldest of them may have been due, by its first deadline.
    Age(Duration),
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The alarms that are not tolerated.
    pub alarms: Vec<Alarm>,
    /// The figures beyond their limits.
    pub breaches: Vec<Breach>,
}

/// A figure of a topic that is beyond its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Breach {
    /// The topic.
    pub topic: String,
    /// The figure: `overdue_ms`, `undelivered`, `undelivered_ms`, `dead`, `quarantined` or `listeners`.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
    /// The limit: the most that is tolerated, and of listeners the least.
    pub limit: u64,
    /// The text for people.
    pub says: String,
}

impl FromStr for MaxUndelivered {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(count) = text.parse() {
            return Ok(Self::Count(count));
        }
        parse_span(text)
            .map(Self::Age)
            .map_err(|error| Error::invalid(format!("{error}, or a number of timers")))
    }
}

impl Limits {
    /// With these for [`allowed`](Self::allowed).
    #[must_use]
    pub fn allow(self, alarms: Vec<AlarmKind>) -> Self {
        Self { allowed: alarms, ..self }
    }

    /// With this for [`max_overdue`](Self::max_overdue).
    #[must_use]
    pub fn overdue(self, most: Option<Duration>) -> Self {
        Self { max_overdue: most, ..self }
    }

    /// With this for [`max_undelivered`](Self::max_undelivered).
    #[must_use]
    pub fn undelivered(self, most: Option<MaxUndelivered>) -> Self {
        Self { max_undelivered: most, ..self }
    }

    /// With this for [`max_dead`](Self::max_dead).
    #[must_use]
    pub fn dead(self, most: Option<u64>) -> Self {
        Self { max_dead: most, ..self }
    }

    /// With this for [`max_quarantined`](Self::max_quarantined).
    #[must_use]
    pub fn quarantined(self, most: Option<u64>) -> Self {
        Self { max_quarantined: most, ..self }
    }

    /// With this for [`min_listeners`](Self::min_listeners).
    #[must_use]
    pub fn listeners(self, least: Option<usize>) -> Self {
        Self { min_listeners: least, ..self }
    }

    /// Returns what is not tolerated of these topics and their listeners.
    pub fn check(&self, status: &Status) -> Checked {
        let mut alarms = status.alarms();
        alarms.retain(|alarm| !self.allowed.contains(&alarm.kind));
        // A topic that cannot be read has an alarm, and no figures.
        let readable = status.topics.iter().filter(|topic| topic.problem.is_none());
        Checked { alarms, breaches: readable.flat_map(|topic| self.breaches(topic)).collect() }
    }

    fn breaches(&self, topic: &TopicStatus) -> Vec<Breach> {
        let breach = |what, found: u64, limit: u64, says: String| Breach {
            topic: topic.topic.name().to_owned(),
            what,
            found,
            limit,
            says,
        };
        let overview = &topic.overview;
        let mut found = Vec::new();
        if let Some(most) = self.max_overdue.filter(|most| overview.oldest_overdue() > *most) {
            let (oldest, timers) =
                (show_span(overview.oldest_overdue()), counted(overview.overdue, "overdue timer"));
            let says = format!("{timers}, the oldest due for {oldest}");
            found.push(breach("overdue_ms", overview.oldest_overdue_ms, ms(most), says));
        }
        let oldest = overview.oldest_undelivered();
        let undelivered = counted(overview.undelivered, "undelivered timer");
        match self.max_undelivered {
            Some(MaxUndelivered::Count(most)) if overview.undelivered > most => {
                found.push(breach("undelivered", overview.undelivered, most, undelivered));
            }
            Some(MaxUndelivered::Age(most)) if oldest > most => {
                let says = format!("{undelivered}, the oldest first due {} ago", show_span(oldest));
                found.push(breach("undelivered_ms", overview.oldest_undelivered_ms, ms(most), says));
            }
            _ => {}
        }
        let counts = [
            ("dead", self.max_dead, overview.dead, "dead letter"),
            ("quarantined", self.max_quarantined, overview.quarantined, "quarantined timer"),
        ];
        for (what, most, count, name) in counts {
            if let Some(most) = most.filter(|most| count > *most) {
                found.push(breach(what, count, most, counted(count, name)));
            }
        }
        if let Some(least) = self.min_listeners.filter(|least| topic.listeners < *least) {
            let there = topic.listeners as u64;
            let says = format!("served by {}", counted(there, "listener"));
            found.push(breach("listeners", there, least as u64, says));
        }
        found
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.topic, self.says)
    }
}
