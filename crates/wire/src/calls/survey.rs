//! What others' keys are, without changing anything.

use bytes::Bytes;
use keylapse_connection::cmd;

use crate::Store;
use crate::connection::Server;
use crate::error::{ErrorKind, Result};

/// What a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedKey {
    /// Its type, by the server's word; `none` where it is gone.
    pub kind: String,
    /// When it expires, in ms since 1970; none where it never does.
    pub deadline: Option<u64>,
    /// Bytes that it takes, as the server reckons; none where it was not asked, or may not be.
    pub bytes: Option<u64>,
}

impl Store {
    /// The servers that hold keys, each of which is to be scanned by itself.
    pub async fn scanned(&self) -> Result<Vec<Server>> {
        self.0.topology.primaries().await
    }

    /// What each of these keys is. It takes a user who may only read.
    pub async fn survey(&self, keys: &[Bytes], with_bytes: bool) -> Result<Vec<SurveyedKey>> {
        const DOING: &str = "looking at keys";
        let command =
            |key: &Bytes, name: &str| (self.0.topology.slot_of(key), cmd(name).arg(&key[..]).clone());
        let mut commands: Vec<_> =
            keys.iter().flat_map(|key| [command(key, "TYPE"), command(key, "PEXPIRETIME")]).collect();
        if with_bytes {
            let size = |key: &Bytes| {
                (self.0.topology.slot_of(key), cmd("MEMORY").arg("USAGE").arg(&key[..]).clone())
            };
            commands.extend(keys.iter().map(size));
        }
        let mut answers = self.0.topology.each(DOING, commands).await.into_iter();
        let mut found = Vec::with_capacity(keys.len());
        for (kind, deadline) in keys.iter().filter_map(|_| Some((answers.next()?, answers.next()?))) {
            let kind: String = keylapse_connection::from_redis_value(kind?).unwrap_or_default();
            let deadline: i64 = keylapse_connection::from_redis_value(deadline?).unwrap_or(-1);
            found.push(SurveyedKey { kind, deadline: u64::try_from(deadline).ok(), bytes: None });
        }
        for (key, bytes) in found.iter_mut().zip(answers) {
            key.bytes = match bytes {
                Err(error) if error.kind() == ErrorKind::Permission => None,
                bytes => Some(
                    bytes
                        .ok()
                        .and_then(|bytes| keylapse_connection::from_redis_value(bytes).ok())
                        .unwrap_or(0),
                ),
            };
        }
        Ok(found)
    }

    /// How many keys a server's database has; none where the user may ask in neither way.
    pub async fn database_size(&self, server: &Server) -> Result<Option<u64>> {
        const DOING: &str = "counting keys";
        match server.call(DOING, &cmd("DBSIZE")).await {
            Err(error) if error.kind() == ErrorKind::Permission => {}
            size => return Ok(Some(keylapse_connection::from_redis_value(size?).unwrap_or_default())),
        }
        // Users of redis.conf have this one.
        match server.call(DOING, cmd("INFO").arg("keyspace")).await {
            Err(error) if error.kind() == ErrorKind::Permission => Ok(None),
            said => {
                let said: String = keylapse_connection::from_redis_value(said?).unwrap_or_default();
                Ok(Some(keys_of(&said, server.present().db())))
            }
        }
    }
}

/// The keys of a database, which is not named where it has none.
fn keys_of(said: &str, db: i64) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("db{db}:keys=")));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_database_are_read() {
        let said = "# Keyspace\r\ndb0:keys=9,expires=7,avg_ttl=1\r\ndb10:keys=3,expires=0,avg_ttl=0\r\n";
        assert_eq!([keys_of(said, 0), keys_of(said, 1), keys_of(said, 10)], [9, 0, 3]);
    }
}
