//! The server to throw away.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use keylapse::Schedule;
use keylapse::testing::Server;
use keylapse_support::eventually;

#[tokio::test]
async fn a_server_answers_as_long_as_it_is_kept() {
    let server = Server::start().await.expect("`make test` finds or fetches a server");
    assert!(Server::is_installed());
    let (url, other) = (server.url(), Server::start().await.expect("more than one can run"));
    assert_ne!(url, other.url());
    Schedule::connect(&url).await.expect("it answers");
    drop(server);
    Schedule::connect(&url).await.expect_err("it is gone");
}

/// What the process that is killed says before.
const AT: &str = "the server is at ";

#[tokio::test]
async fn a_server_ends_also_when_the_test_is_killed() {
    let mut test = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "--nocapture", "kit::server::a_test_that_is_killed"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let said = BufReader::new(test.stdout.take().expect("it is piped")).lines();
    let mut said = said.map_while(Result::ok);
    let url = said.find_map(|line| line.split_once(AT).map(|(_, url)| url.to_owned())).expect("a server");
    Schedule::connect(&url).await.expect("it answers");
    test.kill().expect("it runs");
    test.wait().expect("it has ended");
    let is_gone = async || Schedule::connect(&url).await.is_err();
    eventually(Duration::from_secs(10), "the server to be gone", is_gone).await;
}

#[tokio::test]
#[ignore = "runs only in a process that is killed"]
async fn a_test_that_is_killed() {
    let server = Server::start().await.expect("a server");
    println!("{AT}{}", server.url());
    std::future::pending::<()>().await;
}
