//! Each command line of docs/operate.md, run in order on one server, and what it writes.
//!
//! In blocks of kind `console` a line that begins with `$ ` is a command; what stands below it, its output: with times,
//! ids and the like replaced by words, and `…` for any lines between. Between blocks `<!-- scene: … -->` says what else
//! happens. `KEYLAPSE_BLESS=1` writes the outputs that differ into the page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, ListenerReport, Outcome, Schedule, Topic};
use keylapse_support::{APP_PASSWORD, APP_USER, Server, eventually};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::scene::{PATIENCE, plain};

const MINUTE: Duration = Duration::from_secs(60);
/// In place of this machine's and this run's, of the same length where a table is not to change.
const HOST: &str = "shop-worker";
const PID: &str = "4711";
const ADDRESS: &str = "redis.shop:6379";

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
        let looker: Vec<_> =
            ["ACL", "SETUSER", "looker"].into_iter().chain(crate::trouble::LOOKER.split(' ')).collect();
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
        self.until("the keys of others", "enrolled", 2).await;
        self.reported().await;
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

    async fn play(&mut self, scene: &str) {
        match scene {
            "the listener ends" => self.stop_listening().await,
            "a listener starts" => self.listen().await,
            "the bank answers" => self.bank_answers.store(true, Ordering::Relaxed),
            "what is due has run" => self.until("the attempts", "overdue", 0).await,
            "the listener reports" => self.reported().await,
            "two orders become due" => {
                for id in ["51", "52"] {
                    self.arm(id, Duration::ZERO).await;
                }
                // And the one that was running.
                self.until("what is due", "overdue", 3).await;
            }
            "the bank fails again" => {
                self.bank_answers.store(false, Ordering::Relaxed);
                self.arm("61", Duration::ZERO).await;
                self.until("a dead letter", "dead", 1).await;
            }
            _ => panic!("{scene} is not played"),
        }
    }

    /// What a shell says to it, and the code.
    fn sh(&self, line: &str) -> (String, i32) {
        let program = Path::new(env!("CARGO_BIN_EXE_keylapse"));
        let path = std::env::var("PATH").expect("a PATH");
        let path = format!("{}:{path}", program.parent().expect("its folder").display());
        let looker = format!("redis://looker:secret@127.0.0.1:{}/", self.server.port());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(self.folder.path());
        shell
            .env("PATH", path)
            .env("KEYLAPSE_URL", url(&self.server))
            .env("LOOKER_URL", looker)
            .stdin(Stdio::null());
        let ended = shell.output().expect("a shell");
        (String::from_utf8(ended.stdout).expect("UTF-8"), ended.status.code().unwrap_or(-1))
    }

    /// With what is only so on this machine and in this run replaced, and in the same places where that can be.
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

/// A command of the page, with what stands below it.
#[derive(Debug)]
struct Shown {
    command: String,
    /// The lines of the page that are its output.
    lines: std::ops::Range<usize>,
}

enum Part {
    Command(Shown),
    Scene(String),
}

fn parts(page: &[&str]) -> Vec<Part> {
    let (mut parts, mut within) = (Vec::new(), false);
    for (at, line) in page.iter().enumerate() {
        if within {
            within = *line != "```";
            if let Some(command) = line.strip_prefix("$ ") {
                parts.push(Part::Command(Shown { command: command.to_owned(), lines: at + 1..at + 1 }));
            } else if let (true, Some(Part::Command(last))) = (within, parts.last_mut()) {
                last.lines.end = at + 1;
            }
        } else if let Some(scene) = line.strip_prefix("<!-- scene: ") {
            parts.push(Part::Scene(scene.trim_end_matches(" -->").to_owned()));
        } else {
            within = *line == "```console";
        }
    }
    parts
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate.md")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_the_page_says_what_the_page_shows() {
    let text = std::fs::read_to_string(path()).expect("the page");
    let page: Vec<_> = text.lines().collect();
    let mut shop = Shop::open().await;
    shop.fill().await;
    let (mut news, mut commands) = (Vec::new(), 0);
    for part in parts(&page) {
        let shown = match part {
            Part::Scene(scene) => {
                shop.play(&scene).await;
                continue;
            }
            Part::Command(shown) => shown,
        };
        commands += 1;
        let (said, code) = shop.sh(&shown.command);
        assert_eq!(code, 0, "{}: {said}; say `; echo $?` behind a command that is to fail", shown.command);
        let said = shop.as_shown(&said);
        let expected = page[shown.lines.clone()].join("\n");
        if !is_alike(&expected, &said) {
            let differs = format!("$ {}\n{said}\n--- the page has\n{expected}", shown.command);
            news.push((shown, said, differs));
        }
    }
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        let mut page = page.into_iter().map(str::to_owned).collect::<Vec<_>>();
        for (shown, said, _) in news.into_iter().rev() {
            page.splice(
                shown.lines,
                said.trim_end_matches('\n').split('\n').map(str::to_owned).filter(|line| !line.is_empty()),
            );
        }
        std::fs::write(path(), page.join("\n") + "\n").expect("the page");
        return;
    }
    let differ: Vec<_> = news.into_iter().map(|(.., differs)| differs).collect();
    assert!(differ.is_empty(), "{}\n\nKEYLAPSE_BLESS=1 writes it into the page", differ.join("\n\n"));
    assert!(commands > 40, "{commands} commands");
}

/// Whether both say the same: times, ids and widths are not looked at, and `…` is any number of lines.
fn is_alike(shown: &str, said: &str) -> bool {
    let pattern: Vec<_> = normal(shown).lines().map(regex::escape).collect();
    let pattern =
        format!("^{}$", pattern.join("\n").replace("…\n", "(?s:.*\n)?").replace("\n…", "(?s:\n.*)?"));
    regex::Regex::new(&pattern).expect("a pattern").is_match(normal(said).trim_end())
}

fn normal(text: &str) -> String {
    let text = text.replace(HOST, "HOST").replace(ADDRESS, "ADDRESS").replace(PID, "PID");
    let words = [
        (r"--after '([^']|'\\'')*'", "--after PLACE"),
        (r#"("[a-z_]*(ms|us|at|since)"): ?\d+"#, "$1:N"),
        (r"\b\d+\.\d+\.\d+\b", "VERSION"),
        (r"\b\d+\.\d+\b", "N"),
        (r"Redis|Valkey", "SERVER"),
        (r"\b\d+ (keys with a time to live|B, as the server reckons)", "N $1"),
    ];
    let text = words.iter().fold(plain(&text), |text, (pattern, word)| {
        regex::Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    });
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_alike_differs_in_times_and_widths_only() {
    assert!(is_alike(
        "a  2026-11-25T09:00:00.000Z  in 3m\n…\nb 1",
        "a 2026-01-01T01:02:03.004Z in 15m\nx\ny\nb  1\n"
    ));
    assert!(is_alike("a\n…", "a\nb\nc\n") && is_alike("a\n…", "a\n"));
    assert!(is_alike("x --after 'a'", r"x --after 'a'\''b'\'''"), "a place may hold quotes");
    assert!(!is_alike("a 1", "a 2") && !is_alike("a", "a\nb") && !is_alike("a\nb", "a"));
}

/// The line for those who only look is the one that is tried in `trouble`.
#[test]
fn the_page_gives_the_rights_that_are_tested() {
    let page = std::fs::read_to_string(path()).expect("the page");
    assert!(
        page.contains(&format!("ACL SETUSER looker {}", crate::trouble::LOOKER)),
        "{}",
        crate::trouble::LOOKER
    );
}

/// `make test-alerts` tries the file.
#[test]
fn the_page_of_alerts_shows_the_rules_as_they_are() {
    let docs = path().with_file_name("alerts");
    let read = |extension| std::fs::read_to_string(docs.with_extension(extension)).expect("a file of docs/");
    assert!(
        read("md").contains(&format!("```yaml\n{}```", read("yml"))),
        "docs/alerts.md shows docs/alerts.yml"
    );
}
