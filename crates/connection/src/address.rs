//! A server: where it is, how one gets in, and whether it answers.

use std::fmt;
use std::sync::Arc;

use crate::access::Access;
use crate::endpoint::Endpoint;
use crate::home::Home;
use crate::outage::Outage;

/// One server, and how a connection there is made. Shows itself without user and password.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) access: Arc<Access>,
    /// Whether it answers.
    pub outage: Arc<Outage>,
}

impl Address {
    /// A server of which nothing is known yet.
    pub fn at(endpoint: Endpoint, access: Arc<Access>) -> Self {
        Self { endpoint, access, outage: Arc::default() }
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Where its connections live.
    pub fn home(&self) -> Home {
        self.access.home
    }

    pub fn db(&self) -> i64 {
        self.access.db
    }

    /// The same server, as nobody in particular.
    pub fn anonymous(&self) -> Self {
        self.with(self.access.anonymous())
    }

    /// The same server, spoken to in RESP3: for subscriptions.
    pub fn resp3(&self) -> Self {
        self.with(Access { resp3: true, ..(*self.access).clone() })
    }

    /// The same server, told nothing that it need not be told.
    pub(super) fn terse(&self) -> Self {
        self.with(Access { terse: true, ..(*self.access).clone() })
    }

    /// Who one is there, where that is said.
    pub fn user(&self) -> Option<&str> {
        self.access.user.as_deref()
    }

    /// Returns whether it has a password to log in with.
    pub fn has_password(&self) -> bool {
        self.access.password.is_some()
    }

    /// Whether a program opens the way there.
    pub fn has_streams(&self) -> bool {
        self.access.streams.is_some()
    }

    pub fn is_over_tls(&self) -> bool {
        self.access.tls.is_some()
    }

    /// User and password.
    pub fn login(&self) -> (Option<&str>, Option<&str>) {
        (self.access.user.as_deref(), self.access.password.as_ref().map(|password| password.said()))
    }

    fn with(&self, access: Access) -> Self {
        Self { access: Arc::new(access), ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.endpoint, f)?;
        match self.db() {
            0 => Ok(()),
            db => write!(f, "/{db}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
