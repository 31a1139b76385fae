//! A server where everything burns: each kind of alarm, of topics and of a listener.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse::destinations::{Destination, DestinationState, Destinations};
use keylapse::{Done, Failure, Key, Lapse, Listener, Schedule, Topic};
use keylapse_console::{Alarm, AlarmKind, Console, Status};
use keylapse_support::{Server, eventually};
use tokio::sync::oneshot;

/// Reports are made every five seconds.
const WITHIN: Duration = Duration::from_secs(30);
/// The host that does not answer.
pub(crate) const HOST: &str = "shop.example:443";
const HOUR: Duration = Duration::from_secs(3600);

/// Hosts of webhooks: one that does not answer, one that does.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    pub(crate) tried: Mutex<Vec<String>>,
}

impl Destinations for Hosts {
    fn states(&self) -> Vec<Destination> {
        let mut open = Destination::new(HOST, DestinationState::Open);
        (open.failures, open.retry_in_ms) = (10, Some(120_000));
        open.last_error = Some("connection refused <b>".to_owned());
        open.last_answer = Some("503 Service Unavailable".to_owned());
        vec![open, Destination::new("mail.example:443", DestinationState::Ok)]
    }

    fn try_now(&self, name: &str) {
        self.tried.lock().expect("the names").push(name.to_owned());
    }
}

/// Burns until it is dropped.
pub(crate) struct Fire {
    pub(crate) hosts: Arc<Hosts>,
    _stop: oneshot::Sender<()>,
}

/// Lights it, and waits until all is reported.
pub(crate) async fn light(server: &Server) -> Fire {
    let url = server.plain_url();
    let schedule = Schedule::connect(&url).await.expect("a schedule");
    let hosts = Arc::new(Hosts::default());
    let topic = |name: &str| Topic::<u64>::named(name, &format!("{name}:{{id}}")).expect("a topic");
    let [held, failing, trimmed] = ["order.unpaid", "call.missed", "sms.sent"].map(topic);
    let [paused, unserved] = ["mail.reminder", "report.nightly"].map(topic);
    let trimmed = trimmed.dead_letters(1, HOUR);
    for (of, count) in [(&held, 1), (&failing, 4), (&trimmed, 3), (&paused, 1), (&unserved, 1)] {
        for n in 0..count {
            let armed = schedule.arm(of, Key(format!("{}:{n}", of.name())), Duration::ZERO, &n).await;
            assert!(armed.expect("an arming").is_armed());
        }
    }
    schedule.pause(&paused, "the mail provider is down").await.expect("a pause");
    let fail = async |_: Lapse<u64>| Err::<Done, _>(Failure::retry_after(HOUR, "refused"));
    let die = async |_: Lapse<u64>| Err::<Done, _>(Failure::dead("no such number"));
    let listener = Listener::builder(url.as_str())
        .on(held.destinations(hosts.clone()), fail)
        .on(failing, fail)
        .on(trimmed, die)
        .build()
        .expect("a listener");
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move { listener.run_until(stopped).await.expect("the listener") });
    leave_a_report(server, 60_000).await;
    let console = Console::connect(url.as_str()).await.expect("a console");
    eventually(WITHIN, "each alarm", async || {
        let kinds = kinds(&console.status(100).await.expect("a status"));
        BURNING.iter().all(|kind| kinds.contains(kind))
    })
    .await;
    Fire { hosts, _stop: stop }
}

/// The kinds of alarms that this fire raises.
pub(crate) const BURNING: [AlarmKind; 6] = [
    AlarmKind::HeldBack,
    AlarmKind::Failing,
    AlarmKind::Trimmed,
    AlarmKind::Paused,
    AlarmKind::Unserved,
    AlarmKind::Silent,
];

fn kinds(status: &Status) -> Vec<AlarmKind> {
    status.alarms().into_iter().map(|Alarm { kind, .. }| kind).collect()
}

/// Leaves the report of a listener that was killed so many milliseconds ago.
async fn leave_a_report(server: &Server, ago_ms: u64) {
    let time = server.cmd(&["TIME"]).await;
    let (seconds, _): (u64, u64) = redis::from_redis_value(time).expect("a time");
    let at = seconds * 1000 - ago_ms;
    let report = format!(
        r#"{{"at":{at},"id":"gone","host":"old-host","pid":4711,"version":"0.1.0","limit":8,"topics":{{"sms.sent":{{}}}}}}"#
    );
    server.cmd(&["HSET", "keylapse:listeners", "gone", &report]).await;
}
