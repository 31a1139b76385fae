//! The methods of [`TestBed`] that let time pass: for a duration, or until a condition holds.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use keylapse_testserver::{RedisReply, TestServer};

use crate::bed::TestBed;
use crate::run_log::{HandlerRun, RunEnd};
use keylapse::Topic;
use keylapse::inside;
use keylapse::timers::KeyArgs;
use keylapse_connection::escape::Escaped;

/// The longest wait of the `until…` methods, in virtual time. The retries of
/// [`Backoff::payment_notice`](keylapse::Backoff::payment_notice) take a day. Two days take seconds of real time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2 * 86_400);

/// The longest advance. A longer one would take too much real time.
const MAX_ADVANCE: Duration = Duration::from_secs(10 * 366 * 86_400);

impl TestBed {
    /// Lets `time` pass, in whole milliseconds rounded up. Each timer, retry and sweep in it runs at its own time. When
    /// this returns, timers that are due have run, and attempts that have ended are settled.
    ///
    /// A handler that sleeps longer still runs then. A handler that waits for something outside the runtime, such as a
    /// socket or a thread, is not awaited. A day without due timers takes about 0.1 s of real time.
    ///
    /// # Panics
    /// Panics if a handler has panicked (see [`TestBed`]), or if `time` is more than ten years.
    #[track_caller]
    pub fn advance(&self, time: Duration) -> impl Future<Output = ()> {
        let caller = Location::caller();
        assert!(
            time <= MAX_ADVANCE,
            "TestBed::advance cannot pass more than ten years; {time:?} was requested at {caller}"
        );
        async move {
            tokio::time::sleep(time).await;
            self.activity.run_until_idle().await;
            self.surface_panics(caller);
        }
    }

    /// Waits until an attempt of this timer has ended, and returns the last one. Returns immediately if one ended before.
    ///
    /// # Panics
    /// Panics if no attempt ends within two days, if the key does not match the topic, or if a handler has panicked.
    #[track_caller]
    pub fn until_ran<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> impl Future<Output = HandlerRun> {
        let key = inside::key_of(&self.schedule(), topic, &key).unwrap_or_else(|error| panic!("{error}"));
        let name = topic.name().to_owned();
        let what = format!("an attempt of {} to end", Escaped(&key));
        self.until_some(what, Location::caller(), move |runs| {
            let ended = |run: &&HandlerRun| run.topic == name && run.key == key && run.end.is_some();
            runs.iter().rev().find(ended).cloned()
        })
    }

    /// Waits until `done` returns true for the runs so far. It is called now, when an attempt starts or ends, and more
    /// often.
    ///
    /// # Panics
    /// Panics if `done` does not return true within two days, or if a handler has panicked.
    #[track_caller]
    pub fn until(&self, mut done: impl FnMut(&[HandlerRun]) -> bool) -> impl Future<Output = ()> {
        let done = move |runs: &[HandlerRun]| done(runs).then_some(());
        self.until_some("a condition to hold".to_owned(), Location::caller(), done)
    }

    /// Waits until no timer is left: each was acknowledged, dropped or cancelled, or is a dead letter.
    ///
    /// # Panics
    /// Panics if a timer is left after two days, as a recurring one is, or if a handler has panicked.
    #[track_caller]
    pub fn until_finished(&self) -> impl Future<Output = ()> {
        let server = self.server.clone();
        let finished = move |_: &[HandlerRun]| (timers(&server) == 0).then_some(());
        self.until_some("all timers to be finished".to_owned(), Location::caller(), finished)
    }

    async fn until_some<T>(
        &self,
        what: String,
        caller: &Location<'_>,
        mut done: impl FnMut(&[HandlerRun]) -> Option<T>,
    ) -> T {
        // A panic of a handler ends every wait.
        let answer = || if self.must_surface() { Some(None) } else { done(&self.run_log.runs()).map(Some) };
        let answer = tokio::time::timeout(WAIT_TIMEOUT, self.activity.wait_for(answer)).await;
        self.activity.run_until_idle().await;
        self.surface_panics(caller);
        answer.ok().flatten().unwrap_or_else(|| {
            let runs = self.all_runs();
            panic!("waited two days for {what} in vain, at {caller}; runs: {runs:#?}")
        })
    }

    fn must_surface(&self) -> bool {
        !self.panics_expected && self.run_log.has_panic()
    }

    /// Panics if a handler has panicked, unless panics are expected. Each panic is reported once.
    pub(super) fn surface_panics(&self, at: &dyn fmt::Display) {
        if !self.must_surface() {
            return;
        }
        let Some(run) = self.run_log.take_panic() else { return };
        let Some(RunEnd::Panicked(message)) = &run.end else { return };
        let (topic, key, attempt) = (&run.topic, Escaped(&run.key), run.attempt);
        panic!(
            "the handler of {topic} panicked at attempt {attempt} of {key}: {message} (noticed at {at}; \
             call TestBed::expect_panics if the test is about panics)"
        );
    }
}

/// Returns the number of timers of all topics.
fn timers(server: &TestServer) -> i64 {
    let RedisReply::Array(records) = server.command(["KEYS", "keylapse:{*}:timers"]) else { return 0 };
    let count = |name: RedisReply| match name {
        RedisReply::Bulk(name) => server.command([&b"HLEN"[..], &name]),
        _ => RedisReply::Nil,
    };
    records
        .into_iter()
        .map(count)
        .map(|reply| if let RedisReply::Int(count) = reply { count } else { 0 })
        .sum()
}
