//! What most of these tests need.

use std::time::Duration;

use keylapse::{Listener, ListenerBuilder, Schedule, Stats};
use keylapse_support::Server;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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

/// A listener that runs in the background until it is stopped or dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<keylapse::Result<()>>,
    pub(crate) stats: Stats,
}

impl Running {
    pub(crate) fn start(builder: ListenerBuilder) -> Self {
        let listener = builder.build().expect("a listener");
        let stats = listener.stats();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move { listener.run_until(stopped).await });
        Self { stop: Some(stop), task, stats }
    }

    pub(crate) async fn stop(mut self) -> keylapse::Result<()> {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, self.task).await.expect("the listener stops").expect("without a panic")
    }
}

pub(crate) fn listener(server: &Server) -> ListenerBuilder {
    Listener::builder(server.app_url())
}

/// A channel on which handlers report; `next` fails the test if nothing comes.
pub(crate) struct Reports<T>(mpsc::UnboundedReceiver<T>);

pub(crate) fn reports<T>() -> (mpsc::UnboundedSender<T>, Reports<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Reports(receiver))
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
