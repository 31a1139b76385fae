//! Timers that are due at once, and timers that are due one after the other, told by what `keylapse run` does.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{Arming, Client, NewArm, Schedule, Topic};
use keylapse_bench::{Fault, Server};
use keylapse_relay::{Config, Relay};
use tempfile::NamedTempFile;

use crate::Options;
use crate::receiver::{Came, Receiver};

/// All are armed by then.
const AHEAD: Duration = Duration::from_secs(3);
const SECRET: &[u8] = b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) async fn calls(options: &Options, receiver: &mut Receiver) -> Result<(Came, Came), Fault> {
    let server = Server::start().await?;
    let client = Client::new(&server.url())?;
    let (schedule, topic) = (Schedule::new(client.clone()), Topic::raw_named("orders", "order:{id}")?);
    let mut secret = NamedTempFile::new()?;
    secret.write_all(SECRET)?;
    let mut relay = Relay::new(client);
    relay.follow(Config::parse(&file(options, &receiver.url, secret.path()), Path::new("."))?).await?;

    let together = SystemTime::now() + AHEAD;
    arm(&schedule, &topic, (0..options.burst).map(|_| together)).await?;
    let burst = came(receiver)?;
    let (from, pause) = (SystemTime::now() + AHEAD, Duration::from_secs(1).div_f64(options.rate as f64));
    arm(&schedule, &topic, (0..options.rate * options.seconds).map(|number| from + pause * number as u32))
        .await?;
    let steady = came(receiver)?;
    relay.stop().await?;
    Ok((burst, steady))
}

/// The receiver is read from without this runtime's help, which has other work.
fn came(receiver: &mut Receiver) -> Result<Came, Fault> {
    tokio::task::block_in_place(|| receiver.came())
}

async fn arm(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    deadlines: impl Iterator<Item = SystemTime> + Send,
) -> Result<(), Fault> {
    let payload = Bytes::from_static(b"{\"amount\":500}");
    let arms = deadlines.enumerate().map(|(id, at)| NewArm::new([id.to_string()], at, payload.clone()));
    let armed = schedule.arm_many(topic, arms).await?.into_iter().collect::<keylapse::Result<Vec<_>>>()?;
    if armed.iter().all(Arming::is_armed) { Ok(()) } else { Err("a timer was not armed".into()) }
}

fn file(options: &Options, url: &str, secret: &Path) -> String {
    let (concurrency, secret) = (options.concurrency, secret.display());
    format!(
        "[topics.orders]\npattern = \"order:{{id}}\"\nconcurrency = {concurrency}\n\
         [topics.orders.webhook]\nurl = \"{url}\"\nallow = [\"127.0.0.1\"]\nsecret = {{ file = \"{secret}\" }}\n"
    )
}
