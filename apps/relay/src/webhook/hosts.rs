//! The hosts that a topic calls: their running calls, circuits and last answers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keylapse::destinations::{Destination, DestinationState};
use metrics::Gauge;
use tokio::time::Instant;
use tracing::{info, warn};

use super::circuit::{Circuit, CircuitDecision, Limits};
use super::slots::HostCalls;
use crate::turns::RetryPacer;

/// All hosts that a topic has called. The file's `hosts` bounds their number, whatever payloads contain.
#[derive(Debug)]
pub(crate) struct CalledHostRegistry {
    topic: String,
    per_host: usize,
    /// The concurrency slots that they share. `None` if the topic has one host.
    shared: Option<usize>,
    limits: Limits,
    known: Mutex<HashMap<String, HostState>>,
    /// The number of open circuits.
    open: Gauge,
}

#[derive(Debug)]
struct HostState {
    calls: HostCalls,
    circuit: Circuit,
    /// The host asked not to be called until then.
    busy: Option<Instant>,
    last_answer: Option<String>,
    last_error: Option<String>,
    /// The latest keys that wait for the host. They become due when an operator asks for a trial.
    waiting: VecDeque<Bytes>,
    /// Paces timers that find the host full. Those that find its circuit open are paced by `open`, as they may wait much
    /// longer.
    full: RetryPacer,
    open: RetryPacer,
}

/// The right to call a host. Its concurrency slot is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct HostPermit<'a> {
    hosts: &'a CalledHostRegistry,
    host: String,
    call: u64,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// The host has answered, in a way that does not open its circuit.
    Answered(String),
    /// The host asked to be called no sooner than after this time.
    Busy(String, Duration),
    /// The host has not answered, or it has answered 5xx: the answer, if there is one, and the error.
    Failed(Option<String>, String),
}

/// Why a host must not be called now, and after how long to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// All concurrency slots are taken, or reserved for other hosts.
    Full(Duration),
    /// The circuit of the host is open.
    Open(Duration),
}

/// The shortest delay of a timer that finds its host full. A host that answers has free slots by then.
const FULL_HOST_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a host counts as busy after the time that it asked for, unless it has answered otherwise since.
const BUSY: Duration = Duration::from_secs(60);
/// Waiting keys that are remembered for each host.
const WAITING: usize = 10;

impl CalledHostRegistry {
    pub(crate) fn new(
        topic: &str,
        per_host: usize,
        shared: Option<usize>,
        limits: Limits,
        open: Gauge,
    ) -> Self {
        open.increment(0.0); // the gauge exists from the start
        Self { topic: topic.to_owned(), per_host, shared, limits, known: Mutex::default(), open }
    }

    /// Returns the right to call this host for this key, or why it must not be called now.
    pub(crate) fn enter(&self, host: &str, key: &Bytes) -> Result<HostPermit<'_>, PermitRefusal> {
        let (mut known, now) = (self.known(), Instant::now());
        let load = HostCalls::load(known.values().map(|host| &host.calls), now);
        let at = known.entry(host.to_owned()).or_insert_with(|| HostState::new(self.limits));
        let fits = |places| at.calls.may_have_more(places, load, now);
        if at.calls.held() >= self.per_host || !self.shared.is_none_or(fits) {
            return Err(PermitRefusal::Full(at.full.take_at(FULL_HOST_RETRY_PAUSE, at.calls.pace(now))));
        }
        match at.circuit.enter(now) {
            CircuitDecision::Free => {
                Ok(HostPermit { hosts: self, host: host.to_owned(), call: at.calls.begin(now) })
            }
            CircuitDecision::Wait(wait) => {
                at.waits(key);
                Err(PermitRefusal::Open(at.open.take(wait)))
            }
        }
    }

    /// Returns the state of each host.
    pub(crate) fn states(&self) -> Vec<Destination> {
        self.known().iter().map(|(name, host)| host.state(name)).collect()
    }

    /// Lets a host be called now although its circuit is open. Returns the keys that wait for it.
    pub(crate) fn try_now(&self, host: &str) -> Vec<Bytes> {
        let mut known = self.known();
        let Some(host) = known.get_mut(host) else { return Vec::new() };
        host.circuit.try_now(Instant::now());
        (host.busy, host.open) = (None, RetryPacer::new());
        host.waiting.drain(..).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, HostState>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostState {
    fn new(limits: Limits) -> Self {
        Self {
            calls: HostCalls::new(),
            circuit: Circuit::new(limits),
            busy: None,
            last_answer: None,
            last_error: None,
            waiting: VecDeque::new(),
            full: RetryPacer::new(),
            open: RetryPacer::new(),
        }
    }

    fn waits(&mut self, key: &Bytes) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(key.clone());
    }

    fn state(&self, name: &str) -> Destination {
        let now = Instant::now();
        let busy =
            self.busy.filter(|until| now < *until + BUSY).map(|until| until.saturating_duration_since(now));
        let state = match (self.circuit.is_open(), busy, self.circuit.failures()) {
            (true, ..) => DestinationState::Open,
            (false, Some(_), _) => DestinationState::Busy,
            (false, None, 0) => DestinationState::Ok,
            (false, None, _) => DestinationState::Failing,
        };
        let rest = self.circuit.rest(now).or(busy);
        let mut of = Destination::new(name, state);
        of.failures = self.circuit.failures();
        of.retry_in_ms = rest.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        of.last_answer.clone_from(&self.last_answer);
        of.last_error.clone_from(&self.last_error);
        of
    }

    /// Records the end of a call.
    fn note(&mut self, called: CallResult, key: &Bytes) {
        let now = Instant::now();
        match called {
            CallResult::Answered(answer) => {
                self.circuit.succeed();
                (self.busy, self.last_answer) = (None, Some(answer));
                self.waiting.clear();
            }
            CallResult::Busy(answer, wait) => {
                self.circuit.succeed();
                (self.busy, self.last_answer) = (Some(now + wait), Some(answer));
                self.waits(key);
            }
            CallResult::Failed(answer, error) => {
                self.circuit.fail(now);
                self.busy = None;
                self.last_answer = answer.or_else(|| self.last_answer.take());
                self.last_error = Some(error);
            }
        }
    }
}

impl HostPermit<'_> {
    /// Records the end of the call for this key, and logs changes of the host's state.
    pub(crate) fn ended(&self, called: CallResult, key: &Bytes) {
        let mut known = self.hosts.known();
        let Some(host) = known.get_mut(&self.host) else { return };
        let (was_open, was_busy) = (host.circuit.is_open(), host.busy.is_some());
        host.note(called, key);
        let (topic, name) = (&self.hosts.topic, &self.host);
        match (was_open, host.circuit.is_open()) {
            (false, true) => {
                self.hosts.open.increment(1.0);
                let (failures, wait) = (host.circuit.failures(), self.hosts.limits.wait);
                let error = host.last_error.as_deref().unwrap_or_default();
                warn!(
                    topic,
                    host = name,
                    failures,
                    error,
                    ?wait,
                    "the host has failed too often, and is not called for a while"
                );
            }
            (true, false) => {
                self.hosts.open.decrement(1.0);
                info!(topic, host = name, "the host answers again, and is called as before");
            }
            (false, false) if !was_busy && host.busy.is_some() => {
                let answer = host.last_answer.as_deref().unwrap_or_default();
                warn!(topic, host = name, answer, "the host asks to be called later: its timers wait");
            }
            _ => {}
        }
    }
}

impl Drop for HostPermit<'_> {
    fn drop(&mut self) {
        if let Some(HostState { calls, .. }) = self.hosts.known().get_mut(&self.host) {
            calls.end(self.call, Instant::now());
        }
    }
}

/// A configuration that is applied again has other hosts, whose circuits are closed.
impl Drop for CalledHostRegistry {
    fn drop(&mut self) {
        let open = self.known().values().filter(|host| host.circuit.is_open()).count();
        self.open.decrement(open as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "shop.example:443";
    const WAIT: Duration = Duration::from_secs(30);

    fn hosts() -> CalledHostRegistry {
        CalledHostRegistry::new("orders", 5, None, Limits { failures: 3, wait: WAIT }, Gauge::noop())
    }

    fn call(hosts: &CalledHostRegistry, key: &'static str, called: CallResult) {
        let key = Bytes::from_static(key.as_bytes());
        hosts.enter(HOST, &key).expect("it may be called").ended(called, &key);
    }

    fn state(hosts: &CalledHostRegistry) -> (DestinationState, u32, Option<u64>) {
        let [one] = &hosts.states()[..] else { panic!("one host") };
        (one.state, one.failures, one.retry_in_ms)
    }

    fn failed() -> CallResult {
        CallResult::Failed(Some("503 Service Unavailable".to_owned()), "it said so".to_owned())
    }

    fn answered() -> CallResult {
        CallResult::Answered("200 OK".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_is_shown_with_what_led_to_it() {
        let hosts = hosts();
        assert_eq!(hosts.states(), []);
        call(&hosts, "a", answered());
        assert_eq!(state(&hosts), (DestinationState::Ok, 0, None));
        call(&hosts, "a", failed());
        assert_eq!(state(&hosts), (DestinationState::Failing, 1, None));
        call(&hosts, "a", CallResult::Busy("429 Too Many Requests".to_owned(), WAIT));
        assert_eq!(state(&hosts), (DestinationState::Busy, 0, Some(30_000)));
        tokio::time::advance(WAIT).await;
        assert_eq!(state(&hosts), (DestinationState::Busy, 0, Some(0)), "it was not called since");
        tokio::time::advance(BUSY).await;
        assert_eq!(state(&hosts), (DestinationState::Ok, 0, None));
        (0..3).for_each(|_| call(&hosts, "a", failed()));
        assert_eq!(state(&hosts), (DestinationState::Open, 3, Some(30_000)));
        let shown = hosts.states().remove(0);
        assert_eq!(shown.last_answer.as_deref(), Some("503 Service Unavailable"));
        assert_eq!(shown.last_error.as_deref(), Some("it said so"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_brings_back_keys_that_wait_and_another_failure_leaves_it_alone_again() {
        let hosts = hosts();
        (0..3).for_each(|_| call(&hosts, "a", failed()));
        for key in ["b", "c"] {
            let refused = hosts.enter(HOST, &Bytes::from_static(key.as_bytes())).map(drop);
            assert!(matches!(refused, Err(PermitRefusal::Open(_))), "{refused:?}");
        }
        assert!(hosts.try_now("another.example:443").is_empty());
        assert_eq!(hosts.try_now(HOST), ["b", "c"]);
        call(&hosts, "b", failed());
        assert_eq!(state(&hosts), (DestinationState::Open, 4, Some(30_000)));
        hosts.try_now(HOST);
        call(&hosts, "c", answered());
        assert_eq!(state(&hosts), (DestinationState::Ok, 0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_brought_back_by_a_try_wait_behind_no_others() {
        let hosts = hosts();
        (0..3).for_each(|_| call(&hosts, "a", failed()));
        let refused = || match hosts.enter(HOST, &Bytes::from_static(b"b")) {
            Err(PermitRefusal::Open(wait)) => wait,
            other => panic!("{other:?}"),
        };
        (0..50).for_each(|_| assert!(refused() >= WAIT));
        hosts.try_now(HOST);
        let _trial = hosts.enter(HOST, &Bytes::from_static(b"b")).expect("the trial");
        assert!(refused() < WAIT / 10, "the trial is over by then");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_keys_are_remembered() {
        let hosts = hosts();
        (0..3).for_each(|_| call(&hosts, "a", failed()));
        for n in 0..50_u32 {
            let _ = hosts.enter(HOST, &n.to_string().into());
        }
        assert_eq!(hosts.try_now(HOST).first(), Some(&Bytes::from_static(b"40")));
    }
}
