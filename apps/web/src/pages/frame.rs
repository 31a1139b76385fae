//! The parts that all pages share: the request, the frame, links, and rendering.

use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, RequestPartsExt};
use keylapse::{Error, Result};
use keylapse_console::ActionResult;
use keylapse_console::format::relative;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use super::assets::{ICON, SCRIPT, STYLE};
use super::error_page::ErrorPage;
use super::notice::Notice;
use super::samples::Age;
use crate::access::Role;
use crate::act::AuditedAction;
use crate::guard::Caller;
use crate::time::{moment, ms_of};
use crate::web::SharedState;

/// Time limit of a page. Afterwards an error page is shown.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which a page refreshes itself.
const REFRESH_MS: u32 = 5000;
/// Maximum bytes of a link, which a request can still carry.
const LONGEST_LINK: usize = 16 << 10;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':').remove(b'~');

/// A request for a page, with its caller.
#[derive(Clone)]
pub(super) struct PageRequest {
    pub(super) shared: SharedState,
    pub(super) who: Caller,
}

/// The frame of a page: navigation, notice and footer.
pub(super) struct Frame {
    shared: SharedState,
    /// The part of the dashboard that the page belongs to.
    pub(super) part: &'static str,
    pub(super) refresh_ms: u32,
    /// `true` if the caller has a session that can be ended.
    pub(super) can_leave: bool,
    /// `true` if the caller may act, so that buttons are shown.
    pub(super) may_act: bool,
    pub(super) notice: Option<Notice>,
    /// The servers; `None` on pages that need no token.
    pub(super) servers: Option<String>,
    /// `None` if nothing was read.
    age: Option<Age>,
}

/// When and how long ago the figures on a page were read.
pub(super) struct Fresh {
    /// The time of reading, by the clock of this machine.
    pub(super) at: String,
    pub(super) clock: String,
    pub(super) age_ms: u128,
    pub(super) ago: String,
    pub(super) reports: Option<String>,
}

impl FromRequestParts<SharedState> for PageRequest {
    type Rejection = ErrorPage;

    async fn from_request_parts(parts: &mut Parts, shared: &SharedState) -> Result<Self, ErrorPage> {
        match parts.extract::<Extension<Caller>>().await {
            Ok(Extension(who)) => Ok(Self { shared: shared.clone(), who }),
            Err(_) => Err(ErrorPage::not_let_in(shared)),
        }
    }
}

impl PageRequest {
    pub(super) fn frame(&self, part: &'static str) -> Frame {
        let may_act = self.who.role == Role::Act && self.shared.has_actions();
        let can_leave = self.who.by == "cookie";
        let (servers, age) = (Some(self.shared.console.servers()), Some(Age::default()));
        Frame { may_act, can_leave, servers, age, ..Frame::around(&self.shared, part) }
    }

    /// Awaits an answer of Redis. Returns an error page if it fails or takes longer than [`PAGE_TIMEOUT`].
    pub(super) async fn ask<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, ErrorPage> {
        match timeout(PAGE_TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| self.trouble(&error)),
            Err(_) => Err(ErrorPage::silent(self.frame(""), PAGE_TIMEOUT)),
        }
    }

    /// Runs an action. It has no timeout here: the console's error states whether the action may have been executed.
    pub(super) async fn act(
        &self,
        act: AuditedAction,
        deed: impl Future<Output = Result<ActionResult>> + Send + 'static,
    ) -> Result<ActionResult, ErrorPage> {
        act.take(&self.shared, self.who.clone(), deed).await.map_err(|error| self.trouble(&error))
    }

    /// Returns an error page unless the caller may read the topic.
    pub(super) fn may(&self, topic: &str) -> Result<(), ErrorPage> {
        self.allow(self.who.may(topic))
    }

    /// Returns an error page unless the caller may read all topics.
    pub(super) fn may_all(&self) -> Result<(), ErrorPage> {
        self.allow(self.who.may_all())
    }

    fn allow(&self, is_allowed: bool) -> Result<(), ErrorPage> {
        is_allowed.then_some(()).ok_or_else(|| ErrorPage::not_for(self.frame("")))
    }

    pub(super) fn trouble(&self, error: &Error) -> ErrorPage {
        ErrorPage::of(self.frame(""), error)
    }

    pub(super) fn refuse(&self, why: impl Into<String>) -> ErrorPage {
        ErrorPage::refused(self.frame(""), why.into())
    }
}

impl Frame {
    /// Makes the frame of a page that needs no token.
    pub(super) fn around(shared: &SharedState, part: &'static str) -> Self {
        let shared = shared.clone();
        Self {
            shared,
            part,
            refresh_ms: REFRESH_MS,
            can_leave: false,
            may_act: false,
            notice: None,
            servers: None,
            age: None,
        }
    }

    /// Sets the interval of refreshes.
    pub(super) fn every(self, refresh_ms: u32) -> Self {
        Self { refresh_ms, ..self }
    }

    /// Disables refreshes.
    pub(super) fn still(self) -> Self {
        self.every(0)
    }

    /// Sets the age of the figures.
    pub(super) fn aged(self, age: Age) -> Self {
        Self { age: Some(age), ..self }
    }

    /// Removes the age, for a page without figures.
    pub(super) fn unread(self) -> Self {
        Self { age: None, ..self }
    }

    pub(super) fn fresh(&self) -> Option<Fresh> {
        let age = self.age?;
        let at = moment(ms_of(SystemTime::now() - age.read));
        let clock = at.get(11..19).unwrap_or_default().to_owned();
        let reports = age.reports.map(seconds);
        Some(Fresh { at, clock, age_ms: age.read.as_millis(), ago: seconds(age.read), reports })
    }

    /// Adds the result of an action.
    pub(super) fn saying(self, notice: Option<Notice>) -> Self {
        Self { notice, ..self }
    }

    pub(super) fn path(&self, path: &str) -> String {
        self.shared.path(path)
    }

    pub(super) fn style(&self) -> String {
        self.path(&STYLE.path())
    }

    pub(super) fn script(&self) -> String {
        self.path(&SCRIPT.path())
    }

    pub(super) fn icon(&self) -> String {
        self.path(&ICON.path())
    }

    pub(super) fn namespace(&self) -> &str {
        self.shared.console.namespace()
    }

    pub(super) fn topic(&self, name: &str) -> String {
        self.link("/topic", &[("name", name)])
    }

    /// Returns the link to the destinations of a topic.
    pub(super) fn destinations(&self, topic: &str) -> String {
        self.link("/destinations", &[("topic", topic)])
    }

    /// Returns the link to a key; `None` if it would be too long.
    pub(super) fn timer(&self, topic: &str, key: &str) -> Option<String> {
        let link = self.link("/timer", &[("topic", topic), ("key", key)]);
        (link.len() <= LONGEST_LINK).then_some(link)
    }

    /// Returns a path with those query parameters that are not empty.
    pub(super) fn link(&self, path: &str, fields: &[(&str, &str)]) -> String {
        link(&self.shared, path, fields)
    }
}

/// Returns a path with those query parameters that are not empty.
pub(super) fn link(shared: &SharedState, path: &str, fields: &[(&str, &str)]) -> String {
    let mut link = shared.path(path);
    let said = fields.iter().filter(|(_, value)| !value.is_empty());
    for (at, (name, value)) in said.enumerate() {
        link.push(if at == 0 { '?' } else { '&' });
        link.push_str(name);
        link.push('=');
        link.extend(utf8_percent_encode(value, PLAIN));
    }
    link
}

/// Formats a short time, rounded up to a tenth of a second.
fn seconds(span: Duration) -> String {
    let tenths = span.as_millis().div_ceil(100);
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// A time, and its distance from now.
pub(super) struct Time {
    pub(super) at: String,
    pub(super) from_now: String,
}

impl Time {
    pub(super) fn new(at_ms: u64, now_ms: u64) -> Self {
        Self { at: moment(at_ms), from_now: relative(at_ms, now_ms) }
    }
}

/// Renders a page.
pub(super) fn answer(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        // Templates write into memory, which does not fail.
        Err(_) => axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
