//! Sentinels that have a login of their own.

use keylapse::{Client, ErrorKind, Schedule, Servers};
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, RedisReply, SentinelGroup};

use crate::capture::Capture;
use crate::reach::{as_app, assert_nothing_refused, sentinel_builder};
use crate::support::PATIENCE;
use crate::through::{Through, set};

const SERVERS: &str = "of-the-servers";
const SENTINELS: &str = "of+the/sentinels";

async fn group() -> SentinelGroup {
    sentinel_builder().replicas(1).password(SERVERS).sentinel_password(SENTINELS).start().await.unwrap()
}

/// By the builder, as the default user.
fn servers(group: &SentinelGroup) -> Servers {
    let sentinels = group.sentinels().iter().map(|node| format!("127.0.0.1:{}", node.port()));
    Servers::sentinel(sentinels, group.name())
}

async fn is_subscribed(sentinel: &LocalNode) -> bool {
    let Ok(RedisReply::Bulk(clients)) = sentinel.command(["CLIENT", "LIST"]).await else {
        panic!("an answer")
    };
    String::from_utf8_lossy(&clients).lines().filter(|line| line.contains(" sub=2 ")).count() >= 2
}

/// The listener is told by a URL, and the producer by the builder.
#[tokio::test(flavor = "multi_thread")]
async fn servers_and_sentinels_are_each_told_their_own_password() {
    let group = group().await;
    let listener = format!("{}?sentinel_password=of%2Bthe%2Fsentinels", as_app(&group.url()));
    let producer = servers(&group).password(SERVERS).sentinel_password(SENTINELS);
    let (producer, listener) = (producer.try_into().unwrap(), Client::new(&listener).unwrap());
    let mut through = Through::begin(producer, listener).await;
    through.timers().await;
    let master = group.master().await.unwrap();
    through.keys(async |key, life| set(&master, key, life).await).await;
    for sentinel in group.sentinels() {
        eventually(PATIENCE, "both to hear it", async || is_subscribed(sentinel).await).await;
    }
    through.end().await;
    assert_nothing_refused(group.servers()).await;
}

/// By whom it was refused: a sentinel, or the server that they name.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_sentinels_that_is_wrong_is_told_and_not_shown() {
    let group = group().await;
    let wrong = "swordfish";
    let (log, _kept) = Capture::start();
    let master = group.master().await.unwrap();
    let (of_servers, of_sentinels) = ("KEYLAPSE_REDIS_PASSWORD", "KEYLAPSE_SENTINEL_PASSWORD");
    for (servers, by, setting) in [
        (servers(&group).password(SERVERS).sentinel_password(wrong), group.sentinels(), of_sentinels),
        (servers(&group).password(SERVERS), group.sentinels(), of_sentinels),
        (servers(&group).password(wrong).sentinel_password(SENTINELS), &[master], of_servers),
    ] {
        let error = Schedule::connect(servers).await.unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Auth, "{said}");
        assert!(error.needs_operator() && !error.is_transient(), "{said}");
        assert!(by.iter().any(|node| said.contains(&format!(" 127.0.0.1:{}", node.port()))), "{said}");
        assert!(said.contains(setting), "{said}");
        let shown = format!("{said} {error:?} {:?}", log.lines());
        assert!(![SERVERS, SENTINELS, wrong].iter().any(|word| shown.contains(word)), "{shown}");
    }
}
