//! The group that sentinels watch, to throw away.

use keylapse_testing::{LocalNode, RedisReply, SentinelGroup};

#[tokio::test]
async fn sentinels_replace_a_killed_master_and_the_old_one_comes_back_as_a_replica() {
    let group = SentinelGroup::builder().password("servers").sentinel_password("sentinels").start().await;
    let group = group.expect("a group");
    let first = group.master().await.expect("they agree");
    assert_eq!((&first, group.servers().len(), group.sentinels().len()), (&group.servers()[0], 3, 3));
    assert!(group.url().ends_with("/mymaster"), "{}", group.url());

    first.kill();
    let second = group.wait_for_master_other_than(&first).await.expect("a promotion");
    assert_eq!(set(&second).await, RedisReply::Status("OK".into()));
    first.restart().await.expect("its port is free");
    group.wait_until_ok().await.expect("it follows the new one");
    assert!(set(&first).await.is_error(), "it is a replica");
}

#[tokio::test]
async fn a_master_gives_up_its_place_on_demand_and_stopped_sentinels_are_not_asked() {
    let group = SentinelGroup::start().await.expect("a group");
    let (first, stopped) = (group.master().await.expect("they agree"), &group.sentinels()[0]);
    stopped.suspend().expect("it runs");
    let second = group.failover().await.expect("two of three agree");
    assert_ne!(first, second);
    stopped.resume().expect("it was stopped");
    group.sentinels()[1].restart().await.expect("its port is free");
    group.wait_until_ok().await.expect("all three agree");
    assert_eq!(group.master().await.expect("they agree"), second);

    drop(group);
    assert_eq!(second.pid(), None);
}

async fn set(node: &LocalNode) -> RedisReply {
    node.command(["SET", "a", "1"]).await.expect("an answer")
}
