//! What a server shows, and the routes to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::get;
use keylapse_console::Console;
use tokio::sync::Semaphore;

use crate::access::{Access, AccessError};
use crate::api::{Fault, For};
use crate::doctor::Doctor;
use crate::guard::{Guesses, Who};
use crate::health::{Readiness, Ready};
use crate::metrics::{Metrics, Render};
use crate::pages::{self, Samples};
use crate::patience::Patience;
use crate::recent::Recent;
use crate::{api, guard, health, metrics};

/// What is shown of a namespace, and to whom.
#[must_use]
#[derive(Debug)]
pub struct Web(State);

/// What all routes know.
pub(crate) type Shared = Arc<State>;

pub(crate) struct State {
    pub(crate) console: Console,
    pub(crate) access: Access,
    pub(crate) ready: Option<Ready>,
    pub(crate) samples: Samples,
    pub(crate) doctor: Doctor,
    prefix: String,
    is_read_only: bool,
    pub(crate) shows_payloads: bool,
    face: Face,
    pub(crate) patience: Patience,
    /// What the process records of itself.
    pub(crate) recorded: Option<Render>,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Recent<Readiness>,
    pub(crate) guesses: Guesses,
    /// The topics whose timers are armed and cancelled, where there is nothing else; none: all.
    arms: Option<IsFor>,
    /// Actions under way, those on many entries, and live tails.
    pub(crate) acts: Arc<Semaphore>,
    pub(crate) bulks: Arc<Semaphore>,
    pub(crate) tails: Arc<Semaphore>,
}

/// Actions at a time: others wait.
const ACTS: usize = 64;
/// Those on many entries at a time: the next is refused.
const BULKS: usize = 4;
/// Whoever asks for what takes the server some work is shown what is this recent.
const RECENT: Duration = Duration::from_secs(2);

/// Returns for a topic's name whether it is among those that are meant.
type IsFor = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// How much of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    /// Pages and the whole API.
    Whole,
    /// What arms and cancels timers.
    Arming,
}

impl Web {
    /// All of it: pages, the API, health and metrics.
    pub fn new(console: Console, access: Access) -> Self {
        Self(State {
            console,
            access,
            ready: None,
            samples: Samples::default(),
            doctor: Doctor::default(),
            prefix: String::new(),
            is_read_only: false,
            shows_payloads: false,
            face: Face::Whole,
            patience: Patience::default(),
            recorded: None,
            metrics: Metrics::new(RECENT),
            readiness: Recent::new(RECENT),
            guesses: Guesses::default(),
            arms: None,
            acts: Arc::new(Semaphore::new(ACTS)),
            bulks: Arc::new(Semaphore::new(BULKS)),
            tails: Arc::new(Semaphore::new(Patience::default().tails)),
        })
    }

    /// Nothing but what arms and cancels timers, health and metrics.
    pub fn arming_only(self) -> Self {
        Self(State { face: Face::Arming, ..self.0 })
    }

    /// The same for topics alone whose names this lets pass, also for tokens that may do everything.
    pub fn arming_only_of(self, is_for: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(State { face: Face::Arming, arms: Some(Arc::new(is_for)), ..self.0 })
    }

    /// Below a path of another program's server, such as `/timers`.
    ///
    /// # Errors
    /// When it is no path: it begins with `/`, does not end with it, and has letters, digits, `-`, `_`, `.` and `/` alone.
    pub fn prefix(self, path: &str) -> Result<Self, AccessError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let is_path =
            path.starts_with('/') && !path.ends_with('/') && !path.contains("//") && !path.contains("..");
        let is_whole = is_path && path.bytes().all(is_plain);
        if !path.is_empty() && !is_whole {
            return Err(AccessError(format!("{path:?} is no prefix: write a path such as /timers")));
        }
        Ok(Self(State { prefix: path.to_owned(), ..self.0 }))
    }

    /// Whatever acts is not there, for anybody.
    pub fn read_only(self, is_read_only: bool) -> Self {
        Self(State { is_read_only, ..self.0 })
    }

    /// Payloads are shown. They may hold what not everybody who looks is to see.
    pub fn show_payloads(self, shows_payloads: bool) -> Self {
        Self(State { shows_payloads, ..self.0 })
    }

    /// Whether the program as a whole is ready, for `/readyz`. Without it that says whether the server answers.
    pub fn ready(self, ready: impl Fn() -> Readiness + Send + Sync + 'static) -> Self {
        Self(State { ready: Some(Arc::new(ready)), ..self.0 })
    }

    /// What the process records of itself, as text for Prometheus: `/metrics` has it beside how the topics are.
    pub fn recorded(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(State { recorded: Some(Arc::new(render)), ..self.0 })
    }

    /// How long clients are waited for, and how many there may be.
    pub fn patience(self, patience: Patience) -> Self {
        Self(State { patience, tails: Arc::new(Semaphore::new(patience.tails)), ..self.0 })
    }

    /// The routes, guarded; below the prefix. Without a prefix they have a fallback of their own, so that they cannot be merged
    /// into an application that has one.
    pub fn router(self) -> Router {
        let prefix = self.0.prefix.clone();
        let shared = Shared::new(self.0);
        let closed = guard::closed(shared.closed_routes(), &shared);
        let open = guard::open(shared.open_routes());
        let routes = guard::around(closed.merge(open), &shared).with_state(shared);
        if prefix.is_empty() {
            return routes;
        }
        // Whoever writes a slash behind the prefix means its pages.
        let home = Redirect::to(&format!("{prefix}/topics"));
        Router::new().route(&format!("{prefix}/"), get(async || home)).nest(&prefix, routes)
    }
}

impl State {
    fn closed_routes(&self) -> Router<Shared> {
        let wanted: &[For] = match (self.face, self.is_read_only) {
            (Face::Whole, true) => &[For::Looking],
            (Face::Whole, false) => &[For::Looking, For::Acting, For::Arming],
            (Face::Arming, true) => &[],
            (Face::Arming, false) => &[For::Arming],
        };
        // What is not there is told to those alone who may come in.
        let routes = api::routes(wanted).merge(metrics::routes());
        if !self.has_pages() {
            return routes.fallback(guard::absent);
        }
        let routes = routes.merge(pages::looking());
        if self.has_actions() { routes.merge(pages::acting()) } else { routes }
    }

    fn open_routes(&self) -> Router<Shared> {
        let routes = health::routes();
        if self.has_pages() { routes.merge(pages::open()) } else { routes }
    }

    /// Whether there is anything that acts.
    pub(crate) fn has_actions(&self) -> bool {
        !self.is_read_only
    }

    /// Whether there are pages to send a person to.
    pub(crate) fn has_pages(&self) -> bool {
        self.face == Face::Whole
    }

    /// Checks that somebody may look at a topic or act on it here.
    pub(crate) fn check(&self, who: &Who, topic: &str) -> Result<(), Fault> {
        let refuse = |why: &str| Err(Fault::new(StatusCode::FORBIDDEN, why));
        if !who.may(topic) {
            return refuse("this token is not for this topic");
        }
        match &self.arms {
            Some(is_for) if !is_for(topic) => refuse(
                "this topic is none of this program's: keylapse run --any-topic is for all of the namespace",
            ),
            _ => Ok(()),
        }
    }

    /// Where a path is that begins with `/`.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, prefix, is_read_only, shows_payloads, face, .. } = self;
        let mut shown = f.debug_struct("Web");
        shown.field("access", access).field("prefix", prefix).field("read_only", is_read_only);
        shown.field("show_payloads", shows_payloads).field("face", face).finish_non_exhaustive()
    }
}
