//! Where a test lets time pass.

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

/// A server in the test's own process, a clock that the test moves, notifications that can be
/// broken, and a ledger of everything that handlers did.
///
/// It needs tokio's paused clock: `#[tokio::test(start_paused = true)]`. Time then
/// passes only while the test waits: in [`pass`](Self::pass), in the `until…`
/// methods, or at any other `.await` that is not ready.
///
/// A handler that panics, or in which an `assert!` fails, is caught and retried by
/// the listener. So that the test fails all the same, the bed panics in turn: at
/// the next of these methods, or when it is dropped. A test that is *about* panics
/// says [`expect_panics`](Self::expect_panics).
///
/// See the [crate](crate) for an example.
pub struct TestBed {
    pub(super) server: keylapse_testserver::TestServer,
    client: Client,
    notifications: Notifications,
    calls: Arc<OnceLock<CallRecorder>>,
    pub(super) run_log: RunLog,
    pub(super) activity: Arc<ActivitySignal>,
    pub(super) panics_expected: bool,
    lives: Mutex<Vec<ListenerAbortHandle>>,
}

impl TestBed {
    /// An empty bed. Its time starts with the present time, to the millisecond.
    ///
    /// # Panics
    /// Outside of tokio, or if tokio's clock is not paused.
    #[track_caller]
    #[allow(clippy::new_without_default)] // which would hide that a runtime is needed
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let whole = Duration::from_secs(now.as_secs()) + Duration::from_millis(now.subsec_millis().into());
        Self::starting_at(UNIX_EPOCH + whole)
    }

    /// An empty bed whose time starts here: for what depends on the calendar.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    #[track_caller]
    pub fn starting_at(start: SystemTime) -> Self {
        assert!(
            tokio::runtime::Handle::try_current().is_ok() && clock_is_paused(),
            "a TestBed needs tokio's paused clock: write #[tokio::test(start_paused = true)]"
        );
        Self::with_server(keylapse_testserver::TestServer::builder().start(start).build(), true)
    }

    /// An empty bed in real time, which passes by itself: for what has a clock of its own, such as clients in
    /// other languages, which find the bed's server at its [`url`](Self::url). Tests wait for what is to happen
    /// by the `until…` methods.
    ///
    /// # Panics
    /// Outside of tokio, or if tokio's clock is paused.
    #[track_caller]
    pub fn in_real_time() -> Self {
        assert!(
            tokio::runtime::Handle::try_current().is_ok() && !clock_is_paused(),
            "a TestBed in real time needs a clock that runs: write #[tokio::test] without start_paused"
        );
        Self::with_server(keylapse_testserver::TestServer::new(), false)
    }

    /// Opens the bed's server to clients of any kind, on a free port of 127.0.0.1 and until the bed is gone: its
    /// URL. Only of a bed [in real time](Self::in_real_time): a paused clock runs away from whoever waits for a
    /// socket.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn url(&self) -> std::io::Result<String> {
        Ok(format!("redis://{}/", self.server.listen().await?))
    }

    fn with_server(server: keylapse_testserver::TestServer, virtual_time: bool) -> Self {
        server.command(["CONFIG", "SET", "notify-keyspace-events", "KExg$"]);
        let pulse = Arc::<ActivitySignal>::default();
        let calls = Arc::<OnceLock<CallRecorder>>::default();
        let (beating, counting) = (pulse.clone(), calls.clone());
        server.intercept(move |request| {
            let calls = counting.get();
            let intervention = calls.map_or(Intervention::Execute, |calls| calls.arrived(request));
            match intervention {
                Intervention::Execute if is_periodic_poll(request) => beating.record_poll(),
                _ => beating.record_activity(),
            }
            intervention
        });
        let notifications = Notifications::new(server.clone(), pulse.clone());
        let streams = server.clone();
        // Not by a URL, for which the environment might have a password.
        let endpoint = Endpoint::Tcp { host: "in.this.process".to_owned(), port: SERVER_PORT };
        let nowhere = Target::of(Endpoints::One(endpoint));
        let client = <Client as ClientInside>::of_store(Store::new(&nowhere, DEFAULT_ANSWER_WITHIN));
        let client = client.connect_with(move || std::future::ready(Ok(streams.connect())));
        let client = if virtual_time { client.in_virtual_time(pulse.clone()) } else { client };
        Self {
            server,
            client,
            notifications,
            calls,
            run_log: RunLog::new(pulse.clone()),
            activity: pulse,
            panics_expected: false,
            lives: Mutex::default(),
        }
    }

    /// Handlers may panic in this test: nothing but [`Run::end`] tells of it.
    #[must_use]
    pub fn expect_panics(mut self) -> Self {
        self.panics_expected = true;
        self
    }

    /// The producers' door to this bed.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.client.clone())
    }

    /// Starts a listener: one that has the topics and settings that `build` adds.
    /// More than one may listen. It has begun when this returns.
    ///
    /// # Errors
    /// Those of [`ListenerBuilder::build`].
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
        let listening = RunningListener::start(builder.build()?, crash);
        lock(&self.lives).push(listening.abort_handle.clone());
        self.activity.run_until_idle().await;
        Ok(listening)
    }

    /// A client of the bed's server, for what builds its own [`Schedule`] or [`Listener`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Does what another program would: sends a command to the bed's server, and answers what that says. This
    /// is how keys of [attached topics](keylapse::Attached) come into being.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// # let bed = keylapse_testing::TestBed::new();
    /// bed.command(["SET", "order:unpaid:42", "a sofa", "EX", "900"]);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the server refuses it.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, command: impl IntoIterator<Item = A>) -> RedisReply {
        let reply = self.server.command(command);
        self.activity.record_activity();
        assert!(!matches!(reply, RedisReply::Error(_)), "the server refuses the command: {reply}");
        reply
    }

    /// What happens to notifications.
    pub fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Returns a bed that counts all [calls](Self::calls): for tests of the library itself.
    #[doc(hidden)]
    #[must_use]
    pub fn counting() -> Self {
        let bed = Self::new();
        bed.calls();
        bed
    }

    /// Returns which calls have been made since this was first asked, and which of them are to fail: for tests of the
    /// library itself.
    #[doc(hidden)]
    pub fn calls(&self) -> &CallRecorder {
        let scripts = scripts::all().map(|script| (script.name, &script.text));
        self.calls.get_or_init(|| CallRecorder::of_scripts(&self.server, scripts))
    }

    /// Returns the bed's server, for clients that reach it in other ways.
    #[doc(hidden)]
    pub fn server(&self) -> keylapse_testserver::TestServer {
        self.server.clone()
    }

    /// The time, as the server tells it.
    pub fn now(&self) -> SystemTime {
        self.server.now()
    }

    /// How much time has passed since the bed was made.
    pub fn elapsed(&self) -> Duration {
        self.run_log.began().elapsed()
    }

    /// All runs of a topic's handler, in the order in which they began.
    pub fn runs<T>(&self, topic: &Topic<T>) -> Vec<HandlerRun> {
        self.run_log.runs().iter().filter(|run| run.topic == topic.name()).cloned().collect()
    }

    /// All runs of all handlers, in the order in which they began.
    pub fn all_runs(&self) -> Vec<HandlerRun> {
        self.run_log.runs().to_vec()
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // Another bed in the same test must not find their handlers running.
        lock(&self.lives).iter().for_each(ListenerAbortHandle::abort);
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

/// Whether listeners make this call over and over, to look for news. What it leads to, if anything, is none of them.
fn is_periodic_poll(request: &CommandRequest<'_>) -> bool {
    use scripts::{CANARY, PEEK, REPAIR, SAVE_REPORT, TAKE_CHECKS, TAKE_DUTY};
    let text = |at: usize| request.args.get(at).map(|arg| &arg[..]).unwrap_or_default();
    match text(0) {
        b"EVALSHA" => [&CANARY, &PEEK, &REPAIR, &SAVE_REPORT, &TAKE_CHECKS, &TAKE_DUTY]
            .iter()
            .any(|look| look.sha.as_bytes() == text(1)),
        b"EXISTS" => text(1).windows(11).any(|part| part == b"{heartbeat/"),
        b"CONFIG" => text(1) == b"GET",
        _ => false,
    }
}

/// Time that stands still for a moment of real time.
fn clock_is_paused() -> bool {
    let (before, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(1) {}
    Instant::now() == before
}
