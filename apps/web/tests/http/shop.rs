//! A Redis server with a topic, `order`, of keys that begin with `order:`.

use std::time::Duration;

use keylapse::{Client, Key, NewArm, Schedule, Topic};
use keylapse_console::{Console, Export, TopicHandle};
use keylapse_support::Server;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const PAYLOAD: &str = "the-card-number-4711";

pub(crate) struct Shop {
    pub(crate) server: Server,
    pub(crate) console: Console,
    pub(crate) schedule: Schedule,
    pub(crate) orders: Topic<String>,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(Server::start().await).await
    }

    pub(crate) async fn with(server: Server) -> Self {
        let client =
            Client::new(&server.plain_url()).expect("a client").retry_for(Duration::from_millis(200));
        let (console, schedule) = (Console::new(client.clone()), Schedule::new(client));
        let orders = Topic::named("order", "order:{rest..}").expect("a topic").partitions(4);
        let shop = Self { server, console, schedule, orders };
        // Which registers it.
        shop.arm(b"order:first", HOUR).await;
        shop
    }

    pub(crate) async fn arm(&self, key: &[u8], delay: Duration) {
        let armed = self.schedule.arm(&self.orders, Key(key), delay, &PAYLOAD.to_owned()).await;
        assert!(armed.expect("an arming").is_armed());
    }

    /// Arms `order:0`, `order:1` and so on.
    pub(crate) async fn arm_many(&self, timers: u32) {
        let arms = (0..timers).map(|n| {
            let delay = HOUR + Duration::from_secs(u64::from(n % 86_400));
            NewArm::new(Key(format!("order:{n}")), delay, PAYLOAD.to_owned())
        });
        let armed =
            self.schedule.arm_many(&self.orders, arms).for_each(|_, armed| assert!(armed.is_ok())).await;
        assert_eq!(armed.expect("armings"), timers as usize);
    }

    /// With dead letters of `order:dead-0` and so on: as an import, which is quicker than letting them die.
    pub(crate) async fn bury(&self, letters: u32) {
        let topic = self.topic().await;
        for from in (0..letters).step_by(1000) {
            let lines: Vec<_> = (from..letters.min(from + 1000)).map(letter).collect();
            topic.import(&lines).await.expect("an import");
        }
    }

    pub(crate) async fn topic(&self) -> TopicHandle {
        self.console.topic("order").await.expect("the topic")
    }

    pub(crate) async fn dead(&self) -> u64 {
        self.topic().await.overview().await.expect("an overview").dead
    }

    pub(crate) async fn timers(&self) -> u64 {
        self.topic().await.overview().await.expect("an overview").timers
    }
}

fn letter(n: u32) -> Export {
    let error = if n.is_multiple_of(2) { "timeout while calling the shop" } else { "the shop is closed" };
    let line = serde_json::json!({
        "v": 1, "type": "dead_letter", "topic": "order", "key": format!("order:dead-{n}"),
        "id": format!("{:016x}", u64::from(n) + 1), "deadline_ms": 1_700_000_000_000_u64 + u64::from(n),
        "at_ms": 1_700_000_100_000_u64 + u64::from(n / 10), "reason": "exhausted", "attempt": 10,
        "failures": [{"attempt": 10, "at": 1_700_000_100_000_u64, "kind": "error", "error": error}],
        "payload": format!("{PAYLOAD:?}"),
    });
    serde_json::from_value(line).expect("a line")
}
