//! A server, a file, and what relays what the file says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{Client, Schedule, Topic};
use keylapse_console::{Console, Entry, EntryState};
use keylapse_relay::{Config, Relay};
use keylapse_support::{Server, eventually};
use tempfile::TempDir;

pub(crate) const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Rig {
    pub(crate) server: Server,
    schedule: Schedule,
    folder: TempDir,
    relay: Relay,
}

impl Rig {
    /// Of a topic `orders` that is armed, with these settings, and a webhook with those.
    pub(crate) async fn of_timers(url: &str, settings: &str, webhook: &str) -> Self {
        Self::start(&text("pattern = \"order:{id}\"", url, settings, webhook)).await
    }

    /// Of keys that other programs write.
    pub(crate) async fn of_keys(url: &str, settings: &str, webhook: &str) -> Self {
        Self::start(&text("attach = \"order:{id}\"", url, settings, webhook)).await
    }

    /// With another secret in a file.
    pub(crate) async fn with_secret(url: &str, settings: &str, webhook: &str, secret: (&str, &str)) -> Self {
        let text = text("pattern = \"order:{id}\"", url, settings, webhook);
        Self::with_secrets(&text, &[("secret", SECRET), secret]).await
    }

    async fn start(text: &str) -> Self {
        Self::with_secrets(text, &[("secret", SECRET)]).await
    }

    /// With these files beside it.
    pub(crate) async fn with_secrets(text: &str, secrets: &[(&str, &str)]) -> Self {
        let server = Server::builder().config("notify-keyspace-events", "KExg$").start().await;
        let folder = tempfile::tempdir().expect("a folder");
        for (name, secret) in secrets {
            let file = folder.path().join(name);
            fs::write(&file, secret).expect("it is ours");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        let client = Client::new(&server.url()).expect("a url");
        let mut relay = Relay::new(client);
        let config = Config::parse(text, folder.path()).expect("a file without mistakes");
        relay.apply(config).await.expect("a listener");
        let schedule = Schedule::connect(&*server.url()).await.expect("the server is there");
        Self { server, schedule, folder, relay }
    }

    /// Follows a file with this webhook for keys that other programs write. Returns what the new listener cannot do.
    pub(crate) async fn follow_keys(&mut self, url: &str, webhook: &str) -> Vec<String> {
        self.change_keys(url, "", webhook).await.expect("a listener");
        self.relay.health().faults()
    }

    /// Applies a file with these settings of a topic of keys that other programs write.
    pub(crate) async fn change_keys(
        &mut self,
        url: &str,
        settings: &str,
        webhook: &str,
    ) -> keylapse::Result<()> {
        let text = text("attach = \"order:{id}\"", url, settings, webhook);
        let config = Config::parse(&text, self.folder.path()).expect("a file without mistakes");
        self.relay.apply(config).await
    }

    /// Has a key expire whose value is known.
    pub(crate) async fn expire(&self, key: &str) {
        eventually(PATIENCE, "the key to be enrolled", async || {
            self.server.cmd(&["HEXISTS", "keylapse:{orders/0}:tracked", key]).await == redis::Value::Int(1)
        })
        .await;
        self.server.cmd(&["PEXPIRE", key, "100"]).await;
    }

    /// Returns once keys are enrolled as they are written.
    pub(crate) async fn enrolling(&self) {
        eventually(PATIENCE, "the listener to enrol a key", async || {
            self.server.cmd(&["SET", "order:probe", "1", "EX", "1000"]).await;
            let watched = self.server.cmd(&["HEXISTS", "keylapse:{orders/0}:tracked", "order:probe"]).await;
            watched == redis::Value::Int(1)
        })
        .await;
    }

    /// Due at once.
    pub(crate) async fn arm(&self, id: &str, payload: impl Into<Bytes>) {
        self.arm_of(&topic("orders"), id, payload).await;
    }

    pub(crate) async fn arm_of(&self, topic: &Topic<Bytes>, id: &str, payload: impl Into<Bytes>) {
        let armed = self.schedule.arm(topic, id, Duration::ZERO, &payload.into()).await;
        assert!(armed.expect("the server is there").is_armed());
    }

    /// Where its file is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Finishes or hands back what it runs.
    pub(crate) async fn stop(self) -> Server {
        self.relay.stop().await.expect("an orderly end");
        self.server
    }

    /// Once no timer is left.
    pub(crate) async fn none_left(&self) {
        eventually(PATIENCE, "nothing to be left", async || {
            self.server.cmd(&["HLEN", "keylapse:{orders/0}:timers"]).await == redis::Value::Int(0)
        })
        .await;
    }

    /// Once so many whose id begins so wait for minutes.
    pub(crate) async fn put_off(&self, prefix: &str, count: usize) {
        let (console, key) = (self.console().await, format!("order:{prefix}"));
        let topic = console.topic("orders").await.expect("the server is there");
        eventually(PATIENCE, "timers to be put off", async || {
            let page = topic.page(EntryState::Waiting, None, 1000).await.expect("the server is there");
            let later = SystemTime::now() + Duration::from_secs(60);
            let put_off = |entry: &&Entry| entry.key.starts_with(key.as_bytes()) && entry.at() > later;
            page.entries.iter().filter(put_off).count() >= count
        })
        .await;
    }

    /// How often those that wait were put off, all together.
    pub(crate) async fn snoozes(&self) -> u64 {
        let topic = self.console().await.topic("orders").await.expect("the server is there");
        let (mut snoozes, mut cursor) = (0, None);
        loop {
            let page = topic.page(EntryState::Waiting, cursor.as_ref(), 1000).await;
            let page = page.expect("the server is there");
            snoozes += page.entries.iter().map(|entry| u64::from(entry.snoozes)).sum::<u64>();
            cursor = page.next;
            if cursor.is_none() {
                return snoozes;
            }
        }
    }

    pub(crate) async fn console(&self) -> Console {
        Console::connect(&*self.server.url()).await.expect("the server is there")
    }

    /// How many dead letters there are.
    pub(crate) async fn dead(&self) -> usize {
        let topic = self.console().await.topic("orders").await.expect("the server is there");
        topic.page(EntryState::Dead, None, 1000).await.expect("the server is there").entries.len()
    }

    /// The dead letters of `orders`, once there are so many.
    pub(crate) async fn letters(&self, count: usize) -> Vec<Entry> {
        let (console, mut found) = (self.console().await, Vec::new());
        eventually(PATIENCE, "dead letters", async || {
            let Ok(topic) = console.topic("orders").await else { return false };
            let page = topic.page(EntryState::Dead, None, 100).await.expect("the server is there");
            found = page.entries;
            found.len() >= count
        })
        .await;
        found
    }
}

pub(crate) fn topic(name: &str) -> Topic<Bytes> {
    Topic::raw_named(name, "order:{id}").expect("a pattern")
}

pub(crate) fn text(pattern: &str, url: &str, settings: &str, webhook: &str) -> String {
    format!(
        "[topics.orders]\n{pattern}\n{settings}\n[topics.orders.webhook]\nurl = \"{url}\"\nsecret = {{ file = \"secret\" }}\n{webhook}\n"
    )
}
