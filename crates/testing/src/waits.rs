//! Letting time pass, for a while or until something has happened.

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

/// How long, in virtual time, something is waited for: longer than
/// [`Backoff::payment_notice`](keylapse::Backoff::payment_notice) goes on (a day), and
/// no more than seconds of real time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2 * 86_400);

/// How much may pass at a time: beyond, nobody would see the end.
const MAX_ADVANCE: Duration = Duration::from_secs(10 * 366 * 86_400);

impl TestBed {
    /// Lets this much time pass, in whole milliseconds rounded up, moment by moment:
    /// every timer, retry and sweep until then has its turn in its time. What is due at
    /// the last moment has run when this returns, and what has ended is settled. A
    /// handler that sleeps longer than that still runs; one that waits for something
    /// outside of the runtime, like a socket or a thread, is not waited for. A day in which nothing is due takes about a
    /// tenth of a second.
    ///
    /// # Panics
    /// If a handler has panicked: see [`TestBed`]. For more than ten years.
    #[track_caller]
    pub fn advance(&self, time: Duration) -> impl Future<Output = ()> {
        let caller = Location::caller();
        assert!(
            time <= MAX_ADVANCE,
            "more than ten years cannot pass in a test, and {time:?} was asked for, at {caller}"
        );
        async move {
            tokio::time::sleep(time).await;
            self.activity.run_until_idle().await;
            self.surface_panics(caller);
        }
    }

    /// Lets time pass until an attempt of this timer has ended, and answers its
    /// last one; at once if one has.
    ///
    /// # Panics
    /// If none does within two days, or the key is not of the topic.
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

    /// Lets time pass until `done` holds for all runs so far. It is asked now, whenever
    /// an attempt begins or ends, and more often.
    ///
    /// # Panics
    /// If it does not hold within two days.
    #[track_caller]
    pub fn until(&self, mut done: impl FnMut(&[HandlerRun]) -> bool) -> impl Future<Output = ()> {
        let done = move |runs: &[HandlerRun]| done(runs).then_some(());
        self.until_some("a condition to hold".to_owned(), Location::caller(), done)
    }

    /// Lets time pass until there is no timer any more: each has been acknowledged,
    /// dropped, cancelled, or has become a dead letter.
    ///
    /// # Panics
    /// If one is left after two days, as a recurring one is.
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
        // A panic is the answer to everything.
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

    /// Fails the test if a handler has panicked, once.
    pub(super) fn surface_panics(&self, at: &dyn fmt::Display) {
        if !self.must_surface() {
            return;
        }
        let Some(run) = self.run_log.take_panic() else { return };
        let Some(RunEnd::Panicked(message)) = &run.end else { return };
        let (topic, key, attempt) = (&run.topic, Escaped(&run.key), run.attempt);
        panic!(
            "the handler of {topic} panicked at attempt {attempt} of {key}: {message} (noticed at {at}; \
             a test about panics says TestBed::expect_panics)"
        );
    }
}

/// How many timers there are, over all topics.
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
