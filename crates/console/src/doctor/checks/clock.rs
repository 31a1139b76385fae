//! The server's clock, beside this machine's and beside one that never jumps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse_connection::cmd;
use tokio::time::Instant;

use crate::error::Result;

use super::super::case::{Case, Clocks};
use super::super::codes::{self, Code};
use super::super::site::Site;

/// Microseconds by which two machines' clocks may differ.
const APART: i64 = 2_000_000;
/// By how much it may run ahead of, or behind, one that never jumps: clocks are slewed, and machines are busy.
const STEP: i64 = 100_000;

/// Reads both; none where TIME is refused, which the rights say.
pub(super) async fn read(case: &Case) -> Result<Option<Clocks>> {
    let asked = Instant::now();
    let said = case.ask("reading the server's clock", &cmd("TIME")).await?;
    let way = asked.elapsed();
    let time = said.ok().and_then(|said| keylapse_connection::from_redis_value::<(u64, u64)>(said).ok());
    Ok(time.map(|(seconds, micros)| Clocks {
        server: seconds.saturating_mul(1_000_000).saturating_add(micros),
        here: SystemTime::now() - way / 2,
        steady: asked + way / 2,
        doubt: micros_of(way),
    }))
}

/// Compares with what was read when the examination began.
pub(super) async fn check(case: &mut Case) -> Result<()> {
    let Some(before) = case.clocks else { return Ok(()) };
    let Some(after) = read(case).await? else { return Ok(()) };
    let step = step(&before, &after);
    if exceeds(step, STEP, before.doubt + after.doubt) {
        say(case, &codes::CLOCK_STEPS, format!("by {} ms while it was looked at", step / 1000));
        return Ok(());
    }
    let apart =
        signed(after.server) - signed(micros_of(after.here.duration_since(UNIX_EPOCH).unwrap_or_default()));
    if exceeds(apart, APART, after.doubt) {
        let way = if apart > 0 { "ahead of" } else { "behind" };
        say(case, &codes::CLOCKS_DIFFER, format!("it is {} ms {way} this machine's", apart.abs() / 1000));
    }
    Ok(())
}

/// A service sees to its own clock, so that the one to set is this machine's.
fn say(case: &mut Case, code: &Code, observed: String) {
    let site = Site::of(&case.patient.address().endpoint(), &case.info);
    let prefix = if case.service().is_some() { String::new() } else { site.prefix() };
    case.say_with(code, observed, &[("where", &prefix)]);
}

/// What the server's clock has gone more than time has.
fn step(before: &Clocks, after: &Clocks) -> i64 {
    let steady = after.steady.saturating_duration_since(before.steady);
    signed(after.server) - signed(before.server) - signed(micros_of(steady))
}

fn exceeds(difference: i64, limit: i64, doubt: u64) -> bool {
    difference.unsigned_abs() > limit.unsigned_abs().saturating_add(doubt)
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_what_time_does_not_explain() {
        let (steady, here) = (Instant::now(), UNIX_EPOCH);
        let before = Clocks { server: 1_000_000_000, here, steady, doubt: 500 };
        let later = |server| Clocks { server, steady: steady + Duration::from_secs(3), ..before };
        for (server, expected) in
            [(1_003_000_000, 0), (1_063_000_000, 60_000_000), (1_000_000_000, -3_000_000)]
        {
            assert_eq!(step(&before, &later(server)), expected);
        }
        assert!(exceeds(-3_000_000, STEP, 1000) && !exceeds(100_500, STEP, 1000));
    }
}
