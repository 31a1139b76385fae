//! `keylapse top` in a terminal, before a real server.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylapse::console::{Console, EntryState, Export};
use keylapse::{Listener, Schedule, Topic};
use keylapse_support::{Server, eventually, skipped, skipped_on_a_cluster};

const WITHIN: Duration = Duration::from_secs(30);
const KEYLAPSE: &str = env!("CARGO_BIN_EXE_keylapse");

/// A terminal of a test's own, which ends with this value.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a line of a shell in a terminal of 100 columns and 24 lines.
    fn run(line: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { socket: format!("keylapse-top-{}-{count}", std::process::id()) };
        let started = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", line]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        terminal
    }

    /// `keylapse top` before a server, and what is left of it afterwards.
    fn top(server: &Server, more: &str) -> Self {
        let url = server.plain_url();
        Self::run(&format!(
            "{KEYLAPSE} -u '{url}' --timeout 2s top --every 500ms {more}; echo exit=$?; exec cat"
        ))
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.socket]).args(arguments);
        // What the test itself runs in must not be meant.
        command.env_remove("TMUX").env_remove("NO_COLOR").stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Presses keys, by tmux's names for them, and waits until all of these texts are on the screen.
    async fn press(&self, keys: &[&str], texts: &[&str]) {
        for key in keys {
            assert!(self.tmux(&["send-keys", key]).status.success(), "{key}");
        }
        self.shows(texts).await;
    }

    fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        assert!(self.tmux(&["resize-window", "-x", &width, "-y", &height]).status.success());
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    async fn shows(&self, texts: &[&str]) {
        let said = SaysOnFailure(self);
        eventually(WITHIN, &format!("{texts:?} on the screen"), async || {
            let screen = self.screen();
            texts.iter().all(|text| screen.contains(text))
        })
        .await;
        std::mem::forget(said);
    }

    async fn gone(&self, text: &str) {
        eventually(WITHIN, &format!("{text} to be gone"), async || !self.screen().contains(text)).await;
    }
}

/// Prints the screen if the test fails meanwhile.
struct SaysOnFailure<'a>(&'a Terminal);

impl Drop for SaysOnFailure<'_> {
    fn drop(&mut self) {
        eprintln!("the screen was:\n{}", self.0.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn cannot_run() -> bool {
    let found = Command::new("tmux").arg("-V").output().is_ok();
    if !found {
        skipped("there is no tmux, which is the terminal of this test");
    }
    !found || skipped_on_a_cluster("the topics of this test are on one server")
}

fn orders() -> Topic<String> {
    Topic::named("order.unpaid", "order:unpaid:{id}").unwrap()
}

/// Timers, and a dead letter.
async fn populate(server: &Server) {
    let schedule = Schedule::connect(server.plain_url().as_str()).await.unwrap();
    for id in 1..=30_u64 {
        let armed =
            schedule.arm(&orders(), id, Duration::from_secs(3600 + id), &"Ada".to_owned()).await.unwrap();
        assert!(armed.receipt().is_some());
    }
    let mails = Topic::<String>::named("mail.reminder", "mail:{id}").unwrap();
    let armed = schedule.arm(&mails, "a\u{1b}[2J", Duration::from_secs(60), &String::new()).await.unwrap();
    assert!(armed.receipt().is_some());
    let letter: Export = serde_json::from_value(serde_json::json!({
        "v": 1, "type": "letter", "topic": "order.unpaid", "key": "order:unpaid:dead", "id": "00000000000000a7",
        "deadline_ms": 1_795_599_000_000_u64, "at_ms": 1_795_599_060_000_u64, "reason": "exhausted", "attempt": 5,
        "payload": "\"Ada\""
    }))
    .unwrap();
    let topic = console(server).await.topic("order.unpaid").await.unwrap();
    assert_eq!(topic.import(&[letter]).await.unwrap().imported, 1);
}

async fn console(server: &Server) -> Console {
    Console::connect(server.plain_url().as_str()).await.unwrap()
}

#[tokio::test]
async fn screens_are_gone_through_and_the_terminal_is_left_as_it_was() {
    if cannot_run() {
        return;
    }
    let server = Server::start().await;
    populate(&server).await;
    let terminal = Terminal::top(&server, "");
    terminal.shows(&["mail.reminder", "order.unpaid", "unserved", "read-only", "ago", "1 of 2"]).await;
    terminal.press(&["?"], &["run a timer now", "any other key"]).await;
    terminal.press(&["Escape"], &["has no listener"]).await;
    terminal.press(&["Tab"], &["No listener has reported"]).await;
    terminal.press(&["1", "/", "o", "r", "d", "Enter"], &["/ord", "1 of 1"]).await;
    terminal.press(&["Enter"], &["order:unpaid:1 ", "1 of 30", "4 dead 1"]).await;
    terminal.press(&["/", "key:*:29", "Enter"], &["/key:*:29", "1 of 1", "order:unpaid:29"]).await;
    terminal.press(&["Enter"], &["next", "attempt 1 in 1h", "no listener serves the topic"]).await;
    terminal.press(&["Escape", "4"], &["No dead letters that match key:*:29"]).await;
    terminal.press(&["/", "C-u", "Enter"], &["order:unpaid:dead", "exhausted"]).await;
    terminal.press(&["R"], &["this is read-only"]).await;
    terminal.press(&["q"], &["exit=0"]).await;
    assert!(!terminal.screen().contains("exhausted"), "the terminal is as it was:\n{}", terminal.screen());
}

#[tokio::test]
async fn a_dead_letter_is_replayed_after_a_yes() {
    if cannot_run() {
        return;
    }
    let server = Server::start().await;
    populate(&server).await;
    let terminal = Terminal::top(&server, "--write");
    terminal.shows(&["can write", "order.unpaid"]).await;
    terminal.press(&["j", "d"], &["order:unpaid:dead", "R replay"]).await;
    terminal.press(&["R"], &["Replay 1 dead letter: order:unpaid:dead of order.unpaid?", "y/N"]).await;
    terminal.press(&["n"], &["nothing was done"]).await;
    let letters = async || {
        let topic = console(&server).await.topic("order.unpaid").await.unwrap();
        topic.page(EntryState::Dead, None, 9).await.unwrap().entries.len()
    };
    assert_eq!(letters().await, 1);
    terminal.press(&["R"], &["y/N"]).await;
    terminal.press(&["y"], &["order:unpaid:dead: replayed", "No dead letters.", "1 overdue"]).await;
    assert_eq!(letters().await, 0);
    terminal.press(&["P"], &["why is order.unpaid to be paused?"]).await;
    terminal.press(&["closed", "Enter"], &["Its 31 timers"]).await;
    terminal.press(&["y"], &["order.unpaid: paused:", "P resume"]).await;
    terminal.press(&["j"], &["order.unpaid is paused: closed"]).await;
    terminal.press(&["P", "y"], &["resumed: what has become due runs now", "P pause"]).await;
}

#[tokio::test]
async fn a_server_that_hangs_or_goes_freezes_no_keys_and_windows_change() {
    if cannot_run() {
        return;
    }
    let mut server = Server::start().await;
    populate(&server).await;
    let terminal = Terminal::top(&server, "--color never");
    terminal.shows(&["order.unpaid", "DUE 1M"]).await;
    terminal.resize(40, 10);
    terminal.shows(&["order.unpaid", "STATE"]).await;
    terminal.gone("TIMERS").await;
    terminal.resize(30, 5);
    terminal.shows(&["needs 40 columns"]).await;
    terminal.resize(100, 24);
    terminal.shows(&["order.unpaid", "DUE 1M"]).await;

    server.stop();
    terminal.shows(&["order.unpaid", " old"]).await;
    terminal.press(&["?"], &["run a timer now"]).await;
    terminal.press(&["Escape"], &["order.unpaid", " old"]).await;
    server.cont();
    terminal.gone(" old").await;

    server.shutdown().await;
    terminal.shows(&["order.unpaid", " old", "Connection refused"]).await;
    terminal.press(&["j", "?"], &["run a timer now"]).await;
    terminal.press(&["Escape"], &[">! order.unpaid"]).await;
    server.restart().await;
    // It kept nothing on disk, so it comes back empty; and then programs come back.
    terminal.shows(&["No topic is registered", "ago"]).await;
    populate(&server).await;
    terminal.shows(&["order.unpaid", "unserved"]).await;
    server.cmd(&["HSET", "keylapse:topics", "odd", "x"]).await;
    terminal.shows(&["order.unpaid", "odd", "unreadable", "of 3"]).await;
    let listener = Listener::builder(server.plain_url().as_str());
    let listener =
        listener.on(orders(), async |_| Ok::<_, keylapse::Failure>(keylapse::Done)).build().unwrap();
    let running = tokio::spawn(listener.run_until(std::future::pending::<()>()));
    terminal.press(&["Tab"], &["HOST", "127.0.0.1"]).await;
    running.abort();
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_use() {
    let out = Command::new(KEYLAPSE).args(["-u", "redis://127.0.0.1:1/", "top"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("top needs a terminal; use status --json"), "{said}");
    let out = Command::new(KEYLAPSE).args(["top", "--every", "100ms"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("500ms is the least"));
}

#[tokio::test]
async fn a_terminal_that_is_closed_ends_it_and_so_does_a_signal() {
    if cannot_run() {
        return;
    }
    let server = Server::start().await;
    let clients = async || {
        let listed = server.cmd(&["CLIENT", "LIST"]).await;
        // This one's own connection is always there.
        format!("{listed:?}").matches("addr=").count() / 2 - 1
    };
    let terminal = Terminal::top(&server, "");
    terminal.shows(&["No topic is registered"]).await;
    assert!(clients().await > 0);
    drop(terminal);
    eventually(WITHIN, "the end of the program", async || clients().await == 0).await;

    let pids = tempfile::NamedTempFile::new().unwrap();
    let (url, file) = (server.plain_url(), pids.path().display());
    let line = format!("sh -c 'echo $$ > {file}; exec {KEYLAPSE} -u {url} top'; echo exit=$?; exec cat");
    let terminal = Terminal::run(&line);
    terminal.shows(&["No topic is registered"]).await;
    let pid = std::fs::read_to_string(pids.path()).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    terminal.shows(&["exit=0"]).await;
}
