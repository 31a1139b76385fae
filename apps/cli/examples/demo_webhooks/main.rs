//! Sends webhooks to a shop when the keys of its orders expire, without handlers in Rust: `make demo SHOW=webhooks`.
//!
//! 1. Another program writes keys with `SET … PX`, and arms notices over HTTP.
//! 2. `keylapse run` calls the shop, which sometimes answers with an error.
//! 3. `keylapse run` is killed during its work, started again, and reloads its file at SIGHUP.
//! 4. The orders that the shop never accepted become dead letters. A browser replays them from the dashboard.
//! 5. One key contains a script, which must not run on the dashboard.
//!
//! The demo fails unless the shop has accepted each webhook, under a single ID.

mod dashboard;
mod programs;
mod receiver;

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keylapse_console::Console;
use keylapse_support::{Program, Server};
use redis::aio::MultiplexedConnection;

use self::dashboard::Visit;
use self::programs::{keylapse, listening};
use self::receiver::Receiver;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// The maximum wait for one step. Each step is faster, even on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of orders for each kind of trouble, which decides how the shop answers.
const ORDERS: [(u64, &str); 4] = [(300, "none"), (40, "once"), (20, "busy"), (20, "always")];
const NOTICES: u64 = 60;
/// A key that runs as a script on a page that does not escape it.
const SCRIPT: &str = "order:unpaid:<img src=x onerror=window.xss=1>";

fn config(receiver: &Receiver) -> String {
    let address = receiver.address;
    format!(
        r#"[topics.unpaid]
attach = "order:unpaid:{{id}}"
keep-values = "1KiB"
retry = {{ after = ["300ms", "300ms"] }}
lease = "2s"

[topics.unpaid.webhook]
url = "http://{address}/unpaid"
secret = {{ file = "secret" }}
allow-addresses = ["127.0.0.1"]
circuit = {{ failures = 10, open-for = "500ms" }}

[topics.notices]
pattern = "app:trans:notice:{{id}}"
lease = "2s"

[topics.notices.webhook]
url = "http://{address}/notices"
secret = {{ file = "secret" }}
allow-addresses = ["127.0.0.1"]
"#
    )
}

/// The shop, the files of `keylapse run`, and the connections of the demo.
struct Stage {
    url: String,
    folder: tempfile::TempDir,
    receiver: Receiver,
    console: Console,
    writer: MultiplexedConnection,
}

impl Stage {
    async fn relay(&self) -> Result<(Program, String)> {
        let mut relay = Command::new(keylapse()?);
        relay.args(["run", "--listen", "127.0.0.1:0", "-u", &self.url]).current_dir(self.folder.path());
        listening(&mut relay).await
    }

    async fn dashboard(&self) -> Result<(Program, String)> {
        let mut serve = Command::new(keylapse()?);
        serve.args(["serve", "--listen", "127.0.0.1:0", "-u", &self.url]).current_dir(self.folder.path());
        listening(&mut serve).await
    }

    /// Writes orders with plain `SET` commands, and returns their number.
    async fn write_orders(&mut self) -> Result<u64> {
        let mut count = 0;
        for (orders, trouble) in ORDERS {
            for _ in 0..orders {
                count += 1;
                // The keys expire within 0.5 s to 4 s.
                self.write(&format!("order:unpaid:{count}"), trouble, 500 + count * 9).await?;
            }
        }
        self.write(SCRIPT, "always", 700).await?;
        Ok(count + 1)
    }

    async fn write(&mut self, key: &str, trouble: &str, ms: u64) -> Result<()> {
        let value = format!(r#"{{"cents":1999,"trouble":"{trouble}"}}"#);
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value).arg("PX").arg(ms);
        Ok(command.query_async(&mut self.writer).await?)
    }

    /// Waits until the condition holds. `what` names it in the error.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !holds().await? {
            if began.elapsed() > STEP_TIMEOUT {
                return Err(format!("timeout: waited for {what}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn taken(&self) -> u64 {
        self.receiver.booked().values().filter(|booked| booked.taken > 0).count() as u64
    }

    async fn dead(&self) -> Result<u64> {
        Ok(self.console.topic("unpaid").await?.overview().await?.dead)
    }
}

/// Arms notices over HTTP, as a program without a Redis client does.
async fn arm_notices(http: &str) -> Result<u64> {
    let client = reqwest::Client::new();
    for id in 0..NOTICES {
        let url = format!("{http}/api/v1/topics/notices/timers/app:trans:notice:{id}");
        let body = format!(r#"{{"in":"{}ms","payload":{{"paid":true}}}}"#, 300 + id * 30);
        let request = client.put(url).header("content-type", "application/json").body(body);
        request.send().await?.error_for_status()?;
    }
    Ok(NOTICES)
}

async fn set_up() -> Result<(Stage, Server)> {
    let folder = tempfile::tempdir()?;
    let server = Server::builder().config("notify-keyspace-events", "KExg$").start().await;
    let receiver = Receiver::start(SECRET).await?;
    write(folder.path(), "secret", SECRET)?;
    write(folder.path(), "keylapse.toml", &config(&receiver))?;
    let (url, writer) = (server.url(), server.conn().await);
    let console = Console::connect(url.as_str()).await?;
    Ok((Stage { url, folder, receiver, console, writer }, server))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    fs::write(&file, text)?;
    Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?)
}

#[tokio::main]
async fn main() -> Result<()> {
    // `reqwest` needs a crypto provider, although the demo uses no TLS.
    _ = rustls::crypto::ring::default_provider().install_default();
    let (mut stage, _server) = set_up().await?;
    println!(
        "# A shop at http://{}, and `keylapse run` with the file:\n\n{}",
        stage.receiver.address,
        config(&stage.receiver)
    );
    let (relay, http) = stage.relay().await?;
    ready(&stage, &http).await?;
    let (_serving, dashboard) = stage.dashboard().await?;
    println!("# Another program writes orders as keys that expire, and arms notices over HTTP.");
    let webhooks = stage.write_orders().await? + arm_notices(&http).await?;
    stage.until("the first orders", async || Ok(stage.taken() > 60)).await?;
    println!(
        "# `keylapse run` is killed in the middle of its work, started again, and reloads its file at SIGHUP."
    );
    relay.kill();
    let (relay, _) = stage.relay().await?;
    stage.until("more orders", async || Ok(stage.taken() > 160)).await?;
    relay.signal("HUP");
    let always_failing =
        ORDERS.iter().filter(|(_, trouble)| *trouble == "always").map(|(count, _)| count).sum::<u64>() + 1;
    stage.until("dead letters", async || Ok(stage.dead().await? == always_failing)).await?;
    println!(
        "# Orders that the shop never accepted are dead letters. They are replayed from the dashboard, {dashboard}."
    );
    stage.receiver.repair();
    let visit = Visit::run(&dashboard, SCRIPT).await?;
    stage.until("all webhooks", async || Ok(stage.taken() == webhooks)).await?;
    stage.until("the last timer to end", async || stage.is_finished().await).await?;
    judge(&stage, webhooks, always_failing, &visit)
}

/// Waits until `keylapse run` receives the events of expired keys.
async fn ready(stage: &Stage, http: &str) -> Result<()> {
    let client = reqwest::Client::new();
    let url = format!("{http}/readyz");
    stage
        .until("the relay to be ready", async || Ok(client.get(&url).send().await?.status().is_success()))
        .await
}

impl Stage {
    async fn is_finished(&self) -> Result<bool> {
        let status = self.console.status(10).await?;
        Ok(status.topics.iter().all(|topic| topic.overview.timers + topic.overview.dead == 0))
    }
}

/// Prints the counts. Fails if a webhook was lost, doubled, forged or not replayed, or if a script ran.
fn judge(stage: &Stage, webhooks: u64, dead: u64, visit: &Visit) -> Result<()> {
    let booked = stage.receiver.booked();
    let delivered = stage.taken();
    let retried: u64 = booked.values().map(|booked| booked.calls - 1).sum();
    let doubled = booked.values().filter(|booked| booked.ids.len() != 1).count();
    let (lost, forged) = (webhooks - delivered, stage.receiver.forged());
    let Visit { pages, actions, replayed, scripts } = visit;
    println!(
        "\nwebhooks={webhooks} delivered={delivered} retried={retried} dead={dead} replayed={replayed} lost={lost} \
         doubled_ids={doubled} pages={pages} actions={actions} xss={scripts}"
    );
    let is_right = lost == 0 && doubled == 0 && forged == 0 && *scripts == 0 && *replayed == dead;
    if is_right {
        Ok(())
    } else {
        Err("a webhook was lost, doubled, forged or not replayed, or a script ran in the dashboard".into())
    }
}
