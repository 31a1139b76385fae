//! Timers that are due together, and timers that are due one after the other, delivered by the relay of `keylapse run`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{ArmResult, Client, NewArm, Schedule, Topic};
use keylapse_bench::{Fault, Server};
use keylapse_relay::{Config, Relay};
use tempfile::NamedTempFile;

use crate::Options;
use crate::receiver::{Came, Receiver};

/// The lead of the first deadline, in which all timers are armed.
pub(crate) const AHEAD: Duration = Duration::from_secs(3);
const SECRET: &[u8] = b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) async fn calls(options: &Options, receiver: &mut Receiver) -> Result<(Came, Came), Fault> {
    let webhook = format!("url = \"{}\"\nper-host = {}", receiver.url, options.concurrency);
    let relayed = Relayed::start(&webhook).await?;
    let payload = |at| (at, "{\"amount\":500}".to_owned());
    let together = SystemTime::now() + AHEAD;
    relayed.arm((0..options.burst).map(|_| payload(together))).await?;
    let burst = came(receiver)?;
    let (from, pause) = (SystemTime::now() + AHEAD, Duration::from_secs(1).div_f64(options.rate as f64));
    let steady = (0..options.rate * options.seconds).map(|number| payload(from + pause * number as u32));
    relayed.arm(steady).await?;
    let steady = came(receiver)?;
    relayed.stop().await?;
    Ok((burst, steady))
}

/// Waits for the receiver. The read blocks, and must not stop other tasks of the runtime.
pub(crate) fn came(receiver: &mut Receiver) -> Result<Came, Fault> {
    tokio::task::block_in_place(|| receiver.came())
}

/// A topic with a webhook, on a server of its own.
pub(crate) struct Relayed {
    relay: Relay,
    schedule: Schedule,
    topic: Topic<Bytes>,
    _secret: NamedTempFile,
    _server: Server,
}

impl Relayed {
    /// Starts the relay of a topic with these webhook settings.
    pub(crate) async fn start(webhook: &str) -> Result<Self, Fault> {
        let server = Server::start().await?;
        let client = Client::new(&server.url())?;
        let (schedule, topic) = (Schedule::new(client.clone()), Topic::raw_named("orders", "order:{id}")?);
        let mut secret = NamedTempFile::new()?;
        secret.write_all(SECRET)?;
        let mut relay = Relay::new(client);
        relay.apply(Config::parse(&file(webhook, secret.path()), Path::new("."))?).await?;
        Ok(Self { relay, schedule, topic, _secret: secret, _server: server })
    }

    /// Arms timers, each with its deadline and payload.
    pub(crate) async fn arm(
        &self,
        timers: impl Iterator<Item = (SystemTime, String)> + Send,
    ) -> Result<(), Fault> {
        let arms =
            timers.enumerate().map(|(id, (at, payload))| NewArm::new([id.to_string()], at, payload.into()));
        let armed = self.schedule.arm_many(&self.topic, arms).await?;
        let armed = armed.into_iter().collect::<keylapse::Result<Vec<_>>>()?;
        if armed.iter().all(ArmResult::is_armed) { Ok(()) } else { Err("a timer was not armed".into()) }
    }

    pub(crate) async fn stop(self) -> Result<(), Fault> {
        Ok(self.relay.stop().await?)
    }
}

fn file(webhook: &str, secret: &Path) -> String {
    let secret = secret.display();
    format!(
        "grace = \"0s\"\n[topics.orders]\npattern = \"order:{{id}}\"\n\
         [topics.orders.webhook]\n{webhook}\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"{secret}\" }}\n"
    )
}
