//! What was said of servers, by a URL or by methods, before it is checked as a whole.

use std::env;
use std::fmt;
use std::sync::Arc;

use crate::access::Access;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::password::{Environment, OF_SENTINELS, OF_SERVERS, Password};
use crate::target::{Endpoints, Target};
use crate::tls::Tls;
use crate::url;

/// One login. Never shows itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub user: Option<Arc<str>>,
    pub password: Option<Password>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// All that can be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub endpoints: Endpoints,
    pub login: Login,
    pub sentinel_login: Login,
    pub db: i64,
    pub resp3: bool,
    pub tls: Option<Tls>,
}

impl Draft {
    /// Servers of which nothing else was said.
    pub fn of(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            login: Login::default(),
            sentinel_login: Login::default(),
            db: 0,
            resp3: false,
            tls: None,
        }
    }

    /// What a URL says.
    pub fn of_url(url: &str) -> Result<Self> {
        url::read(url)
    }

    /// Refuses what does not fit together, and adds what the environment says.
    pub(super) fn check(self) -> Result<Target> {
        self.check_within(&|name| env::var_os(name), cfg!(feature = "tls"))
    }

    fn check_within(self, environment: Environment<'_>, has_tls: bool) -> Result<Target> {
        self.check_endpoints()?;
        self.check_tls(has_tls)?;
        let is_sentinel = matches!(self.endpoints, Endpoints::Sentinel { .. });
        let Login { user, password } = &self.sentinel_login;
        if !is_sentinel && (user.is_some() || password.is_some()) {
            return Err(Error::invalid("a user or a password of sentinels, but there are no sentinels"));
        }
        let login = self.login.with_password_of(OF_SERVERS, environment)?;
        let sentinel_login = match is_sentinel {
            true => self.sentinel_login.with_password_of(OF_SENTINELS, environment)?,
            false => Login::default(),
        };
        let access = |login: Login, db| {
            let (Login { user, password }, tls) = (login, self.tls.clone());
            Arc::new(Access {
                user,
                password,
                db,
                resp3: self.resp3,
                terse: false,
                tls,
                streams: None,
                home: Home::OwnThread,
            })
        };
        let (access, sentinel_access) = (access(login, self.db), access(sentinel_login, 0));
        Ok(Target { endpoints: self.endpoints, access, sentinel_access })
    }

    fn check_endpoints(&self) -> Result<()> {
        if self.endpoints.all().is_empty() {
            return Err(Error::invalid("the list of hosts is empty"));
        }
        match &self.endpoints {
            Endpoints::Sentinel { master, .. } if master.is_empty() => Err(Error::invalid(
                "the name of the master is missing: the one by which the sentinels know it, as in \
                 redis+sentinel://h1,h2/mymaster",
            )),
            Endpoints::Sentinel { master, .. } if master.contains(|c: char| c.is_control() || c == ' ') => {
                Err(Error::invalid("the master's name has a space or a control character"))
            }
            _ => Ok(()),
        }
    }

    fn check_tls(&self, has_tls: bool) -> Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        if self.endpoints.all().iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            return Err(Error::invalid(
                "TLS over a Unix socket: leave TLS out, the socket is this machine's",
            ));
        }
        if !has_tls {
            return Err(Error::invalid(
                "TLS was asked for, and this program is built without it: build keylapse with its feature `tls` \
                 (cargo add keylapse --features tls); it never falls back to plain TCP",
            ));
        }
        tls.check()
    }
}

impl Login {
    /// The same with the environment's password, unless there is one already.
    fn with_password_of(self, variable: &str, environment: Environment<'_>) -> Result<Self> {
        match self.password {
            Some(_) => Ok(self),
            None => Ok(Self { password: Password::of_environment(variable, environment)?, ..self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::url::read;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            OF_SERVERS => Some("of servers".into()),
            "KEYLAPSE_SENTINEL_PASSWORD_FILE" => Some("/of/sentinels".into()),
            _ => None,
        }
    }

    fn checked(url: &str) -> Target {
        read(url).unwrap().check_within(&environment, true).unwrap()
    }

    fn said(password: &str) -> Option<Password> {
        Some(Password::Said(password.into()))
    }

    #[test]
    fn the_environment_gives_the_passwords_that_a_url_does_not_say() {
        let target = checked("redis+sentinel://user@h/m");
        assert_eq!(target.access.user.as_deref(), Some("user"));
        assert_eq!(target.access.password, said("of servers"));
        let of_sentinels = Password::file("/of/sentinels", "KEYLAPSE_SENTINEL_PASSWORD_FILE");
        assert_eq!(target.sentinel_access.password, Some(of_sentinels));
        assert_eq!(target.sentinel_access.user, None);

        let target = checked("redis+sentinel://user:p@h/m?sentinel_user=s&sentinel_password=q");
        assert_eq!((&target.access.password, &target.sentinel_access.password), (&said("p"), &said("q")));
        assert_eq!(target.sentinel_access.user.as_deref(), Some("s"));

        let target = checked("redis+cluster://h1,h2/");
        assert_eq!(target.access.password, said("of servers"));
        assert_eq!(target.sentinel_access.password, None);
        assert_eq!(checked("unix:///tmp/s").access.password, said("of servers"));
    }

    #[test]
    fn two_passwords_in_the_environment_matter_only_where_they_are_asked_for() {
        let both = |_: &str| Some(OsString::from("x"));
        assert!(read("redis://h").unwrap().check_within(&both, true).is_err());
        read("redis://:p@h").unwrap().check_within(&both, true).unwrap();
    }

    #[test]
    fn without_the_feature_tls_is_refused_by_the_name_of_the_feature() {
        for url in ["rediss://h", "valkeys+cluster://h", "rediss+sentinel://h/m"] {
            let error = read(url).unwrap().check_within(&environment, false).unwrap_err().to_string();
            assert!(error.contains("feature `tls`") && error.contains("never falls back"), "{error}");
        }
        read("redis://h").unwrap().check_within(&environment, false).unwrap();
    }

    #[test]
    fn sentinels_get_neither_the_database_nor_the_login_of_the_servers() {
        let target = checked("rediss+sentinel://u:p@h/m/3");
        assert_eq!((target.access.db, target.sentinel_access.db), (3, 0));
        assert_eq!(target.sentinel_access.user, None);
        assert!(target.access.tls.is_some() && target.sentinel_access.tls.is_some());
        assert_ne!(target.sentinel_access.password, target.access.password);
    }
}
