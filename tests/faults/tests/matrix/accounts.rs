//! B8: the listener's user is deleted, and made again.

use std::time::Duration;

use keylapse_support::{APP_USER, eventually};

use crate::scene::{PATIENCE, arm, counting, listener, server_and_schedule};

#[tokio::test(flavor = "multi_thread")]
async fn b8_a_listener_whose_user_is_deleted_goes_on_once_it_is_back() {
    let (server, schedule) = server_and_schedule().await;
    let (topic, tally, running) = counting(listener(&server), Duration::from_secs(5)).await;
    let users: Vec<String> = redis::from_redis_value(server.cmd(&["ACL", "LIST"]).await).expect("users");
    let user = users.iter().find_map(|line| line.strip_prefix(&format!("user {APP_USER} ")));
    let rules: Vec<&str> = user.expect("the user of redis.conf").split(' ').collect();
    arm(&schedule, &topic, "1", Duration::from_secs(1)).await;
    server.cmd(&["ACL", "DELUSER", APP_USER]).await;
    eventually(PATIENCE, "it to complain", async || running.stats().claim_errors > 0).await;
    server.cmd(&[&["ACL", "SETUSER", APP_USER], &rules[..]].concat()).await;
    running.done(&tally, 1).await;
}
