//! The hosts that are called: who has a place there, which of them are left alone, and why.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keylapse::destinations::{Destination, DestinationState};
use metrics::Gauge;
use tokio::time::Instant;
use tracing::{info, warn};

use super::circuit::{Circuit, Limits, Way};
use super::places::Calls;
use crate::turns::Turns;

/// All hosts of a topic: as many as the file lists, whatever payloads say.
#[derive(Debug)]
pub(crate) struct Hosts {
    topic: String,
    per_host: usize,
    /// The places that they share; none where there is one host.
    shared: Option<usize>,
    limits: Limits,
    known: Mutex<HashMap<String, Host>>,
    /// How many are left alone.
    open: Gauge,
}

#[derive(Debug)]
struct Host {
    calls: Calls,
    circuit: Circuit,
    /// Until when it asked not to be called.
    busy: Option<Instant>,
    last_answer: Option<String>,
    last_error: Option<String>,
    /// Keys that wait for it: the latest of them, which are called first when somebody asks for a try.
    waiting: VecDeque<Bytes>,
    /// Of those who find it full, and of those who find it left alone: that may be for much longer.
    full: Turns,
    open: Turns,
}

/// The right to call a host.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    hosts: &'a Hosts,
    host: String,
    call: u64,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// It has answered, whatever that was.
    Answered(String),
    /// It asked to be called no sooner than after this.
    Busy(String, Duration),
    /// It has not answered, or said that it cannot do its work: the answer, if there is one, and what went wrong.
    Failed(Option<String>, String),
}

/// Why there is none, and after how long to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All are taken, or left to other hosts.
    Full(Duration),
    /// It has failed too often, and is left alone.
    Open(Duration),
}

/// How soon one asks again who found no place: places of a host that answers are free again by then.
const SOON: Duration = Duration::from_millis(100);
/// One that asked to be called later counts as busy for so long after that time, unless it has answered otherwise since.
const BUSY: Duration = Duration::from_secs(60);
/// So many of the keys that wait for a host are remembered.
const WAITING: usize = 10;

impl Hosts {
    pub(crate) fn new(
        topic: &str,
        per_host: usize,
        shared: Option<usize>,
        limits: Limits,
        open: Gauge,
    ) -> Self {
        open.increment(0.0); // it is there from the start
        Self { topic: topic.to_owned(), per_host, shared, limits, known: Mutex::default(), open }
    }

    /// A place to call this host for this key.
    pub(crate) fn enter(&self, host: &str, key: &Bytes) -> Result<Place<'_>, Refused> {
        let (mut known, now) = (self.known(), Instant::now());
        let load = Calls::load(known.values().map(|host| &host.calls), now);
        let at = known.entry(host.to_owned()).or_insert_with(|| Host::new(self.limits));
        let fits = |places| at.calls.may_have_more(places, load, now);
        if at.calls.held() >= self.per_host || !self.shared.is_none_or(fits) {
            return Err(Refused::Full(at.full.take_at(SOON, at.calls.pace(now))));
        }
        match at.circuit.enter(now) {
            Way::Free => Ok(Place { hosts: self, host: host.to_owned(), call: at.calls.begin(now) }),
            Way::Wait(wait) => {
                at.waits(key);
                Err(Refused::Open(at.open.take(wait)))
            }
        }
    }

    /// How each of them is.
    pub(crate) fn states(&self) -> Vec<Destination> {
        self.known().iter().map(|(name, host)| host.state(name)).collect()
    }

    /// Lets a host that is left alone be called now; answers keys that wait for it.
    pub(crate) fn try_now(&self, host: &str) -> Vec<Bytes> {
        let mut known = self.known();
        let Some(host) = known.get_mut(host) else { return Vec::new() };
        host.circuit.try_now(Instant::now());
        (host.busy, host.open) = (None, Turns::new());
        host.waiting.drain(..).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn new(limits: Limits) -> Self {
        Self {
            calls: Calls::new(),
            circuit: Circuit::new(limits),
            busy: None,
            last_answer: None,
            last_error: None,
            waiting: VecDeque::new(),
            full: Turns::new(),
            open: Turns::new(),
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

    /// Takes down what came of a call.
    fn note(&mut self, called: Called, key: &Bytes) {
        let now = Instant::now();
        match called {
            Called::Answered(answer) => {
                self.circuit.succeed();
                (self.busy, self.last_answer) = (None, Some(answer));
                self.waiting.clear();
            }
            Called::Busy(answer, wait) => {
                self.circuit.succeed();
                (self.busy, self.last_answer) = (Some(now + wait), Some(answer));
                self.waits(key);
            }
            Called::Failed(answer, error) => {
                self.circuit.fail(now);
                self.busy = None;
                self.last_answer = answer.or_else(|| self.last_answer.take());
                self.last_error = Some(error);
            }
        }
    }
}

impl Place<'_> {
    /// Says what came of the call for this key.
    pub(crate) fn ended(&self, called: Called, key: &Bytes) {
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
                    "the host is not called for a while: it has failed too often"
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

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(Host { calls, .. }) = self.hosts.known().get_mut(&self.host) {
            calls.end(self.call, Instant::now());
        }
    }
}

/// When the file is read again, others are in their place, who know nothing yet.
impl Drop for Hosts {
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

    fn hosts() -> Hosts {
        Hosts::new("orders", 5, None, Limits { failures: 3, wait: WAIT }, Gauge::noop())
    }

    fn call(hosts: &Hosts, key: &'static str, called: Called) {
        let key = Bytes::from_static(key.as_bytes());
        hosts.enter(HOST, &key).expect("it may be called").ended(called, &key);
    }

    fn state(hosts: &Hosts) -> (DestinationState, u32, Option<u64>) {
        let [one] = &hosts.states()[..] else { panic!("one host") };
        (one.state, one.failures, one.retry_in_ms)
    }

    fn failed() -> Called {
        Called::Failed(Some("503 Service Unavailable".to_owned()), "it said so".to_owned())
    }

    fn answered() -> Called {
        Called::Answered("200 OK".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_is_shown_with_what_led_to_it() {
        let hosts = hosts();
        assert_eq!(hosts.states(), []);
        call(&hosts, "a", answered());
        assert_eq!(state(&hosts), (DestinationState::Ok, 0, None));
        call(&hosts, "a", failed());
        assert_eq!(state(&hosts), (DestinationState::Failing, 1, None));
        call(&hosts, "a", Called::Busy("429 Too Many Requests".to_owned(), WAIT));
        assert_eq!(state(&hosts), (DestinationState::Busy, 0, Some(30_000)));
        tokio::time::advance(WAIT).await;
        assert_eq!(state(&hosts), (DestinationState::Busy, 0, Some(0)), "nobody has called it since");
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
            assert!(matches!(refused, Err(Refused::Open(_))), "{refused:?}");
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
            Err(Refused::Open(wait)) => wait,
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
