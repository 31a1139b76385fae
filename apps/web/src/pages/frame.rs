//! What all pages have: where they link to, who looks, and how a page becomes an answer.

use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, RequestPartsExt};
use keylapse::{Error, Result};
use keylapse_console::Done;
use keylapse_console::words::relative;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use super::assets::{ICON, SCRIPT, STYLE};
use super::notice::Notice;
use super::samples::Age;
use super::trouble::Trouble;
use crate::access::Role;
use crate::act::Act;
use crate::guard::Who;
use crate::time::{moment, ms_of};
use crate::web::Shared;

/// A page that takes longer says that the server does not answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a page is looked at anew.
const REFRESH_MS: u32 = 5000;
/// A link is no longer than this: what is longer cannot be asked for.
const LONGEST_LINK: usize = 16 << 10;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':').remove(b'~');

/// Somebody who looks at a page.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) shared: Shared,
    pub(super) who: Who,
}

/// What stands around a page.
pub(super) struct Frame {
    shared: Shared,
    /// The part of the dashboard that it belongs to.
    pub(super) part: &'static str,
    pub(super) refresh_ms: u32,
    /// Whether there is somebody who can leave.
    pub(super) can_leave: bool,
    /// Whether buttons would work.
    pub(super) may_act: bool,
    pub(super) notice: Option<Notice>,
    /// Which servers; none where nobody was let in.
    pub(super) servers: Option<String>,
    /// None where nothing was read.
    age: Option<Age>,
}

/// How fresh a page is.
pub(super) struct Fresh {
    /// When it was read, by the clock of this machine.
    pub(super) at: String,
    pub(super) clock: String,
    pub(super) age_ms: u128,
    pub(super) ago: String,
    pub(super) reports: Option<String>,
}

impl FromRequestParts<Shared> for Visit {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Trouble> {
        match parts.extract::<Extension<Who>>().await {
            Ok(Extension(who)) => Ok(Self { shared: shared.clone(), who }),
            Err(_) => Err(Trouble::not_let_in(shared)),
        }
    }
}

impl Visit {
    /// The frame of a page.
    pub(super) fn frame(&self, part: &'static str) -> Frame {
        let may_act = self.who.role == Role::Act && self.shared.has_actions();
        let can_leave = self.who.by == "cookie";
        let (servers, age) = (Some(self.shared.console.servers()), Some(Age::default()));
        Frame { may_act, can_leave, servers, age, ..Frame::around(&self.shared, part) }
    }

    /// What the server answers; or a page that says why it does not.
    pub(super) async fn ask<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T, Trouble> {
        match timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|error| self.trouble(&error)),
            Err(_) => Err(Trouble::silent(self.frame(""), PATIENCE)),
        }
    }

    /// What became of an action. It is not given up before the console gives up, which says whether it may have been done.
    pub(super) async fn act(
        &self,
        act: Act,
        deed: impl Future<Output = Result<Done>> + Send + 'static,
    ) -> Result<Done, Trouble> {
        act.take(&self.shared, self.who.clone(), deed).await.map_err(|error| self.trouble(&error))
    }

    /// Only somebody who may look at this topic goes on.
    pub(super) fn may(&self, topic: &str) -> Result<(), Trouble> {
        self.allow(self.who.may(topic))
    }

    /// Only somebody who may look at all topics does.
    pub(super) fn may_all(&self) -> Result<(), Trouble> {
        self.allow(self.who.may_all())
    }

    fn allow(&self, is_allowed: bool) -> Result<(), Trouble> {
        is_allowed.then_some(()).ok_or_else(|| Trouble::not_for(self.frame("")))
    }

    pub(super) fn trouble(&self, error: &Error) -> Trouble {
        Trouble::of(self.frame(""), error)
    }

    pub(super) fn refuse(&self, why: impl Into<String>) -> Trouble {
        Trouble::refused(self.frame(""), why.into())
    }
}

impl Frame {
    /// Of a page that everybody may see.
    pub(super) fn around(shared: &Shared, part: &'static str) -> Self {
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

    /// Looked at anew as often as this.
    pub(super) fn every(self, refresh_ms: u32) -> Self {
        Self { refresh_ms, ..self }
    }

    /// Never looked at anew by itself.
    pub(super) fn still(self) -> Self {
        self.every(0)
    }

    /// With figures that are this old.
    pub(super) fn aged(self, age: Age) -> Self {
        Self { age: Some(age), ..self }
    }

    /// Without anything that was read.
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

    /// With what has become of an action.
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

    /// The page of the hosts that a topic's handlers call.
    pub(super) fn hosts(&self, topic: &str) -> String {
        self.link("/hosts", &[("topic", topic)])
    }

    /// None where it would be too long.
    pub(super) fn timer(&self, topic: &str, key: &str) -> Option<String> {
        let link = self.link("/timer", &[("topic", topic), ("key", key)]);
        (link.len() <= LONGEST_LINK).then_some(link)
    }

    /// A path with these fields, as far as they say something.
    pub(super) fn link(&self, path: &str, fields: &[(&str, &str)]) -> String {
        link(&self.shared, path, fields)
    }
}

/// A path with these fields, as far as they say something.
pub(super) fn link(shared: &Shared, path: &str, fields: &[(&str, &str)]) -> String {
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

/// A short time, rounded up to a tenth of a second.
fn seconds(span: Duration) -> String {
    let tenths = span.as_millis().div_ceil(100);
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// A time, as far from now as it is.
pub(super) struct Time {
    pub(super) at: String,
    pub(super) from_now: String,
}

impl Time {
    pub(super) fn new(at_ms: u64, now_ms: u64) -> Self {
        Self { at: moment(at_ms), from_now: relative(at_ms, now_ms) }
    }
}

/// A page as an answer.
pub(super) fn answer(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        // Templates write into memory, and what they write of cannot fail.
        Err(_) => axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
