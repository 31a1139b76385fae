//! The server to throw away.

use keylapse::Schedule;
use keylapse::testing::Server;

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
