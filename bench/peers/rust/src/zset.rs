//! The common part of the textbook loops over a sorted set. Members are `<number> <payload>`, because equal payloads would
//! be one member. Scores are due times in milliseconds.

use redis::aio::MultiplexedConnection;

use crate::{Job, Result};

pub const DELAYED: &str = "delayed";

/// Offers jobs with one ZADD.
pub async fn add(connection: &mut MultiplexedConnection, jobs: &[Job]) -> Result<()> {
    let mut add = redis::cmd("ZADD");
    add.arg(DELAYED);
    for Job { number, due, payload } in jobs {
        add.arg(due).arg(format!("{number} {payload}"));
    }
    add.exec_async(connection).await?;
    Ok(())
}

/// Returns the payload of a member.
pub fn payload(member: &str) -> &str {
    member.split_once(' ').map_or(member, |(_, payload)| payload)
}
