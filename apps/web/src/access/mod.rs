//! Access control: tokens, their sessions, and the host names of this server.

mod cookie;
mod hosts;
mod pass;
mod token;
mod visits;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

pub(crate) use self::cookie::{LIFE, name as cookie_name};
pub(crate) use self::pass::TokenGrant;
pub use self::token::Token;

use self::cookie::Cookie;
use self::hosts::AllowedHosts;
use self::visits::RevokedSessions;
use crate::time::now_s;

/// Names of tokens that have none of their own.
const TOKEN: &str = "token";
const READ_TOKEN: &str = "read-token";

/// The right of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Read.
    Read,
    /// Read and act.
    Act,
}

/// The host names and tokens that a server accepts. Clones share their tokens and sessions.
#[derive(Clone, Debug)]
pub struct Access {
    hosts: AllowedHosts,
    doors: Arc<TokenStore>,
    is_tls: bool,
    has_proxy: bool,
}

/// Tokens and sessions, which change while a server runs.
#[derive(Debug)]
struct TokenStore {
    /// If empty, everybody who can reach the address may do everything.
    passes: RwLock<Vec<Arc<TokenGrant>>>,
    visits: Mutex<RevokedSessions>,
}

/// Error of [`Access`], [`Token`] and [`Web::prefix`](crate::Web::prefix).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessError(pub(crate) String);

impl Access {
    /// Accepts requests to `localhost`, `127.0.0.1` and `::1`, without a token.
    pub fn to_loopback() -> Self {
        Self {
            hosts: AllowedHosts::loopback(),
            doors: TokenStore::of(Vec::new()),
            is_tls: false,
            has_proxy: false,
        }
    }

    /// Accepts requests to these host names and to those of [`to_loopback`](Self::to_loopback), and no others. A name may
    /// have a port; otherwise it is for all ports. This prevents DNS rebinding, by which a site points its own name here.
    ///
    /// # Errors
    /// If a text is no host name.
    pub fn to_hosts<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, AccessError> {
        let mut access = Self::to_loopback();
        for name in names {
            access.hosts.add(name.as_ref())?;
        }
        Ok(access)
    }

    /// Adds a token with all rights. Once there is a token, requests without one are refused. The log names it `token`.
    /// Default: no tokens.
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        self.and(vec![TokenGrant::new(TOKEN, token, Role::Act)])
    }

    /// Adds a token that may only read. The log names it `read-token`. Default: none.
    #[must_use]
    pub fn read_token(self, token: Token) -> Self {
        self.and(vec![TokenGrant::new(READ_TOKEN, token, Role::Read)])
    }

    /// Adds the tokens of a text: a single token, as [`token`](Self::token) does, or one line for each token. Default: none.
    ///
    /// A line is `NAME act TOKEN` or `NAME read TOKEN`. Topic names after the token limit it to these topics; `*` at the end
    /// of a name matches any rest. The log shows NAME. Lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// If a line cannot be read, a name or token occurs twice, or there are more than 256 tokens.
    pub fn tokens(self, text: &str) -> Result<Self, AccessError> {
        self.and_read(TokenGrant::read_all(text, TOKEN, Role::Act)?)
    }

    /// Adds the tokens of a text, all of which may only read. Default: none.
    ///
    /// # Errors
    /// Those of [`tokens`](Self::tokens), and one if a line has the right `act`.
    pub fn read_tokens(self, text: &str) -> Result<Self, AccessError> {
        self.and_read(TokenGrant::read_all(text, READ_TOKEN, Role::Read)?)
    }

    /// Replaces the tokens by those of `other`, from now on. The sessions of removed tokens end.
    ///
    /// # Errors
    /// If only one of the two has tokens. Nothing is changed then.
    pub fn replace_tokens(&self, other: &Self) -> Result<(), AccessError> {
        if self.has_tokens() != other.has_tokens() {
            return Err(AccessError(
                "a running server cannot change between tokens and no tokens: restart it".to_owned(),
            ));
        }
        let passes = other.doors.passes().clone();
        *self.doors.passes.write().unwrap_or_else(PoisonError::into_inner) = passes;
        Ok(())
    }

    /// Sets whether browsers use HTTPS, by this program or by a proxy. Their cookies are then sent over HTTPS only. Default:
    /// false.
    #[must_use]
    pub fn over_tls(self, is_tls: bool) -> Self {
        Self { is_tls, ..self }
    }

    /// Sets whether a proxy forwards the requests: the last address of `X-Forwarded-For` is then the client's. Without a
    /// proxy, clients could forge it. Default: false.
    #[must_use]
    pub fn behind_proxy(self, has_proxy: bool) -> Self {
        Self { has_proxy, ..self }
    }

    /// Returns whether requests need a token.
    pub fn has_tokens(&self) -> bool {
        !self.doors.passes().is_empty()
    }

    pub(crate) fn is_host(&self, said: &str) -> bool {
        self.hosts.has(said)
    }

    /// Returns the grant of a token.
    pub(crate) fn pass_of(&self, said: &[u8]) -> Option<Arc<TokenGrant>> {
        self.doors.passes().iter().find(|pass| pass.token.is(said)).cloned()
    }

    /// Begins a session, and returns its cookie. Returns `None` if the system has no random numbers.
    pub(crate) fn cookie_for(&self, pass: &TokenGrant) -> Option<String> {
        let now_s = now_s();
        self.doors.visits().begin(now_s);
        Some(Cookie::new(now_s + LIFE.as_secs())?.sign(pass))
    }

    /// Returns the grant of a cookie whose session has not ended.
    pub(crate) fn pass_of_cookie(&self, said: &str) -> Option<Arc<TokenGrant>> {
        self.read(said).map(|(pass, _)| pass)
    }

    /// Ends the session of a cookie.
    pub(crate) fn end(&self, said: &str) {
        if let Some((_, cookie)) = self.read(said) {
            self.doors.visits().end(cookie, now_s());
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn has_proxy(&self) -> bool {
        self.has_proxy
    }

    fn read(&self, said: &str) -> Option<(Arc<TokenGrant>, Cookie)> {
        let now_s = now_s();
        let read = |pass: &Arc<TokenGrant>| Some((pass.clone(), Cookie::read(said, pass, now_s)?));
        let found = self.doors.passes().iter().find_map(read)?;
        self.doors.visits().has(found.1).then_some(found)
    }

    fn and(self, more: Vec<TokenGrant>) -> Self {
        let mut all = self.doors.passes().clone();
        all.extend(more.into_iter().map(Arc::new));
        Self { doors: TokenStore::of(all), ..self }
    }

    fn and_read(self, more: Vec<TokenGrant>) -> Result<Self, AccessError> {
        let all = self.and(more);
        TokenGrant::check(all.doors.passes().iter().map(|pass| &**pass))?;
        Ok(all)
    }
}

impl TokenStore {
    fn of(passes: Vec<Arc<TokenGrant>>) -> Arc<Self> {
        Arc::new(Self { passes: RwLock::new(passes), visits: Mutex::new(RevokedSessions::new(now_s())) })
    }

    fn passes(&self) -> RwLockReadGuard<'_, Vec<Arc<TokenGrant>>> {
        self.passes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn visits(&self) -> std::sync::MutexGuard<'_, RevokedSessions> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}
