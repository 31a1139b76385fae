//! Alarms, and checks of topics against alarms and limits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::escape::{escape_line, excerpt};
use crate::figures::{Destination, DestinationState};
use crate::format::brief;
use crate::wire::ListenerReport;
use crate::{Overview, Status, TopicState, TopicStatus, counted, parse_span, show_count, show_span};

/// How long trimmed dead letters cause an alarm.
const TRIMMED_FOR: Duration = Duration::from_secs(3600);
/// How many destinations of a topic a message names.
pub(super) const MAX_NAMED_DESTINATIONS: usize = 5;

/// A condition that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alarm {
    /// The kind of alarm.
    pub kind: AlarmKind,
    /// The topic, unless the alarm concerns a listener.
    pub topic: Option<String>,
    /// The listener's host and process, unless the alarm concerns a topic.
    pub listener: Option<String>,
    /// The text for people.
    pub message: String,
}

/// The kinds of alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlarmKind {
    /// A topic cannot be read.
    Unreadable,
    /// A topic is being destroyed or repartitioned, or has another wire version.
    Closed,
    /// A topic is paused.
    Paused,
    /// No listener serves a topic that needs one.
    Unserved,
    /// Timers wait for a destination that does not answer or has asked for a later call.
    HeldBack,
    /// At least half of the attempts of the last five minutes have failed, and more than two.
    Failing,
    /// Dead letters were trimmed within the last hour.
    Trimmed,
    /// Listeners of a topic have different handlers, such as webhooks with different URLs.
    HandlersDiffer,
    /// A listener has crashed, is blocked, or cannot reach the server.
    Silent,
    /// The handlers of a listener block all threads of their runtime.
    Stalled,
}

impl AlarmKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 10] = [
        Self::Unreadable,
        Self::Closed,
        Self::Paused,
        Self::Unserved,
        Self::HeldBack,
        Self::Failing,
        Self::Trimmed,
        Self::HandlersDiffer,
        Self::Silent,
        Self::Stalled,
    ];

    /// Returns the name of the kind, such as `held-back`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Closed => "closed",
            Self::Paused => "paused",
            Self::Unserved => "unserved",
            Self::HeldBack => "held-back",
            Self::Failing => "failing",
            Self::Trimmed => "trimmed",
            Self::HandlersDiffer => "handlers-differ",
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
            Error::invalid(format!("unknown alarm {}: the alarms are {all}", excerpt(text.as_bytes())))
        })
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject(), self.message)
    }
}

impl Alarm {
    /// Returns the topic's name, or `listener` with its host and process.
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
            message: format!("it cannot be read: {}", topic.problem),
        });
        let topics = self.topics.iter().flat_map(TopicStatus::alarms);
        let stalled = self.listeners.iter().filter_map(|listener| {
            let long = brief(listener.handlers_stalled_ms?);
            let message = format!("its handlers have blocked their runtime for {long}; it claims no timers");
            Some(of_listener(AlarmKind::Stalled, listener, message))
        });
        let silent = self.silent_listeners.iter().map(|listener| {
            let message = format!(
                "no report for {}: it has crashed, is blocked, or cannot reach the server",
                brief(listener.age_ms)
            );
            of_listener(AlarmKind::Silent, listener, message)
        });
        topics.chain(unreadable).chain(stalled).chain(silent).collect()
    }
}

impl TopicStatus {
    /// Returns the alarms of this topic.
    pub fn alarms(&self) -> Vec<Alarm> {
        let topic = || Some(self.topic.name().to_owned());
        let alarm = |kind, message| Alarm { kind, topic: topic(), listener: None, message };
        if let Some(problem) = &self.problem {
            return vec![alarm(AlarmKind::Unreadable, format!("it cannot be read: {problem}"))];
        }
        let held = &self.overview;
        let mut found = Vec::new();
        let mut add =
            |kind, message: Option<String>| found.extend(message.map(|message| alarm(kind, message)));
        add(AlarmKind::Closed, held.closed.as_ref().map(|closed| format!("closed: {closed}")));
        add(AlarmKind::Paused, held.paused.as_ref().map(|reason| paused(reason, held)));
        add(AlarmKind::Unserved, self.is_unserved().then(|| "no listener serves it".to_owned()));
        add(AlarmKind::HeldBack, self.held_back_by());
        let is_failing = self.state() == TopicState::Failing;
        add(AlarmKind::Failing, is_failing.then(|| self.failures()).flatten());
        add(AlarmKind::Trimmed, trimmed(held));
        let different = self.handler_variants;
        let message = || {
            format!(
                "its listeners have {different} different handlers: compare the URLs, lists and programs in their \
                 configuration files"
            )
        };
        add(AlarmKind::HandlersDiffer, (different > 1).then(message));
        found
    }

    fn held_back_by(&self) -> Option<String> {
        let all: Vec<_> = self.held_back().collect();
        let mut names: Vec<_> =
            all.iter().take(MAX_NAMED_DESTINATIONS).map(|one| describe_destination(one)).collect();
        if all.len() > MAX_NAMED_DESTINATIONS {
            names.push(format!("and {} more", all.len() - MAX_NAMED_DESTINATIONS));
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

/// Describes a destination: its name, its state or last error, and the time until the next call.
pub(super) fn describe_destination(destination: &Destination) -> String {
    let name = escape_line(&destination.name, 255);
    let failures = || counted(destination.failures.into(), "failure");
    let happened = match (destination.state, &destination.last_error, &destination.last_answer) {
        (DestinationState::Busy, _, Some(answer)) => format!("it answered {}", escape_line(answer, 100)),
        (DestinationState::Ok, ..) => "it answers".to_owned(),
        (_, Some(error), _) => format!("{}: {}", failures(), escape_line(error, 200)),
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
    format!("paused: {}{waiting}", escape_line(reason, 200))
}

fn trimmed(held: &Overview) -> Option<String> {
    let ago = held.since_trimmed().filter(|ago| *ago < TRIMMED_FOR)?;
    let ago = brief(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
    let count = counted(held.trimmed, "dead letter");
    Some(format!("{count} trimmed since the topic was created, the last {ago} ago"))
}

fn of_listener(kind: AlarmKind, listener: &ListenerReport, message: String) -> Alarm {
    let name = format!("{} (process {})", escape_line(&listener.host, 60), listener.pid);
    Alarm { kind, topic: None, listener: Some(name), message }
}

/// The alarms and figures that a check tolerates. The default tolerates no alarm and any figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The tolerated alarms.
    pub allowed: Vec<AlarmKind>,
    /// The longest time by which the oldest overdue timer of a topic may exceed its deadline.
    pub max_overdue: Option<Duration>,
    /// The limit of a topic's undelivered timers.
    pub max_undelivered: Option<MaxUndelivered>,
    /// The highest number of a topic's dead letters.
    pub max_dead: Option<u64>,
    /// The highest number of a topic's timers in quarantine.
    pub max_quarantined: Option<u64>,
    /// The lowest number of listeners that serve a topic.
    pub min_listeners: Option<usize>,
}

/// A limit of undelivered timers. [`FromStr`] reads a number or [a span of time](parse_span).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxUndelivered {
    /// The highest number of undelivered timers.
    Count(u64),
    /// The longest time since the first deadline of the oldest undelivered timer.
    Age(Duration),
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// The alarms that the limits do not tolerate.
    pub alarms: Vec<Alarm>,
    /// The figures that exceed their limits.
    pub breaches: Vec<Breach>,
}

/// A figure of a topic that exceeds its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Breach {
    /// The topic.
    pub topic: String,
    /// The name of the figure: `overdue_ms`, `undelivered`, `undelivered_ms`, `dead`, `quarantined` or `listeners`.
    pub figure: &'static str,
    /// The value of the figure.
    pub found: u64,
    /// The limit: a minimum for `listeners`, a maximum for the other figures.
    pub limit: u64,
    /// The text for people.
    pub message: String,
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
    /// Sets [`allowed`](Self::allowed).
    #[must_use]
    pub fn allow(self, alarms: Vec<AlarmKind>) -> Self {
        Self { allowed: alarms, ..self }
    }

    /// Sets [`max_overdue`](Self::max_overdue).
    #[must_use]
    pub fn overdue(self, most: Option<Duration>) -> Self {
        Self { max_overdue: most, ..self }
    }

    /// Sets [`max_undelivered`](Self::max_undelivered).
    #[must_use]
    pub fn undelivered(self, most: Option<MaxUndelivered>) -> Self {
        Self { max_undelivered: most, ..self }
    }

    /// Sets [`max_dead`](Self::max_dead).
    #[must_use]
    pub fn dead(self, most: Option<u64>) -> Self {
        Self { max_dead: most, ..self }
    }

    /// Sets [`max_quarantined`](Self::max_quarantined).
    #[must_use]
    pub fn quarantined(self, most: Option<u64>) -> Self {
        Self { max_quarantined: most, ..self }
    }

    /// Sets [`min_listeners`](Self::min_listeners).
    #[must_use]
    pub fn listeners(self, least: Option<usize>) -> Self {
        Self { min_listeners: least, ..self }
    }

    /// Returns the alarms and figures of these topics and their listeners that exceed the limits.
    pub fn check(&self, status: &Status) -> CheckReport {
        let mut alarms = status.alarms();
        alarms.retain(|alarm| !self.allowed.contains(&alarm.kind));
        // A topic that cannot be read has an alarm instead of figures.
        let readable = status.topics.iter().filter(|topic| topic.problem.is_none());
        CheckReport { alarms, breaches: readable.flat_map(|topic| self.breaches(topic)).collect() }
    }

    fn breaches(&self, topic: &TopicStatus) -> Vec<Breach> {
        let breach = |figure, found: u64, limit: u64, message: String| Breach {
            topic: topic.topic.name().to_owned(),
            figure,
            found,
            limit,
            message,
        };
        let overview = &topic.overview;
        let mut found = Vec::new();
        if let Some(most) = self.max_overdue.filter(|most| overview.oldest_overdue() > *most) {
            let (oldest, timers) =
                (show_span(overview.oldest_overdue()), counted(overview.overdue, "overdue timer"));
            let message = format!("{timers}, the oldest due for {oldest}");
            found.push(breach("overdue_ms", overview.oldest_overdue_ms, ms(most), message));
        }
        let oldest = overview.oldest_undelivered();
        let undelivered = counted(overview.undelivered, "undelivered timer");
        match self.max_undelivered {
            Some(MaxUndelivered::Count(most)) if overview.undelivered > most => {
                found.push(breach("undelivered", overview.undelivered, most, undelivered));
            }
            Some(MaxUndelivered::Age(most)) if oldest > most => {
                let message = format!("{undelivered}, the oldest first due {} ago", show_span(oldest));
                found.push(breach("undelivered_ms", overview.oldest_undelivered_ms, ms(most), message));
            }
            _ => {}
        }
        let counts = [
            ("dead", self.max_dead, overview.dead, "dead letter"),
            ("quarantined", self.max_quarantined, overview.quarantined, "quarantined timer"),
        ];
        for (figure, most, count, name) in counts {
            if let Some(most) = most.filter(|most| count > *most) {
                found.push(breach(figure, count, most, counted(count, name)));
            }
        }
        if let Some(least) = self.min_listeners.filter(|least| topic.listeners < *least) {
            let count = topic.listeners as u64;
            let message = format!("served by {}", counted(count, "listener"));
            found.push(breach("listeners", count, least as u64, message));
        }
        found
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.topic, self.message)
    }
}
