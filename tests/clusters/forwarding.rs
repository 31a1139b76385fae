//! Lists and streams for workers, wherever they lie.

use keylapse::forward::{ForwardTo, Forwarded};
use keylapse_testing::RedisReply;

use crate::reach;

#[tokio::test]
async fn a_list_is_fed_on_whichever_node_it_lies() {
    let cluster = reach::cluster().await;
    let schedule = reach::schedule(&cluster.url());
    let names =
        (0..20).map(|n| format!("jobs:{n}")).chain(["{shop}:jobs".to_owned(), "of:{shop}".to_owned()]);
    for name in names {
        let to = ForwardTo::list(name.clone());
        assert_eq!(schedule.forward(&to, "1", "x").await.unwrap(), Forwarded::Added, "{name}");
        assert_eq!(schedule.forward(&to, "1", "x").await.unwrap(), Forwarded::Duplicate, "{name}");
        let owner = cluster.owner_of_key(&name).await.unwrap();
        assert_eq!(owner.command(["LLEN", &name]).await.unwrap(), RedisReply::Int(1));
    }
    let events = ForwardTo::stream("{shop}:events");
    assert_eq!(schedule.forward(&events, "1", "x").await.unwrap(), Forwarded::Added);
    // No name for what remembers an id lies in the slot of this.
    let error = schedule.forward(&ForwardTo::list("jobs}"), "1", "x").await.unwrap_err();
    assert!(error.to_string().contains("hash tag"), "{error}");
    reach::assert_nothing_refused(&cluster.nodes()).await;
}
