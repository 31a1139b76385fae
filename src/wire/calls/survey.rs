//! What others' keys are, without changing anything.

use bytes::Bytes;
use redis::cmd;

use crate::error::Result;
use crate::wire::Store;

/// What a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedKey {
    /// Its type, by the server's word; `none` where it is gone.
    pub kind: String,
    /// When it expires, in ms since 1970; none where it never does.
    pub deadline: Option<u64>,
    /// Bytes that it takes, as the server reckons; 0 where it may not be asked.
    pub bytes: u64,
}

impl Store {
    /// What each of these keys is. It takes a user who may only read.
    pub(crate) async fn survey(&self, keys: &[Bytes], with_bytes: bool) -> Result<Vec<SurveyedKey>> {
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
            let kind: String = redis::from_redis_value(kind?).unwrap_or_default();
            let deadline: i64 = redis::from_redis_value(deadline?).unwrap_or(-1);
            found.push(SurveyedKey { kind, deadline: u64::try_from(deadline).ok(), bytes: 0 });
        }
        for (key, bytes) in found.iter_mut().zip(answers) {
            key.bytes = bytes.ok().and_then(|bytes| redis::from_redis_value(bytes).ok()).unwrap_or_default();
        }
        Ok(found)
    }

    /// How many keys a server's database has.
    pub(crate) async fn database_size(&self, server: &crate::connection::Server) -> Result<u64> {
        let size = server.seat().call("counting keys", &cmd("DBSIZE")).await?;
        Ok(redis::from_redis_value(size).unwrap_or_default())
    }
}
