//! Who may come in, and by which names this server may be called.

mod cookie;
mod hosts;
mod token;

use std::fmt;

pub(crate) use self::cookie::{COOKIE, LIFE};
pub use self::token::Token;

use self::hosts::Hosts;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Look.
    Read,
    /// Look, and act.
    Act,
}

/// Who may come in: by which names, and with which tokens.
#[derive(Clone, Debug)]
pub struct Access {
    hosts: Hosts,
    /// None of them: whoever reaches the address may do everything.
    token: Option<Token>,
    read_token: Option<Token>,
    is_tls: bool,
}

/// Why an [`Access`] makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessError(pub(crate) String);

impl Access {
    /// For programs of this machine: called `localhost`, `127.0.0.1` or `::1`, and without a token.
    pub fn to_loopback() -> Self {
        Self { hosts: Hosts::loopback(), token: None, read_token: None, is_tls: false }
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

    /// Who has this token may do everything, and nobody comes in without one.
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Who has this token may look.
    #[must_use]
    pub fn read_token(self, token: Token) -> Self {
        Self { read_token: Some(token), ..self }
    }

    /// Browsers reach this over HTTPS, by this program or a proxy before it: their cookies are sent over nothing else.
    #[must_use]
    pub fn over_tls(self, is_tls: bool) -> Self {
        Self { is_tls, ..self }
    }

    /// Whether nobody comes in without a token.
    pub fn has_tokens(&self) -> bool {
        self.token.is_some() || self.read_token.is_some()
    }

    pub(crate) fn is_host(&self, said: &str) -> bool {
        self.hosts.has(said)
    }

    /// What this token lets one do.
    pub(crate) fn role_of(&self, said: &[u8]) -> Option<Role> {
        self.roles().find(|(token, _)| token.is(said)).map(|(_, role)| role)
    }

    /// The cookie of somebody who has shown a token of this role.
    pub(crate) fn cookie_for(&self, role: Role, now_s: u64) -> Option<String> {
        let (token, _) = self.roles().find(|(_, of)| *of == role)?;
        Some(cookie::sign(token, role, now_s + LIFE.as_secs()))
    }

    /// What this cookie lets one do now.
    pub(crate) fn role_of_cookie(&self, said: &str, now_s: u64) -> Option<Role> {
        self.roles().find(|(token, role)| cookie::is(said, token, *role, now_s)).map(|(_, role)| role)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    fn roles(&self) -> impl Iterator<Item = (&Token, Role)> {
        let act = self.token.iter().map(|token| (token, Role::Act));
        act.chain(self.read_token.iter().map(|token| (token, Role::Read)))
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}
