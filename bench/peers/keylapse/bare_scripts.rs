//! The scripts of the bare systems: the writes of arming, moving and withdrawing, and nothing else.

use std::ops::Range;

use keylapse_wire::names::PartitionNames;
use redis::Cmd;
use redis::aio::MultiplexedConnection;

use crate::producer::Act;
use crate::{Fault, jobs};

// KEYS: 1 timers, 2 due, 3 the job's key. ARGV: 1 deadline in ms since 1970, 2 payload. Each script returns the count of the
// command on the sorted set.
const ARM: &str = "redis.call('HSET', KEYS[1], KEYS[3], ARGV[2])
local new = redis.call('ZADD', KEYS[2], ARGV[1], KEYS[3])";
const MOVE: &str = "local new = redis.call('ZADD', KEYS[2], ARGV[1], KEYS[3])";
const CANCEL: &str = "redis.call('HDEL', KEYS[1], KEYS[3])
local new = redis.call('ZREM', KEYS[2], KEYS[3])";
const SET: &str = "redis.call('SET', KEYS[3], '1', 'PXAT', ARGV[1])";
const DELETE: &str = "redis.call('DEL', KEYS[3])";
// KEYS: 1 timers, 2 due, then the jobs' keys. ARGV: 1 deadline, then the payloads.
const ARM_MANY: &str = "local records, scores = {}, {}
for i = 3, #KEYS do
  local at = 2 * (i - 3)
  records[at + 1], records[at + 2] = KEYS[i], ARGV[i - 1]
  scores[at + 1], scores[at + 2] = ARGV[1], KEYS[i]
end
redis.call('HSET', KEYS[1], unpack(records))
local new = redis.call('ZADD', KEYS[2], unpack(scores))";
const SET_MANY: &str = "for i = 3, #KEYS do redis.call('SET', KEYS[i], '1', 'PXAT', ARGV[1]) end";

/// The SHA-1 digests of the loaded scripts.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    arm: String,
    arm_many: String,
    reschedule: String,
    cancel: String,
}

impl Scripts {
    /// Loads the scripts, with or without a key that expires.
    pub(crate) async fn load(
        connection: &mut MultiplexedConnection,
        marker_keys: bool,
    ) -> Result<Self, Fault> {
        let mut hashes = Vec::new();
        for (writes, key) in [(ARM, SET), (ARM_MANY, SET_MANY), (MOVE, SET), (CANCEL, DELETE)] {
            let script = format!("{writes}\n{}\nreturn new", if marker_keys { key } else { "" });
            let mut load = redis::cmd("SCRIPT");
            hashes.push(load.arg("LOAD").arg(script).query_async::<String>(connection).await?);
        }
        let [arm, arm_many, reschedule, cancel] =
            hashes.try_into().map_err(|_| "as many hashes as scripts")?;
        Ok(Self { arm, arm_many, reschedule, cancel })
    }

    /// Returns the call of an act on a job.
    pub(crate) fn act(
        &self,
        act: Act,
        names: &PartitionNames,
        number: usize,
        at: u64,
        payload: &[u8],
    ) -> Cmd {
        let hash = match act {
            Act::Arm | Act::Over => &self.arm,
            Act::Reschedule => &self.reschedule,
            Act::Cancel => &self.cancel,
        };
        let mut call = begun(hash, names, number..number + 1);
        match act {
            Act::Arm | Act::Over => call.arg(at).arg(payload),
            Act::Reschedule => call.arg(at),
            Act::Cancel => &mut call,
        };
        call
    }

    /// Returns the call that arms these jobs together.
    pub(crate) fn arm_many(
        &self,
        names: &PartitionNames,
        numbers: Range<usize>,
        at: u64,
        payload: &[u8],
    ) -> Cmd {
        let mut call = begun(&self.arm_many, names, numbers.clone());
        call.arg(at);
        for _ in numbers {
            call.arg(payload);
        }
        call
    }
}

/// Returns a call with all of its keys.
fn begun(hash: &str, names: &PartitionNames, numbers: Range<usize>) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(hash).arg(2 + numbers.len()).arg(names.key("timers")).arg(names.key("due"));
    for number in numbers {
        call.arg(jobs::key(number).0);
    }
    call
}
