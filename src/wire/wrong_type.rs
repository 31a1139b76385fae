//! The server says WRONGTYPE, but not where. This finds out.

use redis::{Value, pipe};

use crate::error::{Error, ErrorKind, Result};
use crate::wire::names::{NAMES, PartitionNames};
use crate::wire::store::Store;

impl Store {
    /// An answer about a partition; where it is WRONGTYPE, with the name of the
    /// key that holds a value of another type.
    pub(super) async fn named<T>(
        &self,
        at: &PartitionNames,
        answer: Result<T, impl Into<Error>>,
    ) -> Result<T> {
        match answer.map_err(Into::into) {
            Err(error) if error.kind() == ErrorKind::WrongType => Err(self.name_at_fault(at, error).await),
            other => other,
        }
    }

    async fn name_at_fault(&self, at: &PartitionNames, fallback: Error) -> Error {
        let mut types = pipe();
        at.all().iter().for_each(|name| {
            types.cmd("TYPE").arg(name);
        });
        let Ok(found) = self.0.node.call_all("looking for the wrong type", &types).await else {
            return fallback;
        };
        for ((name, (_, expected)), found) in at.all().iter().zip(NAMES).zip(found) {
            match found {
                Value::SimpleString(found) if found != "none" && found != expected => {
                    return wrong_type(name, expected, &found);
                }
                _ => {}
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
