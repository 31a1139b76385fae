//! Users and their permissions.

mod rules;
mod user;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::commands::RedisCommand;
use crate::pubsub::Kind;
use crate::reply::ErrorReply;

pub(crate) use user::{Denial, User};

/// The user of connections that have not logged in.
pub(crate) const DEFAULT: &str = "default";
/// The user of commands from inside the program. It has all permissions, and no client can log in as this user.
pub(crate) const INTERNAL: &str = "";

/// All users by name.
#[derive(Debug)]
pub(crate) struct Acl(BTreeMap<String, User>);

impl Default for Acl {
    fn default() -> Self {
        let users = [DEFAULT, INTERNAL].map(|name| (name.to_owned(), User::almighty()));
        Self(users.into())
    }
}

impl Acl {
    pub(crate) fn authenticate(&self, name: &str, password: &[u8]) -> Result<(), ErrorReply> {
        let wrong = ErrorReply::of("WRONGPASS invalid username-password pair or user is disabled.");
        let user = self.0.get(name).filter(|_| name != INTERNAL);
        if user.is_some_and(|user| user.admits(password)) { Ok(()) } else { Err(wrong) }
    }

    pub(crate) fn default_needs_no_password(&self) -> bool {
        self.0.get(DEFAULT).is_some_and(User::needs_no_password)
    }

    /// Returns the user of a new connection. `None` if the client must log in.
    pub(crate) fn first_user(&self) -> Option<String> {
        let open = self.0.get(DEFAULT).is_some_and(|user| user.is_on() && user.needs_no_password());
        open.then(|| DEFAULT.to_owned())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(|name| *name != INTERNAL)
    }

    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.0.get(name)
    }

    /// Creates or changes a user. Applies no rule if one is invalid.
    pub(crate) fn set(&mut self, name: &str, rules: &[Bytes]) -> Result<(), ErrorReply> {
        let mut user = self.0.get(name).cloned().unwrap_or_default();
        for rule in rules::joined(rules)? {
            user.apply(&rule)?;
        }
        self.0.insert(name.to_owned(), user);
        Ok(())
    }

    pub(crate) fn delete(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Checks whether a user may execute a command with these arguments.
    pub(crate) fn check(&self, user: &str, command: &RedisCommand, args: &[Bytes]) -> Result<(), Denial> {
        let user = self.0.get(user).ok_or(Denial::Command)?;
        user.check(command, args)
    }

    pub(crate) fn may_subscribe(&self, user: &str, kind: Kind, name: &[u8]) -> bool {
        self.0.get(user).is_some_and(|user| user.may_subscribe(kind == Kind::Pattern, name))
    }
}
