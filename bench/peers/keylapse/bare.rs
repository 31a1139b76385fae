//! The least that arming can cost: a script or a command that writes the keys and does nothing else.
//!
//! It has no arming ID, compares and counts nothing, sends no wake-up, and nothing fires.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse_wire::names::PartitionNames;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
use tokio::task::JoinSet;

use crate::bare_scripts::Scripts;
use crate::orders::Orders;
use crate::producer::{Act, LATER, MUCH_LATER, Producer};
use crate::runs::micros;
use crate::{Fault, jobs};

/// Jobs in one call, and calls in flight at a time, as in [`keylapse::Schedule::arm_many`].
const BATCH: usize = 250;
const IN_FLIGHT: usize = 8;

/// The keys that a bare system writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// A hash's field, a sorted set's member and a key that expires, by one script.
    All,
    /// A hash's field and a sorted set's member, by one script.
    WithoutMarkerKeys,
    /// A sorted set's member with the payload in it, by a plain `ZADD`.
    Member,
}

/// One connection that all tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    names: PartitionNames,
    scripts: Option<Scripts>,
    payload: Bytes,
}

impl Bare {
    /// Connects, and loads the scripts.
    pub(crate) async fn connect(orders: &Orders, writes: Writes) -> Result<Self, Fault> {
        let client = redis::Client::open(&*orders.url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let scripts = match writes {
            Writes::Member => None,
            writes => Some(Scripts::load(&mut connection, writes == Writes::All).await?),
        };
        let names = PartitionNames::new("keylapse", jobs::topic(orders)?.name(), 0, 1, false);
        Ok(Self { connection, names, scripts, payload: orders.payload.clone() })
    }

    /// Makes one call, and returns its answer.
    pub(crate) async fn call<T: FromRedisValue>(&self, command: Cmd) -> Result<T, Fault> {
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }

    /// Returns the member of a job: its key and its payload, because equal payloads would be one member.
    fn member(&self, number: usize) -> Vec<u8> {
        [jobs::key(number).0.as_bytes(), b" ", &self.payload].concat()
    }

    /// Returns the command of an act on a job, without a script.
    fn command(&self, act: Act, number: usize) -> Cmd {
        let mut command = redis::cmd(if act == Act::Cancel { "ZREM" } else { "ZADD" });
        command.arg(self.names.key("due"));
        match act {
            Act::Arm | Act::Over => command.arg(ms_after(LATER)),
            Act::Reschedule => command.arg(ms_after(MUCH_LATER)),
            Act::Cancel => &mut command,
        };
        command.arg(self.member(number));
        command
    }

    /// Returns the command that arms these jobs together.
    fn bulk(&self, numbers: Range<usize>, at: u64) -> Cmd {
        if let Some(scripts) = &self.scripts {
            return scripts.arm_many(&self.names, numbers, at, &self.payload);
        }
        let mut command = redis::cmd("ZADD");
        command.arg(self.names.key("due"));
        for number in numbers {
            command.arg(at).arg(self.member(number));
        }
        command
    }
}

impl Producer for Bare {
    async fn act(&self, act: Act, number: usize) -> Result<(), Fault> {
        let command = match &self.scripts {
            None => self.command(act, number),
            Some(scripts) => {
                let after = if act == Act::Reschedule { MUCH_LATER } else { LATER };
                scripts.act(act, &self.names, number, ms_after(after), &self.payload)
            }
        };
        // Redis counts added and removed members, but not moved ones.
        let counted = usize::from(matches!(act, Act::Arm | Act::Cancel));
        match self.call::<usize>(command).await? {
            answer if answer == counted => Ok(()),
            answer => Err(format!("{act:?} of job {number} was answered with {answer}").into()),
        }
    }

    async fn arm_many(&self, numbers: Range<usize>) -> Result<(), Fault> {
        let (at, mut tasks) = (ms_after(LATER), JoinSet::new());
        for task in 0..IN_FLIGHT {
            let (bare, end) = (self.clone(), numbers.end);
            let mine = numbers.clone().step_by(BATCH).skip(task).step_by(IN_FLIGHT);
            tasks.spawn(async move {
                for first in mine {
                    let batch = first..(first + BATCH).min(end);
                    let (wanted, command) = (batch.len(), bare.bulk(batch, at));
                    let armed: usize = bare.call(command).await?;
                    if armed != wanted {
                        return Err(Fault::from(format!("{armed} of {wanted} jobs were armed")));
                    }
                }
                Ok(())
            });
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok(())
    }
}

/// Returns the time after a delay, in ms since 1970.
pub(crate) fn ms_after(away: Duration) -> u64 {
    micros(SystemTime::now() + away).div_ceil(1000)
}
