//! The test bed: a server in the test's process, virtual time, and the log of handler runs.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse_testserver::{CallRecorder, CommandRequest, Intervention, RedisReply};
use tokio::time::Instant;

use super::activity::ActivitySignal;
use super::notifications::Notifications;
use super::run_log::HandlerRun;
use super::run_log::RunLog;
use super::running_listener::{CrashSignal, Recorder};
use super::running_listener::{ListenerAbortHandle, RunningListener};
use keylapse::Client;
use keylapse::Result;
use keylapse::Schedule;
use keylapse::Topic;
use keylapse::inside::{self, ClientInside};
use keylapse::{Listener, ListenerBuilder};
use keylapse_connection::lock::lock;
use keylapse_connection::{Endpoint, Endpoints, SERVER_PORT, Target};
use keylapse_wire::{DEFAULT_ANSWER_WITHIN, Store, scripts};

/// A server in the test's process, with virtual time, faults of notifications, and a log of all handler runs.
///
/// A bed needs tokio's paused clock: `#[tokio::test(start_paused = true)]`. Time then passes only while the test waits:
/// in [`advance`](Self::advance), in the `until…` methods, or at another `.await` that is not ready.
///
/// The listener catches a panic or a failed `assert!` in a handler, and retries. The bed then panics itself, so that
/// the test fails: in the next of these methods, or when it is dropped. [`expect_panics`](Self::expect_panics) turns
/// this off.
///
/// The [crate](crate) has an example.
pub struct TestBed {
    pub(super) server: keylapse_testserver::TestServer,
    client: Client,
    notifications: Notifications,
    calls: Arc<OnceLock<CallRecorder>>,
    pub(super) run_log: RunLog,
    pub(super) activity: Arc<ActivitySignal>,
    pub(super) panics_expected: bool,
    abort_handles: Mutex<Vec<ListenerAbortHandle>>,
}

impl TestBed {
    /// Returns an empty bed. Its clock starts at the current time, in whole milliseconds.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, or if tokio's clock is not paused.
    #[track_caller]
    #[allow(clippy::new_without_default)] // `Default` would hide that `new` needs a runtime
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let whole = Duration::from_secs(now.as_secs()) + Duration::from_millis(now.subsec_millis().into());
        Self::starting_at(UNIX_EPOCH + whole)
    }

    /// Returns an empty bed whose clock starts at `start`, for tests that depend on the calendar.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, or if tokio's clock is not paused.
    #[track_caller]
    pub fn starting_at(start: SystemTime) -> Self {
        assert!(
            tokio::runtime::Handle::try_current().is_ok() && clock_is_paused(),
            "a TestBed needs tokio's paused clock: write #[tokio::test(start_paused = true)]"
        );
        Self::with_server(keylapse_testserver::TestServer::builder().start(start).build(), true)
    }

    /// Returns an empty bed in real time, for clients with a clock of their own, such as programs in other languages.
    /// They connect to its [`url`](Self::url). The `until…` methods wait for results.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, or if tokio's clock is paused.
    #[track_caller]
    pub fn in_real_time() -> Self {
        assert!(
            tokio::runtime::Handle::try_current().is_ok() && !clock_is_paused(),
            "a TestBed in real time needs a clock that runs: write #[tokio::test] without start_paused"
        );
        Self::with_server(keylapse_testserver::TestServer::new(), false)
    }

    /// Opens a free port of 127.0.0.1 for clients of any kind, and returns its URL. The port is open as long as the bed,
    /// or a client of it, exists.
    ///
    /// The bed must be [in real time](Self::in_real_time). A paused clock would advance while a client waits for the
    /// socket.
    ///
    /// # Errors
    /// Returns an error if no port is free.
    pub async fn url(&self) -> std::io::Result<String> {
        Ok(format!("redis://{}/", self.server.listen().await?))
    }

    fn with_server(server: keylapse_testserver::TestServer, virtual_time: bool) -> Self {
        server.command(["CONFIG", "SET", "notify-keyspace-events", "KExg$"]);
        let activity = Arc::<ActivitySignal>::default();
        let calls = Arc::<OnceLock<CallRecorder>>::default();
        let (signal, recorder) = (activity.clone(), calls.clone());
        server.intercept(move |request| {
            let calls = recorder.get();
            let intervention = calls.map_or(Intervention::Execute, |calls| calls.arrived(request));
            match intervention {
                Intervention::Execute if is_periodic_poll(request) => signal.record_poll(),
                _ => signal.record_activity(),
            }
            intervention
        });
        let notifications = Notifications::new(server.clone(), activity.clone());
        let streams = server.clone();
        // `Client::new` could read a password from the environment.
        let endpoint = Endpoint::Tcp { host: "in.this.process".to_owned(), port: SERVER_PORT };
        let nowhere = Target::of(Endpoints::One(endpoint));
        let client = <Client as ClientInside>::of_store(Store::new(&nowhere, DEFAULT_ANSWER_WITHIN));
        let client = client.connect_with(move || std::future::ready(Ok(streams.connect())));
        let client = if virtual_time { client.in_virtual_time(activity.clone()) } else { client };
        Self {
            server,
            client,
            notifications,
            calls,
            run_log: RunLog::new(activity.clone()),
            activity,
            panics_expected: false,
            abort_handles: Mutex::default(),
        }
    }

    /// Lets handlers panic without failing the test. [`HandlerRun::end`] still has the panic.
    #[must_use]
    pub fn expect_panics(mut self) -> Self {
        self.panics_expected = true;
        self
    }

    /// Returns a schedule on the bed's server.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.client.clone())
    }

    /// Starts a listener with the topics and settings that `build` adds, and returns when it runs. A bed may have several
    /// listeners.
    ///
    /// # Errors
    /// Returns the errors of [`ListenerBuilder::build`].
    pub async fn listen<S>(
        &self,
        build: impl FnOnce(ListenerBuilder) -> ListenerBuilder<S>,
    ) -> Result<RunningListener> {
        let crash = Arc::<CrashSignal>::default();
        let recorder = Recorder { run_log: self.run_log.clone(), crash: crash.clone() };
        let builder = build(Listener::builder(self.client.clone()));
        let builder = inside::around_attempts(builder, move |topic, lapse, attempt| {
            recorder.clone().wrap_attempt(topic, lapse, attempt)
        });
        let listener = RunningListener::start(builder.build()?, crash);
        lock(&self.abort_handles).push(listener.abort_handle.clone());
        self.activity.run_until_idle().await;
        Ok(listener)
    }

    /// Returns a client of the bed's server, for code that builds its own [`Schedule`] or [`Listener`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends a command to the bed's server, as another program would, and returns the reply. Tests write keys of
    /// [attached topics](keylapse::Attached) with it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// # let bed = keylapse_testing::TestBed::new();
    /// bed.command(["SET", "order:unpaid:42", "a sofa", "EX", "900"]);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the server replies with an error.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, command: impl IntoIterator<Item = A>) -> RedisReply {
        let reply = self.server.command(command);
        self.activity.record_activity();
        assert!(!matches!(reply, RedisReply::Error(_)), "the server refused the command: {reply}");
        reply
    }

    /// Returns the notifications of the bed, to break and to count them.
    pub fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Returns a bed that records all [calls](Self::calls), for tests of the library itself.
    #[doc(hidden)]
    #[must_use]
    pub fn counting() -> Self {
        let bed = Self::new();
        bed.calls();
        bed
    }

    /// Returns the recorder of calls, which can also make calls fail. The first use starts the recording. For tests of
    /// the library itself.
    #[doc(hidden)]
    pub fn calls(&self) -> &CallRecorder {
        let scripts = scripts::all().map(|script| (script.name, &script.text));
        self.calls.get_or_init(|| CallRecorder::of_scripts(&self.server, scripts))
    }

    /// Returns the bed's server, for clients that connect in other ways.
    #[doc(hidden)]
    pub fn server(&self) -> keylapse_testserver::TestServer {
        self.server.clone()
    }

    /// Returns the server's time.
    pub fn now(&self) -> SystemTime {
        self.server.now()
    }

    /// Returns the time since the bed was created.
    pub fn elapsed(&self) -> Duration {
        self.run_log.began().elapsed()
    }

    /// Returns the runs of a topic's handler, in the order in which they started.
    pub fn runs<T>(&self, topic: &Topic<T>) -> Vec<HandlerRun> {
        self.run_log.runs().iter().filter(|run| run.topic == topic.name()).cloned().collect()
    }

    /// Returns the runs of all handlers, in the order in which they started.
    pub fn all_runs(&self) -> Vec<HandlerRun> {
        self.run_log.runs().to_vec()
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // Their handlers must not run while the test uses another bed.
        lock(&self.abort_handles).iter().for_each(ListenerAbortHandle::abort);
        if !std::thread::panicking() {
            self.surface_panics(&"the end of the test");
        }
    }
}

impl fmt::Debug for TestBed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBed")
            .field("elapsed", &self.elapsed())
            .field("runs", &self.all_runs())
            .finish_non_exhaustive()
    }
}

/// Returns whether listeners make this call periodically. Calls that follow from its reply are not periodic.
fn is_periodic_poll(request: &CommandRequest<'_>) -> bool {
    use scripts::{CANARY, PEEK, REPAIR, SAVE_REPORT, TAKE_CHECKS, TAKE_DUTY};
    let text = |at: usize| request.args.get(at).map(|arg| &arg[..]).unwrap_or_default();
    match text(0) {
        b"EVALSHA" => [&CANARY, &PEEK, &REPAIR, &SAVE_REPORT, &TAKE_CHECKS, &TAKE_DUTY]
            .iter()
            .any(|script| script.sha.as_bytes() == text(1)),
        b"EXISTS" => text(1).windows(11).any(|part| part == b"{heartbeat/"),
        b"CONFIG" => text(1) == b"GET",
        _ => false,
    }
}

/// Returns whether tokio's clock stands still during a microsecond of real time.
fn clock_is_paused() -> bool {
    let (before, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(1) {}
    Instant::now() == before
}
