//! Sentinels that are gone, alone, or wrong.

use std::time::Duration;

use keylapse::{Client, Error, ErrorKind};
use keylapse_support::{Proxy, eventually};
use keylapse_testing::{LocalNode, RedisReply, SentinelGroup};

use crate::attached::beside::Beside;
use crate::capture::Capture;
use crate::load::{Load, MANY, impatient, told};
use crate::reach::as_app;
use crate::support::PATIENCE;
use crate::through::Through;

/// What somebody is told who comes now; none if nothing is wrong.
async fn refusal(group: &SentinelGroup) -> Option<Error> {
    match impatient(&group.url()).await {
        Ok(schedule) => told(&schedule, 2).await.pop(),
        Err(error) => Some(error),
    }
}

/// Tells a sentinel of this server, and of no other.
async fn mislead(sentinel: &LocalNode, name: &str, port: u16) {
    let port = port.to_string();
    for command in
        [&["SENTINEL", "REMOVE", name][..], &["SENTINEL", "MONITOR", name, "127.0.0.1", &port, "2"]]
    {
        let answer = sentinel.command(command).await;
        assert!(!matches!(answer, Ok(RedisReply::Error(_)) | Err(_)), "{answer:?}");
    }
}

/// Nobody is promoted, as most must agree on that. It has what it had written to disk.
#[tokio::test(flavor = "multi_thread")]
async fn with_too_few_sentinels_a_master_that_is_gone_is_named_and_all_starts_once_when_it_is_back() {
    let config = ["appendonly yes", "appendfsync always"];
    let builder = config.iter().fold(crate::reach::sentinel_builder(), |builder, line| builder.config(line));
    let group = builder.start().await.unwrap();
    let mut beside = Beside::watched(&group).await;
    let load = Load::at(&group.url(), 2, MANY, Duration::from_millis(4)).await;
    load.until_handled(300).await;
    let master = group.master().await.unwrap();
    let harm = async {
        group.sentinels()[1..].iter().for_each(LocalNode::kill);
        master.kill();
        let refused = refusal(&group).await.expect("there is none");
        let (said, named) = (refused.to_string(), format!("127.0.0.1:{} as the primary", master.port()));
        assert!(said.contains(&named), "{said}");
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "{said}");
        assert!(refused.is_transient(), "{said}");
        // The last sentinel alone would have begun by then, if it could.
        eventually(PATIENCE, "the last one to miss the master", async || {
            let state = group.sentinels()[0].command(["SENTINEL", "MASTER", group.name()]).await;
            format!("{state:?}").contains("s_down")
        })
        .await;
        assert_eq!(group.master().await, Ok(master.clone()));
        master.restart().await.unwrap();
        group.wait_until_ok().await.unwrap();
    };
    load.harm(beside.harm(harm)).await;
    load.until_more_handled(300).await;
    load.enough().end().await.assert_kept();
    beside.end().await;
}

/// Most of them are right, and what one says is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_a_server_that_is_gone_or_a_replica_is_not_believed() {
    let (log, _kept) = Capture::start();
    let group = crate::reach::sentinel_group().await;
    let (liar, master) = (&group.sentinels()[2], group.master().await.unwrap());
    let load = Load::at(&group.url(), 2, MANY, Duration::from_millis(4)).await;
    load.until_handled(100).await;
    let replicas: Vec<_> = group.servers().iter().filter(|server| **server != master).collect();
    replicas[0].kill();
    for replica in replicas {
        mislead(liar, group.name(), replica.port()).await;
        // Who comes now asks all of them.
        assert!(refusal(&group).await.is_none(), "two of three name the master");
        load.until_more_handled(200).await;
    }
    // At the latest when all of them are asked again.
    let is_said = async || log.loud("the sentinels disagree about the primary") > 0;
    eventually(PATIENCE, "their disagreement to be said", is_said).await;
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert!(outcome.median() < 500, "half of them were later than {} ms", outcome.median());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_all_sentinels_name_and_that_is_none_is_named() {
    let group = crate::reach::sentinel_group().await;
    let replica = &group.servers()[1];
    for sentinel in group.sentinels() {
        mislead(sentinel, group.name(), replica.port()).await;
    }
    let named = format!("the sentinels name 127.0.0.1:{} as the primary mymaster, but", replica.port());
    let refused = refusal(&group).await.expect("it is a replica");
    assert!(refused.to_string().contains(&format!("{named} it is a replica")), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    replica.kill();
    let refused = refusal(&group).await.expect("it is gone");
    assert!(refused.to_string().contains(&named), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
}

/// Those that a URL names say who the others are.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_nobody_has_named_are_asked_when_the_only_one_that_was_is_gone() {
    let group = crate::reach::sentinel_group().await;
    let only = &group.sentinels()[0];
    let url = format!("redis+sentinel://127.0.0.1:{}/{}", only.port(), group.name());
    let client = || Client::new(&as_app(&url)).unwrap();
    let mut through = Through::begin(client(), client()).await;
    through.timers().await;
    only.kill();
    let master = group.master().await.unwrap();
    master.kill();
    group.wait_for_master_other_than(&master).await.unwrap();
    through.timers().await;
    through.end().await;
}

/// Behind more and more bytes of what it says, until it has said who the primary is.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_whose_line_closes_in_the_middle_of_an_answer_is_one_that_is_away() {
    let group = crate::reach::sentinel_group().await;
    let line = Proxy::before_port(group.sentinels()[0].port()).await;
    let url = as_app(&format!("redis+sentinel://127.0.0.1:{}/{}", line.port(), group.name()));
    for after in (0..).step_by(7) {
        line.tear(Some(after));
        let Err(refused) = impatient(&url).await else { break };
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "after {after} bytes: {refused}");
    }
    assert!(line.lost() > 100, "{} answers of a sentinel were torn", line.lost());
}
