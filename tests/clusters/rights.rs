//! Whom these tests are, on every node.

use std::time::Duration;

use keylapse::testing::Reply;
use keylapse_support::APP_USER;

use crate::load::Load;
use crate::reach;

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_redis_conf_needs_no_more_on_a_cluster() {
    let cluster = reach::cluster().await;
    let load = Load::start(&cluster, 8, 500, Duration::from_millis(2)).await;
    load.until_handled(100).await;
    for node in cluster.primaries().await.unwrap() {
        let Ok(Reply::Bulk(clients)) = node.command(["CLIENT", "LIST"]).await else { panic!("an answer") };
        let clients = String::from_utf8_lossy(&clients).into_owned();
        let of = |user: &str, doing: &str| {
            let client = |line: &&str| line.contains(&format!(" user={user} ")) && line.contains(doing);
            clients.lines().filter(client).count()
        };
        assert!(of(APP_USER, "cmd=evalsha") > 0 && of(APP_USER, " flags=P ") > 0, "{clients}");
        assert_eq!((of("default", "cmd=evalsha"), of("default", " flags=P ")), (0, 0), "{clients}");
    }
    let outcome = load.end().await;
    outcome.assert_none_early();
    assert_eq!(outcome.doubled, 0);
    reach::assert_nothing_refused(&cluster.nodes()).await;
}
