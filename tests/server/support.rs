//! What most of these tests need.

use std::sync::Arc;
use std::time::Duration;

use keylapse::handler::Handler;
use keylapse::health::Health;
use keylapse::stats::Stats;
use keylapse::{Done, Error, Failure, Lapse, Listener, ListenerBuilder, Outcome, Schedule, Topic};
use keylapse_support::{Server, eventually};
use keylapse_wire::scripts;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Shows what the library says, with the output of a failing test.
pub(crate) fn show_log() {
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
}

/// A server and a schedule on it, as the least privileged user.
pub(crate) async fn server_and_schedule() -> (Server, Schedule) {
    show_log();
    let server = Server::start().await;
    let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
    (server, schedule)
}

/// Has a server know every script from the start.
pub(crate) async fn load_scripts(server: &Server) {
    for script in scripts::all() {
        server.cmd(&["SCRIPT", "LOAD", &script.text]).await;
    }
}

/// A listener that runs in the background until it is stopped or dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<keylapse::Result<()>>,
    pub(crate) stats: Stats,
    pub(crate) health: Health,
}

impl Running {
    pub(crate) fn start(builder: ListenerBuilder) -> Self {
        let listener = builder.build().expect("a listener");
        let (stats, health) = (listener.stats(), listener.health());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move { listener.run_until(stopped).await });
        Self { stop: Some(stop), task, stats, health }
    }

    /// Waits until this holds of what it has counted.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Stats) -> bool) -> impl Future<Output = ()> {
        eventually(PATIENCE, what, async move || holds(&self.stats))
    }

    /// Waits until its subscription is known to hear expired keys.
    #[track_caller]
    pub(crate) fn until_anchored(&self) -> impl Future<Output = ()> {
        self.until("events to flow", |stats| stats.listener().anchored > 0)
    }

    pub(crate) async fn stop(mut self) -> keylapse::Result<()> {
        drop(self.stop.take());
        self.ended().await
    }

    /// How it ends by itself.
    pub(crate) async fn ended(self) -> keylapse::Result<()> {
        tokio::time::timeout(PATIENCE, self.task).await.expect("the listener stops").expect("without a panic")
    }
}

pub(crate) async fn arm(schedule: &Schedule, topic: &Topic<u32>, id: &str, delay: Duration, payload: u32) {
    assert!(schedule.arm(topic, [id], delay, &payload).await.expect("an answer").is_armed());
}

pub(crate) fn listener(server: &Server) -> ListenerBuilder {
    Listener::builder(server.app_url())
}

/// Why a listener ends that cannot run there.
pub(crate) async fn refusal(builder: ListenerBuilder) -> Error {
    let listener = builder.build().expect("a listener");
    let ended = tokio::time::timeout(PATIENCE, listener.run_until(std::future::pending::<()>())).await;
    ended.expect("the listener gives up").unwrap_err()
}

/// Waits until a topic has this many dead letters.
#[track_caller]
pub(crate) fn until_dead<T>(schedule: &Schedule, topic: &Topic<T>, count: u64) -> impl Future<Output = ()> {
    eventually(PATIENCE, "the dead letters", async move || {
        schedule.dead_letter_counts(topic).await.unwrap().0 == count
    })
}

/// A channel on which handlers report; `next` fails the test if nothing comes.
pub(crate) struct Reports<T>(mpsc::UnboundedReceiver<T>);

pub(crate) fn reports<T>() -> (mpsc::UnboundedSender<T>, Reports<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Reports(receiver))
}

/// A handler that does this with each lapse, which is: what it reports, and how the attempt ends.
pub(crate) fn reporting<T: Send + 'static, R: Send + 'static, O: Into<Outcome> + Send + 'static>(
    act: impl Fn(Lapse<T>) -> (R, Result<O, Failure>) + Send + Sync + 'static,
) -> (impl Handler<T>, Reports<R>) {
    let (report, reported) = reports();
    let handler = move |lapse: Lapse<T>| {
        let (seen, end) = act(lapse);
        report.send(seen).ok();
        std::future::ready(end)
    };
    (handler, reported)
}

/// A handler that reports what it sees in each lapse, and succeeds once it is let through a gate.
pub(crate) fn gated<T: Send + Sync + 'static, R: Send + 'static>(
    see: impl Fn(&Lapse<T>) -> R + Send + Sync + 'static,
) -> (impl Handler<T>, Reports<R>, Arc<Notify>) {
    let (report, reported) = reports();
    let gate = Arc::new(Notify::new());
    let inner = gate.clone();
    let handler = move |lapse: Lapse<T>| {
        report.send(see(&lapse)).ok();
        let gate = inner.clone();
        async move {
            gate.notified().await;
            Ok::<_, Failure>(Done)
        }
    };
    (handler, reported, gate)
}

/// A handler that reports when it starts and when it is told to stop, and then ends so.
pub(crate) fn until_lost<T: Send + Sync + 'static>(
    end: fn() -> Result<Done, Failure>,
) -> (impl Handler<T>, Reports<&'static str>) {
    let (report, reported) = reports();
    let handler = move |lapse: Lapse<T>| {
        let report = report.clone();
        async move {
            report.send("started").ok();
            lapse.lease_lost().await;
            assert!(!lapse.has_lease());
            report.send("told to stop").ok();
            end()
        }
    };
    (handler, reported)
}

impl<T> Reports<T> {
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = T> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            match tokio::time::timeout(PATIENCE, self.0.recv()).await {
                Ok(Some(report)) => report,
                _ => panic!("no handler reported within {PATIENCE:?} (asked at {caller})"),
            }
        }
    }

    pub(crate) fn try_next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}
