//! The server to throw away.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use keylapse::{Client, Done, Lapse, Listener, Schedule};
use keylapse_support::eventually;
use keylapse_testing::{LocalServer, Notifications};

use crate::kit::support::reminders;

#[tokio::test]
async fn a_server_answers_as_long_as_it_is_kept() {
    let server = LocalServer::start().await.expect("`make test` finds or fetches a server");
    assert!(LocalServer::is_installed());
    let (url, other) = (server.url(), LocalServer::start().await.expect("more than one can run"));
    assert_ne!(url, other.url());
    Schedule::connect(&url).await.expect("it answers");
    drop(server);
    Schedule::connect(&url).await.expect_err("it is gone");
}

#[tokio::test]
async fn notifications_of_a_real_server_are_broken_on_the_way_to_its_listeners() {
    let server = LocalServer::start().await.expect("`make test` finds or fetches a server");
    let (client, notifications) = Notifications::of(Client::new(&server.url()).expect("it is a URL"));
    let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |_: Lapse<String>| std::future::ready(ran.send(()).map(|()| Done));
    let listener = Listener::builder(client.clone()).on(reminders(), handler).build().expect("it can listen");
    let (stats, topic) = (listener.stats(), reminders());
    let listening = tokio::spawn(listener.run_until(std::future::pending::<()>()));
    let limit = Duration::from_secs(20);
    eventually(limit, "events to flow", async || stats.listener().anchored == 1).await;

    let schedule = Schedule::connect(client).await.expect("it answers");
    let arm = async |id: &str, delay| {
        let armed = schedule.arm(&topic, id, Duration::from_millis(delay), &String::new()).await;
        assert!(armed.expect("it answers").is_armed());
    };
    arm("a", 10).await;
    runs.recv().await.expect("it runs");
    eventually(limit, "a wake-up and an expired key", async || notifications.delivered() >= 2).await;
    notifications.lose();
    arm("b", 10).await;
    runs.recv().await.expect("a sweep finds it");
    assert!(notifications.lost() > 0);

    notifications.heal().disconnect();
    eventually(limit, "the loss to be noticed", async || stats.listener().gaps > 0).await;
    notifications.heal();
    eventually(limit, "another subscription", async || stats.listener().anchored > 1).await;

    let announced = || stats.topic(topic.name()).map_or(0, |topic| topic.announced);
    let before = announced();
    notifications.forge("reminder:none");
    eventually(limit, "the forged key to be announced", async || announced() > before).await;
    listening.abort();
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
    let server = LocalServer::start().await.expect("a server");
    println!("{AT}{}", server.url());
    std::future::pending::<()>().await;
}
