//! `/metrics`, for Prometheus: what the process records of itself, and how the topics are, as gauges and counters: read from
//! Redis when somebody asks, whoever serves them.

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

use crate::api::Fault;
use crate::guard::Who;
use crate::health;
use crate::recent::Recent;
use crate::web::Shared;

/// Text that somebody else renders.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// How the topics are, as it was rendered last.
pub(crate) type Metrics = Recent<Arc<str>>;

/// Prometheus waits for 10 s: it is to read in time that Redis does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Router<Shared> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
) -> Result<impl IntoResponse, Fault> {
    who.check_all()?;
    let fleet = shared.metrics.get(async {
        // A server that is away is not waited for as long as one with many topics.
        let is_there = health::of_server(&shared).await.ready;
        render(&shared.console, if is_there { PATIENCE } else { Duration::ZERO }).await
    });
    let fleet = fleet.await;
    let mut text = shared.recorded.as_ref().map(|render| render()).unwrap_or_default();
    text.push_str(&fleet);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Topics that are shown, the first by name. A gauge says how many are left out.
const TOPICS: usize = 500;

/// All of it. Where Redis does not answer, that is all that is said: nothing here is older than the answer.
async fn render(console: &Console, patience: Duration) -> Arc<str> {
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

// Exact up to 2^53.
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

/// A page of them.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    /// Begins a gauge: what is added next is of it.
    fn gauge(&mut self, name: &'static str, help: &str) -> Gauge<'_> {
        self.begin(name, "gauge", help)
    }

    /// The same of a number that only grows.
    fn counter(&mut self, name: &'static str, help: &str) -> Gauge<'_> {
        self.begin(name, "counter", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> Gauge<'_> {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Gauge { page: self, name }
    }

    fn into_text(self) -> String {
        self.0
    }
}

/// One of them, whose samples are added.
struct Gauge<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl Gauge<'_> {
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

/// A label's value, as the format wants it.
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
