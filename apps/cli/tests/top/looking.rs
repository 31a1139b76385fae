//! What is shown, whatever becomes of the server and of the terminal.

use std::process::Command;
use std::time::Duration;

use keylapse::Listener;
use keylapse_support::{Server, eventually};

use crate::top::shop::{orders, populate, shop};
use crate::top::terminal::{KEYLAPSE, Terminal, WITHIN, cannot_run};

#[tokio::test]
async fn screens_are_gone_through_and_the_terminal_is_left_as_it_was() {
    let Some(server) = shop().await else { return };
    let terminal = Terminal::top(&server, "");
    terminal.shows(&["mail.reminder", "order.unpaid", "unserved", "read-only", "ago", "1 of 2"]).await;
    terminal.press(&["?"], &["run a timer now", "any other key"]).await;
    terminal.press(&["Escape"], &["no listener serves it"]).await;
    terminal.press(&["Tab"], &["No listener has reported"]).await;
    terminal.press(&["1", "/", "o", "r", "d", "Enter"], &["/ord", "1 of 1"]).await;
    terminal.press(&["Enter"], &["order:unpaid:1 ", "1 of 30", "4:dead 1"]).await;
    terminal.press(&["/", "key:*:29", "Enter"], &["/key:*:29", "1 of 1", "order:unpaid:29"]).await;
    terminal.press(&["Enter"], &["next", "attempt 1 in 1h", "no listener serves the topic"]).await;
    terminal.press(&["Escape", "4"], &["No dead letters that match key:*:29"]).await;
    terminal.press(&["/", "C-u", "Enter"], &["order:unpaid:dead", "exhausted"]).await;
    terminal.press(&["R"], &["read-only: `keylapse top --write`"]).await;
    terminal.press(&["q"], &["exit=0"]).await;
    assert!(!terminal.screen().contains("exhausted"), "the terminal is as it was:\n{}", terminal.screen());
}

#[tokio::test]
async fn a_server_that_hangs_or_goes_freezes_no_keys_and_windows_change() {
    let Some(mut server) = shop().await else { return };
    let terminal = Terminal::top(&server, "--color never");
    terminal.shows(&["order.unpaid", "DUE 1M"]).await;
    terminal.resize(40, 10);
    terminal.shows(&["order.unpaid", "STATE"]).await;
    terminal.gone("TIMERS").await;
    terminal.resize(20, 5);
    terminal.shows(&["keylapse top needs", "40 columns and 10"]).await;
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

/// Keys and errors that would be commands to the terminal, and keys of 64 KiB.
#[tokio::test]
async fn whatever_others_have_written_only_the_program_moves_the_cursor() {
    let Some(server) = shop().await else { return };
    let schedule = keylapse::Schedule::connect(server.plain_url().as_str()).await.unwrap();
    let hostile = b"order:unpaid:\x1b[2J\x1b]0;owned\x07\r\n\xff\xfe";
    let key = keylapse::Key(hostile.to_vec());
    let _ = schedule.arm(&orders(), key, Duration::from_secs(60), &"Ada".to_owned()).await.unwrap();
    // No timer can have such a key: another program has written there.
    let long = "x".repeat(64 << 10);
    server.cmd(&["ZADD", "keylapse:{order.unpaid/0}:quarantine", "7", &long]).await;
    let terminal = Terminal::top(&server, "");
    let title = || terminal.title();
    let before = title();
    terminal.shows(&["order.unpaid"]).await;
    let shown = r"order:unpaid:\x1b[2J\x1b]0;owned\x07\r\n\xff\xfe";
    terminal.press(&["j", "Enter"], &[" keylapse ", r"order:unpaid:\x1b[2J\x1…", "1 of 31"]).await;
    terminal.press(&["Enter"], &[" keylapse ", shown, "attempt 1 in"]).await;
    terminal.press(&["Escape", "3"], &[" keylapse ", "order.unpaid"]).await;
    terminal.press(&["4"], &[" keylapse ", "order:unpaid:dead", "boom·[2J·]0;owned····and no more"]).await;
    terminal.press(&["Enter"], &[" keylapse ", "error: boom·[2J·]0;owned····and no more"]).await;
    assert_eq!(title(), before, "{}", terminal.screen());
}

#[tokio::test]
async fn colours_are_for_those_who_want_them_and_a_dumb_terminal_is_no_terminal() {
    let Some(server) = shop().await else { return };
    let top = format!("{KEYLAPSE} -u '{}' top; echo exit=$?; exec cat", server.plain_url());
    let coloured = regex::Regex::new(r"\x1b\[([0-9;]*;)?[34][0-8][;m]").unwrap();
    for (environment, colours) in [("", true), ("NO_COLOR=1 ", false)] {
        let terminal = Terminal::run(&format!("{environment}{top}"));
        terminal.shows(&["unserved", "no listener serves it"]).await;
        let screen = terminal.screen_with_styles();
        assert_eq!(coloured.is_match(&screen), colours, "{environment}{screen:?}");
    }
    let terminal = Terminal::run(&format!("TERM=dumb {top}"));
    terminal.shows(&["top needs a terminal whose cursor can be moved", "exit=2"]).await;
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_use() {
    let out = Command::new(KEYLAPSE).args(["-u", "redis://127.0.0.1:1/", "top"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("top needs a terminal; use status --json"), "{said}");
    let out = Command::new(KEYLAPSE).args(["top", "--every", "100ms"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("the shortest interval is 500ms"));
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
