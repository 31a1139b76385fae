//! Secrets that are replaced while a program runs: used from the next connection on, without a restart.

use std::time::Duration;

use keylapse::{Client, Done, ErrorKind, Lapse, Listener, Schedule, Servers, Topic};
use keylapse_support::{APP_USER, Authority, Server, write};

use super::scene::{Scene, refusal};
use crate::support::{PATIENCE, Running, reporting, show_log};

/// A producer and a listener; each timer that is armed is reported by its handler.
struct Life {
    schedule: Schedule,
    running: Running,
    reports: crate::support::Reports<u64>,
    topic: Topic<u64>,
    armed: u64,
}

impl Life {
    async fn begin(servers: Servers) -> Self {
        show_log();
        let client = Client::try_from(servers).unwrap().retry_for(PATIENCE);
        let topic = Topic::new("app:rotated:{id}").unwrap();
        let (handler, reports) = reporting(|lapse: Lapse<u64>| (*lapse.payload(), Ok(Done)));
        let running = Running::start(Listener::builder(client.clone()).on(topic.clone(), handler));
        let schedule = Schedule::connect(client).await.unwrap();
        Self { schedule, running, reports, topic, armed: 0 }
    }

    /// One timer, from arm to end.
    async fn goes_on(&mut self) {
        self.armed += 1;
        let id = [self.armed.to_string()];
        let _ = self.schedule.arm(&self.topic, id, Duration::from_millis(5), &self.armed).await.unwrap();
        assert_eq!(self.reports.next().await, self.armed);
    }

    /// The same once its connections were cut, and the subscription stands again.
    async fn goes_on_after(&mut self, cut: impl Future<Output = ()>) {
        let anchored = self.running.stats.listener().anchored;
        cut.await;
        self.goes_on().await;
        self.running.until("another subscription", move |stats| stats.listener().anchored > anchored).await;
    }
}

#[tokio::test]
async fn certificates_that_were_rotated_are_picked_up_when_a_connection_is_made_anew() {
    let Some(scene) = Scene::start().await else { return };
    let mut life = Life::begin(scene.servers()).await;
    life.goes_on().await;

    // Everything is another CA's from now on: the server's certificate, and what it asks of clients.
    let (folder, next) = (scene.folder(), Authority::new("the next CA"));
    let old = scene.authority.issue(folder, "old", &["client"]);
    write(folder, "ca.pem", &next.pem);
    next.issue(folder, "client", &["client"]);
    scene.serve(&next.issue(folder, "server", &["localhost"])).await.unwrap();
    life.goes_on_after(scene.cut()).await;

    let refused =
        refusal(scene.at("localhost").tls(scene.tls().client_certificate(old.certificate, old.key))).await;
    assert_eq!(refused.kind(), ErrorKind::Tls, "the old one is not taken any more: {refused}");
    life.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_password_that_was_rotated_is_picked_up_when_a_connection_is_made_anew() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "password", "change-me\n");
    let servers =
        Servers::at(&format!("redis://127.0.0.1:{}/", server.port())).user(APP_USER).password_file(&path);
    let mut life = Life::begin(servers.clone()).await;
    life.goes_on().await;

    write(folder.path(), "password", "swordfish\n");
    server.cmd(&["ACL", "SETUSER", APP_USER, "resetpass", ">swordfish"]).await;
    life.goes_on_after(async {
        server.cmd(&["CLIENT", "KILL", "USER", APP_USER]).await;
    })
    .await;
    life.running.stop().await.unwrap();

    std::fs::remove_file(&path).unwrap();
    let error = refusal(servers).await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    let said = error.to_string();
    assert!(said.contains(path.to_str().unwrap()) && said.contains("Servers::password_file"), "{said}");
}
