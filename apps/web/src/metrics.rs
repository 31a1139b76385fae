//! `/metrics`, for Prometheus: the metrics of the process, and those of the topics, which are read from Redis on request.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use keylapse_console::{AlarmKind, Console, Overview, Status, TopicStatus};
use tokio::time::timeout;

use crate::api::ApiError;
use crate::guard::Caller;
use crate::health;
use crate::recent::SharedCache;
use crate::web::SharedState;

/// Renders the metrics of the process.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The metrics of the topics, as last rendered.
pub(crate) type Metrics = SharedCache<Arc<str>>;

/// Shorter than the 10 s that Prometheus waits, so that it reads that Redis does not answer.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Router<SharedState> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
) -> Result<impl IntoResponse, ApiError> {
    who.check_all()?;
    let fleet = shared.metrics.get(async {
        // The readiness check finds within a second that Redis is away. A status of many topics may take longer.
        let is_there = health::of_server(&shared).await.ready;
        render(&shared.console, if is_there { STATUS_TIMEOUT } else { Duration::ZERO }).await
    });
    let fleet = fleet.await;
    let mut text = shared.recorded.as_ref().map(|render| render()).unwrap_or_default();
    text.push_str(&fleet);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Maximum of topics, in the order of their names. A gauge counts those that are left out.
const TOPICS: usize = 500;

/// Renders the metrics of the topics. If Redis does not answer, only the gauge for that is rendered, never an older value.
async fn render(console: &Console, patience: Duration) -> Arc<str> {
    let status = timeout(patience, console.status(TOPICS)).await;
    let mut page = Page::default();
    let is_up = matches!(status, Ok(Ok(_)));
    page.gauge("keylapse_redis_up", "1 if Redis answers, else 0.").add(&[], u8::from(is_up));
    if let Ok(Ok(status)) = status {
        fleet(&status, &mut page);
        topics(&status, &mut page);
        alarms(&status, &mut page);
    }
    page.into_text().into()
}

fn fleet(status: &Status, page: &mut Page) {
    page.gauge("keylapse_listeners", "Listeners whose reports are in Redis.")
        .add(&[], status.listeners.len());
    page.gauge("keylapse_listeners_silent", "Listeners that have not reported for seven seconds.")
        .add(&[], status.silent_listeners.len());
    let stalled = status.listeners.iter().filter(|listener| listener.handlers_stalled_ms.is_some()).count();
    page.gauge("keylapse_listeners_stalled", "Listeners whose handlers block all threads of their runtime.")
        .add(&[], stalled);
    page.gauge(
        "keylapse_topics_omitted",
        "Topics that these metrics leave out, because there are more than 500.",
    )
    .add(&[], status.more_topics);
    let unreadable = status.topics.iter().filter(|topic| topic.problem.is_some()).count();
    page.gauge("keylapse_topics_unreadable", "Topics without metrics, because they cannot be read.")
        .add(&[], unreadable + status.unreadable.len());
}

/// Returns the value of a gauge for a topic.
type TopicMetric = fn(&TopicStatus) -> f64;

fn topics(status: &Status, page: &mut Page) {
    let readable: Vec<_> = status.topics.iter().filter(|topic| topic.problem.is_none()).collect();
    let mut timers = page.gauge(
        "keylapse_topic_timers",
        "Timers, dead letters and tracked keys of a topic. Pending timers wait or run; overdue ones are due and not claimed.",
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
    let help = "Dead letters that were trimmed, and are lost, since the topic was created.";
    let mut trimmed = page.counter("keylapse_topic_trimmed_total", help);
    readable.iter().for_each(|topic| trimmed.add(&[("topic", topic.topic.name())], topic.overview.trimmed));
}

// Counts are exact up to 2^53.
const GAUGES: [(&str, &str, TopicMetric); 9] = [
    ("keylapse_topic_paused", "1 if the topic is paused, else 0.", |topic| {
        topic.overview.paused.is_some().into()
    }),
    (
        "keylapse_topic_closed",
        "1 if the topic is being destroyed or repartitioned, or has another wire version, else 0.",
        |topic| topic.overview.closed.is_some().into(),
    ),
    ("keylapse_topic_listeners", "Listeners that serve the topic.", |topic| topic.listeners as f64),
    (
        "keylapse_topic_running",
        "Running attempts, from the last reports of the topic's listeners.",
        |topic| topic.running as f64,
    ),
    (
        "keylapse_topic_oldest_overdue_seconds",
        "Time since the oldest overdue timer was due; 0 if none is overdue.",
        |topic| topic.overview.oldest_overdue().as_secs_f64(),
    ),
    (
        "keylapse_topic_undelivered",
        "Timers that wait although their first deadline has passed: for a claim, a retry, a host or the end of a pause.",
        |topic| topic.overview.undelivered as f64,
    ),
    (
        "keylapse_topic_oldest_undelivered_seconds",
        "Time since the first deadline of the oldest undelivered timer; 0 if there is none.",
        |topic| topic.overview.oldest_undelivered().as_secs_f64(),
    ),
    (
        "keylapse_topic_destinations_held_back",
        "Destinations, such as hosts, that hold timers back: they do not answer, or asked to be called later.",
        |topic| topic.held_back().count() as f64,
    ),
    (
        "keylapse_topic_failing_ratio",
        "Share of failed attempts in the last five minutes; 0 if there were no attempts.",
        |topic| topic.failing().unwrap_or(0.0),
    ),
];

/// Writes one sample for each topic and kind of alarm, so that one rule covers all of them.
fn alarms(status: &Status, page: &mut Page) {
    let mut gauge = page.gauge(
        "keylapse_topic_alarm",
        "1 for each kind of alarm that keylapse status shows for a topic, else 0.",
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

/// Counts each timer, dead letter and tracked key in exactly one state, so that the states can be summed.
fn states(held: &Overview) -> [(&'static str, u64); 5] {
    [
        ("pending", held.timers.saturating_sub(held.overdue + held.quarantined)),
        ("overdue", held.overdue),
        ("quarantined", held.quarantined),
        ("dead", held.dead),
        ("tracked", held.tracked),
    ]
}

/// Metrics in the text format of Prometheus.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    /// Begins a gauge, and returns the writer of its samples.
    fn gauge(&mut self, name: &'static str, help: &str) -> MetricWriter<'_> {
        self.begin(name, "gauge", help)
    }

    /// Begins a counter, and returns the writer of its samples.
    fn counter(&mut self, name: &'static str, help: &str) -> MetricWriter<'_> {
        self.begin(name, "counter", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> MetricWriter<'_> {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        MetricWriter { page: self, name }
    }

    fn into_text(self) -> String {
        self.0
    }
}

/// Writes the samples of one metric.
struct MetricWriter<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl MetricWriter<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.page.0;
        text.push_str(self.name);
        for (place, (label, of)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            _ = write!(text, "{before}{label}=\"{}\"", escaped(of));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(text, "{end} {value}");
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_ends_its_line_or_begins_another() {
        let mut page = Page::default();
        let mut gauge = page.gauge("keylapse_listeners", "Who listens.");
        gauge.add(&[], 3);
        gauge.add(&[("topic", "a\\\"b\nkeylapse_up 1"), ("state", "dead")], 0.5);
        let text = "# HELP keylapse_listeners Who listens.\n# TYPE keylapse_listeners gauge\nkeylapse_listeners 3\n\
                    keylapse_listeners{topic=\"a\\\\\\\"b\\nkeylapse_up 1\",state=\"dead\"} 0.5\n";
        assert_eq!(page.into_text(), text);
    }
}
