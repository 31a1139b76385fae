//! The server says WRONGTYPE, but not where. This finds out.

use redis::{Value, cmd, pipe};

use crate::wire::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::names::Partition;

/// The type of each name, in the order of [`Names::all`](crate::wire::names::Names::all).
const TYPES: [&str; 10] = ["hash", "zset", "zset", "hash", "hash", "hash", "zset", "zset", "hash", "hash"];

impl Store {
    /// An answer about a partition; where it is WRONGTYPE, with the name of the
    /// key that holds a value of another type.
    pub(super) async fn named<T>(&self, at: &Partition, answer: Result<T, impl Into<Error>>) -> Result<T> {
        match answer.map_err(Into::into) {
            Err(error) if error.kind() == ErrorKind::WrongType => Err(self.name_at_fault(at, error).await),
            other => other,
        }
    }

    async fn name_at_fault(&self, at: &Partition, fallback: Error) -> Error {
        let names = at.all();
        let mut types = pipe();
        for name in names {
            types.add_command(cmd("TYPE")).arg(name);
        }
        let Ok(found) = self.0.node.call_all("looking for the wrong type", &types).await else {
            return fallback;
        };
        for ((name, expected), found) in names.into_iter().zip(TYPES).zip(found) {
            let Value::SimpleString(found) = found else {
                continue;
            };
            if found != "none" && found != expected {
                return wrong_type(name, expected, &found);
            }
        }
        fallback
    }
}

fn wrong_type(name: &str, expected: &str, found: &str) -> Error {
    let message = format!(
        "WRONGTYPE: a {found} stands where keylapse keeps a {expected}; \
         move or delete it (something else writes to keylapse's names)"
    );
    Error::new(ErrorKind::WrongType, message).at_key(name.as_bytes())
}
