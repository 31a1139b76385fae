//! docs/cli.md, docs/maintain.md and docs/troubleshooting.md, each in a shop.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use keylapse::fleet::ListenerReport;
use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, Outcome, Schedule, Topic};
use keylapse_support::{APP_PASSWORD, APP_USER, Server, eventually};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::alike::{ADDRESS, HOST, PID};
use super::{Stage, path, play};
use crate::commands::scene::PATIENCE;

const MINUTE: Duration = Duration::from_secs(60);
#[derive(Serialize, Deserialize)]
struct Order {
    cents: u64,
}

/// A shop: its orders are closed unless they are paid, and its sessions are keys of other programs.
struct Shop {
    server: Server,
    schedule: Schedule,
    orders: Topic<Order>,
    bank_answers: Arc<AtomicBool>,
    listener: Option<(oneshot::Sender<()>, JoinHandle<keylapse::Result<()>>)>,
    folder: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let server = Server::start().await;
        // As the page tells an operator to do; all else is the line of redis.conf.
        server.cmd(&["ACL", "SETUSER", APP_USER, "~order:*", "~session:*"]).await;
        let looker: Vec<_> = ["ACL", "SETUSER", "looker"]
            .into_iter()
            .chain(crate::commands::trouble::LOOKER.split(' '))
            .collect();
        server.cmd(&looker).await;
        for (key, seconds) in [("session:ada", "1800"), ("session:bob", "2400")] {
            server.cmd(&["SET", key, "{}", "EX", seconds]).await;
        }
        let url = url(&server);
        let orders = Topic::new("order:unpaid:{id}").expect("a topic").timeout(60 * MINUTE).max_attempts(3);
        let schedule = Schedule::connect(&url).await.expect("a schedule");
        let folder = tempfile::tempdir().expect("a folder");
        let bank_answers = Arc::default();
        Self { server, schedule, orders, bank_answers, listener: None, folder }
    }

    async fn listen(&mut self) {
        let answers = self.bank_answers.clone();
        let close = move |lapse: Lapse<Order>| {
            let answers = answers.clone();
            async move { close(&lapse, answers.load(Ordering::Relaxed)).await }
        };
        let sessions = Topic::<serde_json::Value>::new("session:{user}").expect("a topic");
        let ended = async |_: Lapse<Expired<serde_json::Value>>| Ok::<_, Failure>(Done);
        let builder = Listener::builder(url(&self.server)).on(self.orders.clone(), close);
        let builder = builder.attach(Attached::new(sessions), ended).grace(Duration::ZERO);
        let listener = builder.build().expect("a listener");
        let (stop, stopped) = oneshot::channel();
        self.listener = Some((stop, tokio::spawn(async move { listener.run_until(stopped).await })));
        eventually(PATIENCE, "its report", async || !self.reports().await.is_empty()).await;
    }

    async fn stop_listening(&mut self) {
        let (stop, task) = self.listener.take().expect("a listener");
        drop(stop);
        task.await.expect("the listener's task").expect("the listener");
    }

    /// What there is to look at.
    async fn fill(&mut self) {
        self.listen().await;
        for (id, delay) in [
            ("1001", 15 * MINUTE),
            ("1002", 20 * MINUTE),
            ("1003", 25 * MINUTE),
            ("42", Duration::ZERO),
            ("7", Duration::ZERO),
        ] {
            self.arm(id, delay).await;
        }
        for (count, id) in ["17", "18", "19", "23"].into_iter().enumerate() {
            self.arm(id, Duration::ZERO).await;
            self.until("a dead letter", "dead", count as u64 + 1).await;
        }
        self.until("the keys of others", "tracked", 2).await;
        self.reported().await;
    }

    /// With a listener and the keys of others, and nothing else.
    async fn listen_only(&mut self) {
        self.listen().await;
        self.until("the keys of others", "tracked", 2).await;
    }

    async fn arm(&self, id: &str, delay: Duration) {
        let armed = self.schedule.arm(&self.orders, id, delay, &Order { cents: 1999 }).await;
        assert!(armed.expect("an arming").is_armed());
    }

    /// Waits until the program's status says so, over all topics.
    async fn until(&self, what: &str, field: &str, wanted: u64) {
        eventually(PATIENCE, what, async || {
            let (status, _) = self.sh("keylapse --json status");
            let lines =
                status.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.filter_map(|line| line[field].as_u64()).sum::<u64>() == wanted
        })
        .await;
    }

    /// Waits until the listener has reported what is so now.
    async fn reported(&self) {
        let before = self.reports().await.into_iter().max();
        // The report that is on its way may be older than this moment: the second one is not.
        let mut seen = BTreeSet::new();
        eventually(PATIENCE, "two reports", async || {
            seen.extend(self.reports().await.into_iter().filter(|at| Some(*at) > before));
            seen.len() >= 2
        })
        .await;
    }

    /// When each listener has said how it is.
    async fn reports(&self) -> Vec<SystemTime> {
        let reports = self.schedule.serving(&self.orders).await.expect("reports");
        reports.iter().map(ListenerReport::at).collect()
    }
}

impl Stage for Shop {
    async fn play(&mut self, scene: &str) {
        match scene {
            "the listener ends" => self.stop_listening().await,
            "a listener starts" => self.listen().await,
            "the bank answers" => self.bank_answers.store(true, Ordering::Relaxed),
            "what is due has run" => self.until("the attempts", "overdue", 0).await,
            "the listener reports" => self.reported().await,
            "an order becomes due" => {
                self.arm("51", Duration::ZERO).await;
                self.until("what is due", "overdue", 1).await;
            }
            "the bank fails again" => {
                self.bank_answers.store(false, Ordering::Relaxed);
                self.arm("61", Duration::ZERO).await;
                self.until("a dead letter", "dead", 1).await;
            }
            _ => panic!("{scene} is not played"),
        }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let looker = format!("redis://looker:secret@127.0.0.1:{}/", self.server.port());
        vec![("KEYLAPSE_URL", url(&self.server)), ("LOOKER_URL", looker)]
    }

    /// In the same places where that can be.
    fn as_shown(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let name = nodename();
        let address = format!("127.0.0.1:{}", self.server.port());
        text = text.replace(&format!("-h 127.0.0.1 -p {}", self.server.port()), "-h redis.shop -p 6379");
        for (ours, shown) in [(name, HOST), (std::process::id().to_string(), PID), (address, ADDRESS)] {
            let padded = format!("{shown:<width$}", width = ours.len());
            text = text.replace(&format!("{ours} "), &format!("{padded} ")).replace(&ours, shown);
        }
        text
    }
}

fn url(server: &Server) -> String {
    format!("redis://{APP_USER}:{APP_PASSWORD}@127.0.0.1:{}/", server.port())
}

/// As a listener says it in its report.
fn nodename() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| HOST.to_owned(), |name| name.trim_end().to_owned())
}

async fn close(lapse: &Lapse<Order>, bank_answers: bool) -> Result<Outcome, Failure> {
    match lapse.capture("id") {
        Some("7") => std::future::pending().await,
        Some("42") => Err(Failure::retry_after(60 * MINUTE, "the bank asks to come back later")),
        Some("23") => Err(Failure::dead("no such customer")),
        _ if bank_answers => Ok(Done.into()),
        _ => Err(Failure::retry_after(Duration::from_millis(5), "timeout: the bank is silent")),
    }
}

/// Plays a page in a shop with timers and dead letters. Returns the number of its commands.
async fn play_in_a_filled_shop(page: &str) -> usize {
    let mut shop = Shop::open().await;
    shop.fill().await;
    play(page, &mut shop).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_the_tour_says_what_the_page_shows() {
    let commands = play_in_a_filled_shop("cli.md").await;
    assert!(commands > 35, "{commands} commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_maintenance_says_what_the_page_shows() {
    let commands = play_in_a_filled_shop("maintain.md").await;
    assert!(commands > 5, "{commands} commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_troubleshooting_says_what_the_page_shows() {
    let mut shop = Shop::open().await;
    shop.listen_only().await;
    let commands = play("troubleshooting.md", &mut shop).await;
    assert!(commands > 4, "{commands} commands");
}

/// The line for those who only look is the one that is tried in `trouble`.
#[test]
fn the_page_gives_the_rights_that_are_tested() {
    let page = std::fs::read_to_string(path("cli.md")).expect("the page");
    let line = format!("ACL SETUSER looker {}", crate::commands::trouble::LOOKER);
    assert!(page.contains(&line), "docs/cli.md needs: {line}");
}

/// `make test-more SUITE=alerts` tries the file.
#[test]
fn the_page_of_monitoring_shows_the_rules_as_they_are() {
    let read = |name| std::fs::read_to_string(path(name)).expect("a file of docs/");
    let rules = format!("```yaml\n{}```", read("alerts.yml"));
    assert!(read("monitor.md").contains(&rules), "docs/monitor.md shows docs/alerts.yml");
}
