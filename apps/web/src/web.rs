//! The [`Web`] builder, and the routes that it makes.

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
use crate::api::{ApiError, RouteKind};
use crate::doctor::Doctor;
use crate::guard::{Caller, TokenThrottle};
use crate::health::{Readiness, Ready};
use crate::limits::ServerLimits;
use crate::metrics::{Metrics, Render};
use crate::pages::{self, Samples};
use crate::recent::SharedCache;
use crate::{api, guard, health, metrics};

/// The dashboard, HTTP API, health probes and metrics of a namespace, and who may use them.
#[must_use]
#[derive(Debug)]
pub struct Web(State);

/// The state that all routes share.
pub(crate) type SharedState = Arc<State>;

pub(crate) struct State {
    pub(crate) console: Console,
    pub(crate) access: Access,
    pub(crate) ready: Option<Ready>,
    pub(crate) samples: Samples,
    pub(crate) doctor: Doctor,
    prefix: String,
    is_read_only: bool,
    pub(crate) shows_payloads: bool,
    face: RouteScope,
    pub(crate) limits: ServerLimits,
    /// Renders the metrics of the process.
    pub(crate) recorded: Option<Render>,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: SharedCache<Readiness>,
    pub(crate) guesses: TokenThrottle,
    /// Returns whether a topic's timers may be armed and cancelled here. `None` allows all topics.
    arms: Option<IsFor>,
    /// Permits for actions, bulk actions and live tails.
    pub(crate) acts: Arc<Semaphore>,
    pub(crate) bulks: Arc<Semaphore>,
    pub(crate) tails: Arc<Semaphore>,
}

/// Maximum of concurrent actions. Further actions wait.
const ACTS: usize = 64;
/// Maximum of concurrent bulk actions. Further ones are refused.
const BULKS: usize = 4;
/// How long the metrics of the topics and the readiness are cached.
const RECENT: Duration = Duration::from_secs(2);

/// Returns whether a topic with this name is accepted.
type IsFor = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Which routes exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteScope {
    /// Pages and the whole API.
    Whole,
    /// The routes that arm and cancel timers, health and metrics.
    Arming,
}

impl Web {
    /// Serves everything: pages, the API, health and metrics.
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
            face: RouteScope::Whole,
            limits: ServerLimits::default(),
            recorded: None,
            metrics: Metrics::new(RECENT),
            readiness: SharedCache::new(RECENT),
            guesses: TokenThrottle::default(),
            arms: None,
            acts: Arc::new(Semaphore::new(ACTS)),
            bulks: Arc::new(Semaphore::new(BULKS)),
            tails: Arc::new(Semaphore::new(ServerLimits::default().tails)),
        })
    }

    /// Serves only the routes that arm and cancel timers, health and metrics.
    pub fn arming_only(self) -> Self {
        Self(State { face: RouteScope::Arming, ..self.0 })
    }

    /// Serves as [`arming_only`](Self::arming_only), for topics whose names `is_for` accepts. Other topics are refused,
    /// whatever the token.
    pub fn arming_only_of(self, is_for: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(State { face: RouteScope::Arming, arms: Some(Arc::new(is_for)), ..self.0 })
    }

    /// Serves below a path of another program's server, such as `/timers`.
    ///
    /// # Errors
    /// If the path does not begin with `/`, ends with `/`, contains `//` or `..`, or has other characters than letters, digits,
    /// `-`, `_`, `.` and `/`.
    pub fn prefix(self, path: &str) -> Result<Self, AccessError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let is_path =
            path.starts_with('/') && !path.ends_with('/') && !path.contains("//") && !path.contains("..");
        let is_whole = is_path && path.bytes().all(is_plain);
        if !path.is_empty() && !is_whole {
            return Err(AccessError(format!("invalid prefix {path:?}: write a path such as /timers")));
        }
        Ok(Self(State { prefix: path.to_owned(), ..self.0 }))
    }

    /// Leaves out all routes that act, whatever the token. Default: false.
    pub fn read_only(self, is_read_only: bool) -> Self {
        Self(State { is_read_only, ..self.0 })
    }

    /// Shows payloads. They may hold data that not every reader should see. Default: false.
    pub fn show_payloads(self, shows_payloads: bool) -> Self {
        Self(State { shows_payloads, ..self.0 })
    }

    /// Sets what `/readyz` answers: the readiness of the program as a whole. Default: whether Redis answers.
    pub fn ready(self, ready: impl Fn() -> Readiness + Send + Sync + 'static) -> Self {
        Self(State { ready: Some(Arc::new(ready)), ..self.0 })
    }

    /// Adds metrics of the process, as text for Prometheus, to those of the topics at `/metrics`.
    pub fn process_metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(State { recorded: Some(Arc::new(render)), ..self.0 })
    }

    /// Sets the timeouts for bodies and answers, and the maximum of live tails.
    pub fn limits(self, limits: ServerLimits) -> Self {
        Self(State { limits, tails: Arc::new(Semaphore::new(limits.tails)), ..self.0 })
    }

    /// Returns the guarded routes, below the prefix. Without a prefix they have a fallback, and cannot be merged into an
    /// application that has one.
    pub fn router(self) -> Router {
        let prefix = self.0.prefix.clone();
        let shared = SharedState::new(self.0);
        let closed = guard::closed(shared.closed_routes(), &shared);
        let open = guard::open(shared.open_routes());
        let routes = guard::around(closed.merge(open), &shared).with_state(shared);
        if prefix.is_empty() {
            return routes;
        }
        // `/timers/` leads to the pages, as `/timers` does.
        let home = Redirect::to(&format!("{prefix}/topics"));
        Router::new().route(&format!("{prefix}/"), get(async || home)).nest(&prefix, routes)
    }
}

impl State {
    fn closed_routes(&self) -> Router<SharedState> {
        let wanted: &[RouteKind] = match (self.face, self.is_read_only) {
            (RouteScope::Whole, true) => &[RouteKind::Looking],
            (RouteScope::Whole, false) => &[RouteKind::Looking, RouteKind::Acting, RouteKind::Arming],
            (RouteScope::Arming, true) => &[],
            (RouteScope::Arming, false) => &[RouteKind::Arming],
        };
        // The fallback needs a token, too: only callers with access learn which routes are missing.
        let routes = api::routes(wanted).merge(metrics::routes());
        if !self.has_pages() {
            return routes.fallback(guard::absent);
        }
        let routes = routes.merge(pages::looking());
        if self.has_actions() { routes.merge(pages::acting()) } else { routes }
    }

    fn open_routes(&self) -> Router<SharedState> {
        let routes = health::routes();
        if self.has_pages() { routes.merge(pages::open()) } else { routes }
    }

    /// Returns whether routes that act exist.
    pub(crate) fn has_actions(&self) -> bool {
        !self.is_read_only
    }

    /// Returns whether the dashboard's pages exist.
    pub(crate) fn has_pages(&self) -> bool {
        self.face == RouteScope::Whole
    }

    /// Checks that the caller may read a topic and act on it here.
    pub(crate) fn check(&self, who: &Caller, topic: &str) -> Result<(), ApiError> {
        let refuse = |why: &str| Err(ApiError::new(StatusCode::FORBIDDEN, why));
        if !who.may(topic) {
            return refuse("this token is not for this topic");
        }
        match &self.arms {
            Some(is_for) if !is_for(topic) => refuse(
                "this program does not serve this topic: `keylapse run --any-topic` accepts all topics of the namespace",
            ),
            _ => Ok(()),
        }
    }

    /// Returns a path below the prefix.
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
