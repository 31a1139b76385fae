//! How the topics are, as gauges: read from Redis when somebody asks, whoever serves them.

use std::sync::Arc;
use std::time::Duration;

use keylapse::console::{Console, Overview, Status, TopicStatus};
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
    }
    page.into_text().into()
}

fn fleet(status: &Status, page: &mut Page) {
    page.gauge("keylapse_listeners", "Listeners that have said of themselves that they live.")
        .add(&[], status.listeners.len());
    page.gauge("keylapse_topics_left_out", "Topics that are not shown here, as there are too many.")
        .add(&[], status.more_topics);
    let unreadable = status.topics.iter().filter(|topic| topic.problem.is_some()).count();
    page.gauge("keylapse_topics_unreadable", "Topics of which nothing is shown, as they cannot be read.")
        .add(&[], unreadable + status.unreadable.len());
}

/// What a gauge shows of a topic.
type Value = fn(&TopicStatus) -> usize;

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
    #[allow(clippy::cast_precision_loss)] // a time
    let seconds = |topic: &TopicStatus| topic.overview.oldest_overdue_ms as f64 / 1000.0;
    let gauges: [(_, _, Value); 4] = [
        ("keylapse_topic_paused", "Whether somebody has paused it.", |topic| {
            usize::from(topic.overview.paused.is_some())
        }),
        (
            "keylapse_topic_closed",
            "Whether it is being destroyed or repartitioned, or of another wire version.",
            |topic| usize::from(topic.overview.closed.is_some()),
        ),
        ("keylapse_topic_listeners", "Listeners that serve it.", |topic| topic.listeners),
        ("keylapse_topic_running", "Attempts that run, as its listeners have said last.", |topic| {
            topic.running
        }),
    ];
    for (name, help, value) in gauges {
        let mut gauge = page.gauge(name, help);
        readable.iter().for_each(|topic| gauge.add(&[("topic", topic.topic.name())], value(topic)));
    }
    let help = "For how long the oldest overdue timer has been due; 0 where none is.";
    let mut oldest = page.gauge("keylapse_topic_oldest_overdue_seconds", help);
    readable.iter().for_each(|topic| oldest.add(&[("topic", topic.topic.name())], seconds(topic)));
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
