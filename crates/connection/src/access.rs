//! How one gets in: who one is, which database, and over what.

use std::fmt;
use std::sync::Arc;

use redis::{ProtocolVersion, RedisConnectionInfo};

use crate::error::Result;
use crate::home::Home;
use crate::password::Password;
use crate::stream::Streams;
use crate::tls::Tls;

/// A login, and over what it is made. All endpoints of one kind share it. Shows neither user nor password.
#[derive(Clone, Default)]
pub struct Access {
    pub user: Option<Arc<str>>,
    pub password: Option<Password>,
    pub db: i64,
    pub resp3: bool,
    /// Says no more than it has to: the server is not told what the client's library is.
    pub terse: bool,
    /// None: plain TCP.
    pub tls: Option<Tls>,
    /// Opens streams in place of TCP and Unix sockets.
    pub streams: Option<Streams>,
    /// Where connections live.
    pub home: Home,
}

impl Access {
    /// What is told to a server first. The password's file is read now.
    pub(super) fn settings(&self) -> Result<RedisConnectionInfo> {
        let protocol = if self.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut settings = RedisConnectionInfo::default().set_db(self.db).set_protocol(protocol);
        if self.terse {
            settings = settings.set_skip_set_lib_name();
        }
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.get()?);
        }
        Ok(settings)
    }

    /// Whether files have to be read for a connection.
    pub(super) fn has_files(&self) -> bool {
        self.tls.is_some() || matches!(self.password, Some(Password::File { .. }))
    }

    /// The same as nobody in particular.
    pub(super) fn anonymous(&self) -> Self {
        Self { user: None, password: None, db: 0, resp3: false, ..self.clone() }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("db", &self.db).field("tls", &self.tls).finish_non_exhaustive()
    }
}
