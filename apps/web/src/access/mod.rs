//! Who may come in, and by which names this server may be called.

mod cookie;
mod hosts;
mod pass;
mod token;
mod visits;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

pub(crate) use self::cookie::{LIFE, name as cookie_name};
pub(crate) use self::pass::Pass;
pub use self::token::Token;

use self::cookie::Cookie;
use self::hosts::Hosts;
use self::visits::Visits;
use crate::time::now_s;

/// How tokens are called that have no name.
const TOKEN: &str = "token";
const READ_TOKEN: &str = "read-token";

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Look.
    Read,
    /// Look, and act.
    Act,
}

/// Who may come in: by which names, and with which tokens. Clones are one.
#[derive(Clone, Debug)]
pub struct Access {
    hosts: Hosts,
    doors: Arc<Doors>,
    is_tls: bool,
    has_proxy: bool,
}

/// The part that changes while a server runs.
#[derive(Debug)]
struct Doors {
    /// None of them: everybody who reaches the address may do everything.
    passes: RwLock<Vec<Arc<Pass>>>,
    visits: Mutex<Visits>,
}

/// Why an [`Access`] makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessError(pub(crate) String);

impl Access {
    /// For programs of this machine: called `localhost`, `127.0.0.1` or `::1`, and without a token.
    pub fn to_loopback() -> Self {
        Self { hosts: Hosts::loopback(), doors: Doors::of(Vec::new()), is_tls: false, has_proxy: false }
    }

    /// Called by these names alone, each with a port or for all ports: a page elsewhere that has its own name point here
    /// (DNS rebinding) is refused. Those of this machine are among them.
    ///
    /// # Errors
    /// When a name is none.
    pub fn to_hosts<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, AccessError> {
        let mut access = Self::to_loopback();
        for name in names {
            access.hosts.add(name.as_ref())?;
        }
        Ok(access)
    }

    /// Adds a token for somebody who may do everything. From the first token on, nobody comes in without one. The log names
    /// it `token`. Default: no tokens.
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        self.and(vec![Pass::new(TOKEN, token, Role::Act)])
    }

    /// Adds a token for somebody who may look. The log names it `read-token`. Default: none.
    #[must_use]
    pub fn read_token(self, token: Token) -> Self {
        self.and(vec![Pass::new(READ_TOKEN, token, Role::Read)])
    }

    /// Adds the tokens of a text: one, as [`token`](Self::token) does, or a line for each. Such a line is `NAME act TOKEN`
    /// or `NAME look TOKEN`. Names of topics behind it limit the token to these; `*` at the end of one stands for all that
    /// begin so. The log shows the name. Lines that begin with `#` are left out. Default: none.
    ///
    /// # Errors
    /// When a line cannot be read, or a name or a token is there twice.
    pub fn tokens(self, text: &str) -> Result<Self, AccessError> {
        self.and_read(Pass::read_all(text, TOKEN, Role::Act)?)
    }

    /// Adds the tokens of a text for those who may look, and no more. Default: none.
    ///
    /// # Errors
    /// As for [`tokens`](Self::tokens), and when somebody may act.
    pub fn read_tokens(self, text: &str) -> Result<Self, AccessError> {
        self.and_read(Pass::read_all(text, READ_TOKEN, Role::Read)?)
    }

    /// Lets those in who have another's tokens, in place of its own, from now on. Visits of tokens that are gone end.
    ///
    /// # Errors
    /// When one of them has tokens and the other has none: nothing is changed.
    pub fn take_tokens_of(&self, other: &Self) -> Result<(), AccessError> {
        if self.has_tokens() != other.has_tokens() {
            return Err(AccessError(
                "a server that asks for tokens goes on asking, until it is started again".to_owned(),
            ));
        }
        let passes = other.doors.passes().clone();
        *self.doors.passes.write().unwrap_or_else(PoisonError::into_inner) = passes;
        Ok(())
    }

    /// Browsers reach this over HTTPS, by this program or a proxy before it: their cookies are sent over nothing else.
    #[must_use]
    pub fn over_tls(self, is_tls: bool) -> Self {
        Self { is_tls, ..self }
    }

    /// A proxy is before this: the last address of `X-Forwarded-For` is where a request comes from. Without a proxy anybody
    /// could write there what he likes. Default: false.
    #[must_use]
    pub fn behind_proxy(self, has_proxy: bool) -> Self {
        Self { has_proxy, ..self }
    }

    /// Whether nobody comes in without a token.
    pub fn has_tokens(&self) -> bool {
        !self.doors.passes().is_empty()
    }

    pub(crate) fn is_host(&self, said: &str) -> bool {
        self.hosts.has(said)
    }

    /// The pass that has this token.
    pub(crate) fn pass_of(&self, said: &[u8]) -> Option<Arc<Pass>> {
        self.doors.passes().iter().find(|pass| pass.token.is(said)).cloned()
    }

    /// A cookie for somebody who has shown a token.
    pub(crate) fn cookie_for(&self, pass: &Pass) -> Option<String> {
        let now_s = now_s();
        self.doors.visits().begin(now_s);
        Some(Cookie::new(now_s + LIFE.as_secs())?.sign(pass))
    }

    /// The pass of somebody who was given this cookie.
    pub(crate) fn pass_of_cookie(&self, said: &str) -> Option<Arc<Pass>> {
        self.read(said).map(|(pass, _)| pass)
    }

    /// The visit of this cookie is over.
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

    fn read(&self, said: &str) -> Option<(Arc<Pass>, Cookie)> {
        let now_s = now_s();
        let read = |pass: &Arc<Pass>| Some((pass.clone(), Cookie::read(said, pass, now_s)?));
        let found = self.doors.passes().iter().find_map(read)?;
        self.doors.visits().has(found.1).then_some(found)
    }

    fn and(self, more: Vec<Pass>) -> Self {
        let mut all = self.doors.passes().clone();
        all.extend(more.into_iter().map(Arc::new));
        Self { doors: Doors::of(all), ..self }
    }

    fn and_read(self, more: Vec<Pass>) -> Result<Self, AccessError> {
        let all = self.and(more);
        Pass::check(all.doors.passes().iter().map(|pass| &**pass))?;
        Ok(all)
    }
}

impl Doors {
    fn of(passes: Vec<Arc<Pass>>) -> Arc<Self> {
        Arc::new(Self { passes: RwLock::new(passes), visits: Mutex::new(Visits::new(now_s())) })
    }

    fn passes(&self) -> RwLockReadGuard<'_, Vec<Arc<Pass>>> {
        self.passes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn visits(&self) -> std::sync::MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}
