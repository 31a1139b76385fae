//! How the topics are, as gauges: read from Redis when somebody asks, whoever serves them.

use std::sync::Arc;
use std::time::Duration;

use keylapse_console::{AlarmKind, Console, Overview, Status, TopicStatus};
use tokio::time::timeout;

use crate::metrics::text::Page;

/// Topics that are shown, the first by name. A gauge says how many are left out.
const TOPICS: usize = 500;

/// All of it. Where Redis does not answer, that is all that is said: nothing here is older than the answer.
pub(super) async fn render(console: &Console, patience: Duration) -> Arc<str> {
    let status = timeout(patience, console.status(TOPICS)).await;
    let mut page = Page::default();
    let is_up = matches!(status, Ok(Ok(_)));
    page.gauge("keylapse_up", "Whether Redis answers.").add(&[], u8::from(is_up));
    if let Ok(Ok(status)) = status {
        fleet(&status, &mut page);
        topics(&status, &mut page);
        alarms(&status, &mut page);
    }
    page.into_text().into()
}

fn fleet(status: &Status, page: &mut Page) {
    page.gauge("keylapse_listeners", "Listeners that have said of themselves that they live.")
        .add(&[], status.listeners.len());
    page.gauge("keylapse_listeners_silent", "Listeners that have not reported for seven seconds.")
        .add(&[], status.silent.len());
    let stalled = status.listeners.iter().filter(|listener| listener.handlers_stalled_ms.is_some()).count();
    page.gauge("keylapse_listeners_stalled", "Listeners whose handlers block all threads of their runtime.")
        .add(&[], stalled);
    page.gauge("keylapse_topics_left_out", "Topics that are not shown here, as there are too many.")
        .add(&[], status.more_topics);
    let unreadable = status.topics.iter().filter(|topic| topic.problem.is_some()).count();
    page.gauge("keylapse_topics_unreadable", "Topics of which nothing is shown, as they cannot be read.")
        .add(&[], unreadable + status.unreadable.len());
}

/// What a gauge shows of a topic.
type Value = fn(&TopicStatus) -> f64;

fn topics(status: &Status, page: &mut Page) {
    let readable: Vec<_> = status.topics.iter().filter(|topic| topic.problem.is_none()).collect();
    let mut timers = page.gauge(
        "keylapse_topic_timers",
        "What a topic holds: pending timers wait for their time or run, overdue ones nobody has taken yet.",
    );
    for topic in &readable {
        for (state, count) in states(&topic.overview) {
            timers.add(&[("topic", topic.topic.name()), ("state", state)], count);
        }
    }
    for (name, help, value) in GAUGES {
        let mut gauge = page.gauge(name, help);
        readable.iter().for_each(|topic| gauge.add(&[("topic", topic.topic.name())], value(topic)));
    }
    let help = "Dead letters that were trimmed, and are lost, since it was created.";
    let mut trimmed = page.counter("keylapse_topic_trimmed_total", help);
    readable.iter().for_each(|topic| trimmed.add(&[("topic", topic.topic.name())], topic.overview.trimmed));
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
const GAUGES: [(&str, &str, Value); 9] = [
    ("keylapse_topic_paused", "Whether somebody has paused it.", |topic| {
        topic.overview.paused.is_some().into()
    }),
    (
        "keylapse_topic_closed",
        "Whether it is being destroyed or repartitioned, or of another wire version.",
        |topic| topic.overview.closed.is_some().into(),
    ),
    ("keylapse_topic_listeners", "Listeners that serve it.", |topic| topic.listeners as f64),
    ("keylapse_topic_running", "Attempts that run, by its listeners' last reports.", |topic| {
        topic.running as f64
    }),
    (
        "keylapse_topic_oldest_overdue_seconds",
        "For how long the oldest overdue timer has been due; 0 where none is.",
        |topic| topic.overview.oldest_overdue().as_secs_f64(),
    ),
    (
        "keylapse_topic_undelivered",
        "Timers whose first deadline has passed and which have not ended, whatever they wait for.",
        |topic| topic.overview.undelivered as f64,
    ),
    (
        "keylapse_topic_oldest_undelivered_seconds",
        "For how long the oldest of these should have run, by its first deadline; 0 where there is none.",
        |topic| topic.overview.oldest_undelivered().as_secs_f64(),
    ),
    (
        "keylapse_topic_held_back",
        "Destinations, such as hosts, that do not answer or asked to be called later.",
        |topic| topic.held_back().count() as f64,
    ),
    (
        "keylapse_topic_failing_ratio",
        "The share of the attempts of the last five minutes that failed; 0 where there were none.",
        |topic| topic.failing().unwrap_or(0.0),
    ),
];

/// Each kind of alarm of each topic, so that one rule is for all.
fn alarms(status: &Status, page: &mut Page) {
    let mut gauge = page.gauge(
        "keylapse_topic_alarm",
        "Whether somebody has to look at a topic: 1 for each kind of alarm that keylapse status shows.",
    );
    let of_topics =
        AlarmKind::ALL.into_iter().filter(|kind| !matches!(kind, AlarmKind::Silent | AlarmKind::Stalled));
    let kinds: Vec<_> = of_topics.collect();
    for topic in &status.topics {
        let raised = topic.alarms();
        for kind in &kinds {
            let is_raised = raised.iter().any(|alarm| alarm.kind == *kind);
            gauge.add(&[("topic", topic.topic.name()), ("kind", kind.as_str())], u8::from(is_raised));
        }
    }
    for topic in &status.unreadable {
        gauge.add(&[("topic", &topic.name), ("kind", AlarmKind::Unreadable.as_str())], 1);
    }
}

/// Each thing in one state, so that they can be summed.
fn states(held: &Overview) -> [(&'static str, u64); 5] {
    [
        ("pending", held.timers.saturating_sub(held.overdue + held.quarantined)),
        ("overdue", held.overdue),
        ("quarantined", held.quarantined),
        ("dead", held.dead),
        ("enrolled", held.enrolled),
    ]
}
